//! Operands that become constants, where that alone may change bits.
//!
//! A product with a constant is the same function, whether a node in front of it computes the constant or it is stored. Runtimes do not compute it the
//! same way: ONNX Runtime packs a stored operand of a product when it loads the model, and its kernel for packed operands adds the terms in
//! other blocks than the one for operands that arrive at run time. So the last bits differ where a weight is transposed once and for all
//! (`session.disable_prepacking` makes them the same again). A rewrite that does this is bit-exact by the definitions of the operators, and is not made
//! where every bit must stay in practice.

use super::change::Change;
use super::skip::{Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Model, NodeId, Op, ValueId};

/// Operators of any domain that add products of floats, with kernels of their own for operands that are stored.
const PACKS: [&str; 13] = [
    "Attention",
    "Conv",
    "ConvTranspose",
    "DynamicQuantizeLSTM",
    "FusedConv",
    "FusedGemm",
    "FusedMatMul",
    "Gemm",
    "GRU",
    "LSTM",
    "MatMul",
    "MultiHeadAttention",
    "RNN",
];

/// Fails where a change lets such an operator read a stored constant that it did not read before.
pub fn stay_packed(model: &Model, change: &Change) -> Result<(), Skip> {
    let rewrite = &change.rewrite;
    for (value, by) in rewrite.redefinitions() {
        let reads = |used: &Use| match *used {
            Use::Input { node, .. } => packs(model.node(node).op()) && !rewrite.consumed().contains(&node),
            Use::Output { .. } => false,
        };
        let becomes_stored = is_stored(model, by) && !is_stored(model, Operand::Value(value));
        if becomes_stored && model.value(value).uses().iter().any(reads) {
            return Err(Skip::at(Reason::Packed, value));
        }
    }
    // What comes out of a body or function keeps what it reads: runtimes look through both.
    let opens = |&node: &NodeId| model.node(node).bodies().next().is_some() || is_call(model, node);
    if rewrite.consumed().iter().any(opens) {
        return Ok(());
    }
    let scope = rewrite.consumed().first().map_or(model.main(), |&node| model.node(node).scope());
    for (node, operands) in rewrite.previews(scope).iter().filter(|(node, _)| packs(node.op())) {
        let was_stored = |index: usize| {
            let same = |&&id: &&NodeId| model.node(id).op() == node.op();
            let read = |&id: &NodeId| model.node(id).input(index);
            let mut before = rewrite.consumed().iter().filter(same).filter_map(read);
            before.any(|value| is_stored(model, Operand::Value(value)))
        };
        let mut stored = operands.iter().enumerate().filter(|(_, operand)| is_stored(model, **operand));
        if stored.any(|(index, _)| !was_stored(index)) {
            return Err(Reason::Packed.into());
        }
    }
    Ok(())
}

fn packs(op: &Op) -> bool {
    PACKS.contains(&&*op.name)
}

/// Whether a node calls a function of the model.
fn is_call(model: &Model, node: NodeId) -> bool {
    model
        .functions()
        .iter()
        .any(|&function| model.called_as(function).as_ref() == Some(model.node(node).op()))
}

/// Whether runtimes have an operand before they run: a Constant is as good as an initializer.
fn is_stored(model: &Model, operand: Operand) -> bool {
    let by_node =
        |value: ValueId| model.value(value).node().is_some_and(|node| model.node(node).op().is("Constant"));
    match operand {
        Operand::Constant(_) => true,
        Operand::Value(value) => model.constant(value).is_some() || by_node(value),
        Operand::Output(..) | Operand::Absent => false,
    }
}
