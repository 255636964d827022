//! Copies that read with any strides: transposes, slices, repetitions.

use super::parallel::PARALLEL;
use crate::array::{Array, Elem, each_elem, spare};
use crate::error::{OpError, invalid};
use crate::eval_call::Memory;
use onnxforge_ir::tensor::element_count;
use onnxforge_proto::parallel::both;

/// Edge of the squares in which a transpose works, so that the lines it reads stay in the cache until all of each is used.
const TILE: usize = 16;

/// How elements are read: from `offset` on, `strides[axis]` apart (0 repeats, negative goes backwards).
#[derive(Clone, Debug)]
pub struct View {
    /// The shape of the result.
    pub shape: Vec<usize>,
    /// The step along each axis of the result.
    pub strides: Vec<isize>,
    /// Where the first element is.
    pub offset: usize,
}

/// An axis of the result that has more than one place.
#[derive(Clone, Copy)]
struct Axis {
    dim: usize,
    stride: isize,
}

impl View {
    /// The array that the view shows. Every element that the view reaches must lie in `array`. A view of the whole array
    /// in its own order shares the elements.
    pub fn copy(&self, array: &Array, memory: &Memory) -> Result<Array, OpError> {
        let Some(count) = element_count(&self.shape) else {
            return Err(OpError::TooLarge { needed: u64::MAX, left: 0 });
        };
        if !self.is_inside(array.len()) {
            return invalid(format!("a view of {:?} reaches past the tensor", self.shape));
        }
        let axes = if count == 0 { Vec::new() } else { self.merged() };
        let in_order = matches!(axes[..], [] | [Axis { stride: 1, .. }]);
        if in_order && count == array.len() {
            return array.reshaped(&self.shape[..]);
        }
        each_elem!(array, T => {
            memory.check((count as u64).saturating_mul(size_of::<T>() as u64))?;
            let mut out = spare::unset(count);
            if count > 0 {
                let (first, rest) = axes.split_first().unwrap_or((&Axis { dim: 1, stride: 1 }, &[]));
                fill(&mut out, array.slice::<T>()?, *first, rest, self.offset as isize);
            }
            Array::with_dtype(array.dtype(), &self.shape[..], out)
        })
    }

    fn is_inside(&self, len: usize) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let (mut low, mut high) = (self.offset as i128, self.offset as i128);
        for (&dim, &stride) in self.shape.iter().zip(&self.strides) {
            let reach = stride as i128 * (dim as i128 - 1);
            let end = if reach < 0 { &mut low } else { &mut high };
            *end = end.saturating_add(reach);
        }
        low >= 0 && high < len as i128
    }

    /// The axes with those of size 1 left out and neighbours that lie end to end merged.
    fn merged(&self) -> Vec<Axis> {
        let mut axes = Vec::<Axis>::new();
        for (&dim, &stride) in self.shape.iter().zip(&self.strides).filter(|(dim, _)| **dim != 1) {
            match axes.last_mut() {
                Some(last) if last.stride == stride * dim as isize => {
                    *last = Axis { dim: last.dim * dim, stride };
                }
                _ => axes.push(Axis { dim, stride }),
            }
        }
        axes
    }
}

/// Writes to `out` what the axes show of `from`, from `at` on; `out` has exactly their size. Large results are cut in
/// halves along the outermost axis, for all cores.
fn fill<T: Elem>(out: &mut [T], from: &[T], first: Axis, rest: &[Axis], at: isize) {
    if out.len() < 2 * PARALLEL {
        return fill_here(out, from, first, rest, at);
    }
    if let (1, [next, rest @ ..]) = (first.dim, rest) {
        return fill(out, from, *next, rest, at);
    }
    let row = out.len() / first.dim;
    let half = if first.dim < 2 * TILE { first.dim / 2 } else { first.dim / 2 / TILE * TILE };
    let (low, high) = out.split_at_mut(half * row);
    let beyond = at + half as isize * first.stride;
    both(&mut || fill(low, from, Axis { dim: half, ..first }, rest, at), &mut || {
        fill(high, from, Axis { dim: first.dim - half, ..first }, rest, beyond);
    });
}

