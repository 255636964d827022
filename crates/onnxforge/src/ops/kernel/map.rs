//! Element by element, with broadcasting, on all cores when it is worth it.

use rayon::prelude::*;

use super::shape::{broadcast, broadcast_strides, for_each_offset};
use crate::ir::tensor::element_count;
use crate::ops::array::{Array, Elem, Typed};
use crate::ops::error::OpError;
use crate::ops::eval::Memory;

/// Elements from which on work is spread over the cores, and the least that one core gets.
pub const PARALLEL: usize = 16 * 1024;

/// `f` of every element, in place when nobody else holds the array.
pub fn map<T: Typed>(array: Array, f: impl Fn(T) -> T + Sync) -> Result<Array, OpError> {
    let (dtype, shape) = (array.dtype(), array.shape().to_vec());
    let mut data = array.into_vec::<T>()?;
    if data.len() >= PARALLEL {
        data.par_chunks_mut(PARALLEL).for_each(|chunk| chunk.iter_mut().for_each(|x| *x = f(*x)));
    } else {
        data.iter_mut().for_each(|x| *x = f(*x));
    }
    Array::with_dtype(dtype, shape, data)
}

/// `f` of every element as an array of another type.
pub fn map_to<T: Elem, U: Typed>(array: &Array, f: impl Fn(&T) -> U + Sync) -> Result<Array, OpError> {
    let data = array.slice::<T>()?;
    let result: Vec<U> = if data.len() >= PARALLEL {
        data.par_iter().with_min_len(PARALLEL).map(&f).collect()
    } else {
        data.iter().map(f).collect()
    };
    Array::new(array.shape(), result)
}

/// `f` of two arrays broadcast together.
pub fn zip<T: Elem, S: Elem, U: Typed>(
    a: &Array,
    b: &Array,
    memory: &Memory,
    f: impl Fn(&T, &S) -> U + Sync,
) -> Result<Array, OpError> {
    let shape = broadcast(&[a.shape(), b.shape()])?;
    let count = element_count(&shape).ok_or(OpError::TooLarge { needed: u64::MAX, left: 0 })?;
    memory.check((count as u64).saturating_mul(size_of::<U>() as u64))?;
    let (x, y) = (a.slice::<T>()?, b.slice::<S>()?);
    let mut out = vec![U::default(); count];
    if count == 0 {
        return Array::new(shape, out);
    }
    // A trailing part of the shape in which each side is either whole or one element.
    let strides = (broadcast_strides(a.shape(), &shape), broadcast_strides(b.shape(), &shape));
    let inner = uniform_suffix(&shape, [&strides.0, &strides.1]);
    let run: usize = shape.iter().skip(inner).product();
    let repeats = |strides: &[usize]| strides.iter().zip(&shape).skip(inner).all(|(s, d)| *s == 0 || *d == 1);
    let (x_one, y_one) = (repeats(&strides.0) && run > 1, repeats(&strides.1) && run > 1);
    let fill = |out: &mut [U], at: [usize; 2]| {
        let (x, y) = (&x[at[0]..], &y[at[1]..]);
        match (x_one, y_one) {
            (false, false) => out.iter_mut().zip(x).zip(y).for_each(|((o, x), y)| *o = f(x, y)),
            (true, false) => out.iter_mut().zip(y).for_each(|(o, y)| *o = f(&x[0], y)),
            (false, true) => out.iter_mut().zip(x).for_each(|(o, x)| *o = f(x, &y[0])),
            (true, true) => out.fill(f(&x[0], &y[0])),
        }
    };
    let outer = &shape[..inner];
    if outer.iter().product::<usize>() == 1 {
        if count >= 2 * PARALLEL {
            let moved = |one: bool, at: usize| if one { 0 } else { at };
            out.par_chunks_mut(PARALLEL).enumerate().for_each(|(i, chunk)| {
                let at = i * PARALLEL;
                fill(chunk, [moved(x_one, at), moved(y_one, at)]);
            });
        } else {
            fill(&mut out, [0, 0]);
        }
        return Array::new(shape, out);
    }
    let mut offsets = Vec::with_capacity(count / run);
    for_each_offset(outer, [&strides.0[..inner], &strides.1[..inner]], |at| offsets.push(at));
    if count >= 2 * PARALLEL {
        let least = (PARALLEL / run).max(1);
        let parts = out.par_chunks_mut(run).with_min_len(least);
        parts.zip(offsets.par_iter().with_min_len(least)).for_each(|(chunk, &at)| fill(chunk, at));
    } else {
        out.chunks_mut(run).zip(&offsets).for_each(|(chunk, &at)| fill(chunk, at));
    }
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
