//! Element by element, with broadcasting, on all cores when it is worth it.

use super::lane::in_vectors;
use super::parallel::{PARALLEL, each_piece};
use super::shape::{broadcast, broadcast_strides, for_each_offset};
use crate::array::{Array, Elem, Typed, spare};
use crate::error::OpError;
use crate::eval_call::Memory;
use onnxforge_ir::tensor::element_count;

/// `f` of every element, in place when nobody else holds the array.
pub fn map<T: Typed>(array: Array, f: impl Fn(T) -> T + Sync) -> Result<Array, OpError> {
    let (dtype, shape) = (array.dtype(), array.shape().to_vec());
    let mut data = array.into_vec::<T>()?;
    in_parts(&mut data, PARALLEL, &|_, part| part.iter_mut().for_each(|x| *x = f(*x)));
    Array::with_dtype(dtype, shape, data)
}

/// The same for functions that compute much for each element: their loop is compiled for the vectors of this processor.
pub fn map_in_vectors<T: Typed>(array: Array, f: impl Fn(T) -> T + Sync) -> Result<Array, OpError> {
    let (dtype, shape) = (array.dtype(), array.shape().to_vec());
    let mut data = array.into_vec::<T>()?;
    in_parts(&mut data, PARALLEL, &|_, part| in_vectors(|| part.iter_mut().for_each(|x| *x = f(*x))));
    Array::with_dtype(dtype, shape, data)
}

/// `f` of every element as an array of another type.
pub fn map_to<T: Elem, U: Typed>(array: &Array, f: impl Fn(&T) -> U + Sync) -> Result<Array, OpError> {
    let data = array.slice::<T>()?;
    let mut out = spare::unset(data.len());
    in_parts(&mut out, PARALLEL, &|at, part| part.iter_mut().zip(&data[at..]).for_each(|(o, x)| *o = f(x)));
    Array::new(array.shape(), out)
}

/// Hands `work` parts of `part` elements with the place where each begins.
pub fn in_parts<T: Send>(data: &mut [T], part: usize, work: &(dyn Fn(usize, &mut [T]) + Sync)) {
    each_piece(data, part, part, &|index, piece| work(index * part, piece));
}

/// `f` of two arrays broadcast together.
pub fn zip<T: Elem, S: Elem, U: Typed>(
    a: &Array,
    b: &Array,
    memory: &Memory,
    f: impl Fn(&T, &S) -> U + Sync,
) -> Result<Array, OpError> {
    zip_runs::<T, S, U>(a, b, memory, &|x, y, out| match (x, y) {
        ([x], [y]) => out.fill(f(x, y)),
        ([x], y) => out.iter_mut().zip(y).for_each(|(o, y)| *o = f(x, y)),
        (x, [y]) => out.iter_mut().zip(x).for_each(|(o, x)| *o = f(x, y)),
        (x, y) => out.iter_mut().zip(x).zip(y).for_each(|((o, x), y)| *o = f(x, y)),
    })
}

/// A loop over runs of two operands, each as long as the result or one element.
type Runs<'a, T, S, U> = &'a (dyn Fn(&[T], &[S], &mut [U]) + Sync);

