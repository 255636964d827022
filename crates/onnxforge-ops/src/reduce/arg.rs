//! The place of the largest or smallest element along an axis.

use super::remaining;
use crate::array::{Array, each_number};
use crate::call;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::Number;
use crate::kernel::parallel::each_piece;
use crate::kernel::shape::around;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let axis = cx.axis_attr("axis", shape.len())?;
    let keep = cx.call.flag("keepdims")?;
    cx.set_shape(0, remaining(shape, &[axis], keep, Dim::ONE));
    Ok(())
}

pub fn max(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    arg::<true>(cx)
}

pub fn min(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    arg::<false>(cx)
}

fn arg<const LARGEST: bool>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let axis = call::axis(cx.call.int("axis")?, x.rank())?;
    let shape = remaining(x.shape(), &[axis], cx.call.flag("keepdims")?, 1);
    let mut out = cx.zeros::<i64>(&shape)?;
    if out.is_empty() {
        return one(Array::new(shape, out)?);
    }
    if x.is_empty() {
        return invalid(format!("the place of an extreme along an axis of size 0 of {:?}", x.shape()));
    }
    let last = cx.call.flag("select_last_index")?;
    let (_, n, inner) = around(x.shape(), axis);
    each_number!(x, T => {
        let data = x.slice::<T>()?;
        each_piece(&mut out, inner, n * inner, &|index, out| {
            places::<T, LARGEST>(&data[index * n * inner..][..n * inner], inner, last, out);
        });
        Ok::<_, OpError>(())
    })?;
    one(Array::new(shape, out)?)
}

/// For each of `inner` columns the row of its first (or last) extreme. What is not a number is the most extreme.
fn places<T: Number, const LARGEST: bool>(data: &[T], inner: usize, last: bool, out: &mut [i64]) {
    let beats = |x: T, best: T| match (x.is_nan(), best.is_nan()) {
        (false, false) if LARGEST => x > best || (last && x == best),
        (false, false) => x < best || (last && x == best),
        (nan, before) => nan && (last || !before),
    };
    for (column, out) in out.iter_mut().enumerate() {
        let values = data[column..].iter().step_by(inner).copied();
        let mut best: Option<(usize, T)> = None;
        for (row, x) in values.enumerate() {
            if best.is_none_or(|(_, best)| beats(x, best)) {
                best = Some((row, x));
            }
        }
        *out = best.map_or(0, |(row, _)| row as i64);
    }
}

/// The first place of the largest element of a row.
pub fn first_of_largest<T: Number>(row: &[T]) -> usize {
    let mut place = [0];
    places::<T, true>(row, 1, false, &mut place);
    place[0] as usize
}
