//! Activations, as operators that fuse them list their parameters.

use super::constant_math::number;
use crate::{Cx, Skip};
use onnxforge_ir::NodeId;

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