/// Broadcasts two arrays and hands `runs` the parts of which each side is whole or one element.
fn zip_runs<T: Elem, S: Elem, U: Typed>(
    a: &Array,
    b: &Array,
    memory: &Memory,
    runs: Runs<'_, T, S, U>,
) -> Result<Array, OpError> {
    let shape = broadcast(&[a.shape(), b.shape()])?;
    let count = element_count(&shape).ok_or(OpError::TooLarge { needed: u64::MAX, left: 0 })?;
    memory.check((count as u64).saturating_mul(size_of::<U>() as u64))?;
    let (x, y) = (a.slice::<T>()?, b.slice::<S>()?);
    let mut out = spare::unset(count);
    if count == 0 {
        return Array::new(shape, out);
    }
    let strides = (broadcast_strides(a.shape(), &shape), broadcast_strides(b.shape(), &shape));
    let inner = uniform_suffix(&shape, [&strides.0, &strides.1]);
    let run: usize = shape.iter().skip(inner).product();
    let repeats = |strides: &[usize]| strides.iter().zip(&shape).skip(inner).all(|(s, d)| *s == 0 || *d == 1);
    // How much of each side a run of the result reads.
    let width = |strides: &[usize]| if repeats(strides) { 1 } else { run };
    let widths = [width(&strides.0), width(&strides.1)];
    let reads = |out: &mut [U], at: [usize; 2]| {
        let part = |width: usize| if width == 1 { 1 } else { out.len() };
        runs(&x[at[0]..][..part(widths[0])], &y[at[1]..][..part(widths[1])], out);
    };
    let outer = &shape[..inner];
    if outer.iter().product::<usize>() == 1 {
        let moved = |width: usize, at: usize| if width == 1 { 0 } else { at };
        in_parts(&mut out, PARALLEL, &|at, part| reads(part, [moved(widths[0], at), moved(widths[1], at)]));
        return Array::new(shape, out);
    }
    let mut offsets = Vec::with_capacity(count / run);
    for_each_offset(outer, [&strides.0[..inner], &strides.1[..inner]], |at| offsets.push(at));
    in_parts(&mut out, run, &|at, part| reads(part, offsets[at / run]));
    Array::new(shape, out)
}

/// The first axis from which on every operand is contiguous or constant.
fn uniform_suffix(shape: &[usize], strides: [&[usize]; 2]) -> usize {
    let mut axis = shape.len();
    let mut expected = 1;
    // Whether an operand has been seen to be whole or repeated; `None` while only axes of size 1 were seen.
    let mut whole: [Option<bool>; 2] = [None; 2];
    while axis > 0 {
        let dim = shape[axis - 1];
        if dim != 1 {
            let mut next = whole;
            for (state, strides) in next.iter_mut().zip(strides) {
                let now = match strides[axis - 1] {
                    0 => false,
                    stride if stride == expected => true,
                    _ => return axis,
                };
                if state.is_some_and(|before| before != now) {
                    return axis;
                }
                *state = Some(now);
            }
            whole = next;
            expected *= dim;
        }
        axis -= 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, one index at a time.
    fn slow(a: &Array, b: &Array) -> Vec<i64> {
        let shape = broadcast(&[a.shape(), b.shape()]).unwrap();
        let (sa, sb) = (broadcast_strides(a.shape(), &shape), broadcast_strides(b.shape(), &shape));
        let (x, y) = (a.slice::<i64>().unwrap(), b.slice::<i64>().unwrap());
        let mut out = Vec::new();
        for_each_offset(&shape, [&sa, &sb], |[i, j]| out.push(x[i] * 1000 + y[j]));
        out
    }

    #[test]
    fn zip_broadcasts_like_the_definition() {
        let memory = Memory::new(1 << 30);
        let shapes: [&[usize]; 14] = [
            &[],
            &[1],
            &[3],
            &[2, 3],
            &[2, 1],
            &[1, 3],
            &[4, 2, 3],
            &[4, 1, 3],
            &[4, 1, 1],
            &[1, 2, 1],
            &[5, 4, 2, 3],
            &[5, 1, 2, 1],
            &[0],
            &[70, 4, 2, 300],
        ];
        for a in shapes {
            for b in shapes {
                if broadcast(&[a, b]).is_err() {
                    continue;
                }
                let iota = |shape: &[usize]| {
                    let count: usize = shape.iter().product();
                    Array::new(shape, (0..count as i64).collect::<Vec<_>>()).unwrap()
                };
                let (x, y) = (iota(a), iota(b));
                let z = zip(&x, &y, &memory, |x: &i64, y: &i64| x * 1000 + y).unwrap();
                assert_eq!(z.slice::<i64>().unwrap(), slow(&x, &y), "{a:?} {b:?}");
            }
        }
    }
}
