//! Elements written by index: Scatter, ScatterElements, ScatterND, TensorScatter.

use super::gather::{element_places, tuple_places, tuples};
use super::place;
use crate::array::{Array, Code, Elem, each_elem};
use crate::call::{self, Call};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::{Infer, same_as_input};
use crate::kernel::number::Number;
use crate::kernel::shape::around;
use crate::layout::numbered::follow;
use crate::value::Value;
use onnxforge_proto::blob::Blob;

/// What becomes of an element that is written to.
#[derive(Clone, Copy, PartialEq)]
enum Reduction {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

impl Reduction {
    fn of(call: &Call<'_>) -> Result<Self, OpError> {
        match call.text_or("reduction", "none")?.as_str() {
            "none" => Ok(Self::Replace),
            "add" => Ok(Self::Add),
            "mul" => Ok(Self::Mul),
            "max" => Ok(Self::Max),
            "min" => Ok(Self::Min),
            other => unsupported(format!("the reduction {other}")),
        }
    }
}

/// An element that can be written to with a reduction.
trait Reduce: Elem {
    /// The function that makes the new element of the old one and the update; `None` where there is none.
    fn function(reduction: Reduction) -> Option<fn(&Self, &Self) -> Self>;
}

/// The greater of two numbers when `greater`, else the lesser; not a number if one is none.
fn extreme<T: Number>(a: &T, b: &T, greater: bool) -> T {
    let keeps = a.is_nan() || (!b.is_nan() && (a > b) == greater);
    if keeps { *a } else { *b }
}

macro_rules! reduce_numbers {
    ($($type:ty),*) => {$(
        impl Reduce for $type {
            fn function(reduction: Reduction) -> Option<fn(&Self, &Self) -> Self> {
                Some(match reduction {
                    Reduction::Replace => |_, new| *new,
                    Reduction::Add => |old, new| Number::add(*old, *new),
                    Reduction::Mul => |old, new| Number::mul(*old, *new),
                    Reduction::Max => |old, new| extreme(old, new, true),
                    Reduction::Min => |old, new| extreme(old, new, false),
                })
            }
        }
    )*};
}

reduce_numbers!(f32, f64, half::f16, half::bf16, i8, i16, i32, i64, u8, u16, u32, u64);

/// Booleans are added as "or" and multiplied as "and".
impl Reduce for bool {
    fn function(reduction: Reduction) -> Option<fn(&Self, &Self) -> Self> {
        Some(match reduction {
            Reduction::Replace => |_, new| *new,
            Reduction::Add | Reduction::Max => |old, new| old | new,
            Reduction::Mul | Reduction::Min => |old, new| old & new,
        })
    }
}

macro_rules! replace_only {
    ($($type:ty),*) => {$(
        impl Reduce for $type {
            fn function(reduction: Reduction) -> Option<fn(&Self, &Self) -> Self> {
                if reduction == Reduction::Replace { Some(|_, new| new.clone()) } else { None }
            }
        }
    )*};
}

replace_only!(num_complex::Complex<f32>, num_complex::Complex<f64>, Code, Blob);

pub fn scatter_elements(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(&cx.call)?;
    let (indices, updates) = (cx.array(1)?.clone(), cx.array(2)?.clone());
    let data = cx.take(0)?;
    let axis = call::axis(cx.call.int("axis")?, data.rank())?;
    if updates.shape() != indices.shape() {
        return invalid(format!("updates of shape {:?} at indices {:?}", updates.shape(), indices.shape()));
    }
    let starts = element_places(cx, data.shape(), &indices, axis)?;
    write_runs(cx, data, &updates, &starts, 1, reduction)
}

pub fn scatter_nd(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let reduction = Reduction::of(&cx.call)?;
    let (indices, updates) = (cx.array(1)?.clone(), cx.array(2)?.clone());
    let data = cx.take(0)?;
    let (tuples, width) = tuples(indices.shape());
    let Some(rest) = data.shape().get(width..).filter(|_| indices.rank() > 0) else {
        return invalid(format!("indices of shape {:?} into the shape {:?}", indices.shape(), data.shape()));
    };
    if updates.shape() != [tuples, rest].concat() {
        return invalid(format!(
            "updates of shape {:?} at indices {:?} of the shape {:?}",
            updates.shape(),
            indices.shape(),
            data.shape()
        ));
    }
    if updates.is_empty() {
        return one(data);
    }
    let starts = tuple_places(cx, data.shape(), &indices, width)?;
    let run = updates.len() / starts.len().max(1);
    write_runs(cx, data, &updates, &starts, run, reduction)
}

/// `data` with each run of `len` elements of `updates` written where `starts` says, from where it must lie in `data`.
fn write_runs(
    cx: &Eval<'_>,
    data: Array,
    updates: &Array,
    starts: &[usize],
    len: usize,
    reduction: Reduction,
) -> Result<Vec<Value>, OpError> {
    fn write<T: Reduce>(
        data: Array,
        updates: &[T],
        starts: &[usize],
        len: usize,
        reduction: Reduction,
    ) -> Result<Array, OpError> {
        let (dtype, shape) = (data.dtype(), data.shape().to_vec());
        let Some(function) = T::function(reduction) else {
            return unsupported(format!("a reduction of {dtype}"));
        };
        let mut elements = data.into_vec::<T>()?;
        for (&start, run) in starts.iter().zip(updates.chunks_exact(len.max(1))) {
            let old = &mut elements[start..start + len];
            match reduction {
                Reduction::Replace => old.clone_from_slice(run),
                _ => old.iter_mut().zip(run).for_each(|(old, new)| *old = function(old, new)),
            }
        }
        Array::with_dtype(dtype, shape, elements)
    }
    if updates.dtype() != data.dtype() {
        return invalid(format!("updates of type {} for {}", updates.dtype(), data.dtype()));
    }
    each_elem!(&data, T => {
        cx.reserve::<T>(data.len())?;
        one(write::<T>(data, updates.slice()?, starts, len, reduction)?)
    })
}

/// For Scatter, ScatterElements and ScatterND.
pub fn infer_scatter(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let replaces = Reduction::of(&cx.call)? == Reduction::Replace;
    if replaces && follow(cx, &[0, 2]) { Ok(()) } else { same_as_input(cx) }
}

pub fn tensor_scatter(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let circular = match cx.call.text("mode")?.as_str() {
        "linear" => false,
        "circular" => true,
        other => return unsupported(format!("the mode {other}")),
    };
    let writes = cx.ints(2)?;
    let updates = cx.array(1)?.clone();
    let cache = cx.take(0)?;
    let axis = cache_axis(&cx.call, cache.rank())?;
    let (outer, places, run) = around(cache.shape(), axis);
    let steps = updates.shape().get(axis).copied().unwrap_or(0);
    let mut fitting = cache.shape().to_vec();
    fitting[axis] = steps;
    let batches = cache.shape()[0];
    let given = writes.as_ref().map_or(batches, Vec::len);
    if updates.shape() != fitting || steps > places || given != batches {
        let (updates, cache) = (updates.shape(), cache.shape());
        return invalid(format!("updates of shape {updates:?} at {given} places of the shape {cache:?}"));
    }
    if updates.is_empty() {
        return one(cache);
    }
    cx.reserve::<usize>(outer * steps)?;
    let mut starts = Vec::with_capacity(outer * steps);
    for row in 0..outer {
        let first = writes.as_ref().map_or(0, |writes| writes[row / (outer / batches)]);
        for step in 0..steps {
            let step = step as i64;
            let index = if circular {
                (first.rem_euclid(places as i64) + step) % places as i64
            } else {
                first.saturating_add(step)
            };
            // Unlike other indices, a negative one does not count from the end.
            let index = if index < 0 { i64::MAX } else { index };
            starts.push((row * places + place(index, places)?) * run);
        }
    }
    write_runs(cx, cache, &updates, &starts, run, Reduction::Replace)
}

/// The axis of the steps of time, which is not that of the batch.
fn cache_axis(call: &Call<'_>, rank: usize) -> Result<usize, OpError> {
    match call::axis(call.int("axis")?, rank)? {
        0 => invalid("the axis of the batch is no axis of time"),
        axis => Ok(axis),
    }
}

pub fn infer_tensor_scatter(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let Some(rank) = cx.rank(0) {
        cache_axis(&cx.call, rank)?;
    }
    if follow(cx, &[0, 1]) { Ok(()) } else { same_as_input(cx) }
}
