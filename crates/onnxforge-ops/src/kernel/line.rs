//! Lines along one axis, each changed by itself.

use super::fold::Fold;
use super::lane::in_vectors;
use super::number::{Float, Number};
use super::parallel::each_piece;
use super::strided::transpose;
use super::transcendental::Transcendental;
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
pub fn softmax<T: Transcendental>(line: &mut [T]) {
    softmax_with_sink(line, None);
}

/// The same with an element that counts in the sum alone: a share goes to nothing.
pub fn softmax_with_sink<T: Transcendental>(line: &mut [T], sink: Option<T>) {
    let max = largest(line);
    let max = sink.map_or(max, |sink| if sink > max { sink } else { max });
    each(line, move |x| Number::sub(x, max).fast_exp());
    let sum = sink.map_or(sum(line), |sink| Number::add(sum(line), Number::sub(sink, max).fast_exp()));
    each(line, move |x| x / sum);
}

/// Changes each element, in vectors. What `f` captures should be its own: where it lies elsewhere, a loop reads it again and again.
fn each<T: Float>(line: &mut [T], f: impl Fn(T) -> T) {
    in_vectors(move || line.iter_mut().for_each(|x| *x = f(*x)));
}

/// The logarithm of [`softmax`].
pub fn log_softmax<T: Float>(line: &mut [T]) {
    let max = largest(line);
    let exponentials = |sum: T, x: T| Number::add(sum, Number::sub(x, max).exp());
    let log = Fold::new(T::ZERO, exponentials, Number::add).slice(line).ln();
    line.iter_mut().for_each(|x| *x = *x - max - log);
}
