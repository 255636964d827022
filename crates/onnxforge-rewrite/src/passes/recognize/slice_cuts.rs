//! What a Slice with constant arguments takes.

use crate::{Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{NodeId, ValueId};
use onnxforge_ops::call;

/// What a Slice takes of one axis, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The axis.
    pub axis: usize,
    /// Where it starts.
    pub start: i64,
    /// Before which place it ends.
    pub end: i64,
    /// How far places are from each other.
    pub step: i64,
}

/// Places of an axis: the first, how many, and how far they are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Places {
    /// The first.
    pub first: i64,
    /// How many there are.
    pub count: i64,
    /// How far they are from each other.
    pub step: i64,
}

impl Cut {
    /// The places of an axis of `size` that are taken, going forward.
    pub fn places(&self, size: i64) -> Option<Places> {
        if self.step < 1 || size < 0 {
            return None;
        }
        let place = |bound: i64| {
            let bound = if bound < 0 { bound.saturating_add(size) } else { bound };
            bound.clamp(0, size)
        };
        let (first, end) = (place(self.start), place(self.end));
        let distance = (end - first).max(0);
        let count = distance / self.step + i64::from(distance % self.step != 0);
        Some(Places { first, count, step: self.step })
    }
}

/// The cuts of a Slice whose arguments are constant.
pub fn cuts(cx: &Cx<'_>, id: NodeId) -> Result<Vec<Cut>, Skip> {
    let (node, call) = (cx.node(id), cx.call(id)?);
    let rank = cx.rank(cx.input(id, 0)?)?;
    let list = |index: usize, name: &str| match (call.since(), node.input(index)) {
        (..10, _) => Ok::<_, Skip>(call.opt_ints(name)?),
        (_, None) => Ok(None),
        (_, Some(value)) => cx.ints(value).map(Some),
    };
    let (starts, ends) = (list(1, "starts")?, list(2, "ends")?);
    let (Some(starts), Some(ends)) = (starts, ends) else { return Err(Skip::NOT_HERE) };
    let axes = match list(3, "axes")? {
        Some(axes) => call::axes(&axes, rank)?,
        None => (0..starts.len().min(rank)).collect(),
    };
    let steps = list(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&count| count != starts.len()) {
        return Err(Skip::NOT_HERE);
    }
    let bounds = starts.into_iter().zip(ends).zip(steps).zip(axes);
    Ok(bounds.map(|(((start, end), step), axis)| Cut { axis, start, end, step }).collect())
}

/// The size of an axis, which must be a number.
pub fn axis_size(cx: &Cx<'_>, value: ValueId, axis: usize) -> Result<i64, Skip> {
    let size = cx.shape(value)?.get(axis).and_then(Dim::as_const);
    size.ok_or_else(|| Skip::at(Reason::UnknownShape, value))
}

/// The axis of `x`, of known size, and the neighbouring places of it that a Slice, or a Gather by a vector, takes.
pub fn piece(cx: &Cx<'_>, id: NodeId, x: ValueId) -> Result<(usize, Places), Skip> {
    if cx.input(id, 0)? != x || cx.node(id).inputs().iter().skip(1).any(|&other| other == Some(x)) {
        return Err(Skip::NOT_HERE);
    }
    if cx.node(id).op().is("Slice") {
        let [cut] = *cuts(cx, id).map_err(|_| Skip::NOT_HERE)? else { return Err(Skip::NOT_HERE) };
        let size = axis_size(cx, x, cut.axis).map_err(|_| Skip::NOT_HERE)?;
        let places = cut.places(size).filter(|places| places.step == 1).ok_or(Skip::NOT_HERE)?;
        return Ok((cut.axis, places));
    }
    let axis = call::axis(cx.call(id)?.int("axis")?, cx.rank(x)?)?;
    let size = axis_size(cx, x, axis).map_err(|_| Skip::NOT_HERE)?;
    let indices = cx.input(id, 1)?;
    if cx.rank(indices)? != 1 {
        return Err(Skip::NOT_HERE);
    }
    let indices = cx.ints(indices).map_err(|_| Skip::NOT_HERE)?;
    let places: Vec<i64> = indices.iter().map(|&at| if at < 0 { at + size } else { at }).collect();
    let first = *places.first().ok_or(Skip::NOT_HERE)?;
    let are_places = places.iter().all(|at| (0..size).contains(at));
    if !are_places || places.windows(2).any(|pair| pair[1] - pair[0] != 1) {
        return Err(Skip::NOT_HERE);
    }
    Ok((axis, Places { first, count: places.len() as i64, step: 1 }))
}
