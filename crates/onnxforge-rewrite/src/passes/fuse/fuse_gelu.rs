//! fuse_gelu: a product that spells Gelu out becomes Gelu.
//!
//! **Matches** x · ½ · (1 + erf(x / √2)) (`erf`) and x · ½ · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) (`tanh`), the factors in any order, the
//! constants as exact as 32 bits are, or in float16 and bfloat16 as they are rounded to 16. From operator set 20 on.
//! **Accuracy** `Rounding`: the same terms, multiplied in another order. Numbers so large that a product overflows on the way do not overflow in the
//! operator.
//! **Proof** These are the two definitions of the operator.
//! **Bound** The same products and sums, and one function. The constants of the model are within 1 ulp of the true ones, those of the operator within a half: each
//! moves the argument by up to 3 roundings, of the type of x. `erf` has one such constant, `tanh` two: at most 6 roundings, 3 ulps, at the scale |x| · (1 + |erf|) / 2 of
//! the sum, which for x far below 0 is much more than the result.
//! **Never** other constants; numbers of 64 bits; products that something else reads in part.

use crate::passes::pass;
use crate::passes::recognize::gelu::{by_erf, by_tanh};
use crate::passes::targets::TFLITE;
use crate::{At, Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::{Accuracy, DType, NodeId, ValueId};

pass!(fuse_gelu { stage: Fuse, needs: ["Erf", "Tanh"], runs: Except(&[&TFLITE]), rules: [ERF, TANH] });

const FEW: Accuracy = Accuracy::Rounding { ulps: 8.0 };

static ERF: At =
    At { name: "erf", accuracy: FEW, ops: &["Mul"], apply: |cx, id| fuse(cx, id, by_erf(cx, id), "none") };
static TANH: At =
    At { name: "tanh", accuracy: FEW, ops: &["Mul"], apply: |cx, id| fuse(cx, id, by_tanh(cx, id), "tanh") };

fn fuse(
    cx: &Cx<'_>,
    root: NodeId,
    found: Option<(Trail<'_>, ValueId)>,
    approximate: &'static str,
) -> Result<Change, Skip> {
    let (trail, x) = found.ok_or(Skip::NOT_HERE)?;
    if !matches!(cx.dtype(x)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    let mut change = trail.change()?;
    let gelu = change.op("Gelu", [x.into()], [("approximate", approximate).into()]);
    change.replace(cx.output(root)?, gelu);
    Ok(change)
}
