//! cleanup_attention: the reshapes and transposes around attention, tidied.
//!
//! **Matches** reshapes in a row, reshapes that change nothing, transposes in a row (as merge_reshapes, eliminate_noop_reshapes and
//! eliminate_redundant_transposes do, for this pass alone); and a MatMul of two operands whose leading axes a Reshape each has merged into one,
//! which multiplies the operands as they were and merges the axes of the product (`batched`).
//! **Accuracy** `BitExact`: elements move; `batched` multiplies the same matrices.
//! **Proof** MatMul treats all but the last two axes as a list of matrices; Reshape of leading axes keeps the list. The driver proves the
//! shapes.
//! **Never** where the reshapes touch the last two axes, where the leading axes of the operands are not provably the same, or where others read
//! what the reshapes give.

use super::eliminate_noop_reshapes::SAME_SHAPE;
use super::eliminate_redundant_transposes::COMPOSE;
use super::merge_reshapes::MERGE;
use super::pass;
use super::reshape_target::constant_target;
use crate::ir::{Accuracy, NodeId, ValueId};
use crate::rewrite::{At, Change, Cx, Reason, Skip};

pass!(cleanup_attention, &[&MERGE, &SAME_SHAPE, &COMPOSE, &BATCHED]);

static BATCHED: At = At { name: "batched", accuracy: Accuracy::BitExact, ops: &["MatMul"], apply: batched };

fn batched(cx: &Cx<'_>, product: NodeId) -> Result<Change, Skip> {
    let (a, first) = merged(cx, product, 0)?;
    let (b, second) = merged(cx, product, 1)?;
    let y = cx.output(product)?;
    let (left, right) = (cx.shape(a)?, cx.shape(b)?);
    let rank = left.len();
    if right.len() != rank || !cx.same_shape(&left[..rank - 2], &right[..rank - 2]) {
        return Err(Skip::at(Reason::Broadcast, b));
    }
    let mut shape = left[..rank - 1].to_vec();
    shape.push(right[rank - 1].clone());
    let target =
        constant_target(cx, &shape, cx.shape(y)?).ok_or_else(|| Skip::at(Reason::UnknownShape, y))?;
    let mut change = cx.change(&[first, second, product]);
    let direct = change.op("MatMul", [a.into(), b.into()], []);
    let target = change.ints("shape", &target);
    let merged = change.op("Reshape", [direct, target], []);
    change.replace(y, merged);
    Ok(change)
}

/// The source of operand `index`, if a Reshape has merged all but its last two axes into one, and the Reshape.
fn merged(cx: &Cx<'_>, product: NodeId, index: usize) -> Result<(ValueId, NodeId), Skip> {
    let operand = cx.input(product, index)?;
    let reshape = cx.producer(operand, "Reshape", product).ok_or(Skip::NOT_HERE)?;
    let source = cx.input(reshape, 0)?;
    let (from, to) = (cx.shape(source)?, cx.shape(operand)?);
    if to.len() != 3 || from.len() < 4 || !cx.same_shape(&from[from.len() - 2..], &to[1..]) {
        return Err(Skip::NOT_HERE);
    }
    cx.read_only_by(operand, product)?;
    Ok((source, reshape))
}
