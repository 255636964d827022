//! cleanup_attention: the reshapes and transposes around attention, tidied.
//!
//! **Matches** reshapes in a row, reshapes that change nothing, transposes in a row (as merge_reshapes, eliminate_noop_reshapes and
//! eliminate_redundant_transposes do, for this pass alone); and a MatMul of two operands whose leading axes a Reshape each has merged into one,
//! which multiplies the operands as they were and merges the axes of the product (`batched`); and a Transpose of the last two axes between
//! two Reshapes that merge the axes before them and part them again, perhaps in another way, which transposes the source itself, or what one Reshape makes of
//! it (`transposed`).
//! **Accuracy** `BitExact`: elements move; `batched` multiplies the same matrices.
//! **Proof** MatMul treats all but the last two axes as a list of matrices, and so does a Transpose of these two; Reshape of leading
//! axes keeps the list. The driver proves the shapes.
//! **Never** where the reshapes touch the last two axes, where the leading axes of the operands are not provably the same, or where others read
//! the merged operands of a product.

use crate::passes::eliminate::eliminate_noop_reshapes::SAME_SHAPE;
use crate::passes::eliminate::eliminate_redundant_transposes::COMPOSE;
use crate::passes::pass;
use crate::passes::recognize::orders::permutation;
use crate::passes::recognize::reshape_target::constant_target;
use crate::passes::simplify::merge_reshapes::MERGE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, NodeId, ValueId};

pass!(cleanup_attention { stage: Canonicalize, rules: [MERGE, SAME_SHAPE, COMPOSE, BATCHED, TRANSPOSED] });

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

static TRANSPOSED: At =
    At { name: "transposed", accuracy: Accuracy::BitExact, ops: &["Reshape"], apply: transposed };

/// [a…, r, c] → [n, r, c] → [n, c, r] → [b…, c, r]
fn transposed(cx: &Cx<'_>, parting: NodeId) -> Result<Change, Skip> {
    let (turned, y) = (cx.input(parting, 0)?, cx.output(parting)?);
    let transpose = cx.producer(turned, "Transpose", parting).ok_or(Skip::NOT_HERE)?;
    let flat = cx.input(transpose, 0)?;
    let merging = cx.producer(flat, "Reshape", parting).ok_or(Skip::NOT_HERE)?;
    let x = cx.input(merging, 0)?;
    let (from, list, to) = (cx.shape(x)?, cx.shape(flat)?, cx.shape(y)?);
    let rank = to.len();
    if permutation(cx, transpose)? != [0, 2, 1] || list.len() != 3 || rank < 4 || from.len() < 3 {
        return Err(Skip::NOT_HERE);
    }
    let (batches, matrix) = from.split_at(from.len() - 2);
    let (parts, turned_matrix) = to.split_at(rank - 2);
    let same = cx.same_shape(matrix, &list[1..])
        && cx.same_dim(&matrix[0], &turned_matrix[1])
        && cx.same_dim(&matrix[1], &turned_matrix[0]);
    if !same {
        return Err(Skip::at(Reason::UnknownShape, y));
    }
    cx.read_only_by(turned, parting)?;
    let apart = match cx.same_shape(batches, parts) {
        true => None,
        false => {
            cx.read_only_by(flat, transpose)?;
            let apart = [parts, matrix].concat();
            Some(constant_target(cx, from, &apart).ok_or_else(|| Skip::at(Reason::UnknownShape, y))?)
        }
    };
    let mut perm: Vec<i64> = (0..rank as i64).collect();
    perm.swap(rank - 2, rank - 1);
    let mut change = cx.change(&[transpose, parting]);
    change.absorb(merging);
    let mut x: Operand = x.into();
    if let Some(apart) = apart {
        let apart = change.ints("shape", &apart);
        x = change.op("Reshape", [x, apart], []);
    }
    let direct = change.op("Transpose", [x], [("perm", perm).into()]);
    change.replace(y, direct);
    Ok(change)
}