/// As [`fill`], on this core.
fn fill_here<T: Elem>(out: &mut [T], from: &[T], first: Axis, rest: &[Axis], at: isize) {
    let (Some((last, between)), Some((next, inner))) = (rest.split_last(), rest.split_first()) else {
        return fill_run(out, from, first, at);
    };
    // Neighbours in `from` stay apart in the result, and those of the result are apart in `from`.
    if first.stride == 1 && !matches!(last.stride, -1..=1) {
        let row = out.len() / first.dim;
        return transpose_planes(out, from, (first.dim, row), between, *last, (at, 0));
    }
    for (place, part) in out.chunks_exact_mut(out.len() / first.dim).enumerate() {
        fill_here(part, from, *next, inner, at + place as isize * first.stride);
    }
}

fn fill_run<T: Elem>(out: &mut [T], from: &[T], axis: Axis, at: isize) {
    match axis.stride {
        1 => out.clone_from_slice(&from[at as usize..at as usize + out.len()]),
        0 => out.fill(from[at as usize].clone()),
        stride => {
            let mut place = at;
            for slot in out {
                slot.clone_from(&from[place as usize]);
                place += stride;
            }
        }
    }
}

/// Fills the planes that the first axis (`rows` places, `row` apart in `out` and 1 apart in `from`) spans with the last,
/// one for every place of the axes between them.
fn transpose_planes<T: Elem>(
    out: &mut [T],
    from: &[T],
    (rows, row): (usize, usize),
    between: &[Axis],
    last: Axis,
    (at, to): (isize, usize),
) {
    let Some((axis, inner)) = between.split_first() else {
        return transpose_plane(&mut out[to..], from, (rows, row), last, at);
    };
    let step = inner.iter().map(|axis| axis.dim).product::<usize>() * last.dim;
    for place in 0..axis.dim {
        let place_in = at + place as isize * axis.stride;
        transpose_planes(out, from, (rows, row), inner, last, (place_in, to + place * step));
    }
}

/// Fills `rows` runs of `out` that start `row` apart; the next run is read one element further on.
///
/// Square tiles pass through a buffer, because columns whose distance is a power of two share a few places of the cache.
fn transpose_plane<T: Elem>(
    out: &mut [T],
    from: &[T],
    (rows, row): (usize, usize),
    columns: Axis,
    at: isize,
) {
    let mut tile: [[T; TILE]; TILE] = Default::default();
    for top in (0..rows).step_by(TILE) {
        let height = TILE.min(rows - top);
        for left in (0..columns.dim).step_by(TILE) {
            let width = TILE.min(columns.dim - left);
            for column in 0..width {
                let place = at + (left + column) as isize * columns.stride + top as isize;
                let from = &from[place as usize..][..height];
                // A length that is known when this is compiled makes whole tiles fast.
                match from.first_chunk::<TILE>() {
                    Some(from) => {
                        tile.iter_mut().zip(from).for_each(|(row, from)| row[column].clone_from(from));
                    }
                    None => tile.iter_mut().zip(from).for_each(|(row, from)| row[column].clone_from(from)),
                }
            }
            for (line, tile) in tile[..height].iter().enumerate() {
                let run = &mut out[(top + line) * row + left..][..width];
                match run.first_chunk_mut::<TILE>() {
                    Some(run) => run.clone_from_slice(tile),
                    None => run.clone_from_slice(&tile[..width]),
                }
            }
        }
    }
}

/// The array with its axes in the order `perm`, which must name each axis once.
pub fn transpose(array: &Array, perm: &[usize], memory: &Memory) -> Result<Array, OpError> {
    let own = super::shape::strides(array.shape());
    let view = View {
        shape: perm.iter().map(|&axis| array.shape()[axis]).collect(),
        strides: perm.iter().map(|&axis| own[axis] as isize).collect(),
        offset: 0,
    };
    view.copy(array, memory)
}

