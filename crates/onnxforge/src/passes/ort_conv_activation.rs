//! ort_conv_activation: an activation after a Conv, and a sum between them, become part of ONNX Runtime's FusedConv.
//!
//! **Matches** Relu, Sigmoid, Tanh, LeakyRelu, HardSigmoid and Clip with constant bounds, of a Conv that nothing else reads, or of the sum of such a
//! Conv and something of its shape. For the target `ort`.
//! **Accuracy** `Rounding`: the sum may start from what is added, and activations are computed by other code.
//! **Proof** This is the definition of the operator: the activation of the convolution plus its fourth input.
//! **Never** a Conv whose result something else reads; other element types than 32 bits; a sum that stretches one of its operands; a Clip with computed bounds.

use super::constant_math::number;
use super::pass;
use crate::ir::{Accuracy, Attr, DType, NodeId, ValueId};
use crate::rewrite::{At, Change, Cx, Reason, Skip};

pass!(ort_conv_activation, &[&FUSE]);

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Rounding { ulps: 8.0 },
    ops: &["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip"],
    apply: fuse,
};

fn fuse(cx: &Cx<'_>, activation: NodeId) -> Result<Change, Skip> {
    let x = cx.input(activation, 0)?;
    let (conv, residual) = match cx.producer(x, "Conv", activation) {
        Some(conv) => (conv, None),
        None => with_residual(cx, x, activation)?,
    };
    let parameters = parameters(cx, activation)?;
    let y = cx.output(conv)?;
    if cx.dtype(y)? != DType::F32 {
        return Err(Skip::at(Reason::Type, y));
    }
    cx.read_only_by(x, activation)?;
    let mut consumed = vec![activation, conv];
    let mut inputs: Vec<_> = cx.node(conv).inputs().iter().map(|&input| input.into()).collect();
    if let Some((sum, other)) = residual {
        cx.read_only_by(y, sum)?;
        consumed.push(sum);
        inputs.resize(3, crate::ir::edit::Operand::Absent);
        inputs.push(other.into());
    }
    let mut attrs: Vec<Attr> = cx.node(conv).attrs().to_vec();
    attrs.push(("activation", &*cx.node(activation).op().name).into());
    if !parameters.is_empty() {
        attrs.push(("activation_params", parameters).into());
    }
    let mut change = cx.change(&consumed);
    let fused = change.contrib("FusedConv", inputs, 1, attrs);
    change.replace(cx.output(activation)?, fused.output(0));
    Ok(change)
}

/// The Conv that is a summand of `value`, with the sum and the other summand.
fn with_residual(
    cx: &Cx<'_>,
    value: ValueId,
    activation: NodeId,
) -> Result<(NodeId, Option<(NodeId, ValueId)>), Skip> {
    let sum = cx.producer(value, "Add", activation).ok_or(Skip::NOT_HERE)?;
    let (a, b) = (cx.input(sum, 0)?, cx.input(sum, 1)?);
    let conv = |value: ValueId| {
        cx.producer(value, "Conv", activation).filter(|_| cx.only_reader(value) == Some(sum))
    };
    let (conv, y, other) = match (conv(a), conv(b)) {
        (Some(conv), _) => (conv, a, b),
        (None, Some(conv)) => (conv, b, a),
        _ => return Err(Skip::NOT_HERE),
    };
    if !cx.same_shape(cx.shape(y)?, cx.shape(other)?) {
        return Err(Skip::at(Reason::Broadcast, other));
    }
    Ok((conv, Some((sum, other))))
}

/// The parameters of an activation, as the fused operators list them.
pub(super) fn parameters(cx: &Cx<'_>, activation: NodeId) -> Result<Vec<f32>, Skip> {
    let call = cx.call(activation)?;
    Ok(match &*cx.node(activation).op().name {
        "LeakyRelu" => vec![call.float("alpha")?],
        "HardSigmoid" => vec![call.float("alpha")?, call.float("beta")?],
        "Clip" if call.since() < 11 => vec![call.float("min")?, call.float("max")?],
        "Clip" => {
            let bound = |index: usize, none: f32| match cx.node(activation).input(index) {
                Some(bound) => number(cx, bound).map(|bound| bound as f32),
                None => Ok(none),
            };
            vec![bound(1, f32::MIN)?, bound(2, f32::MAX)?]
        }
        _ => Vec::new(),
    })
}
