//! fuse_conv_batchnorm: a BatchNormalization after Conv, ConvTranspose or Gemm becomes part of their weights.
//!
//! **Matches** BatchNormalization in inference mode with constant parameters, after a Conv, a ConvTranspose or a Gemm
//! with constant weights that nothing else reads. W′ = W·γ/√(σ²+ε), b′ = β + (b − μ)·γ/√(σ²+ε).
//! **Accuracy** `Rounding`: the weights are rounded once more, and the normalisation's own roundings go away.
//! **Proof** Convolutions are linear in their weights for each output channel, and the normalisation is the same affine map for all
//! elements of a channel. Factors are computed in 64 bits and rounded once; a sum of n products of weights with one rounding each is off
//! by no more than one place of the sum of their magnitudes.
//! **Bound** For n products: before, n roundings, one for a bias, and for the normalisation at least a product and a sum, n + 2. After, one of
//! the weight, n for products and sum, one for the bias: n + 2. Scale: |b′| ≤ |β| + (|b| + |μ|) · |γ| / √(σ² + ε), so that the magnitudes that are summed after
//! are no more than those before. No rounding is added; the 8 ulps leave room for a normalisation that is computed more exactly.
//! **Never** in training mode, or when running statistics are read.

use crate::passes::pass;
use crate::passes::recognize::channels::{Affine, scale_weights};
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, NodeId, ValueId};

pass!(fuse_conv_batchnorm { stage: Fuse, needs: ["BatchNormalization"], rules: [FUSE] });

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Rounding { ulps: 8.0 },
    ops: &["BatchNormalization"],
    apply: fuse,
};

fn fuse(cx: &Cx<'_>, norm: NodeId) -> Result<Change, Skip> {
    let middle = cx.input(norm, 0)?;
    let producer = |op| cx.producer(middle, op, norm);
    let linear = producer("Conv").or_else(|| producer("ConvTranspose")).or_else(|| producer("Gemm"));
    let linear = linear.ok_or(Skip::NOT_HERE)?;
    cx.read_only_by(middle, norm)?;
    let affine = affine(cx, norm)?;
    scale_weights(cx, linear, norm, &affine)
}

/// What a BatchNormalization does in inference mode.
fn affine(cx: &Cx<'_>, norm: NodeId) -> Result<Affine, Skip> {
    let (node, call) = (cx.node(norm), cx.call(norm)?);
    let trains = match call.since() {
        ..7 => !call.flag("is_test")?,
        7..14 => false,
        _ => call.flag("training_mode")?,
    };
    if trains {
        return Err(Reason::Training.into());
    }
    if call.since() < 9 && !matches!(call.opt_int("spatial")?, None | Some(1)) {
        return Err(Reason::Attribute("spatial").into());
    }
    let read =
        |&value: &ValueId| !cx.model.value(value).uses().is_empty() || cx.model.value(value).is_pinned();
    if let Some(value) = node.outputs().iter().skip(1).flatten().copied().find(read) {
        return Err(Skip::at(Reason::ReadElsewhere, value));
    }
    let parameter = |index: usize| cx.floats(cx.input(norm, index)?);
    let (scale, shift, mean, variance) = (parameter(1)?, parameter(2)?, parameter(3)?, parameter(4)?);
    let epsilon = f64::from(call.float("epsilon")?);
    let factors: Vec<f64> =
        scale.iter().zip(&variance).map(|(scale, variance)| scale / (variance + epsilon).sqrt()).collect();
    let summand = |((shift, mean), factor): ((&f64, &f64), &f64)| shift - mean * factor;
    let summands = shift.iter().zip(&mean).zip(&factors).map(summand).collect();
    if factors.iter().any(|factor| !factor.is_finite()) {
        return Err(Skip::because("a variance is not above 0"));
    }
    Ok(Affine { factors, summands })
}
