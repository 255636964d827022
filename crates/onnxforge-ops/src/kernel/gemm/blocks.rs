//! A block of the product of two matrices. Tiles of the result are summed in registers, from rows of the first matrix and columns of the
//! second. Both are copied next to each other where many tiles read them, and read where they are otherwise.

use pulp::{Simd, WithSimd};

use super::Matrix;
use crate::kernel::number::Float;

/// Rows of a tile; its columns are two vectors. Its sums, a row of the second matrix and a factor fill sixteen registers.
const TILE_ROWS: usize = 6;

/// Steps along the inner dimension between two additions to the result.
const DEPTH: usize = 256;

/// Rows of a block.
pub const BLOCK_ROWS: usize = 192;

/// Columns of a block.
pub const BLOCK_COLUMNS: usize = 512;

/// Up to so many rows of a block, copying columns takes longer than it saves.
const FEW_ROWS: usize = 2 * TILE_ROWS;

/// Up to so many columns of a block, copying rows takes longer than it saves.
const FEW_COLUMNS: usize = 128;

/// More columns than a tile has.
const WIDEST: usize = 64;

/// A block of a result.
pub struct Block<'a, 'o, T> {
    /// Its rows.
    pub out: &'a mut [&'o mut [T]],
    /// The first factor.
    pub a: Matrix<'a, T>,
    /// The second factor.
    pub b: Matrix<'a, T>,
    /// The row and the column of the result where it begins.
    pub place: [usize; 2],
    /// What the result is multiplied with.
    pub alpha: T,
    /// Whether it is added to what is there.
    pub add: bool,
}

impl<T: Float> WithSimd for Block<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { out, a, b, place: [row, column], alpha, add } = self;
        let wide = 2 * (size_of::<T::Vector<S>>() / size_of::<T>());
        let (rows, columns) = (out.len(), out.first().map_or(0, |row| row.len()));
        let most = a.columns.min(DEPTH);
        let own_rows = a.transposed || columns > FEW_COLUMNS;
        let mut own_a = vec![T::ZERO; if own_rows { rows * most } else { 0 }];
        let mut own_b = vec![T::ZERO; wide * most];
        for start in (0..a.columns).step_by(DEPTH) {
            let depth = most.min(a.columns - start);
            let part = if own_rows {
                let part = &mut own_a[..rows * depth];
                copy_rows(part, a, [row, start], depth);
                Rows { data: part, stride: depth, depth }
            } else {
                Rows { data: &a.data[row * a.columns + start..], stride: a.columns, depth }
            };
            let sums = Sums { alpha, add: add || start > 0 };
            for left in (0..columns).step_by(wide) {
                let width = wide.min(columns - left);
                let place = [start, column + left];
                if rows <= FEW_ROWS && width == wide && !b.transposed {
                    let data = &b.data[start * b.columns + column + left..];
                    for (index, out) in out.chunks_mut(TILE_ROWS).enumerate() {
                        let steps = data.chunks(b.columns).flat_map(|step| step.get(..wide));
                        let steps = steps.flat_map(|step| T::vectors::<S>(step).first_chunk());
                        let rows = part.tile(index * TILE_ROWS, out.len());
                        sums.write(simd, out, left, width, tile(simd, rows, steps));
                    }
                } else {
                    gather(&mut own_b[..wide * depth], wide, b, place, width);
                    let steps = T::vectors::<S>(&own_b[..wide * depth]).as_chunks().0;
                    for (index, out) in out.chunks_mut(TILE_ROWS).enumerate() {
                        let rows = part.tile(index * TILE_ROWS, out.len());
                        sums.write(simd, out, left, width, tile(simd, rows, steps.iter()));
                    }
                }
            }
        }
    }
}

/// Rows of the first matrix, each with `depth` elements that count.
struct Rows<'a, T> {
    data: &'a [T],
    stride: usize,
    depth: usize,
}

impl<'a, T> Rows<'a, T> {
    /// The rows of a tile. The last of `count` rows stands for those that a tile at the lower edge does not have.
    #[inline(always)]
    fn tile(&self, first: usize, count: usize) -> [&'a [T]; TILE_ROWS] {
        std::array::from_fn(|row| &self.data[(first + row.min(count - 1)) * self.stride..][..self.depth])
    }
}

