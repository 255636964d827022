//! Elements read by index: Gather, GatherElements, GatherND.

use super::place;
use crate::array::{Array, Elem, each_elem};
use crate::call::{self, Call};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::parallel::PARALLEL;
use crate::kernel::parallel::each_piece;
use crate::kernel::shape::{around, for_each_offset, strides};
use crate::layout::numbered::follow;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn gather(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (data, indices) = (cx.array(0)?, cx.array(1)?);
    let axis = call::axis(cx.call.int("axis")?, data.rank())?;
    let (_, dim, inner) = around(data.shape(), axis);
    cx.reserve::<[i64; 2]>(indices.len())?;
    let places =
        indices.to_i64s()?.into_iter().map(|index| place(index, dim)).collect::<Result<Vec<_>, _>>()?;
    let shape = [&data.shape()[..axis], indices.shape(), &data.shape()[axis + 1..]].concat();
    if cx.count(&shape)? == 0 {
        return empty(data, shape);
    }
    // The start of the run for each place of the result, row by row of the axes before.
    let start = |run: usize| (run / places.len() * dim + places[run % places.len()]) * inner;
    copy_runs(cx, data, shape, inner, start)
}

fn empty(like: &Array, shape: Vec<usize>) -> Result<Vec<Value>, OpError> {
    each_elem!(like, T => one(Array::with_dtype(like.dtype(), shape, Vec::<T>::new())?))
}

/// An array of runs of `len` elements of `data`; run `r` starts at `start(r)`, from where it must lie in `data`. `shape` has
/// elements.
fn copy_runs(
    cx: &Eval<'_>,
    data: &Array,
    shape: Vec<usize>,
    len: usize,
    start: impl Fn(usize) -> usize + Sync,
) -> Result<Vec<Value>, OpError> {
    fn write<T: Elem>(out: &mut [T], from: &[T], len: usize, start: &(dyn Fn(usize) -> usize + Sync)) {
        if len == 1 && out.len() < 2 * PARALLEL {
            return out.iter_mut().enumerate().for_each(|(run, slot)| slot.clone_from(&from[start(run)]));
        }
        each_piece(out, len, len, &|run, out| {
            let start = start(run);
            out.clone_from_slice(&from[start..start + len]);
        });
    }
    each_elem!(data, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        write(&mut out, data.slice::<T>()?, len, &start);
        one(Array::with_dtype(data.dtype(), shape, out)?)
    })
}

pub fn infer_gather(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (Some(data), Some(indices)) = (cx.shape(0), cx.shape(1)) else { return Ok(()) };
    let axis = call::axis(cx.call.int("axis")?, data.len())?;
    if !follow(cx, &[0]) {
        cx.set_shape(0, [&data[..axis], indices, &data[axis + 1..]].concat());
    }
    Ok(())
}

pub fn gather_elements(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (data, indices) = (cx.array(0)?, cx.array(1)?);
    let axis = call::axis(cx.call.int("axis")?, data.rank())?;
    let starts = element_places(cx, data.shape(), indices, axis)?;
    if starts.is_empty() {
        return empty(data, indices.shape().to_vec());
    }
    copy_runs(cx, data, indices.shape().to_vec(), 1, |run| starts[run])
}

/// For each element of `indices` the place in a tensor of shape `shape` that it means: its own place, but for `axis`.
pub(super) fn element_places(
    cx: &Eval<'_>,
    shape: &[usize],
    indices: &Array,
    axis: usize,
) -> Result<Vec<usize>, OpError> {
    let fits = |(other, (&own, &dim)): (usize, (&usize, &usize))| other == axis || own <= dim;
    if indices.rank() != shape.len() || !indices.shape().iter().zip(shape).enumerate().all(fits) {
        return invalid(format!("indices of shape {:?} into the shape {shape:?}", indices.shape()));
    }
    if indices.is_empty() {
        return Ok(Vec::new());
    }
    check_not_empty(shape)?;
    cx.reserve::<usize>(indices.len())?;
    let (mut own, dim) = (strides(shape), shape[axis]);
    let along = std::mem::replace(&mut own[axis], 0);
    let mut bases = Vec::with_capacity(indices.len());
    for_each_offset(indices.shape(), [&own], |[base]| bases.push(base));
    let place = |(index, base): (i64, usize)| Ok(base + place(index, dim)? * along);
    indices.to_i64s()?.into_iter().zip(bases).map(place).collect()
}

