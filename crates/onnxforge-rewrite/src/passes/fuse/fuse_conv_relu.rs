//! fuse_conv_relu: an activation comes to stand right behind its Conv, where runtimes and converters fuse the two.
//!
//! **Matches** Relu, Clip, LeakyRelu, HardSigmoid, Sigmoid and Tanh of a Conv or ConvTranspose whose result went through operators that only move
//! elements, each read by nothing else (`beside`); Max of a Conv and 0, which becomes Relu (`named`).
//! **Accuracy** `BitExact` for `beside`; `ValueExact` for `named`: which of −0 and +0 is chosen is left open.
//! **Proof** An activation does the same to each element, wherever that stands. Relu is the maximum of its operand and 0,
//! and both hand on what is not a number.
//! **Never** past operators that compute or that something else reads; where the 0 stretches the other operand. No attribute of the Conv says what follows
//! it: runtimes refuse a standard operator with an attribute of that kind.

use crate::passes::pass;
use crate::passes::recognize::MOVES;
use crate::{At, Change, Cx, Skip};
use onnxforge_ir::{Accuracy, NodeId, ValueId};

pass!(fuse_conv_relu { stage: Cleanup, needs: ["Conv", "ConvTranspose"], rules: [BESIDE, NAMED] });

const ACTIVATIONS: &[&str] = &["Relu", "Clip", "LeakyRelu", "HardSigmoid", "Sigmoid", "Tanh"];
const CONVOLUTIONS: [&str; 2] = ["Conv", "ConvTranspose"];

static BESIDE: At = At { name: "beside", accuracy: Accuracy::BitExact, ops: ACTIVATIONS, apply: beside };
static NAMED: At = At { name: "named", accuracy: Accuracy::ValueExact, ops: &["Max"], apply: named };

fn convolution(cx: &Cx<'_>, value: ValueId, beside: NodeId) -> Option<NodeId> {
    CONVOLUTIONS.iter().find_map(|op| cx.producer(value, op, beside))
}

fn beside(cx: &Cx<'_>, activation: NodeId) -> Result<Change, Skip> {
    // The way back to the convolution, last node first.
    let mut way: Vec<NodeId> = Vec::new();
    let mut value = cx.input(activation, 0)?;
    while convolution(cx, value, activation).is_none() {
        let moves = MOVES.iter().find_map(|op| cx.producer(value, op, activation));
        way.push(moves.ok_or(Skip::NOT_HERE)?);
        value = cx.input(way[way.len() - 1], 0)?;
    }
    if way.is_empty() {
        return Err(Skip::NOT_HERE);
    }
    let readers = std::iter::once(activation).chain(way.iter().copied());
    for (&node, reader) in way.iter().zip(readers) {
        cx.read_only_by(cx.output(node)?, reader)?;
    }
    cx.read_only_by(value, way[way.len() - 1])?;
    let consumed: Vec<NodeId> = std::iter::once(activation).chain(way.iter().copied()).collect();
    let mut change = cx.change(&consumed);
    let others = |node: NodeId| cx.node(node).inputs().iter().skip(1).map(|&input| input.into());
    let mut moved = change.remake(cx, activation, std::iter::once(value.into()).chain(others(activation)));
    for &node in way.iter().rev() {
        moved = change.remake(cx, node, std::iter::once(moved).chain(others(node)));
    }
    change.replace(cx.output(activation)?, moved);
    Ok(change)
}

fn named(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let &[Some(a), Some(b)] = cx.node(id).inputs() else { return Err(Skip::NOT_HERE) };
    let of_convolution =
        |x: ValueId, zero: ValueId| convolution(cx, x, id).is_some() && cx.uniform(zero) == Some(0.0);
    let x = match (of_convolution(a, b), of_convolution(b, a)) {
        (true, _) => a,
        (_, true) => b,
        _ => return Err(Skip::NOT_HERE),
    };
    let mut change = cx.change(&[id]);
    let relu = change.op("Relu", [x.into()], []);
    change.replace(cx.output(id)?, relu);
    Ok(change)
}
