//! eliminate_expand_identity: an Expand to the shape that its input already has goes away.
//!
//! **Matches** an Expand whose result provably has the shape of its input, and an Expand that only an elementwise operator
//! reads, which broadcasts its input to the same shape by itself (`broadcast_anyway`); one behind which only elementwise operators stand, with scalars if anything
//! else, until each meets an operand that has the shape of the result (`passed_on`).
//! **Accuracy** `BitExact`.
//! **Proof** Expand repeats elements along axes of size 1 or new axes; with the same shape there is none. Elementwise operators
//! with two inputs broadcast by the same rule, and the driver proves that their result keeps its shape.
//! What is computed of repeated elements is what is computed of one of them, repeated (`passed_on`).
//! **Trust** Where an operand has the shape of the result, so has the result with what the Expand repeats, which broadcasts to that shape (`passed_on`).
//! **Never** values that something else reads; operators that broadcast one way only (PRelu) or not at all (CastLike); random ones; the exponent of Pow: runtimes have ways of their own for one that is a single number, such as products for a cube.

use std::cmp::Ordering;

use crate::passes::pass;
use crate::{At, Change, Cx, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, NodeId, Trust, ValueId};
use onnxforge_ops::signature::Presence;

pass!(eliminate_expand_identity {
    stage: Canonicalize,
    needs: ["Expand"],
    trusts: [SameShapeRule],
    rules: [SAME_SHAPE, BROADCAST_ANYWAY, PASSED_ON],
});

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
    let node = cx.node(id);
    if node.inputs().len() < 2 || !is_elementwise(cx, id)? || cx.call(id)?.since() < 7 {
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

/// Whether a node calls an operator of the standard whose inputs are all there and broadcast to each other, and whose elements
/// depend on those at their place alone: no draws, which are one for each element.
fn is_elementwise(cx: &Cx<'_>, id: NodeId) -> Result<bool, Skip> {
    let (node, call) = (cx.node(id), cx.call(id)?);
    Ok(node.outputs().len() == 1
        && call.def.elementwise
        && !call.def.random
        && node.op().domain.is_empty()
        && !["CastLike", "PRelu"].contains(&&*node.op().name)
        && call.signature.is_some_and(|signature| {
            signature.inputs.iter().all(|param| !matches!(param.presence, Presence::Optional))
        }))
}

/// Most nodes that are looked at behind an Expand.
const MOST_BEHIND: usize = 16;

static PASSED_ON: At =
    At { name: "passed_on", accuracy: Accuracy::BitExact, ops: &["Expand"], apply: passed_on };

fn passed_on(cx: &Cx<'_>, expand: NodeId) -> Result<Change, Skip> {
    let (x, repeated) = (cx.input(expand, 0)?, cx.output(expand)?);
    // What is repeated, and what is computed of that alone, in order.
    let mut widened = vec![repeated];
    let mut behind: Vec<(NodeId, bool)> = Vec::new();
    let mut at = 0;
    while let Some(&value) = widened.get(at) {
        at += 1;
        let entry = cx.model.value(value);
        if entry.is_pinned() || entry.uses().is_empty() {
            return Err(Skip::NOT_HERE);
        }
        for used in entry.uses() {
            let Use::Input { node, .. } = *used else { return Err(Skip::NOT_HERE) };
            if behind.iter().any(|&(known, _)| known == node) {
                continue;
            }
            if behind.len() >= MOST_BEHIND || cx.scope(node) != cx.scope(expand) {
                return Err(Skip::NOT_HERE);
            }
            let meets = meets(cx, node, &widened)?;
            if !meets {
                widened.push(cx.output(node)?);
            }
            behind.push((node, meets));
        }
    }
    // Where nothing is computed before, each reader does without the Expand by itself.
    if behind.iter().all(|&(_, meets)| meets) {
        return Err(Skip::NOT_HERE);
    }
    behind.sort_by(
        |&(a, _), &(b, _)| if cx.model.is_before(a, b) { Ordering::Less } else { Ordering::Greater },
    );
    let nodes: Vec<NodeId> = [expand].into_iter().chain(behind.iter().map(|&(node, _)| node)).collect();
    let mut change = cx.change(&nodes);
    let mut made: Vec<(ValueId, Operand)> = vec![(repeated, x.into())];
    for (node, meets) in behind {
        let operand = |value: ValueId| made.iter().find(|(old, _)| *old == value).map(|&(_, by)| by);
        let inputs: Vec<Operand> = cx
            .node(node)
            .inputs()
            .iter()
            .flatten()
            .map(|&value| operand(value).unwrap_or(value.into()))
            .collect();
        let result = change.remake(cx, node, inputs);
        let y = cx.output(node)?;
        made.push((y, result));
        if meets {
            change.replace(y, result);
        }
    }
    change.trust(Trust::SameShapeRule);
    Ok(change)
}

/// Whether a node that reads a repeated value reads something else of the shape of its result; fails unless everything else is a scalar.
fn meets(cx: &Cx<'_>, node: NodeId, widened: &[ValueId]) -> Result<bool, Skip> {
    if !is_elementwise(cx, node)?
        || cx.node(node).op().is("Pow")
        || cx.node(node).inputs().len() > 1 && cx.call(node)?.since() < 7
    {
        return Err(Skip::NOT_HERE);
    }
    let whole = cx.shape(cx.output(node)?)?;
    let others = cx.node(node).inputs().iter().flatten().filter(|&value| !widened.contains(value));
    let others: Vec<ValueId> = others.copied().collect();
    if others.iter().any(|&value| cx.shape(value).is_ok_and(|shape| cx.same_shape(shape, whole))) {
        return Ok(true);
    }
    let is_scalar =
        |value: &ValueId| cx.model.constant(*value).is_some_and(|tensor| tensor.shape().is_empty());
    if others.iter().all(is_scalar) { Ok(false) } else { Err(Skip::NOT_HERE) }
}