fn check_not_empty(shape: &[usize]) -> Result<(), OpError> {
    if shape.contains(&0) { invalid(format!("an index into the shape {shape:?}")) } else { Ok(()) }
}

pub fn infer_gather_elements(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let (Some(data), Some(indices)) = (cx.rank(0), cx.rank(1))
        && data != indices
    {
        return invalid(format!("indices with {indices} axes for {data} axes"));
    }
    if !follow(cx, &[0])
        && let Some(shape) = cx.shape(1)
    {
        cx.set_shape(0, shape.to_vec());
    }
    Ok(())
}

pub fn gather_nd(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (data, indices) = (cx.array(0)?, cx.array(1)?);
    let batch = batch_dims(&cx.call, data.rank(), indices.rank())?;
    let (tuples, width) = tuples(indices.shape());
    let (batched, rest) = data.shape().split_at(batch);
    if tuples[..batch] != *batched || width > rest.len() {
        return invalid(format!("indices of shape {:?} into the shape {:?}", indices.shape(), data.shape()));
    }
    let shape = [tuples, &rest[width..]].concat();
    if cx.count(&shape)? == 0 {
        return empty(data, shape);
    }
    let starts = tuple_places(cx, rest, indices, width)?;
    let of_batch: usize = rest.iter().product();
    let per_batch: usize = tuples[batch..].iter().product();
    copy_runs(cx, data, shape, rest[width..].iter().product(), |run| starts[run] + run / per_batch * of_batch)
}

fn batch_dims(call: &Call<'_>, data: usize, indices: usize) -> Result<usize, OpError> {
    let batch = if call.since() < 12 { 0 } else { call.int("batch_dims")? };
    match usize::try_from(batch) {
        Ok(batch) if batch < data.min(indices) => Ok(batch),
        _ => invalid(format!("{batch} batch axes of {data} axes and {indices} axes of indices")),
    }
}

/// The shape of a tensor of index tuples, and their width. `shape` has at least one axis.
pub(super) fn tuples(shape: &[usize]) -> (&[usize], usize) {
    shape.split_last().map_or((&[], 0), |(width, tuples)| (tuples, *width))
}

/// For each tuple of `indices` the place in a tensor of shape `shape` where what it means begins. `width`, the length of a
/// tuple, is at most the number of axes.
pub(super) fn tuple_places(
    cx: &Eval<'_>,
    shape: &[usize],
    indices: &Array,
    width: usize,
) -> Result<Vec<usize>, OpError> {
    let (tuples, _) = tuples(indices.shape());
    let count = cx.count(tuples)?;
    cx.reserve::<usize>(count)?;
    if width == 0 || count == 0 {
        return Ok(vec![0; count]);
    }
    check_not_empty(shape)?;
    let own = strides(shape);
    let of_tuple = |tuple: &[i64]| {
        let axes = tuple.iter().zip(shape).zip(&own);
        axes.map(|((&index, &dim), stride)| Ok(place(index, dim)? * stride)).sum()
    };
    indices.to_i64s()?.chunks_exact(width).map(of_tuple).collect()
}

pub fn infer_gather_nd(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (Some(data), Some(indices)) = (cx.shape(0), cx.shape(1)) else { return Ok(()) };
    let batch = batch_dims(&cx.call, data.len(), indices.len())?;
    if follow(cx, &[0]) {
        return Ok(());
    }
    let Some((width, tuples)) = indices.split_last() else { return Ok(()) };
    let Some(width) = width.as_const().and_then(|width| usize::try_from(width).ok()) else { return Ok(()) };
    let Some(rest) = batch.checked_add(width).and_then(|from| data.get(from..)) else {
        return invalid(format!("tuples of {width} indices into {} axes", data.len()));
    };
    let mut shape: Vec<Dim> = tuples.to_vec();
    for (dim, other) in shape.iter_mut().zip(data).take(batch) {
        *dim = cx.unify(dim, other)?;
    }
    shape.extend_from_slice(rest);
    cx.set_shape(0, shape);
    Ok(())
}
