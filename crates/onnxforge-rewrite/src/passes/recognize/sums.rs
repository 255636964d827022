//! Sums of what an operator computes and something else.

use crate::{Cx, Reason, Skip};
use onnxforge_ir::{NodeId, ValueId};

/// The call of `op` whose result only the Add `sum` reads, and what is added to it. Where both operands are such calls, it is the first.
pub fn added_to(cx: &Cx<'_>, sum: NodeId, op: &str) -> Result<(NodeId, ValueId), Skip> {
    let call = cx.call(sum)?;
    // In old versions attributes say how operands are broadcast.
    if call.node.attrs().iter().any(|attr| !call.is_default(attr)) {
        return Err(Reason::Attribute("broadcast").into());
    }
    let (a, b) = (cx.input(sum, 0)?, cx.input(sum, 1)?);
    let mut nearest = Skip::NOT_HERE;
    for (result, other) in [(a, b), (b, a)] {
        let Some(node) = cx.producer(result, op, sum).filter(|&node| cx.call(node).is_ok()) else { continue };
        match cx.read_only_by(result, sum) {
            Ok(()) => return Ok((node, other)),
            Err(skip) => nearest = skip,
        }
    }
    Err(nearest)
}
