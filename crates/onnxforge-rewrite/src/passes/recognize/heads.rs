//! Heads of attention: how they are split off, and repeated for groups.

use super::orders::permutation;
use super::rows::RowProduct;
use crate::{Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Attr, DType, NodeId, ValueId};

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

/// Where heads are split off from: [batch, sequence, heads · size].
pub enum Source {
    /// A value.
    Value(ValueId),
    /// A product of rows that has not all of its axes yet.
    Product(RowProduct),
}

impl Source {
    /// The value, for a change.
    pub fn build(&self, cx: &Cx<'_>, change: &mut Change) -> Result<Operand, Skip> {
        match self {
            Self::Value(value) => Ok((*value).into()),
            Self::Product(product) => {
                product.nodes.iter().for_each(|&node| change.absorb(node));
                product.build(cx, change)
            }
        }
    }
}

/// The source of which `value` is [batch, head, sequence, size], how many heads there are, and the Reshape and the Transpose that split them off, beside `reader`.
pub fn split_heads(cx: &Cx<'_>, value: ValueId, reader: NodeId) -> Result<(Source, i64, [NodeId; 2]), Skip> {
    let transpose = cx.producer(value, "Transpose", reader).ok_or(Skip::NOT_HERE)?;
    let apart = cx.input(transpose, 0)?;
    let split = cx.producer(apart, "Reshape", reader).ok_or(Skip::NOT_HERE)?;
    let x = cx.input(split, 0)?;
    let (from, to) = (cx.shape(x)?, cx.shape(apart)?);
    let (source, from) = match from {
        [_, columns] => {
            let product = RowProduct::of(cx, x, split)?;
            let shape = product.shape(cx, columns)?;
            (Source::Product(product), shape)
        }
        _ => (Source::Value(x), from.to_vec()),
    };
    let fits = from.len() == 3 && to.len() == 4 && cx.same_shape(&from[..2], &to[..2]);
    if !fits || permutation(cx, transpose)? != SWAPPED {
        return Err(Skip::NOT_HERE);
    }
    let count = to[2].as_const().ok_or_else(|| Skip::at(Reason::UnknownShape, apart))?;
    Ok((source, count, [split, transpose]))
}

/// What [batch, head, sequence, size] is as [batch, sequence, heads · size].
pub struct Together {
    /// How many heads there are.
    pub heads: i64,
    /// The value with its heads behind the sequence, as one axis or as two.
    source: Source,
    /// The size of all heads, where the source has them apart.
    width: Option<i64>,
    /// The normalization along the size that follows.
    norm: Option<NodeId>,
    /// The RotaryEmbedding that follows.
    rotation: Option<NodeId>,
    /// What moved the heads.
    moves: Vec<NodeId>,
}

impl Together {
    /// Of `value`, which `reader` reads: heads that were split off, or moved before the sequence, and perhaps normalized and rotated there.
    pub fn of(cx: &Cx<'_>, value: ValueId, reader: NodeId) -> Result<Self, Skip> {
        let rotation = cx.producer(value, "RotaryEmbedding", reader);
        let (rotated, next) = before(cx, rotation, value, reader)?;
        let norm = NORMS.iter().find_map(|op| cx.producer(rotated, op, next));
        let (moved, next) = before(cx, norm, rotated, next)?;
        match norm {
            Some(norm) => along_size(cx, norm)?,
            None => {
                if let Ok((source, heads, moves)) = split_heads(cx, moved, next) {
                    return Ok(Self { heads, source, width: None, norm, rotation, moves: moves.to_vec() });
                }
            }
        }
        let transpose = cx.producer(moved, "Transpose", next).ok_or(Skip::NOT_HERE)?;
        let source = cx.input(transpose, 0)?;
        if permutation(cx, transpose)? != SWAPPED {
            return Err(Skip::NOT_HERE);
        }
        cx.read_only_by(moved, next)?;
        let [_, _, heads, size] = cx.shape(source)? else { return Err(Skip::NOT_HERE) };
        let unknown = || Skip::at(Reason::UnknownShape, source);
        let heads = heads.as_const().ok_or_else(unknown)?;
        let width = size.as_const().and_then(|size| size.checked_mul(heads)).ok_or_else(unknown)?;
        let source = Source::Value(source);
        Ok(Self { heads, source, width: Some(width), norm, rotation, moves: vec![transpose] })
    }

