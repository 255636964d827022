//! ReverseSequence: the beginning of every sequence backwards.

use super::numbered::follow;
use crate::array::{Array, Elem, each_elem};
use crate::call::{self, Call};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::{Infer, same_as_input};
use crate::kernel::shape::around;
use crate::value::Value;

pub fn reverse(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    let time_is_first = time_is_first(&cx.call, data.rank())?;
    let (batch_axis, time_axis) = if time_is_first { (1, 0) } else { (0, 1) };
    let lengths = cx.array(1)?.to_i64s()?;
    let (batch, time) = (data.shape()[batch_axis], data.shape()[time_axis]);
    let length = |&length: &i64| usize::try_from(length).ok().filter(|length| *length <= time);
    let lengths = match lengths.iter().map(length).collect::<Option<Vec<usize>>>() {
        Some(lengths) if lengths.len() == batch => lengths,
        _ => return invalid(format!("the sequence lengths {lengths:?} for {batch} sequences of {time}")),
    };
    each_elem!(data, T => {
        cx.reserve::<T>(data.len())?;
        one(reversed::<T>(data, &lengths, time_is_first)?)
    })
}

/// The array with the first `lengths[b]` steps of sequence `b` backwards.
fn reversed<T: Elem>(data: &Array, lengths: &[usize], time_is_first: bool) -> Result<Array, OpError> {
    let mut elements = data.slice::<T>()?.to_vec();
    if elements.is_empty() {
        return Ok(data.clone());
    }
    let (outer, count, run) = around(data.shape(), 1);
    let place = |batch: usize, time: usize| {
        let (row, column) = if time_is_first { (time, batch) } else { (batch, time) };
        (row * count + column) * run
    };
    debug_assert_eq!(outer * count * run, elements.len());
    for (batch, &length) in lengths.iter().enumerate() {
        for time in 0..length / 2 {
            let (near, far) = (place(batch, time), place(batch, length - 1 - time));
            for offset in 0..run {
                elements.swap(near + offset, far + offset);
            }
        }
    }
    Array::with_dtype(data.dtype(), data.shape(), elements)
}

/// Whether time is the first axis and the batch the second, or the other way round.
fn time_is_first(call: &Call<'_>, rank: usize) -> Result<bool, OpError> {
    if rank < 2 {
        return invalid(format!("two axes are needed, not {rank}"));
    }
    let (time, batch) = (call::axis(call.int("time_axis")?, 2)?, call::axis(call.int("batch_axis")?, 2)?);
    if time == batch { invalid("the same axis for time and batch") } else { Ok(time == 0) }
}

pub fn infer_reverse(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let Some(rank) = cx.rank(0) {
        time_is_first(&cx.call, rank)?;
    }
    if follow(cx, &[0]) { Ok(()) } else { same_as_input(cx) }
}