/// The array repeated to `shape`, to which it must broadcast.
pub fn expand(array: &Array, shape: &[usize], memory: &Memory) -> Result<Array, OpError> {
    let strides = super::shape::broadcast_strides(array.shape(), shape);
    let strides = strides.into_iter().map(|stride| stride as isize).collect();
    View { shape: shape.to_vec(), strides, offset: 0 }.copy(array, memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iota(shape: &[usize]) -> Array {
        let count: usize = shape.iter().product();
        Array::new(shape, (0..count as i64).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn transposes_and_expands() {
        let memory = Memory::new(1 << 20);
        let t = transpose(&iota(&[2, 3]), &[1, 0], &memory).unwrap();
        assert_eq!((t.shape(), t.slice::<i64>().unwrap()), (&[3, 2][..], &[0, 3, 1, 4, 2, 5][..]));
        let t = transpose(&iota(&[2, 3, 4]), &[1, 0, 2], &memory).unwrap();
        assert_eq!(t.slice::<i64>().unwrap()[..8], [0, 1, 2, 3, 12, 13, 14, 15]);
        let t = expand(&iota(&[2, 1]), &[2, 2, 3], &memory).unwrap();
        assert_eq!(t.slice::<i64>().unwrap(), [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
        assert_eq!(transpose(&iota(&[]), &[], &memory).unwrap().slice::<i64>().unwrap(), [0]);
        assert!(expand(&iota(&[1]), &[1 << 40], &memory).is_err());
    }

    /// The definition, one index at a time.
    fn slow(view: &View, from: &[i64]) -> Vec<i64> {
        let count: usize = view.shape.iter().product();
        let element = |index: usize| {
            let (mut rest, mut at) = (index, view.offset as isize);
            for (&dim, &stride) in view.shape.iter().zip(&view.strides).rev() {
                at += (rest % dim) as isize * stride;
                rest /= dim;
            }
            from[at as usize]
        };
        (0..count).map(element).collect()
    }

    #[test]
    fn large_and_small_views_are_what_the_definition_says() {
        let memory = Memory::new(1 << 30);
        let views: [(&[usize], &[isize], usize); 9] = [
            (&[65, 33, 40], &[1, 65 * 40, 65], 0),
            (&[300, 200], &[1, 300], 0),
            (&[200, 300], &[-300, -1], 59_999),
            (&[2, 300, 100], &[30_000, 1, 300], 0),
            (&[50, 40, 30], &[0, 30, 1], 7),
            (&[40, 50, 30], &[1, 0, 40], 0),
            (&[100_000], &[2], 1),
            (&[1, 17, 1, 3], &[5, 1, 9, 17], 0),
            (&[12, 128, 64], &[64, 768, 1], 0),
        ];
        for (shape, strides, offset) in views {
            let view = View { shape: shape.into(), strides: strides.into(), offset };
            let array = iota(&[200_001]);
            let found = view.copy(&array, &memory).unwrap();
            assert_eq!(found.slice::<i64>().unwrap(), slow(&view, array.slice().unwrap()), "{view:?}");
        }
    }

    #[test]
    fn reads_backwards_and_refuses_to_leave_the_tensor() {
        let memory = Memory::new(1 << 20);
        let view = View { shape: vec![3], strides: vec![-2], offset: 5 };
        assert_eq!(view.copy(&iota(&[6]), &memory).unwrap().slice::<i64>().unwrap(), [5, 3, 1]);
        let view = View { shape: vec![4], strides: vec![-2], offset: 5 };
        assert!(view.copy(&iota(&[6]), &memory).is_err());
        let view = View { shape: vec![2, 0], strides: vec![9, 9], offset: 50 };
        assert_eq!(view.copy(&iota(&[6]), &memory).unwrap().len(), 0);
    }
}
