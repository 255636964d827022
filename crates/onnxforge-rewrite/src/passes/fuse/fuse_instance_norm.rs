//! fuse_instance_norm: deviations from the mean of each channel, divided by their root mean square and scaled by channel, become InstanceNormalization.
//!
//! **Matches** s · (x − mean(x)) / √(mean((x − mean(x))²) + ε) over all axes behind the channels, with squares and inverse roots in every common
//! spelling, or s times a LayerNormalization of these axes, or an InstanceNormalization, that has no effective scale and bias; s is constant
//! and has a number for each channel (`scale`). Such a summand behind an InstanceNormalization whose own is 0 (`bias`). From operator set 6 on.
//! **Accuracy** `Rounding`: runtimes sum in another order.
//! **Proof** This is the definition of the operator.
//! **Bound** Means, squares, root, scale and bias take as many roundings as before. Where x was divided by the root, a kernel may multiply by its inverse, or
//! by the scale over the root: one rounding more, half an ulp, at the scale of deviations, (|x| + mean |x|) · |s| / √(V + ε).
//! **Never** over other axes; factors and summands that are one number, that run along another axis or that are computed; a variance of one less than all, numbers
//! of 64 bits; LayerNormalization of halves, which computes in 32 bits. The groups that exporters put into the channels of an InstanceNormalization have their scales behind a Reshape,
//! and stay.

use crate::passes::pass;
use crate::passes::recognize::channels::along_channels;
use crate::passes::recognize::constant_math::floats;
use crate::passes::recognize::norms::standardized;
use crate::passes::targets::{TFLITE, TFLITE_FILE};
use crate::{At, Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Accuracy, DType, NodeId, Tensor, ValueId};

pass!(fuse_instance_norm { stage: Fuse, runs: Except(&[&TFLITE, &TFLITE_FILE]), rules: [SCALE, BIAS] });

const OP: &str = "InstanceNormalization";
const FEW: Accuracy = Accuracy::Rounding { ulps: 16.0 };

static SCALE: At = At { name: "scale", accuracy: FEW, ops: &["Mul"], apply: scale };
static BIAS: At = At { name: "bias", accuracy: FEW, ops: &["Add"], apply: bias };

/// A normalization by channel without effective scale and bias.
struct Plain {
    x: ValueId,
    epsilon: f32,
    /// It is computed in the type that an attribute names.
    stashed: bool,
}

fn scale(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let (value, constant) = constant_operand(cx, root)?;
    let mut trail = Trail::new(cx, root);
    let Plain { x, epsilon, stashed } = plain(cx, &mut trail, value).ok_or(Skip::NOT_HERE)?;
    let dtype = cx.dtype(x)?;
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) || dtype != DType::F32 && stashed {
        return Err(Skip::at(Reason::Type, x));
    }
    let (factors, zeros) = by_channel(cx, x, constant)?;
    let y = cx.output(root)?;
    let mut change = trail.change()?;
    let factors = change.constant(cx.model.value(constant).name().clone(), factors);
    let zeros = change.constant("bias", zeros);
    let scaled = change.op(OP, [x.into(), factors, zeros], [("epsilon", epsilon).into()]);
    change.replace(y, scaled);
    Ok(change)
}

fn bias(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let (value, constant) = constant_operand(cx, root)?;
    let mut trail = Trail::new(cx, root);
    let norm = trail.step(value, OP).ok_or(Skip::NOT_HERE)?;
    if cx.uniform(cx.input(norm, 2)?) != Some(0.0) {
        return Err(Skip::because("it has a bias already"));
    }
    let x = cx.input(norm, 0)?;
    let (summands, _) = by_channel(cx, x, constant)?;
    let y = cx.output(root)?;
    let mut change = trail.change()?;
    let summands = change.constant(cx.model.value(constant).name().clone(), summands);
    let shifted = change.remake(cx, norm, [x.into(), cx.input(norm, 1)?.into(), summands]);
    change.replace(y, shifted);
    Ok(change)
}

/// The operands of a node, of which the second is a constant.
fn constant_operand(cx: &Cx<'_>, id: NodeId) -> Result<(ValueId, ValueId), Skip> {
    let (a, b) = (cx.input(id, 0)?, cx.input(id, 1)?);
    let is_constant = |value: ValueId| cx.model.constant(value).is_some();
    match (is_constant(a), is_constant(b)) {
        _ if cx.call(id)?.since() < 7 => Err(Skip::NOT_HERE),
        (false, true) => Ok((a, b)),
        (true, false) => Ok((b, a)),
        _ => Err(Skip::NOT_HERE),
    }
}

/// The normalization over all axes behind the channels that `value` is.
fn plain(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<Plain> {
    let is_unit = |node: NodeId, index: usize, number: f64| {
        cx.node(node).input(index).is_none_or(|value| cx.uniform(value) == Some(number))
    };
    if let Some(norm) = trail.step(value, OP).or_else(|| trail.step(value, "LayerNormalization")) {
        let (x, call) = (cx.node(norm).input(0)?, cx.call(norm).ok()?);
        let behind_channels = cx.node(norm).op().is(OP) || cx.axis(norm, cx.rank(x).ok()?).ok()? == 2;
        let epsilon = call.float("epsilon").ok()?;
        let is_plain = is_unit(norm, 1, 1.0) && is_unit(norm, 2, 0.0) && behind_channels;
        let stashed = !cx.node(norm).op().is(OP);
        return is_plain.then_some(Plain { x, epsilon, stashed });
    }
    let found = ["Div", "Mul"].iter().find_map(|op| {
        trail.attempt(|trail| {
            let quotient = trail.step(value, op)?;
            standardized(cx, trail, quotient)
        })
    });
    let (x, axes, epsilon) = found?;
    let behind_channels = !axes.is_empty() && axes.iter().copied().eq(2..cx.rank(x).ok()?);
    behind_channels.then_some(Plain { x, epsilon: epsilon as f32, stashed: false })
}

/// The numbers that a constant has for each channel of `x`, and as many zeros.
fn by_channel(cx: &Cx<'_>, x: ValueId, constant: ValueId) -> Result<(Tensor, Tensor), Skip> {
    let channels = cx.shape(x)?.get(1).and_then(Dim::as_const).and_then(|size| usize::try_from(size).ok());
    let channels = channels.ok_or_else(|| Skip::at(Reason::UnknownShape, x))?;
    let tensor = cx.constant(constant)?;
    if tensor.len() != channels {
        return Err(Skip::at(Reason::Broadcast, constant));
    }
    let numbers = along_channels(cx, x, constant, channels)?;
    Ok((floats(tensor, &numbers)?, floats(tensor, &vec![0.0; channels])?))
}
