//! ort_gelu: below operator set 20, which has no Gelu, a product that spells Gelu out becomes ONNX Runtime's Gelu, or its FastGelu.
//!
//! **Matches** what `fuse_gelu` matches: x · ½ · (1 + erf(x / √2)) (`erf`), and the same by tanh (`tanh`), the factors in any order. For the target `ort`, below operator
//! set 20; from there on the operator of the standard takes its place.
//! **Accuracy** `Rounding`: the same terms, multiplied in another order. Numbers so large that a product overflows on the way do not overflow in the operator.
//! **Proof** These are the definitions of the operators.
//! **Bound** That of `fuse_gelu`: at most 6 roundings of constants, 3 ulps, at the scale |x| · (1 + |erf|) / 2 of the sum in the formula. Libraries are good to 2 ulps for
//! the function, before and after.
//! **Never** numbers of 16 and 64 bits, for which ONNX Runtime has no such operator on CPUs; other constants; products that something else reads in part.

use crate::passes::pass;
use crate::passes::recognize::gelu::{by_erf, by_tanh};
use crate::passes::targets::ORT;
use crate::{At, Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::{Accuracy, DType, NodeId, ValueId};

pass!(ort_gelu { stage: Target, needs: ["Erf", "Tanh"], runs: Only(&[&ORT]), rules: [ERF, TANH] });

const FEW: Accuracy = Accuracy::Rounding { ulps: 8.0 };
/// The operator set whose standard has Gelu.
const STANDARD: i64 = 20;

static ERF: At =
    At { name: "erf", accuracy: FEW, ops: &["Mul"], apply: |cx, id| fuse(cx, id, by_erf(cx, id), "Gelu") };
static TANH: At = At {
    name: "tanh",
    accuracy: FEW,
    ops: &["Mul"],
    apply: |cx, id| fuse(cx, id, by_tanh(cx, id), "FastGelu"),
};

fn fuse(
    cx: &Cx<'_>,
    root: NodeId,
    found: Option<(Trail<'_>, ValueId)>,
    op: &'static str,
) -> Result<Change, Skip> {
    let (trail, x) = found.filter(|_| cx.opset(root) < STANDARD).ok_or(Skip::NOT_HERE)?;
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    let mut change = trail.change()?;
    let gelu = change.contrib(op, [x.into()], 1, []);
    change.replace(cx.output(root)?, gelu.output(0));
    Ok(change)
}
