//! cancel_transposes: Transposes that meet across elementwise operators become one, or none.
//!
//! **Matches** a Transpose of a chain of elementwise operators, each read by the next alone, that starts at another Transpose; other operands are constants, which
//! are transposed once and for all (`across`). Operators of several Transposes in the same order, which transpose their result instead (`together`).
//! **Accuracy** `BitExact`.
//! **Proof** An elementwise operator does the same at every place, wherever the place is: f(T x, T c) = T f(x, c), with axes of size 1 that are
//! stretched in whatever order the axes are. Either rule leaves fewer Transposes.
//! **Never** where something else reads the chain; operators with an axis; operands that are computed and not transposed in the same way.

use super::eliminate_noop_transposes::permutation;
use super::pass;
use crate::ir::edit::Operand;
use crate::ir::{Accuracy, NodeId, ValueId};
use crate::rewrite::{At, Change, Cx, Reason, Skip};

pass!(cancel_transposes, &[&ACROSS, &TOGETHER]);

static ACROSS: At = At { name: "across", accuracy: Accuracy::BitExact, ops: &["Transpose"], apply: across };
static TOGETHER: At = At { name: "together", accuracy: Accuracy::BitExact, ops: &[], apply: together };

fn across(cx: &Cx<'_>, last: NodeId) -> Result<Change, Skip> {
    let order = permutation(cx, last)?;
    let mut chain: Vec<(NodeId, usize)> = Vec::new();
    let mut value = cx.input(last, 0)?;
    let first = loop {
        let node = cx.model.value(value).node().ok_or(Skip::NOT_HERE)?;
        if cx.node(node).op().is("Transpose") {
            break node;
        }
        let index = only_computed_input(cx, node, order.len())?;
        chain.push((node, index));
        value = cx.input(node, index)?;
    };
    if chain.is_empty() || cx.scope(first) != cx.scope(last) {
        return Err(Skip::NOT_HERE);
    }
    // It is a chain. Nothing but the next node may read any of its values.
    let readers = std::iter::once(last).chain(chain.iter().map(|&(node, _)| node));
    for (&(node, _), reader) in chain.iter().zip(readers) {
        cx.read_only_by(cx.output(node)?, reader)?;
    }
    let &(start, start_index) = chain.last().ok_or(Skip::NOT_HERE)?;
    cx.read_only_by(cx.input(start, start_index)?, start)?;
    let consumed: Vec<NodeId> =
        std::iter::once(last).chain(chain.iter().map(|&(node, _)| node)).chain([first]).collect();
    let mut change = cx.change(&consumed);
    let inner = permutation(cx, first)?;
    let composed: Vec<usize> = order.iter().map(|&axis| inner[axis]).collect();
    let mut moved: Operand = cx.input(first, 0)?.into();
    if !composed.is_sorted() {
        moved = change.op("Transpose", [moved], [("perm", as_ints(&composed)).into()]);
    }
    for &(node, index) in chain.iter().rev() {
        let mut inputs = Vec::new();
        for (position, &input) in cx.node(node).inputs().iter().enumerate() {
            inputs.push(match input {
                _ if position == index => moved,
                Some(constant) => transposed(cx, &mut change, constant, &order)?,
                None => Operand::Absent,
            });
        }
        moved = change.remake(cx, node, inputs);
    }
    change.replace(cx.output(last)?, moved);
    Ok(change)
}

/// The input of an elementwise operator that is computed, when all others are constants, and its result has so many axes.
fn only_computed_input(cx: &Cx<'_>, node: NodeId, rank: usize) -> Result<usize, Skip> {
    is_elementwise(cx, node)?;
    if cx.rank(cx.output(node)?)? != rank {
        return Err(Skip::NOT_HERE);
    }
    let inputs = cx.node(node).inputs().iter().enumerate();
    let computed = |value: ValueId| cx.model.constant(value).is_none();
    let mut found = inputs.filter(|(_, input)| input.is_some_and(computed)).map(|(index, _)| index);
    match (found.next(), found.next()) {
        (Some(index), None) if cx.rank(cx.input(node, index)?)? == rank => Ok(index),
        _ => Err(Skip::NOT_HERE),
    }
}

/// Fails unless the node does the same at every place, whatever the axes are.
fn is_elementwise(cx: &Cx<'_>, node: NodeId) -> Result<(), Skip> {
    let along_axis = |name: &str| matches!(name, "axis" | "broadcast" | "block_size");
    let call = cx.call(node)?;
    let along = cx.node(node).attrs().iter().any(|attr| along_axis(&attr.name))
        || call
            .signature
            .is_some_and(|signature| signature.attributes.iter().any(|attr| along_axis(attr.name)));
    let plain = call.def.elementwise && !along && !call.def.random && cx.node(node).outputs().len() == 1;
    if plain { Ok(()) } else { Err(Skip::NOT_HERE) }
}

/// A constant operand with its axes in another order; missing ones stand first and are 1 long.
fn transposed(cx: &Cx<'_>, change: &mut Change, value: ValueId, order: &[usize]) -> Result<Operand, Skip> {
    let constant = cx.constant(value)?;
    if constant.len() == 1 && constant.shape().len() <= order.len() {
        return Ok(value.into());
    }
    let missing = order.len().checked_sub(constant.shape().len()).ok_or(Skip::NOT_HERE)?;
    let shape: Vec<usize> = std::iter::repeat_n(1, missing).chain(constant.shape().iter().copied()).collect();
    let whole = constant.reshaped(shape).and_then(|constant| constant.transposed(order));
    let whole = whole.map_err(|_| Skip::at(Reason::Type, value))?;
    Ok(change.constant(cx.model.value(value).name().clone(), whole))
}

fn as_ints(order: &[usize]) -> Vec<i64> {
    order.iter().map(|&axis| axis as i64).collect()
}

fn together(cx: &Cx<'_>, node: NodeId) -> Result<Change, Skip> {
    let transpose_of = |value: ValueId| cx.producer(value, "Transpose", node);
    let inputs = cx.node(node).inputs();
    if inputs.iter().flatten().filter(|&&input| transpose_of(input).is_some()).count() < 2 {
        return Err(Skip::NOT_HERE);
    }
    is_elementwise(cx, node)?;
    let mut order: Option<Vec<usize>> = None;
    let mut consumed = Vec::new();
    for &input in inputs.iter().flatten().filter(|&&input| cx.model.constant(input).is_none()) {
        let transpose = transpose_of(input).ok_or(Skip::NOT_HERE)?;
        let this = permutation(cx, transpose)?;
        if *order.get_or_insert_with(|| this.clone()) != this {
            return Err(Skip::NOT_HERE);
        }
        cx.read_only_by(input, node)?;
        if !consumed.contains(&transpose) {
            consumed.push(transpose);
        }
    }
    let order = order.ok_or(Skip::NOT_HERE)?;
    let y = cx.output(node)?;
    if consumed.len() < 2 || cx.rank(y)? != order.len() {
        return Err(Skip::NOT_HERE);
    }
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
    consumed.push(node);
    let mut change = cx.change(&consumed);
    let mut operands = Vec::new();
    for &input in inputs {
        operands.push(match input {
            Some(value) => match transpose_of(value) {
                Some(transpose) => cx.input(transpose, 0)?.into(),
                None => transposed(cx, &mut change, value, &back)?,
            },
            None => Operand::Absent,
        });
    }
    let result = change.remake(cx, node, operands);
    let result = change.op("Transpose", [result], [("perm", as_ints(&order)).into()]);
    change.replace(y, result);
    Ok(change)
}
