//! Folds along axes: sums, extremes and the like.
//!
//! Elements are folded pairwise, in blocks with several accumulators: the rounding error of a sum grows with the
//! logarithm of its length. How a fold is split depends on the shape alone, never on the number of cores.

use std::marker::PhantomData;

use super::parallel::{PARALLEL, each_piece};
use super::strided::transpose;
use crate::array::{Array, Elem};
use crate::error::OpError;
use crate::eval_call::Memory;
use onnxforge_ir::tensor::element_count;

/// Accumulators that a block of a row is folded into side by side.
const LANES: usize = 16;
/// Elements of a row that are folded in sequence.
const BLOCK: usize = 64 * LANES;
/// Columns that are folded side by side.
const TILE: usize = 32;
/// Rows that are folded in sequence.
const ROWS: usize = 64;

/// How elements `T` are folded into an `A`: `step` takes in one element, `merge` joins what two parts gave, and `start`
/// is what no element gives.
pub struct Fold<T, A, S, M> {
    start: A,
    step: S,
    merge: M,
    elements: PhantomData<fn(T)>,
}

impl<T, A, S, M> Fold<T, A, S, M>
where
    T: Elem + Copy,
    A: Copy + Send + Sync,
    S: Fn(A, T) -> A + Sync,
    M: Fn(A, A) -> A + Sync,
{
    /// The fold of these parts.
    pub fn new(start: A, step: S, merge: M) -> Self {
        Self { start, step, merge, elements: PhantomData }
    }

    /// Folds every element.
    pub fn slice(&self, data: &[T]) -> A {
        if data.len() < 4 * PARALLEL {
            return self.run(data);
        }
        let mut parts = vec![self.start; data.len().div_ceil(PARALLEL)];
        each_piece(&mut parts, 1, PARALLEL, &|index, part| {
            let run = &data[index * PARALLEL..];
            part.fill(self.run(&run[..run.len().min(PARALLEL)]));
        });
        self.pairwise(&mut parts)
    }

    /// Folds every element on one core.
    fn run(&self, data: &[T]) -> A {
        if data.len() <= LANES {
            return data.iter().fold(self.start, |acc, &x| (self.step)(acc, x));
        }
        if data.len() <= BLOCK {
            return self.block(data);
        }
        let (left, right) = data.split_at((data.len() / 2).next_multiple_of(BLOCK));
        (self.merge)(self.run(left), self.run(right))
    }

    /// Joins the parts, each with the one half of them further on.
    fn pairwise(&self, parts: &mut [A]) -> A {
        let mut width = parts.len();
        while width > 1 {
            let half = width.div_ceil(2);
            for index in half..width {
                parts[index - half] = (self.merge)(parts[index - half], parts[index]);
            }
            width = half;
        }
        parts.first().copied().unwrap_or(self.start)
    }

    fn block(&self, data: &[T]) -> A {
        let mut lanes = [self.start; LANES];
        let chunks = data.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = (self.step)(*lane, x);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane = (self.step)(*lane, x);
        }
        self.pairwise(&mut lanes)
    }

    /// Folds each of the first `width` columns of rows that are `stride` apart.
    fn columns(&self, data: &[T], stride: usize, rows: usize, width: usize) -> [A; TILE] {
        let mut result = [self.start; TILE];
        if rows <= ROWS {
            for row in data.chunks(stride) {
                for (acc, &x) in result[..width].iter_mut().zip(row) {
                    *acc = (self.step)(*acc, x);
                }
            }
            return result;
        }
        let half = (rows / 2).next_multiple_of(ROWS);
        let (top, bottom) = data.split_at(half * stride);
        let top = self.columns(top, stride, half, width);
        let bottom = self.columns(bottom, stride, rows - half, width);
        for (acc, (top, bottom)) in result[..width].iter_mut().zip(top.into_iter().zip(bottom)) {
            *acc = (self.merge)(top, bottom);
        }
        result
    }

    /// Folds the middle axis of `outer × n × inner` elements, which must all be there, and finishes each result.
    pub fn middle<U: Elem>(
        &self,
        data: &[T],
        [outer, n, inner]: [usize; 3],
        finish: impl Fn(A) -> U + Sync,
    ) -> Vec<U> {
        let mut out = vec![U::default(); outer * inner];
        if out.is_empty() || n == 0 {
            out.fill(finish(self.start));
            return out;
        }
        if inner == 1 {
            each_piece(&mut out, 1, n, &|row, out| out.fill(finish(self.slice(&data[row * n..][..n]))));
            return out;
        }
        // Tiles end where a row of results ends.
        let tiles = inner.div_ceil(TILE);
        let mut pieces: Vec<&mut [U]> = out.chunks_mut(inner).flat_map(|row| row.chunks_mut(TILE)).collect();
        each_piece(&mut pieces, 1, n * inner.min(TILE), &|index, pieces| {
            let rows = &data[index / tiles * n * inner..][..n * inner];
            for out in pieces {
                let folded = self.columns(&rows[index % tiles * TILE..], inner, n, out.len());
                out.iter_mut().zip(folded).for_each(|(out, acc)| *out = finish(acc));
            }
        });
        out
    }

    /// Folds along `axes`, each of which `array` must have, and finishes each result. The results are in the row-major
    /// order of the other axes.
    pub fn axes<U: Elem>(
        &self,
        array: &Array,
        axes: &[usize],
        memory: &Memory,
        finish: impl Fn(A) -> U + Sync,
    ) -> Result<Vec<U>, OpError> {
        let shape = array.shape();
        let kept: Vec<usize> = (0..shape.len()).filter(|axis| !axes.contains(axis)).collect();
        let kept_shape: Vec<usize> = kept.iter().map(|&axis| shape[axis]).collect();
        let count = element_count(&kept_shape).ok_or(OpError::TooLarge { needed: u64::MAX, left: 0 })?;
        memory.check((count as u64).saturating_mul(size_of::<U>() as u64))?;
        if count == 0 || array.is_empty() {
            return Ok(vec![finish(self.start); count]);
        }
        if let Some(split) = middle_axis(shape, axes) {
            return Ok(self.middle(array.slice()?, split, finish));
        }
        let order: Vec<usize> = kept.into_iter().chain(axes.iter().copied()).collect();
        let moved = transpose(array, &order, memory)?;
        Ok(self.middle(moved.slice()?, [count, array.len() / count, 1], finish))
    }
}

