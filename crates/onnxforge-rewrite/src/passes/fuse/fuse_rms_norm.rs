//! fuse_rms_norm: numbers divided by their root mean square become RMSNormalization.
//!
//! **Matches** x / √(mean(x²) + ε) along the last axes, with squares and inverse roots in every common spelling (`core`); the same between casts
//! of halves to 32 bits and back (`halves`); factors behind an RMSNormalization that has none (`scale`). From operator set 23 on.
//! **Accuracy** `Rounding`: runtimes sum in another order. Squares that overflow in float16 do not overflow in the operator.
//! **Proof** This is the definition of the operator, whose first part is computed in 32 bits as `stash_type` says.
//! **Bound** The mean square and the root take as many roundings as before; the operator is defined with 1 / √(M + ε) and a product, where Div is one rounding: at
//! most one more, half an ulp of the result, as nothing cancels here. `scale` moves a product into the operator. Halves that were normalized
//! as halves are normalized in 32 bits and rounded once, which takes fewer. `halves` computes the same in 32 bits in another kernel, where sums may have another order,
//! and rounds to 16 once: the same count, and at most the neighbouring number, 1 ulp. A scale of 32 bits is rounded to 16, and so is the normalized number before
//! the product: 3 roundings to 16 instead of one, 1 ulp more, as nothing cancels.
//! **Never** deviations from the mean, which are LayerNormalization's; along other axes; exponents other than 2; numbers of 64 bits, which the operator would round to 32; scales between the casts that are computed in 32 bits, or constants beyond the range of 16; scales of
//! another shape than what is normalized.

use crate::passes::pass;
use crate::passes::recognize::norms::{self, Recognised, deviation, mean, over_root, square};
use crate::passes::targets::{COREML, COREML_FILE, TFLITE, TFLITE_FILE};
use crate::{At, Cx, Trail};
use onnxforge_ir::{Accuracy, NodeId};

pass!(fuse_rms_norm {
    stage: Fuse,
    runs: Except(&[&TFLITE, &COREML, &TFLITE_FILE, &COREML_FILE]),
    rules: [CORE, HALVES, SCALE]
});

const OP: &str = "RMSNormalization";
const FEW: Accuracy = Accuracy::Rounding { ulps: 16.0 };

static CORE: At = At {
    name: "core",
    accuracy: FEW,
    ops: &["Div", "Mul"],
    apply: |cx, id| norms::fuse(cx, id, OP, recognise),
};
static HALVES: At = At {
    name: "halves",
    accuracy: Accuracy::Rounding { ulps: 3.0 },
    ops: &["Cast"],
    apply: |cx, id| norms::of_halves(cx, id, OP),
};
static SCALE: At =
    At { name: "scale", accuracy: FEW, ops: &["Mul"], apply: |cx, id| norms::scaled(cx, id, OP) };

fn recognise(cx: &Cx<'_>, trail: &mut Trail<'_>, root: NodeId) -> Option<Recognised> {
    let (x, radicand) = over_root(cx, trail, root)?;
    let (mean_square, epsilon) = trail.with_number(radicand, "Add")?;
    let (squares, axes) = mean(cx, trail, mean_square)?;
    // Deviations from the mean make a LayerNormalization, whichever pass comes first.
    let centered = deviation(cx, &mut trail.clone(), x, &axes).is_some();
    (square(trail, squares)? == x && !centered).then_some((x, axes, epsilon))
}
