//! OneHot.

use crate::array::{Array, Elem, each_elem};
use crate::call::{self, Call};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::shape::around;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn one_hot(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (indices, values) = (cx.array(0)?, cx.array(2)?);
    let depth = match whole_numbers(cx.array(1)?)?[..] {
        [depth] if depth >= 0 => depth as usize,
        ref other => return invalid(format!("the depth {other:?}")),
    };
    let axis = new_axis(&cx.call, indices.rank())?;
    let mut shape = indices.shape().to_vec();
    shape.insert(axis, depth);
    // Negative indices count from the end since opset 11.
    let wraps = cx.call.since() >= 11;
    let place = |index: i64| {
        let index = if index < 0 && wraps { index.checked_add(depth as i64)? } else { index };
        usize::try_from(index).ok().filter(|&index| index < depth)
    };
    let places: Vec<Option<usize>> = whole_numbers(indices)?.into_iter().map(place).collect();
    each_elem!(values, T => one(light::<T>(cx, values, shape, axis, &places)?))
}

/// An array of the first of two values, but for the places along `axis` that hold the second.
fn light<T: Elem>(
    cx: &Eval<'_>,
    values: &Array,
    shape: Vec<usize>,
    axis: usize,
    places: &[Option<usize>],
) -> Result<Array, OpError> {
    let [off, on] = values.slice::<T>()? else {
        return invalid(format!("two values are needed, not the shape {:?}", values.shape()));
    };
    let count = cx.count(&shape)?;
    cx.reserve::<T>(count)?;
    let mut out = vec![off.clone(); count];
    if count > 0 {
        let (_, depth, inner) = around(&shape, axis);
        for (index, place) in places.iter().enumerate() {
            if let Some(place) = place {
                let (row, column) = (index / inner, index % inner);
                out[(row * depth + place) * inner + column].clone_from(on);
            }
        }
    }
    Array::with_dtype(values.dtype(), shape, out)
}

/// The numbers of an array as integers; fractions are cut off.
fn whole_numbers(array: &Array) -> Result<Vec<i64>, OpError> {
    array.to_i64s().or_else(|_| Ok(array.to_f64s()?.into_iter().map(|x| x as i64).collect()))
}

fn new_axis(call: &Call<'_>, rank: usize) -> Result<usize, OpError> {
    call::axis(call.int("axis")?, rank + 1)
}

pub fn infer_one_hot(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let axis = new_axis(&cx.call, shape.len())?;
    let constant = || match whole_numbers(cx.constant(1)?).ok()?[..] {
        [depth] => Some(Dim::from(depth)),
        _ => None,
    };
    let depth = match cx.dims(1).as_deref() {
        Some([depth]) => Some(depth.clone()),
        _ => constant(),
    };
    if depth.as_ref().is_some_and(|depth| depth.provably_negative(cx.symbols)) {
        return invalid("a negative depth");
    }
    let mut shape = shape.to_vec();
    shape.insert(axis, cx.or_fresh(depth));
    cx.set_shape(0, shape);
    Ok(())
}
