//! Lines along one axis, each changed by itself.

use super::fold::Fold;
use super::number::{Float, Number};
use super::parallel::each_piece;
use super::strided::transpose;
use crate::array::{Array, Typed};
use crate::error::OpError;
use crate::eval_call::Memory;

/// Changes each line along the middle axis of `outer × n × inner` elements, which must be what the array has. In place
/// when nobody else holds the array and `inner` is 1.
pub fn each_line<T: Typed>(
    array: Array,
    [outer, n, inner]: [usize; 3],
    memory: &Memory,
    change: impl Fn(&mut [T]) + Sync,
) -> Result<Array, OpError> {
    if array.is_empty() {
        return Ok(array);
    }
    let shape = array.shape().to_vec();
    if inner > 1 {
        let turned = transpose(&array.reshaped([outer, n, inner])?, &[0, 2, 1], memory)?;
        let changed = each_line(turned, [outer * inner, n, 1], memory, change)?;
        return transpose(&changed, &[0, 2, 1], memory)?.reshaped(shape);
    }
    memory.check((array.len() as u64).saturating_mul(size_of::<T>() as u64))?;
    let dtype = array.dtype();
    let mut data = array.into_vec::<T>()?;
    each_piece(&mut data, n, n, &|_, line| change(line));
    Array::with_dtype(dtype, shape, data)
}

/// The largest element; minus infinity if there is none.
fn largest<T: Float>(line: &[T]) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    Fold::new(T::neg_infinity(), larger, larger).slice(line)
}

/// The sum of all elements.
pub fn sum<T: Float>(line: &[T]) -> T {
    Fold::new(T::ZERO, Number::add, Number::add).slice(line)
}

/// The exponentials of the elements, scaled to a sum of 1.
pub fn softmax<T: Float>(line: &mut [T]) {
    let max = largest(line);
    line.iter_mut().for_each(|x| *x = Number::sub(*x, max).exp());
    let sum = sum(line);
    line.iter_mut().for_each(|x| *x /= sum);
}

/// The logarithm of [`softmax`].
pub fn log_softmax<T: Float>(line: &mut [T]) {
    let max = largest(line);
    let exponentials = |sum: T, x: T| Number::add(sum, Number::sub(x, max).exp());
    let log = Fold::new(T::ZERO, exponentials, Number::add).slice(line).ln();
    line.iter_mut().for_each(|x| *x = *x - max - log);
}
