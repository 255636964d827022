//! Softmax and its relatives.
//!
//! Before opset 13 the tensor counts as a matrix whose rows begin at the axis; since then each line along the axis counts
//! by itself.

use super::arg::first_of_largest;
use crate::array::{Array, Typed, each_float};
use crate::call::{self, Call};
use crate::error::OpError;
use crate::eval_call::{Eval, one};
use crate::infer_call::{Infer, same_as_input};
use crate::kernel::line::{self, each_line};
use crate::kernel::number::Number;
use crate::kernel::shape::around;
use crate::value::Value;

/// The axis that the attribute means.
fn axis(call: &Call<'_>, rank: usize) -> Result<usize, OpError> {
    let given = call.int("axis")?;
    // Rows of one element each begin past the last axis.
    if call.since() < 13 && given == rank as i64 { Ok(rank) } else { call::axis(given, rank) }
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let Some(rank) = cx.rank(0) {
        axis(&cx.call, rank)?;
    }
    same_as_input(cx)
}

/// The shape as `outer × n × inner`, where the elements that count together make up `n`. There must be elements.
fn split(call: &Call<'_>, shape: &[usize]) -> Result<[usize; 3], OpError> {
    let axis = axis(call, shape.len())?;
    if call.since() < 13 {
        let size = |dims: &[usize]| dims.iter().product();
        return Ok([size(&shape[..axis]), size(&shape[axis..]), 1]);
    }
    let (outer, n, inner) = around(shape, axis);
    Ok([outer, n, inner])
}

pub fn softmax(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => one(each(cx, x, line::softmax::<T>)?))
}

pub fn log_softmax(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => one(each(cx, x, line::log_softmax::<T>)?))
}

pub fn hardmax(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => one(each(cx, x, |line: &mut [T]| {
        let place = first_of_largest(line);
        line.iter_mut().enumerate().for_each(|(index, x)| *x = if index == place { T::ONE } else { T::ZERO });
    })?))
}

/// Changes each group of elements that count together.
fn each<T: Typed>(cx: &Eval<'_>, x: Array, change: impl Fn(&mut [T]) + Sync) -> Result<Array, OpError> {
    if x.is_empty() {
        axis(&cx.call, x.rank())?;
        return Ok(x);
    }
    let split = split(&cx.call, x.shape())?;
    each_line(x, split, cx.memory(), change)
}
