//! Heads of attention: how they are split off, and repeated for groups.

use super::orders::permutation;
use crate::{Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, NodeId, ValueId};

/// What `value` has in 32 bits, if a Cast beside `id` widens something of 16 bits, and the Cast. It is the same before and behind
/// whatever moves elements.
pub fn widened(cx: &Cx<'_>, value: ValueId, id: NodeId) -> Option<(ValueId, NodeId)> {
    let cast = cx.producer(value, "Cast", id)?;
    let narrow = cx.node(cast).input(0)?;
    widens(cx, narrow, value).then_some((narrow, cast))
}

/// Whether one value is of 16 bits and the other of 32.
pub fn widens(cx: &Cx<'_>, narrow: ValueId, wide: ValueId) -> bool {
    let types = (cx.dtype(narrow).ok(), cx.dtype(wide).ok());
    matches!(types, (Some(DType::F16 | DType::BF16), Some(DType::F32)))
}

/// What `y` repeats along its heads, each `n` times in a row, and the nodes beside `id` that do it.
pub fn repeated(cx: &Cx<'_>, y: ValueId, id: NodeId) -> Option<(ValueId, [NodeId; 3])> {
    let reshape = cx.producer(y, "Reshape", id)?;
    let wide = cx.node(reshape).input(0)?;
    let expand = cx.producer(wide, "Expand", id)?;
    let narrow = cx.node(expand).input(0)?;
    // Unsqueeze may have become a Reshape.
    let unsqueeze = cx.producer(narrow, "Unsqueeze", id).or_else(|| cx.producer(narrow, "Reshape", id))?;
    let x = cx.node(unsqueeze).input(0)?;
    let shape = |value| cx.shape(value).ok();
    let (from, one, many, to) = (shape(x)?, shape(narrow)?, shape(wide)?, shape(y)?);
    if from.len() != 4 || one.len() != 5 || many.len() != 5 || to.len() != 4 {
        return None;
    }
    let same = |a: &[Dim], b: &[Dim]| cx.same_shape(a, b);
    // [b, h, s, d] → [b, h, 1, s, d] → [b, h, n, s, d] → [b, h·n, s, d]
    let fits = same(&from[..2], &one[..2])
        && one[2].as_const() == Some(1)
        && same(&from[2..], &one[3..])
        && same(&one[..2], &many[..2])
        && same(&one[3..], &many[3..])
        && same(&many[..1], &to[..1])
        && same(&many[3..], &to[2..]);
    fits.then_some((x, [reshape, expand, unsqueeze]))
}

/// The order of axes that puts heads before the sequence, and back.
pub const SWAPPED: [usize; 4] = [0, 2, 1, 3];

/// The source [batch, sequence, heads · size] of which `value` is [batch, head, sequence, size], how many heads there are, and the
/// Reshape and the Transpose that split them off, beside `reader`.
pub fn split_heads(cx: &Cx<'_>, value: ValueId, reader: NodeId) -> Result<(ValueId, i64, [NodeId; 2]), Skip> {
    let transpose = cx.producer(value, "Transpose", reader).ok_or(Skip::NOT_HERE)?;
    let apart = cx.input(transpose, 0)?;
    let split = cx.producer(apart, "Reshape", reader).ok_or(Skip::NOT_HERE)?;
    let x = cx.input(split, 0)?;
    let (from, to) = (cx.shape(x)?, cx.shape(apart)?);
    let fits = from.len() == 3 && to.len() == 4 && cx.same_shape(&from[..2], &to[..2]);
    if !fits || permutation(cx, transpose)? != SWAPPED {
        return Err(Skip::NOT_HERE);
    }
    let count = to[2].as_const().ok_or_else(|| Skip::at(Reason::UnknownShape, apart))?;
    Ok((x, count, [split, transpose]))
}
