//! Operators that make steps, and what is behind them.

use std::collections::HashSet;

use onnxforge_ir::{Model, Node, ValueId};
use onnxforge_ops::infer::Inference;

/// Operators that round, compare or choose.
const STEPS: [&str; 20] = [
    "Round",
    "Floor",
    "Ceil",
    "Sign",
    "Mod",
    "Cast",
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "TopK",
    "ArgMax",
    "ArgMin",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Equal",
    "NonZero",
    "Unique",
    "NonMaxSuppression",
    "Hardmax",
];

/// The values of the graph that are computed behind operators which turn small differences of floats into large ones; all of them, where bodies or functions
/// have such operators.
pub fn behind_steps(model: &Model, inference: &Inference) -> HashSet<ValueId> {
    let is_step = |node: &Node| is_step(node, inference);
    let (main, mut behind) = (model.main(), HashSet::new());
    let everywhere = model.nodes().any(|(_, node)| node.scope() != main && is_step(node));
    for (_, node) in model.nodes_in(main) {
        let reads = |value: &ValueId| behind.contains(value);
        // Bodies read what is around them.
        let captures = node.bodies().next().is_some() && !behind.is_empty();
        if everywhere || captures || is_step(node) || node.inputs().iter().flatten().any(reads) {
            behind.extend(node.outputs().iter().flatten().copied());
        }
    }
    behind
}

/// Whether a node turns small differences of floats into large ones.
fn is_step(node: &Node, inference: &Inference) -> bool {
    let is_float = |value: Option<ValueId>| {
        let dtype = value.and_then(|value| inference.tensor(value)?.dtype);
        dtype.is_none_or(|dtype| dtype.epsilon().is_some())
    };
    STEPS.iter().any(|op| node.op().is(op))
        && is_float(node.input(0))
        && !(node.op().is("Cast") && is_float(node.output(0)))
}
