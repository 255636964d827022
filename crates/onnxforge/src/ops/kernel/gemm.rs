//! Matrix products, by faer's kernels.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::number::Float;

/// Products from this many multiplications on are spread over the cores.
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

    fn view(&self) -> MatRef<'a, T> {
        let data = &self.data[..self.rows * self.columns];
        if self.transposed {
            MatRef::from_row_major_slice(data, self.columns, self.rows).transpose()
        } else {
            MatRef::from_row_major_slice(data, self.rows, self.columns)
        }
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
    if k == 0 {
        if !add {
            out.fill(T::ZERO);
        }
        return;
    }
    let work = m.saturating_mul(n).saturating_mul(k);
    // Products with a vector would be split along the sum, and depend on the number of cores.
    let par = if parallel && work >= PARALLEL && m > 1 && n > 1 { Par::rayon(0) } else { Par::Seq };
    let accumulate = if add { Accum::Add } else { Accum::Replace };
    matmul(MatMut::from_row_major_slice_mut(out, m, n), accumulate, a.view(), b.view(), alpha, par);
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
