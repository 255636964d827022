//! Nodes that hold their input between two numbers.

use super::constant_math::number;
use crate::{Cx, Skip};
use onnxforge_ir::{NodeId, ValueId};

/// A node that holds its input between two numbers; one that is missing is infinite.
pub struct Hold {
    /// The input.
    pub x: ValueId,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// Whether it is a Clip.
    pub is_clip: bool,
}

/// What a node holds, and between which numbers.
pub fn hold(cx: &Cx<'_>, id: NodeId) -> Result<Hold, Skip> {
    let (node, call) = (cx.node(id), cx.call(id)?);
    let mut found = Hold { x: cx.input(id, 0)?, low: f64::NEG_INFINITY, high: f64::INFINITY, is_clip: false };
    match &*node.op().name {
        "Relu" => found.low = 0.0,
        "Clip" => {
            found.is_clip = true;
            let bound = |index: usize, name: &str, missing: f64| match (call.since(), node.input(index)) {
                (..6, _) => Ok::<_, Skip>(call.opt_float(name)?.map_or(missing, f64::from)),
                (..11, _) => Ok(call.float(name)?.into()),
                (_, Some(bound)) => number(cx, bound),
                (_, None) => Ok(missing),
            };
            found.low = bound(1, "min", found.low)?;
            found.high = bound(2, "max", found.high)?;
        }
        name => {
            let (&[Some(a), Some(b)], 8..) = (node.inputs(), call.since()) else {
                return Err(Skip::NOT_HERE);
            };
            let is_constant = |value: ValueId| cx.model.constant(value).is_some();
            let (x, bound) = match (is_constant(a), is_constant(b)) {
                (false, true) => (a, b),
                (true, false) => (b, a),
                _ => return Err(Skip::NOT_HERE),
            };
            found.x = x;
            *(if name == "Max" { &mut found.low } else { &mut found.high }) = number(cx, bound)?;
        }
    }
    Ok(found)
}
