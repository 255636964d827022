//! The angles of rotations: for which elements they are, and whether those of pairs are the same.

use crate::passes::recognize::rotary::Pairs;
use crate::{Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{NodeId, ValueId};
use onnxforge_ops::call;

/// Angles [batch, sequence, size].
pub struct Angles {
    /// What holds them.
    pub source: ValueId,
    /// The axis of size 1, for the heads, that the source still has.
    pub squeeze: Option<i64>,
    /// The same for all batches.
    pub for_all: bool,
}

/// The angles that `cache` has for all heads of a value of shape `of`, whose axis `heads` they are.
pub fn angles(
    cx: &Cx<'_>,
    cache: ValueId,
    root: NodeId,
    of: &[Dim],
    heads: usize,
    width: i64,
) -> Result<Angles, Skip> {
    let none = || Skip::at(Reason::Broadcast, cache);
    let shape = cx.shape(cache)?;
    let sequence = 3 - heads;
    let is_one = |dim: &Dim| dim.as_const() == Some(1);
    let (batch, one, along, wide) = match shape {
        [batch, rest @ .., wide] if rest.len() == 2 => {
            (Some(batch), &rest[heads - 1], &rest[sequence - 1], wide)
        }
        [one, along, wide] if heads == 1 => (None, one, along, wide),
        _ => return Err(none()),
    };
    let for_all = batch.map_or(!is_one(&of[0]), |batch| !cx.same_dim(batch, &of[0]));
    let fits = is_one(one)
        && cx.same_dim(along, &of[sequence])
        && wide.as_const() == Some(width)
        && batch.is_none_or(|batch| !for_all || is_one(batch));
    if !fits {
        return Err(none());
    }
    // What Unsqueeze made of angles without heads are these themselves.
    let bare = batch.and_then(|batch| {
        let node = ["Unsqueeze", "Reshape"].iter().find_map(|op| cx.producer(cache, op, root))?;
        let source = cx.node(node).input(0)?;
        let wanted = [batch.clone(), along.clone(), wide.clone()];
        cx.same_shape(cx.shape(source).ok()?, &wanted).then_some(source)
    });
    let squeeze = (batch.is_some() && bare.is_none()).then_some(heads as i64);
    Ok(Angles { source: bare.unwrap_or(cache), squeeze, for_all })
}

/// What the elements of `x` were moved from, with the same first axis: its size is known as soon as that of `x`, and who takes over the moves finds
/// nobody else that reads what is between.
pub fn before_moves(cx: &Cx<'_>, mut x: ValueId, root: NodeId) -> ValueId {
    let moves = ["Transpose", "Reshape", "Slice", "Split"];
    while let Some(node) = moves.iter().find_map(|op| cx.producer(x, op, root)) {
        let Some(source) = cx.node(node).input(0) else { break };
        match (cx.shape(source), cx.shape(x)) {
            (Ok([of, ..]), Ok([also, ..])) if cx.same_dim(of, also) => x = source,
            _ => break,
        }
    }
    x
}

/// Numbers of constants that are compared, at most.
const MOST_NUMBERS: u64 = 1 << 22;

/// Whether both elements of each pair along the last axis, which has `size` elements, are the same: by construction, or in a constant.
pub fn is_doubled(cx: &Cx<'_>, mut value: ValueId, size: i64, pairs: Pairs) -> bool {
    loop {
        if let Some(constant) = cx.model.constant(value) {
            let numbers = if constant.len() as u64 <= MOST_NUMBERS { cx.floats(value).ok() } else { None };
            return numbers.is_some_and(|numbers| all_doubled(&numbers, size, pairs));
        }
        let Some(node) = cx.model.value(value).node() else { return false };
        if cx.call(node).is_err() || !cx.node(node).op().domain.is_empty() {
            return false;
        }
        if doubles(cx, node, size, pairs).is_some() {
            return true;
        }
        let Some(source) = row_by_row(cx, node, size) else { return false };
        value = source;
    }
}

fn all_doubled(numbers: &[f64], size: i64, pairs: Pairs) -> bool {
    let Ok(size @ 2..) = usize::try_from(size) else { return false };
    let row = |row: &[f64]| match pairs {
        Pairs::Halves => row[..size / 2] == row[size / 2..],
        Pairs::Neighbours => row.chunks_exact(2).all(|pair| pair[0] == pair[1]),
    };
    size % 2 == 0 && numbers.len().is_multiple_of(size) && numbers.chunks_exact(size).all(row)
}

/// Whether a node makes both elements of each pair the same.
fn doubles(cx: &Cx<'_>, node: NodeId, size: i64, pairs: Pairs) -> Option<()> {
    let same_twice = |node: NodeId| {
        let &[Some(a), Some(b)] = cx.node(node).inputs() else { return None };
        let rank = cx.rank(a).ok()?;
        let half = cx.shape(a).ok()?.last()?.as_const()?;
        (cx.node(node).op().is("Concat") && a == b && cx.axis(node, rank).ok()? == rank - 1).then_some(half)
    };
    if size % 2 != 0 {
        return None;
    }
    if pairs == Pairs::Halves {
        return (same_twice(node)? == size / 2).then_some(());
    }
    // Pairs stay pairs where rows of even length follow each other.
    let stacked = cx.node(node).op().is("Reshape").then(|| cx.node(node).input(0))??;
    let last = |value: ValueId| cx.shape(value).ok()?.last()?.as_const();
    let inner = cx.model.value(stacked).node().filter(|&inner| cx.call(inner).is_ok())?;
    let op = &cx.node(inner).op();
    let repeats = || (op.is("Expand") || op.is("Tile")) && cx.node(inner).input(0).and_then(last) == Some(1);
    (last(stacked)? == 2 && (same_twice(inner) == Some(1) || repeats())).then_some(())
}

/// What a node makes its result of, row by row along the last axis of `size` elements, element by element in the same way.
fn row_by_row(cx: &Cx<'_>, node: NodeId, size: i64) -> Option<ValueId> {
    let keeps = |value: ValueId| (cx.shape(value).ok()?.last()?.as_const() == Some(size)).then_some(value);
    match (&*cx.node(node).op().name, cx.node(node).inputs()) {
        ("Cos" | "Sin" | "Cast" | "Neg", &[Some(x)]) => Some(x),
        ("Mul" | "Div", &[Some(x), Some(scale)]) if cx.uniform(scale).is_some() => keeps(x),
        ("Mul", &[Some(scale), Some(x)]) if cx.uniform(scale).is_some() => keeps(x),
        ("Unsqueeze" | "Squeeze" | "Reshape", &[Some(x), ..]) => keeps(x),
        ("Gather", &[Some(x), Some(_)]) => {
            let rank = cx.rank(x).ok()?;
            (cx.axis(node, rank).ok()? < rank - 1).then(|| keeps(x))?
        }
        ("Slice", &[Some(x), ..]) => {
            let last = cx.rank(x).ok()?.checked_sub(1)?;
            // Where others are cut is of no matter, and may be computed.
            let axes = cx.ints(cx.node(node).input(3)?).ok()?;
            let axes = call::axes(&axes, last + 1).ok()?;
            (!axes.contains(&last)).then(|| keeps(x))?
        }
        _ => None,
    }
}
