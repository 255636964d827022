//! Axes put together, taken out and put in: Flatten, Squeeze, Unsqueeze.

use super::numbered::follow;
use super::parameter::{Given, Parameter};
use super::reshape::MAX_RANK;
use crate::call::{self, Call};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

static AXES: Parameter = Parameter { name: "axes", input: 1, since: 13 };

pub fn flatten(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.take(0)?;
    let at = flatten_at(&cx.call, data.rank())?;
    let (outer, inner) = data.shape().split_at(at);
    let shape = [cx.count(outer)?, cx.count(inner)?];
    one(data.reshaped(shape)?)
}

pub fn infer_flatten(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else {
        let shape = cx.fresh_shape(2);
        cx.set_shape(0, shape);
        return Ok(());
    };
    let (outer, inner) = shape.split_at(flatten_at(&cx.call, shape.len())?);
    if !follow(cx, &[0]) {
        let shape = vec![cx.or_fresh(Dim::product(outer)), cx.or_fresh(Dim::product(inner))];
        cx.set_shape(0, shape);
    }
    Ok(())
}

/// The number of axes that become the first one.
fn flatten_at(call: &Call<'_>, rank: usize) -> Result<usize, OpError> {
    match call.int("axis")? {
        axis if axis == rank as i64 => Ok(rank),
        axis => call::axis(axis, rank),
    }
}

pub fn squeeze(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let axes = AXES.evaluate(cx)?;
    let data = cx.take(0)?;
    let removed = match axes {
        Some(axes) => call::axes(&axes, data.rank())?,
        None => (0..data.rank()).filter(|&axis| data.shape()[axis] == 1).collect(),
    };
    if let Some(axis) = removed.iter().find(|&&axis| data.shape()[axis] != 1) {
        return invalid(format!("axis {axis} of the shape {:?} cannot be squeezed", data.shape()));
    }
    one(data.reshaped(without(data.shape(), &removed))?)
}

pub fn infer_squeeze(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    if follow(cx, &[0]) {
        return Ok(());
    }
    let removed = match AXES.ints(cx)? {
        Given::Known(axes) => call::axes(&axes, shape.len())?,
        Given::Unknown => {
            if let Some(rank) = AXES.count(cx)?.and_then(|count| shape.len().checked_sub(count)) {
                let shape = cx.fresh_shape(rank);
                cx.set_shape(0, shape);
            }
            return Ok(());
        }
        Given::Absent => {
            let is_one = |dim: &Dim| match dim.as_const() {
                Some(dim) => Some(dim == 1),
                None => dim.provably_different(&Dim::ONE, cx.symbols).then_some(false),
            };
            let Some(ones) = shape.iter().map(is_one).collect::<Option<Vec<bool>>>() else { return Ok(()) };
            (0..shape.len()).filter(|&axis| ones[axis]).collect()
        }
    };
    let not_one = |axis: &&usize| shape[**axis].provably_different(&Dim::ONE, cx.symbols);
    if let Some(axis) = removed.iter().find(not_one) {
        return invalid(format!(
            "axis {axis} is {} and cannot be squeezed",
            shape[*axis].display(cx.symbols)
        ));
    }
    cx.set_shape(0, without(shape, &removed));
    Ok(())
}

/// The shape without some of its axes.
pub fn without<D: Clone>(shape: &[D], removed: &[usize]) -> Vec<D> {
    let kept = shape.iter().enumerate().filter(|(axis, _)| !removed.contains(axis));
    kept.map(|(_, dim)| dim.clone()).collect()
}

pub fn unsqueeze(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let Some(axes) = AXES.evaluate(cx)? else { return invalid("the axes are missing") };
    let data = cx.take(0)?;
    one(data.reshaped(with_ones(data.shape(), &axes, 1)?)?)
}

pub fn infer_unsqueeze(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    if follow(cx, &[0]) {
        return Ok(());
    }
    if let Given::Known(axes) = AXES.ints(cx)? {
        cx.set_shape(0, with_ones(shape, &axes, Dim::ONE)?);
    } else if let Some(count) = AXES.count(cx)?.filter(|count| *count <= MAX_RANK) {
        let shape = cx.fresh_shape(shape.len() + count);
        cx.set_shape(0, shape);
    }
    Ok(())
}

/// The shape with `one` inserted so that it stands at `axes` of the result.
fn with_ones<D: Clone>(shape: &[D], axes: &[i64], one: D) -> Result<Vec<D>, OpError> {
    let rank = shape.len() + axes.len();
    let mut inserted = vec![false; rank];
    call::axes(axes, rank)?.into_iter().for_each(|axis| inserted[axis] = true);
    let mut dims = shape.iter();
    let next = |is_one: bool| if is_one { None } else { dims.next() };
    Ok(inserted.into_iter().map(next).map(|dim| dim.cloned().unwrap_or_else(|| one.clone())).collect())
}
