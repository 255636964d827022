//! Convolutions of integers, exact.

use crate::array::{Array, each_integer};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::kernel::number::{Float, Number};
use crate::value::Value;

use super::Layer;

/// Integers below this are exact in 32-bit floats.
const EXACT_F32: f64 = (1u64 << 24) as f64;

/// Integers below this are exact in 64-bit floats.
const EXACT_F64: f64 = (1u64 << 53) as f64;

pub fn conv_integer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x_zero = cx.opt_array(2)?.map_or(Ok(0), Array::to_i64)?;
    let w_zeros = cx.ints(3)?.unwrap_or_else(|| vec![0]);
    one(convolve_integer(cx, cx.array(0)?, x_zero, cx.array(1)?, &w_zeros)?)
}

/// The convolution of `x - x_zero` with `w - w_zeros` as 32-bit integers that wrap around, by the attributes of the call, which
/// mean what they mean for `Conv`. `x` and `w` are arrays of integers of up to 16 bits; `w_zeros` is one number, or one per
/// map. Padding counts as `x_zero`, so it adds nothing.
pub fn convolve_integer(
    cx: &Eval<'_>,
    x: &Array,
    x_zero: i64,
    w: &Array,
    w_zeros: &[i64],
) -> Result<Array, OpError> {
    let layer = Layer::of(&cx.call, x.shape(), w.shape())?;
    if w_zeros.len() != 1 && w_zeros.len() != layer.groups * layer.maps {
        return invalid(format!("{} zero points for weights of {:?}", w_zeros.len(), w.shape()));
    }
    // Sums of integers are exact in floats while they are small enough, in whatever order they are added.
    let largest = magnitude(x, &[x_zero])? * magnitude(w, w_zeros)? * layer.depth() as f64;
    if largest < EXACT_F32 {
        convolve_exact::<f32>(cx, &layer, (x, &[x_zero]), (w, w_zeros))
    } else if largest < EXACT_F64 {
        convolve_exact::<f64>(cx, &layer, (x, &[x_zero]), (w, w_zeros))
    } else {
        unsupported("a convolution of integers with sums past 2^53")
    }
}

fn convolve_exact<T: Float>(
    cx: &Eval<'_>,
    layer: &Layer,
    x: (&Array, &[i64]),
    w: (&Array, &[i64]),
) -> Result<Array, OpError> {
    let (x, w) = (centred::<T>(cx, x.0, x.1)?, centred::<T>(cx, w.0, w.1)?);
    let mut sums = cx.zeros::<T>(&layer.output_shape())?;
    layer.convolve(cx, &x, &w, None, &mut sums)?;
    cx.reserve::<i32>(sums.len())?;
    let wrapped = sums.into_iter().map(|sum| sum.to_f64() as i64 as i32).collect();
    Array::new(layer.output_shape(), wrapped)
}

/// The elements without their zero points, of which there is one, or one per entry of the first axis.
fn centred<T: Float>(cx: &Eval<'_>, array: &Array, zeros: &[i64]) -> Result<Vec<T>, OpError> {
    cx.reserve::<T>(array.len())?;
    let mut values = Vec::with_capacity(array.len());
    each_integer!(array, E => {
        for_each_centred::<E>(array, zeros, |value| values.push(T::from_f64(value)))?;
        Ok(values)
    })
}

/// The largest distance of an element from its zero point.
fn magnitude(array: &Array, zeros: &[i64]) -> Result<f64, OpError> {
    let mut largest = 0f64;
    each_integer!(array, E => {
        for_each_centred::<E>(array, zeros, |value| largest = largest.max(value.abs()))?;
        Ok(largest)
    })
}

fn for_each_centred<E: Number>(
    array: &Array,
    zeros: &[i64],
    mut visit: impl FnMut(f64),
) -> Result<(), OpError> {
    let each = array.len().div_ceil(zeros.len().max(1)).max(1);
    for (block, &zero) in array.slice::<E>()?.chunks(each).zip(zeros) {
        block.iter().for_each(|&value| visit(value.to_f64() - zero as f64));
    }
    Ok(())
}
