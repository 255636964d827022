//! eliminate_expand_identity: an Expand to the shape that its input already has goes away.
//!
//! **Matches** an Expand whose result provably has the shape of its input, and an Expand that only an elementwise operator
//! reads, which broadcasts its input to the same shape by itself.
//! **Accuracy** `BitExact`.
//! **Proof** Expand repeats elements along axes of size 1 or new axes; with the same shape there is none. Elementwise operators
//! with two inputs broadcast by the same rule, and the driver proves that their result keeps its shape.
//! **Never** the exponent of Pow: runtimes have ways of their own for one that is a single number, such as products for a cube.

use crate::passes::pass;
use crate::{At, Change, Cx, Skip};
use onnxforge_ir::{Accuracy, NodeId};
use onnxforge_ops::signature::Presence;

pass!(eliminate_expand_identity { stage: Canonicalize, rules: [SAME_SHAPE, BROADCAST_ANYWAY] });

static SAME_SHAPE: At = At {
    name: "same_shape",
    accuracy: Accuracy::BitExact,
    ops: &["Expand"],
    apply: |cx, node| {
        let (x, y) = (cx.input(node, 0)?, cx.output(node)?);
        if cx.same_shape(cx.shape(x)?, cx.shape(y)?) { cx.forward(node, x) } else { Err(Skip::NOT_HERE) }
    },
};

static BROADCAST_ANYWAY: At =
    At { name: "broadcast_anyway", accuracy: Accuracy::BitExact, ops: &[], apply: broadcast_anyway };

/// At an elementwise operator that reads an Expand.
fn broadcast_anyway(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (node, call) = (cx.node(id), cx.call(id)?);
    let binary = node.inputs().len() >= 2
        && node.outputs().len() == 1
        && call.def.elementwise
        && call.since() >= 7
        && node.op().domain.is_empty()
        && call.signature.is_some_and(|signature| {
            signature.inputs.iter().all(|param| !matches!(param.presence, Presence::Optional))
        });
    if !binary {
        return Err(Skip::NOT_HERE);
    }
    let expand = node.inputs().iter().flatten().find_map(|&input| cx.producer(input, "Expand", id));
    let expand = expand.ok_or(Skip::NOT_HERE)?;
    let (source, expanded) = (cx.input(expand, 0)?, cx.output(expand)?);
    if node.op().is("Pow") && node.input(1) == Some(expanded) {
        return Err(Skip::because("a single exponent may be computed in another way"));
    }
    let mut change = cx.change(&[id]);
    change.absorb(expand);
    let inputs = node.inputs().iter().map(|&input| match input {
        Some(input) if input == expanded => source.into(),
        other => other.into(),
    });
    let inputs: Vec<_> = inputs.collect();
    let direct = change.remake(cx, id, inputs);
    change.replace(cx.output(id)?, direct);
    Ok(change)
}