    /// Of `value`, [batch, sequence, head, size], which `reader` reads: heads that were split off, or that lie so.
    pub fn behind(cx: &Cx<'_>, value: ValueId, reader: NodeId) -> Result<Self, Skip> {
        let shape = cx.shape(value)?;
        let [batch, sequence, heads, size] = shape else { return Err(Skip::NOT_HERE) };
        let unknown = || Skip::at(Reason::UnknownShape, value);
        let heads = heads.as_const().ok_or_else(unknown)?;
        let width = size.as_const().and_then(|size| size.checked_mul(heads)).ok_or_else(unknown)?;
        let plain = Self {
            heads,
            source: Source::Value(value),
            width: Some(width),
            norm: None,
            rotation: None,
            moves: vec![],
        };
        let Some(split) = cx.producer(value, "Reshape", reader) else { return Ok(plain) };
        let x = cx.input(split, 0)?;
        let together = [batch.clone(), sequence.clone(), width.into()];
        Ok(match cx.same_shape(cx.shape(x)?, &together) {
            true => Self { source: Source::Value(x), width: None, moves: vec![split], ..plain },
            false => plain,
        })
    }

    /// The value with heads as one axis.
    pub fn operand(&self, cx: &Cx<'_>, change: &mut Change) -> Result<Operand, Skip> {
        self.moves.iter().for_each(|&node| change.absorb(node));
        let mut operand = self.source.build(cx, change)?;
        if let Some(norm) = self.norm {
            change.absorb(norm);
            let call = cx.node(norm);
            let rest = call.inputs()[1..].iter().map(|&input| input.into());
            let attrs = call.attrs().to_vec();
            operand =
                change.call(call.op().clone(), std::iter::once(operand).chain(rest), 1, attrs).output(0);
        }
        if let Some(width) = self.width {
            let flat = change.ints("shape", &[0, 0, width]);
            operand = change.op("Reshape", [operand, flat], []);
        }
        let Some(rotation) = self.rotation else { return Ok(operand) };
        change.absorb(rotation);
        let call = cx.node(rotation);
        let mut attrs: Vec<Attr> = call.attrs().to_vec();
        attrs.retain(|attr| &*attr.name != "num_heads");
        attrs.push(("num_heads", self.heads).into());
        let angles = call.inputs()[1..].iter().map(|&input| input.into());
        Ok(change.call(call.op().clone(), std::iter::once(operand).chain(angles), 1, attrs).output(0))
    }
}

/// Normalizations that heads may have.
const NORMS: [&str; 2] = ["RMSNormalization", "LayerNormalization"];

/// What `node` makes `value` of, for `reader` alone, and who reads that; without a node `value` itself.
fn before(
    cx: &Cx<'_>,
    node: Option<NodeId>,
    value: ValueId,
    reader: NodeId,
) -> Result<(ValueId, NodeId), Skip> {
    let Some(node) = node else { return Ok((value, reader)) };
    cx.read_only_by(value, reader)?;
    Ok((cx.input(node, 0)?, node))
}

/// Whether a normalization of four axes runs along the last one, so that it is the same wherever the others lie.
fn along_size(cx: &Cx<'_>, norm: NodeId) -> Result<(), Skip> {
    let node = cx.node(norm);
    if node.outputs().len() > 1 || cx.rank(cx.input(norm, 0)?)? != 4 {
        return Err(Skip::NOT_HERE);
    }
    if cx.axis(norm, 4)? != 3 {
        return Err(Reason::Attribute("axis").into());
    }
    for &parameter in node.inputs()[1..].iter().flatten() {
        if cx.rank(parameter)? > 1 {
            return Err(Skip::at(Reason::Broadcast, parameter));
        }
    }
    Ok(())
}