/// The shape as `outer × n × inner` where the axes to fold, and nothing else, make up `n`; `None` if they do not lie
/// side by side. The shape must have elements.
fn middle_axis(shape: &[usize], axes: &[usize]) -> Option<[usize; 3]> {
    let folded = |axis: &usize| axes.contains(axis) && shape[*axis] != 1;
    let (Some(first), Some(last)) = ((0..shape.len()).find(folded), (0..shape.len()).rev().find(folded))
    else {
        return Some([shape.iter().product(), 1, 1]);
    };
    let gap = (first..=last).any(|axis| !axes.contains(&axis) && shape[axis] != 1);
    let size = |range: &[usize]| range.iter().product();
    (!gap).then(|| [size(&shape[..first]), size(&shape[first..=last]), size(&shape[last + 1..])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::shape::{for_each_offset, strides};

    /// The definition, one element at a time.
    fn slow(array: &Array, axes: &[usize]) -> Vec<i64> {
        let shape = array.shape();
        let kept: Vec<usize> = (0..shape.len()).filter(|axis| !axes.contains(axis)).collect();
        let kept_shape: Vec<usize> = kept.iter().map(|&axis| shape[axis]).collect();
        let mut to = vec![0; shape.len()];
        for (&axis, stride) in kept.iter().zip(strides(&kept_shape)) {
            to[axis] = stride;
        }
        let mut out = vec![0; kept_shape.iter().product()];
        let data = array.slice::<i64>().unwrap();
        for_each_offset(shape, [&strides(shape), &to], |[from, to]| out[to] += data[from]);
        out
    }

    #[test]
    fn folds_like_the_definition() {
        let memory = Memory::new(1 << 30);
        let shapes: [&[usize]; 7] =
            [&[], &[5], &[2, 3, 4], &[3, 1, 70, 2], &[2, 3000, 3], &[40, 0, 2], &[3, 200_000]];
        for shape in shapes {
            let count: usize = shape.iter().product();
            let array = Array::new(shape, (0..count as i64).map(|i| i * i % 1009).collect()).unwrap();
            for mask in 0..1usize << shape.len() {
                let axes: Vec<usize> = (0..shape.len()).filter(|axis| mask >> axis & 1 == 1).collect();
                let sum = Fold::new(0i64, |a: i64, x: i64| a + x, |a, b| a + b);
                let found = sum.axes(&array, &axes, &memory, |a| a).unwrap();
                assert_eq!(found, slow(&array, &axes), "{shape:?} {axes:?}");
            }
        }
    }

    #[test]
    fn long_sums_stay_exact_to_rounding() {
        let sum = Fold::new(0f32, |a: f32, x: f32| a + x, |a, b| a + b);
        let data = vec![0.1f32; 1 << 20];
        assert!((sum.slice(&data) / (0.1 * (1 << 20) as f32) - 1.0).abs() < 1e-6);
        let columns = sum.middle(&data, [1, 1 << 18, 4], |a| a);
        assert!(columns.iter().all(|c| (c / (0.1 * (1 << 18) as f32) - 1.0).abs() < 1e-6));
    }

    #[test]
    fn hostile_shapes_are_refused() {
        let array = Array::new([1 << 40, 1 << 40, 0], Vec::<f32>::new()).unwrap();
        let sum = Fold::new(0f32, |a: f32, x: f32| a + x, |a, b| a + b);
        let memory = Memory::new(1 << 20);
        assert!(sum.axes(&array, &[2], &memory, |a| a).is_err());
        assert_eq!(sum.axes(&array, &[0], &memory, |a| a).unwrap(), Vec::<f32>::new());
        assert_eq!(sum.axes(&array, &[0, 1, 2], &memory, |a| a).unwrap(), [0.0]);
    }
}
