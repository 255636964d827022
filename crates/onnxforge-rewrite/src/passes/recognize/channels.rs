//! Constants along channels and features, and weights that take them over.

use super::constant_math::{floats, scaled, scaled_constant};
use crate::{Change, Cx, Reason, Skip};
use onnxforge_ir::{NodeId, Tensor, ValueId};

/// The Conv, ConvTranspose or Gemm before an operator, and its other operand; that may stand first where `either` way is the same.
pub fn linear_and_constant(cx: &Cx<'_>, id: NodeId, either: bool) -> Result<(NodeId, ValueId), Skip> {
    let (a, b) = (cx.input(id, 0)?, cx.input(id, 1)?);
    if cx.call(id)?.since() < 7 {
        return Err(Skip::NOT_HERE);
    }
    let linear = |value| ["Conv", "ConvTranspose", "Gemm"].iter().find_map(|op| cx.producer(value, op, id));
    let (linear, other) = match (linear(a), linear(b)) {
        (Some(linear), _) if cx.model.constant(b).is_some() => (linear, b),
        (_, Some(linear)) if either && cx.model.constant(a).is_some() => (linear, a),
        (Some(_), None) => return Err(Skip::at(Reason::NotConstant, b)),
        _ => return Err(Skip::NOT_HERE),
    };
    Ok((linear, other))
}

/// The number of channels that a Conv, ConvTranspose or Gemm gives.
pub fn channels(cx: &Cx<'_>, linear: NodeId) -> Result<usize, Skip> {
    let y = cx.output(linear)?;
    let channels = cx.shape(y)?.get(1).and_then(onnxforge_ir::dim::Dim::as_const);
    channels
        .and_then(|channels| usize::try_from(channels).ok())
        .ok_or_else(|| Skip::at(Reason::UnknownShape, y))
}

/// The numbers that a constant has for each channel of `y`, whose axis 1 the channels are; an error when it varies elsewhere.
pub fn along_channels(cx: &Cx<'_>, y: ValueId, constant: ValueId, channels: usize) -> Result<Vec<f64>, Skip> {
    let rank = cx.rank(y)?;
    let shape = cx.constant(constant)?.shape();
    let broadcast = Skip::at(Reason::Broadcast, constant);
    if shape.len() > rank {
        return Err(broadcast);
    }
    let missing = rank - shape.len();
    let fits = |(index, &size): (usize, &usize)| size == 1 || missing + index == 1 && size == channels;
    if !shape.iter().enumerate().all(fits) {
        return Err(broadcast);
    }
    let numbers = cx.floats(constant)?;
    Ok(if numbers.len() == channels { numbers } else { vec![*numbers.first().ok_or(broadcast)?; channels] })
}

/// The operands of a sum of a tensor and a constant vector of its features, which does not stretch the tensor.
pub fn features(cx: &Cx<'_>, sum: NodeId) -> Option<(ValueId, ValueId)> {
    let &[Some(a), Some(b)] = cx.node(sum).inputs() else { return None };
    let is_bias = |x: ValueId, bias: ValueId| {
        let (Ok(shape), Some(constant)) = (cx.shape(x), cx.model.constant(bias)) else { return false };
        let width = shape.last().and_then(onnxforge_ir::dim::Dim::as_const);
        shape.len() > 1 && matches!(*constant.shape(), [features] if width == i64::try_from(features).ok())
    };
    [(a, b), (b, a)].into_iter().find(|&(x, bias)| is_bias(x, bias))
}

/// A factor and a summand for each channel.
pub struct Affine {
    /// What each channel is multiplied by.
    pub factors: Vec<f64>,
    /// What is added to each channel.
    pub summands: Vec<f64>,
}

/// The weights of a ConvTranspose of several groups, of which each has its own inputs and outputs, with every output scaled.
fn scaled_groups(cx: &Cx<'_>, weights: ValueId, groups: usize, factors: &[f64]) -> Result<Tensor, Skip> {
    let constant = cx.constant(weights)?;
    let whole = constant.shape();
    let &[inputs, outputs, ..] = whole else { return Err(Skip::NOT_HERE) };
    if outputs == 0 || inputs == 0 || inputs % groups != 0 {
        return Err(Skip::at(Reason::Broadcast, weights));
    }
    let of_group = |input: usize| &factors[input / (inputs / groups) * outputs..][..outputs];
    let each: Vec<f64> = (0..inputs).flat_map(of_group).copied().collect();
    let rows = [&[inputs * outputs], &whole[2..]].concat();
    let reshaped = |tensor: &Tensor, shape: &[usize]| {
        tensor.reshaped(shape).map_err(|_| Skip::at(Reason::Type, weights))
    };
    reshaped(&scaled_constant(&reshaped(constant, &rows)?, weights, 0, &each)?, whole)
}

/// A change in which `linear`, with other weights, takes the place of itself and `after`, which maps each channel affinely.
pub fn scale_weights(cx: &Cx<'_>, linear: NodeId, after: NodeId, affine: &Affine) -> Result<Change, Skip> {
    let (node, call) = (cx.node(linear), cx.call(linear)?);
    let weights_id = cx.input(linear, 1)?;
    let weights = cx.constant(weights_id)?;
    let channels = affine.factors.len();
    let mut attrs = node.attrs().to_vec();
    let (axis, groups, beta) = match &*node.op().name {
        "Conv" => (0, 1, 1.0),
        "ConvTranspose" => (1, usize::try_from(call.int("group")?).map_err(|_| Skip::NOT_HERE)?, 1.0),
        _ => {
            attrs.retain(|attr| &*attr.name != "beta");
            (if call.flag("transB")? { 0 } else { 1 }, 1, f64::from(call.float("beta")?))
        }
    };
    if weights.shape().get(axis).and_then(|&size| size.checked_mul(groups)) != Some(channels) {
        return Err(Skip::at(Reason::Broadcast, weights_id));
    }
    let scaled = match groups {
        1 => scaled(cx, weights_id, axis, &affine.factors)?,
        _ => scaled_groups(cx, weights_id, groups, &affine.factors)?,
    };
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
