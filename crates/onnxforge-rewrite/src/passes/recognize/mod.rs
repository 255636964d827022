//! What several passes recognise or compute: recognisers of subgraphs and arithmetic with constants.

pub mod activations;
pub mod affine_norms;
pub mod bounds;
pub mod channels;
pub mod constant_math;
pub mod gelu;
pub mod heads;
pub mod masks;
pub mod norms;
pub mod orders;
pub mod reductions;
pub mod reshape_target;
pub mod rotary;
pub mod rotary_angles;
pub mod rows;
pub mod scores;
pub mod selections;
pub mod slice_cuts;
pub mod sums;
pub mod windows;

use crate::Cx;
use onnxforge_ir::{NodeId, ValueId};

/// Operators that move the elements of their first input.
pub const MOVES: [&str; 5] = ["Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"];

/// The node beside another that computes `value` from one operand, each element by itself.
pub fn function_of_elements(cx: &Cx<'_>, value: ValueId, beside: NodeId) -> Option<NodeId> {
    let id = cx.model.value(value).node().filter(|&id| cx.scope(id) == cx.scope(beside))?;
    let (node, call) = (cx.node(id), cx.call(id).ok()?);
    let alone = node.inputs().len() == 1 && node.outputs().len() == 1;
    (alone && call.def.elementwise && !call.def.random).then_some(id)
}
