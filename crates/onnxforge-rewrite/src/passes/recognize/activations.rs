//! Activations, as operators that fuse them list their parameters.

use super::constant_math::number;
use crate::{Cx, Skip};
use onnxforge_ir::{NodeId, ValueId};

/// The parameters of an activation, as the fused operators list them.
pub fn parameters(cx: &Cx<'_>, activation: NodeId) -> Result<Vec<f32>, Skip> {
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

/// Whether a value is a sum with Erf or Tanh, as Gelu is decomposed, or a product with one.
pub fn has_bracket(cx: &Cx<'_>, value: ValueId) -> bool {
    let by = |value: ValueId, ops: &[&str]| {
        let node = cx.model.value(value).node()?;
        ops.iter()
            .any(|op| cx.node(node).op().is(op))
            .then(|| cx.node(node).inputs().iter().flatten().copied())
    };
    let is_function = |value: ValueId| by(value, &["Erf", "Tanh"]).is_some();
    let is_bracket =
        |value: ValueId| by(value, &["Add"]).is_some_and(|mut operands| operands.any(is_function));
    is_bracket(value) || by(value, &["Mul"]).is_some_and(|mut factors| factors.any(is_bracket))
}
