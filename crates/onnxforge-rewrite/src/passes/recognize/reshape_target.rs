//! The constant that makes a Reshape give a shape with symbols in it.

use crate::{Change, Cx, Reason, Skip};
use onnxforge_ir::ValueId;
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;

/// The second input for a Reshape (with `allowzero` 0) of a tensor of shape `from` that gives the shape `to`, which has as
/// many elements: numbers, 0 where an axis keeps its size, and −1 at most once.
///
/// −1 is only right where the other sizes are above 0, or the count says nothing about the rest.
pub fn constant_target(cx: &Cx<'_>, from: &[Dim], to: &[Dim]) -> Option<Vec<i64>> {
    let mut rest = None;
    let mut target = Vec::with_capacity(to.len());
    for (axis, dim) in to.iter().enumerate() {
        let kept = from.get(axis).is_some_and(|from| cx.same_dim(from, dim));
        target.push(match dim.as_const() {
            Some(0) if !kept => return None,
            Some(size) => size,
            None if kept => 0,
            None if rest.is_none() => {
                rest = Some(axis);
                -1
            }
            None => return None,
        });
    }
    let positive = |(axis, dim): (usize, &Dim)| Some(axis) == rest || dim.provably_positive(cx.symbols());
    if rest.is_some() && !to.iter().enumerate().all(positive) {
        return None;
    }
    Some(target)
}

/// Heads that stand apart in the last axes of `apart` are joined into one axis. Where `y` has another shape than that, what a Reshape behind has to be
/// told.
pub fn behind_joined_heads(cx: &Cx<'_>, apart: ValueId, y: ValueId) -> Result<Option<Vec<i64>>, Skip> {
    let unknown = || Skip::at(Reason::UnknownShape, y);
    let [batch, sequence, heads @ ..] = cx.shape(apart)? else { return Err(unknown()) };
    let width = Dim::product(heads).ok_or_else(unknown)?;
    let joined = [batch.clone(), sequence.clone(), width];
    let wanted = cx.shape(y)?;
    if cx.same_shape(&joined, wanted) {
        return Ok(None);
    }
    constant_target(cx, &joined, wanted).map(Some).ok_or_else(unknown)
}

/// The same for values, which must have known shapes.
pub fn target_between(cx: &Cx<'_>, from: ValueId, to: ValueId) -> Result<Vec<i64>, Skip> {
    constant_target(cx, cx.shape(from)?, cx.shape(to)?).ok_or_else(|| Skip::at(Reason::UnknownShape, to))
}

/// A tensor of the shape `from` in the shape `to`: itself where that is the same.
pub fn reshaped(
    cx: &Cx<'_>,
    change: &mut Change,
    x: Operand,
    from: &[Dim],
    to: &[Dim],
) -> Result<Operand, Skip> {
    if cx.same_shape(from, to) {
        return Ok(x);
    }
    let target = constant_target(cx, from, to).ok_or(Reason::UnknownShape)?;
    let shape = change.ints("shape", &target);
    Ok(change.op("Reshape", [x, shape], []))
}
