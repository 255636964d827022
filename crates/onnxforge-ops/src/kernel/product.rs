//! Products of matrices of any number type, and of batches of matrices.

use half::{bf16, f16};

use super::batched::Stacks;
use super::gemm::{Matrix, gemm};
use super::number::Number;
use super::parallel::each_piece;
use crate::array::{Array, spare};
use crate::error::OpError;
use crate::eval_call::Memory;
use onnxforge_ir::tensor::element_count;

/// Products from this many multiplications on take all cores one after the other; smaller ones are spread over the
/// cores whole.
const LARGE: usize = 256 * 256 * 256;

/// A number whose matrices are multiplied. Integers wrap around.
pub trait Product: Number {
    /// As [`gemm`]: `out = alpha · a · b`, or `out += alpha · a · b` when `add`.
    fn product(
        out: &mut [Self],
        a: Matrix<'_, Self>,
        b: Matrix<'_, Self>,
        alpha: Self,
        add: bool,
        parallel: bool,
    ) {
        by_definition(out, a, b, alpha, add, parallel);
    }
}

macro_rules! fast_products {
    ($($float:ty),*) => {$(
        impl Product for $float {
            fn product(
                out: &mut [Self],
                a: Matrix<'_, Self>,
                b: Matrix<'_, Self>,
                alpha: Self,
                add: bool,
                parallel: bool,
            ) {
                gemm(out, a, b, alpha, add, parallel);
            }
        }
    )*};
}

fast_products!(f32, f64);

impl Product for f16 {}
impl Product for bf16 {}
impl Product for i8 {}
impl Product for i16 {}
impl Product for i32 {}
impl Product for i64 {}
impl Product for u8 {}
impl Product for u16 {}
impl Product for u32 {}
impl Product for u64 {}

fn by_definition<T: Number>(
    out: &mut [T],
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    alpha: T,
    add: bool,
    parallel: bool,
) {
    let (m, k, n) = (a.rows, a.columns, b.columns);
    if m == 0 || n == 0 {
        return;
    }
    let row = |i: usize, out: &mut [T]| {
        if !add {
            out.fill(T::ZERO);
        }
        for p in 0..k {
            let x = alpha.mul(if a.transposed { a.data[p * m + i] } else { a.data[i * k + p] });
            if b.transposed {
                let column = b.data[p..].iter().step_by(k);
                out.iter_mut().zip(column).for_each(|(out, &y)| *out = out.add(x.mul(y)));
            } else {
                let column = &b.data[p * n..][..n];
                out.iter_mut().zip(column).for_each(|(out, &y)| *out = out.add(x.mul(y)));
            }
        }
    };
    let out = &mut out[..m * n];
    if parallel {
        each_piece(out, n, n.saturating_mul(k), &row);
    } else {
        out.chunks_mut(n).enumerate().for_each(|(i, out)| row(i, out));
    }
}

/// One product, times `alpha`, for each pair of offsets, one after the other in `out`: of the matrix at the first offset into `a.data` and
/// the one at the second offset into `b.data`.
pub fn batched<T: Product>(
    out: &mut [T],
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    alpha: T,
    offsets: &[[usize; 2]],
) {
    let size = a.rows * b.columns;
    if size == 0 {
        return;
    }
    let work = size.saturating_mul(a.columns).max(1);
    let alone = offsets.len() < 4 || work >= LARGE;
    let each = |index: usize, out: &mut [T]| {
        let Some([x, y]) = offsets.get(index) else { return };
        let (a, b) = (Matrix { data: &a.data[*x..], ..a }, Matrix { data: &b.data[*y..], ..b });
        T::product(out, a, b, alpha, false, alone);
    };
    if alone {
        out.chunks_mut(size).enumerate().for_each(|(index, out)| each(index, out));
    } else {
        each_piece(out, size, work, &each);
    }
}

/// `alpha · a · b` of two stacks of matrices, broadcast together as `numpy.matmul` does: a vector on the left is a row, one
/// on the right is a column, and neither leaves an axis behind.
pub fn matmul<T: Product>(a: &Array, b: &Array, alpha: T, memory: &Memory) -> Result<Array, OpError> {
    let Stacks { shape, rows, depth, columns, pairs } = Stacks::new(a.shape(), b.shape(), memory)?;
    let count = element_count(&shape).ok_or(OpError::TooLarge { needed: u64::MAX, left: 0 })?;
    memory.check((count as u64).saturating_mul(size_of::<T>() as u64))?;
    if count == 0 || depth == 0 {
        return Array::new(shape, vec![T::ZERO; count]);
    }
    let mut out = spare::unset(count);
    let (x, y) = (a.slice::<T>()?, b.slice::<T>()?);
    if y.len() == depth * columns && x.len() == count / columns * depth {
        // One matrix for the whole batch: its rows are rows of one product.
        let x = Matrix::new(x, count / columns, depth);
        T::product(&mut out, x, Matrix::new(y, depth, columns), alpha, false, true);
        return Array::new(shape, out);
    }
    let offsets: Vec<[usize; 2]> =
        pairs.into_iter().map(|[first, second]| [first * rows * depth, second * depth * columns]).collect();
    batched(&mut out, Matrix::new(x, rows, depth), Matrix::new(y, depth, columns), alpha, &offsets);
    Array::new(shape, out)
}
