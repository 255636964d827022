//! fuse_rms_norm: numbers divided by their root mean square become RMSNormalization.
//!
//! **Matches** x / √(mean(x²) + ε) along the last axes, with squares and inverse roots in every common spelling (`core`); the same between casts
//! of halves to 32 bits and back (`halves`); factors behind an RMSNormalization that has none (`scale`). From operator set 23 on.
//! **Accuracy** `Rounding`: runtimes sum in another order. `halves` is `BitExact`.
//! **Proof** This is the definition of the operator, whose first part is computed in 32 bits as `stash_type` says.
//! **Never** along other axes; exponents other than 2; numbers of 64 bits, which the operator would round to 32; halves that are normalized as halves; scales of
//! another shape than what is normalized.

use super::norms::{self, mean, over_root, square};
use super::pass;
use crate::ir::{Accuracy, DType, NodeId};
use crate::rewrite::{At, Change, Cx, Reason, Skip, Trail};

pass!(fuse_rms_norm, &[&CORE, &HALVES, &SCALE]);

const OP: &str = "RMSNormalization";
const FEW: Accuracy = Accuracy::Rounding { ulps: 16.0 };

static CORE: At = At { name: "core", accuracy: FEW, ops: &["Div", "Mul"], apply: core };
static HALVES: At = At {
    name: "halves",
    accuracy: Accuracy::BitExact,
    ops: &["Cast"],
    apply: |cx, id| norms::of_halves(cx, id, OP),
};
static SCALE: At =
    At { name: "scale", accuracy: FEW, ops: &["Mul"], apply: |cx, id| norms::scaled(cx, id, OP) };

fn core(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let mut trail = Trail::new(cx, root);
    let found = (|| {
        let (x, radicand) = over_root(cx, &mut trail, root)?;
        let (mean_square, epsilon) = trail.with_number(radicand, "Add")?;
        let (squares, axes) = mean(cx, &mut trail, mean_square)?;
        (square(&mut trail, squares)? == x).then_some((x, axes, epsilon))
    })();
    let (x, axes, epsilon) = found.ok_or(Skip::NOT_HERE)?;
    let shape = norms::normalized_shape(cx, x, &axes)?;
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    let y = cx.output(root)?;
    let mut change = trail.change()?;
    let normalized = norms::plain(&mut change, OP, x, &shape, epsilon)?;
    change.replace(y, normalized);
    Ok(change)
}
