//! Matmuls of floats.
//!
//! Every element of a result is summed in the order of the inner dimension, in steps that depend on sizes alone. So a result is the same on any
//! number of cores; on processors with other vector instructions it may round otherwise.

mod blocks;
mod vector;

use pulp::Arch;

use self::blocks::{BLOCK_COLUMNS, BLOCK_ROWS, Block};
use self::vector::Vector;
use super::number::Float;
use onnxforge_proto::parallel::{for_each, thread_count};

/// Matmuls from this many multiplications on are spread over the cores.
const PARALLEL: usize = 64 * 64 * 64;

/// A matrix in a slice, read row by row, or column by column when it stands transposed.
#[derive(Clone, Copy)]
pub struct Matrix<'a, T> {
    /// The elements, of which the first `rows * columns` count.
    pub data: &'a [T],
    /// Rows of the matrix that is multiplied.
    pub rows: usize,
    /// Columns of the matrix that is multiplied.
    pub columns: usize,
    /// The slice holds the transposed matrix.
    pub transposed: bool,
}

impl<'a, T> Matrix<'a, T> {
    /// A matrix that is stored row by row.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self { data, rows, columns, transposed: false }
    }

    /// A matrix whose transpose (`columns` rows of `rows` elements) is stored row by row.
    pub fn transposed(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self { data, rows, columns, transposed: true }
    }

    /// Its transpose, in the same slice.
    fn flipped(self) -> Self {
        Self { data: self.data, rows: self.columns, columns: self.rows, transposed: !self.transposed }
    }
}

/// `out = alpha · a · b`, or `out += alpha · a · b` when `add`. `out` is stored row by row. The inner dimensions must agree and
/// the slices must be long enough. `parallel` is false where the caller already works on all cores.
pub fn gemm<T: Float>(
    out: &mut [T],
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    alpha: T,
    add: bool,
    parallel: bool,
) {
    let (m, k, n) = (a.rows, a.columns, b.columns);
    let out = &mut out[..m * n];
    if out.is_empty() {
        return;
    }
    if k == 0 {
        if !add {
            out.fill(T::ZERO);
        }
        return;
    }
    let parallel = parallel && m.saturating_mul(n).saturating_mul(k) >= PARALLEL;
    if m == 1 {
        times_vector(out, a.data, b, alpha, add, parallel);
    } else if n == 1 {
        times_vector(out, b.data, a.flipped(), alpha, add, parallel);
    } else {
        by_blocks(out, a, b, alpha, add, parallel);
    }
}

/// A row times a matrix. Cores share the columns.
fn times_vector<T: Float>(out: &mut [T], row: &[T], b: Matrix<'_, T>, alpha: T, add: bool, parallel: bool) {
    let arch = Arch::new();
    let row = &row[..b.rows];
    let work = |(first, out): (usize, &mut [T])| arch.dispatch(Vector { out, row, b, first, alpha, add });
    if parallel {
        let width = out.len().div_ceil(thread_count()).next_multiple_of(64);
        for_each(out.chunks_mut(width).enumerate(), 1, |(index, out)| work((index * width, out)));
    } else {
        work((0, out));
    }
}

/// A matrix times a matrix. Cores share blocks of the result.
fn by_blocks<T: Float>(
    out: &mut [T],
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    alpha: T,
    add: bool,
    parallel: bool,
) {
    let (arch, n) = (Arch::new(), b.columns);
    let across = n.div_ceil(BLOCK_COLUMNS);
    let mut blocks: Vec<Vec<&mut [T]>> = Vec::with_capacity(a.rows.div_ceil(BLOCK_ROWS) * across);
    for rows in out.chunks_mut(BLOCK_ROWS * n) {
        let first = blocks.len();
        blocks.resize_with(first + across, || Vec::with_capacity(rows.len() / n));
        for row in rows.chunks_mut(n) {
            blocks[first..]
                .iter_mut()
                .zip(row.chunks_mut(BLOCK_COLUMNS))
                .for_each(|(block, part)| block.push(part));
        }
    }
    let work = |(index, mut out): (usize, Vec<&mut [T]>)| {
        let place = [index / across * BLOCK_ROWS, index % across * BLOCK_COLUMNS];
        arch.dispatch(Block { out: &mut out, a, b, place, alpha, add });
    };
    if parallel {
        for_each(blocks.into_iter().enumerate(), 1, work);
    } else {
        blocks.into_iter().enumerate().for_each(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products() {
        let (a, b) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [1f32, 0.0, 0.0, 1.0, 1.0, 1.0]);
        let mut out = [0f32; 4];
        gemm(&mut out, Matrix::new(&a, 2, 3), Matrix::new(&b, 3, 2), 1.0, false, true);
        assert_eq!(out, [4.0, 5.0, 10.0, 11.0]);
        gemm(&mut out, Matrix::transposed(&a, 2, 3), Matrix::transposed(&b, 3, 2), 2.0, true, true);
        assert_eq!(out, [4.0 + 2.0 * 1.0 + 0.0, 5.0 + 2.0 * 9.0, 10.0 + 2.0 * 2.0, 11.0 + 2.0 * 12.0]);
        gemm(&mut out, Matrix::new(&a, 2, 0), Matrix::new(&b, 0, 2), 1.0, false, true);
        assert_eq!(out, [0.0; 4]);
    }
}
