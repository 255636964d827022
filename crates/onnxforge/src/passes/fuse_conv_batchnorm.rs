//! fuse_conv_batchnorm: a BatchNormalization after Conv, ConvTranspose or Gemm becomes part of their weights.
//!
//! **Matches** BatchNormalization in inference mode with constant parameters, after a Conv, a ConvTranspose of one group or a Gemm
//! with constant weights that nothing else reads. W′ = W·γ/√(σ²+ε), b′ = β + (b − μ)·γ/√(σ²+ε).
//! **Accuracy** `Rounding`: the weights are rounded once more, and the normalisation's own roundings go away.
//! **Proof** Convolutions are linear in their weights for each output channel, and the normalisation is the same affine map for all
//! elements of a channel. Factors are computed in 64 bits and rounded once; a sum of n products of weights with one rounding each is off
//! by no more than one place of the sum of their magnitudes.
//! **Bound** For n products: before, n roundings, one for a bias, and for the normalisation at least a product and a sum, n + 2. After, one of
//! the weight, n for products and sum, one for the bias: n + 2. Scale: |b′| ≤ |β| + (|b| + |μ|) · |γ| / √(σ² + ε), so that the magnitudes that are summed after
//! are no more than those before. No rounding is added; the 8 ulps leave room for a normalisation that is computed more exactly.
//! **Never** in training mode, or when running statistics are read.

use super::constant_math::{floats, scaled};
use super::pass;
use crate::ir::{Accuracy, NodeId, ValueId};
use crate::rewrite::{At, Change, Cx, Reason, Skip};

pass!(fuse_conv_batchnorm, &[&FUSE]);

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
    let affine = Affine::of(cx, norm)?;
    scale_weights(cx, linear, norm, &affine)
}

/// A factor and a summand for each channel.
pub(super) struct Affine {
    pub factors: Vec<f64>,
    pub summands: Vec<f64>,
}

impl Affine {
    /// What a BatchNormalization does in inference mode.
    fn of(cx: &Cx<'_>, norm: NodeId) -> Result<Self, Skip> {
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
        let factors: Vec<f64> = scale
            .iter()
            .zip(&variance)
            .map(|(scale, variance)| scale / (variance + epsilon).sqrt())
            .collect();
        let summand = |((shift, mean), factor): ((&f64, &f64), &f64)| shift - mean * factor;
        let summands = shift.iter().zip(&mean).zip(&factors).map(summand).collect();
        if factors.iter().any(|factor| !factor.is_finite()) {
            return Err(Skip::because("a variance is not above 0"));
        }
        Ok(Self { factors, summands })
    }
}

/// A change in which `linear`, with other weights, takes the place of itself and `after`, which maps each channel affinely.
pub(super) fn scale_weights(
    cx: &Cx<'_>,
    linear: NodeId,
    after: NodeId,
    affine: &Affine,
) -> Result<Change, Skip> {
    let (node, call) = (cx.node(linear), cx.call(linear)?);
    let weights_id = cx.input(linear, 1)?;
    let weights = cx.constant(weights_id)?;
    let channels = affine.factors.len();
    let mut attrs = node.attrs().to_vec();
    let (axis, beta) = match &*node.op().name {
        "Conv" => (0, 1.0),
        "ConvTranspose" if call.int("group")? == 1 => (1, 1.0),
        "ConvTranspose" => return Err(Reason::Attribute("group").into()),
        _ => {
            attrs.retain(|attr| &*attr.name != "beta");
            (if call.flag("transB")? { 0 } else { 1 }, f64::from(call.float("beta")?))
        }
    };
    if weights.shape().get(axis) != Some(&channels) {
        return Err(Skip::at(Reason::Broadcast, weights_id));
    }
    let scaled = scaled(cx, weights_id, axis, &affine.factors)?;
    let old_bias = match node.input(2) {
        Some(bias) => {
            let numbers = cx.floats(bias)?;
            // A Gemm broadcasts its bias; only one that runs along the channels, or is one number, is a bias here.
            let along = matches!(*cx.constant(bias)?.shape(), [] | [_] | [1, _]);
            match numbers.len() {
                1 if along => vec![numbers[0] * beta; channels],
                n if n == channels && along => numbers.iter().map(|number| number * beta).collect(),
                _ => return Err(Skip::at(Reason::Broadcast, bias)),
            }
        }
        None => vec![0.0; channels],
    };
    let sum = |((bias, factor), summand): ((&f64, &f64), &f64)| bias * factor + summand;
    let bias: Vec<f64> = old_bias.iter().zip(&affine.factors).zip(&affine.summands).map(sum).collect();
    let name = |value: ValueId| cx.model.value(value).name().clone();
    let hint = node.input(2).map_or_else(|| "bias".into(), name);
    let mut change = cx.change(&[linear, after]);
    let w = change.constant(name(weights_id), scaled);
    let mut inputs = vec![cx.input(linear, 0)?.into(), w];
    if node.input(2).is_some() || bias.iter().any(|&bias| bias != 0.0) {
        inputs.push(change.constant(hint, floats(weights, &bias)?));
    }
    let fused = change.call(node.op().clone(), inputs, 1, attrs);
    change.replace(cx.output(after)?, fused.output(0));
    Ok(change)
}
