//! Elements repeated: Expand, Tile.

use super::numbered::follow;
use super::reshape::MAX_RANK;
use crate::call;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::shape::{broadcast, strides};
use crate::kernel::strided::{self, View};
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn expand(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let target = sizes(&cx.array(1)?.to_i64s()?)?;
    let data = cx.array(0)?;
    let shape = broadcast(&[data.shape(), &target])?;
    one(strided::expand(data, &shape, cx.memory())?)
}

fn sizes(numbers: &[i64]) -> Result<Vec<usize>, OpError> {
    match numbers.iter().map(|&size| usize::try_from(size)).collect() {
        Ok(sizes) => Ok(sizes),
        Err(_) => invalid(format!("a negative size in {numbers:?}")),
    }
}

pub fn infer_expand(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if follow(cx, &[0]) {
        return Ok(());
    }
    if let Some(negative) = cx.dims(1).iter().flatten().find(|dim| dim.provably_negative(cx.symbols)) {
        return invalid(format!("the size {}", negative.display(cx.symbols)));
    }
    let entries = match (cx.dims(1), cx.shape(1)) {
        (Some(entries), _) => entries,
        (None, Some([count])) => {
            let count = count.as_const().and_then(|count| usize::try_from(count).ok());
            let Some(count) = count.filter(|count| *count <= MAX_RANK) else { return Ok(()) };
            cx.fresh_shape(count)
        }
        _ => return Ok(()),
    };
    if let Some(shape) = cx.shape(0) {
        let shape = cx.broadcast(&[shape, &entries])?;
        cx.set_shape(0, shape);
    }
    Ok(())
}

pub fn tile(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    let repeats = if cx.call.since() >= 6 {
        cx.array(1)?.to_i64s()?
    } else {
        let mut repeats = vec![1; data.rank()];
        repeats[call::axis(cx.array(2)?.to_f64()? as i64, data.rank())?] = cx.array(1)?.to_f64()? as i64;
        repeats
    };
    let repeats = sizes(&repeats)?;
    if repeats.len() != data.rank() {
        return invalid(format!("the repeats {repeats:?} for {} axes", data.rank()));
    }
    // Each axis becomes two: which repetition, and where in it.
    let mut view = View { shape: Vec::new(), strides: Vec::new(), offset: 0 };
    let mut shape = Vec::with_capacity(data.rank());
    for ((&dim, &times), stride) in data.shape().iter().zip(&repeats).zip(strides(data.shape())) {
        view.shape.extend([times, dim]);
        view.strides.extend([0, stride as isize]);
        shape.push(cx.count(&[times, dim])?);
    }
    one(view.copy(data, cx.memory())?.reshaped(shape)?)
}

pub fn infer_tile(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    if follow(cx, &[0]) {
        return Ok(());
    }
    let Some(repeats) = repeats(cx, shape.len())? else {
        let shape = cx.fresh_shape(shape.len());
        cx.set_shape(0, shape);
        return Ok(());
    };
    if repeats.len() != shape.len() {
        return invalid(format!("{} repeats for {} axes", repeats.len(), shape.len()));
    }
    let shape = shape.iter().zip(&repeats).map(|(dim, times)| cx.or_fresh(dim.mul(times))).collect();
    cx.set_shape(0, shape);
    Ok(())
}

/// How often each axis is repeated, if that is known.
fn repeats(cx: &Infer<'_>, rank: usize) -> Result<Option<Vec<Dim>>, OpError> {
    if cx.call.since() >= 6 {
        return Ok(cx.dims(1));
    }
    let (Some(times), Some(axis)) = (cx.constant(1), cx.constant(2)) else { return Ok(None) };
    let mut repeats = vec![Dim::ONE; rank];
    repeats[call::axis(axis.to_f64()? as i64, rank)?] = Dim::from(times.to_f64()? as i64);
    Ok(Some(repeats))
}
