//! Reductions.

use crate::{Cx, Skip};
use onnxforge_ir::NodeId;
use onnxforge_ops::call;

/// The axes that a reduction reduces, in order.
pub fn reduced_axes(cx: &Cx<'_>, id: NodeId) -> Result<Vec<usize>, Skip> {
    let (node, call) = (cx.node(id), cx.call(id)?);
    let rank = cx.rank(cx.input(id, 0)?)?;
    if node.op().is("ArgMax") || node.op().is("ArgMin") {
        return Ok(vec![call::axis(call.int("axis")?, rank)?]);
    }
    let given = match node.input(1) {
        Some(axes) => Some(cx.ints(axes)?),
        None => call.opt_ints("axes")?,
    };
    let mut axes = match given {
        Some(axes) if !axes.is_empty() => call::axes(&axes, rank)?,
        _ if call.flag("noop_with_empty_axes")? => return Err(Skip::NOT_HERE),
        _ => (0..rank).collect(),
    };
    axes.sort_unstable();
    Ok(axes)
}
