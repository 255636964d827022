//! fuse_layer_norm: deviations from the mean, divided by their root mean square, become LayerNormalization.
//!
//! **Matches** (x − mean(x)) / √(mean((x − mean(x))²) + ε) along the last axes, with squares and inverse roots in every common spelling, means by ReduceMean or
//! GlobalAveragePool, and the variance also as mean(x²) − mean(x)², kept from falling below 0 or not (`core`); the same as a factor and a summand of x, x·f + (b − mean(x)·f) with
//! a scale over the root as f (`affine`); the same between casts of halves to 32 bits and back (`halves`); factors and summands behind a LayerNormalization that
//! has none (`scale`, `bias`), constants with axes of size 1 in front as well. From operator set 17 on.
//! **Accuracy** `Rounding`: runtimes sum in another order. Squares that overflow do not overflow in the operator where the deviations are small, in float16 in none.
//! **Proof** This is the definition of the operator, whose first part is computed in 32 bits as `stash_type` says. In exact arithmetic the variance is mean(x²) − mean(x)², which is never
//! below 0, and x·f − mean(x)·f is (x − mean(x))·f.
//! **Bound** Means, squares and root take as many roundings as before; the operator is defined with 1 / √(V + ε) and a product, where Div is one rounding: at most
//! one more, half an ulp at the scale of deviations, (|x| + mean |x|) / √(V + ε). mean(x²) − mean(x)² takes 2n + 2
//! roundings at the scale of mean(x²) + mean(x)², the mean square of deviations n + 3 at that of V, which is no larger: an error δ of the mean adds δ² to it, and nothing of
//! first order, as deviations from the mean add up to 0. So it is never worse, and much better where V is small beside mean(x)². `affine`
//! subtracts before it multiplies: at the same scale, |x|·f + mean |x|·f + |b|, with as many roundings or fewer. `scale` and `bias` move a product and a sum into the operator, with
//! one rounding each as before. Halves that were normalized as halves are normalized in 32 bits and rounded once, which takes fewer. `halves` computes the same
//! in 32 bits in another kernel, where sums may have another order, and rounds to 16 once: the same count, and at most the neighbouring number, 1 ulp. A scale
//! and a bias of 32 bits are rounded to 16, and so are the normalized number and its product, before the sum: 4 roundings to 16 on the way instead of one,
//! 1.5 ulps more, at the scale of the scaled deviations and |bias|.
//! **Never** along other axes; exponents other than 2; means without the axes that they are taken of; numbers of 64 bits, which the operator would round to 32;
//! scales and biases between the casts that are computed in 32 bits, or constants beyond the range of 16; scales and biases of another shape than what is normalized.

use crate::At;
use crate::passes::pass;
use crate::passes::recognize::affine_norms;
use crate::passes::recognize::norms::{self, standardized};
use crate::passes::targets::{TFLITE, TFLITE_FILE};
use onnxforge_ir::Accuracy;

pass!(fuse_layer_norm {
    stage: Fuse,
    runs: Except(&[&TFLITE, &TFLITE_FILE]),
    rules: [CORE, AFFINE, HALVES, SCALE, BIAS]
});

const OP: &str = "LayerNormalization";
const FEW: Accuracy = Accuracy::Rounding { ulps: 16.0 };

static CORE: At = At {
    name: "core",
    accuracy: FEW,
    ops: &["Div", "Mul"],
    apply: |cx, id| norms::fuse(cx, id, OP, standardized),
};
static AFFINE: At = At { name: "affine", accuracy: FEW, ops: &["Add", "Sub"], apply: affine_norms::fuse };
static HALVES: At = At {
    name: "halves",
    accuracy: Accuracy::Rounding { ulps: 3.0 },
    ops: &["Cast"],
    apply: |cx, id| norms::of_halves(cx, id, OP),
};
static SCALE: At =
    At { name: "scale", accuracy: FEW, ops: &["Mul"], apply: |cx, id| norms::scaled(cx, id, OP) };
static BIAS: At =
    At { name: "bias", accuracy: FEW, ops: &["Add"], apply: |cx, id| norms::shifted(cx, id, OP) };