/// The sums of one tile: six rows of the first matrix times, at each step, two vectors of the second.
#[inline(always)]
fn tile<'b, T: Float, S: Simd>(
    simd: S,
    [first, second, third, fourth, fifth, sixth]: [&[T]; TILE_ROWS],
    b: impl Iterator<Item = &'b [T::Vector<S>; 2]>,
) -> [[T::Vector<S>; 2]; TILE_ROWS] {
    let mut sums = [[T::splat(simd, T::ZERO); 2]; TILE_ROWS];
    let [sum1, sum2, sum3, sum4, sum5, sum6] = &mut sums;
    // Iterators side by side need no check of a bound at each step.
    let rows = first.iter().zip(second).zip(third).zip(fourth).zip(fifth).zip(sixth);
    for ((((((first, second), third), fourth), fifth), sixth), b) in rows.zip(b) {
        // Row by row, because a loop over rows may stay one, with the sums in memory.
        times_plus(simd, *first, b, sum1);
        times_plus(simd, *second, b, sum2);
        times_plus(simd, *third, b, sum3);
        times_plus(simd, *fourth, b, sum4);
        times_plus(simd, *fifth, b, sum5);
        times_plus(simd, *sixth, b, sum6);
    }
    sums
}

/// Adds a factor times two vectors.
#[inline(always)]
fn times_plus<T: Float, S: Simd>(
    simd: S,
    factor: T,
    [low, high]: &[T::Vector<S>; 2],
    sums: &mut [T::Vector<S>; 2],
) {
    let factor = T::splat(simd, factor);
    sums[0] = T::times_plus(simd, factor, *low, sums[0]);
    sums[1] = T::times_plus(simd, factor, *high, sums[1]);
}

/// How sums become results.
struct Sums<T> {
    alpha: T,
    add: bool,
}

impl<T: Float> Sums<T> {
    /// Writes the sums of a tile to `width` columns of its rows, from the column `left` on.
    #[inline(always)]
    fn write<S: Simd>(
        &self,
        simd: S,
        out: &mut [&mut [T]],
        left: usize,
        width: usize,
        sums: [[T::Vector<S>; 2]; TILE_ROWS],
    ) {
        let alpha = T::splat(simd, self.alpha);
        for (out, [low, high]) in out.iter_mut().zip(sums) {
            let out = &mut out[left..left + width];
            // No closure, which would not be compiled for the vectors of this processor.
            let sums = [T::times(simd, alpha, low), T::times(simd, alpha, high)];
            let vectors = T::vectors_mut::<S>(out);
            if vectors.len() == 2 {
                for (out, sum) in vectors.iter_mut().zip(sums) {
                    *out = if self.add { T::plus(simd, *out, sum) } else { sum };
                }
                continue;
            }
            let mut edge = [T::ZERO; WIDEST];
            T::vectors_mut::<S>(&mut edge)[..2].copy_from_slice(&sums);
            for (out, sum) in out.iter_mut().zip(edge) {
                *out = if self.add { *out + sum } else { sum };
            }
        }
    }
}

/// Copies `width` columns of a matrix, step by step, from the step and the column `place` on; columns up to `wide` are zero.
#[inline(always)]
fn gather<T: Float>(out: &mut [T], wide: usize, b: Matrix<'_, T>, [start, column]: [usize; 2], width: usize) {
    /// Columns and steps that are copied at once.
    const TILE: usize = 16;
    if width < wide {
        out.fill(T::ZERO);
    }
    if !b.transposed {
        let steps = b.data[start * b.columns..].chunks(b.columns);
        for (out, step) in out.chunks_exact_mut(wide).zip(steps) {
            out[..width].copy_from_slice(&step[column..column + width]);
        }
        return;
    }
    let depth = out.len() / wide;
    let line = |at: usize| &b.data[(column + at) * b.rows + start..][..depth];
    // Square tiles, whose sizes are known when this is compiled.
    let whole = [width - width % TILE, depth - depth % TILE];
    let mut tile = [[T::ZERO; TILE]; TILE];
    for done in (0..whole[0]).step_by(TILE) {
        for step in (0..whole[1]).step_by(TILE) {
            for at in 0..TILE {
                let line = line(done + at)[step..].first_chunk::<TILE>();
                tile.iter_mut().zip(line.into_iter().flatten()).for_each(|(row, &x)| row[at] = x);
            }
            for (below, row) in tile.iter().enumerate() {
                out[(step + below) * wide + done..][..TILE].copy_from_slice(row);
            }
        }
    }
    for at in 0..width {
        let step = if at < whole[0] { whole[1] } else { 0 };
        let places = out.iter_mut().skip(step * wide + at).step_by(wide);
        places.zip(&line(at)[step..]).for_each(|(out, &x)| *out = x);
    }
}

/// Copies rows of a matrix, `depth` elements of each, from the row and the step `place` on.
#[inline(always)]
fn copy_rows<T: Float>(out: &mut [T], a: Matrix<'_, T>, [row, start]: [usize; 2], depth: usize) {
    for (at, out) in out.chunks_exact_mut(depth).enumerate() {
        if a.transposed {
            let elements = a.data[start * a.rows + row + at..].iter().step_by(a.rows);
            out.iter_mut().zip(elements).for_each(|(out, &x)| *out = x);
        } else {
            out.copy_from_slice(&a.data[(row + at) * a.columns + start..][..depth]);
        }
    }
}
