//! Products of matrices of any number type, and of batches of matrices.

use half::{bf16, f16};

use super::gemm::{Matrix, gemm};
use super::number::Number;
use super::parallel::each_piece;
use super::shape::{broadcast, broadcast_strides, for_each_offset};
use crate::ir::tensor::element_count;
use crate::ops::array::Array;
use crate::ops::error::{OpError, invalid};
use crate::ops::eval::Memory;

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

impl Product for f32 {
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

impl Product for f64 {
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

/// One product for each pair of offsets, one after the other in `out`: of the matrix at the first offset into `a.data` and
/// the one at the second offset into `b.data`.
pub fn batched<T: Product>(out: &mut [T], a: Matrix<'_, T>, b: Matrix<'_, T>, offsets: &[[usize; 2]]) {
    let size = a.rows * b.columns;
    if size == 0 {
        return;
    }
    let work = size.saturating_mul(a.columns).max(1);
    let alone = offsets.len() < 4 || work >= LARGE;
    let each = |index: usize, out: &mut [T]| {
        let Some([x, y]) = offsets.get(index) else { return };
        let (a, b) = (Matrix { data: &a.data[*x..], ..a }, Matrix { data: &b.data[*y..], ..b });
        T::product(out, a, b, T::ONE, false, alone);
    };
    if alone {
        out.chunks_mut(size).enumerate().for_each(|(index, out)| each(index, out));
    } else {
        each_piece(out, size, work, &each);
    }
}

/// The product of two stacks of matrices, broadcast together as `numpy.matmul` does: a vector on the left is a row, one
/// on the right is a column, and neither leaves an axis behind.
pub fn matmul<T: Product>(a: &Array, b: &Array, memory: &Memory) -> Result<Array, OpError> {
    let mismatch = || invalid(format!("a product of the shapes {:?} and {:?}", a.shape(), b.shape()));
    let (a_batch, m, k) = match a.shape() {
        [] => return mismatch(),
        [k] => (&[][..], None, *k),
        [batch @ .., m, k] => (batch, Some(*m), *k),
    };
    let (b_batch, rows, n) = match b.shape() {
        [] => return mismatch(),
        [k] => (&[][..], *k, None),
        [batch @ .., k, n] => (batch, *k, Some(*n)),
    };
    if rows != k {
        return mismatch();
    }
    let batch = broadcast(&[a_batch, b_batch])?;
    let shape: Vec<usize> = batch.iter().copied().chain(m).chain(n).collect();
    let count = element_count(&shape).ok_or(OpError::TooLarge { needed: u64::MAX, left: 0 })?;
    memory.check((count as u64).saturating_mul(size_of::<T>() as u64))?;
    let mut out = vec![T::ZERO; count];
    if count == 0 || k == 0 {
        return Array::new(shape, out);
    }
    let (x, y) = (a.slice::<T>()?, b.slice::<T>()?);
    let (m, n) = (m.unwrap_or(1), n.unwrap_or(1));
    if y.len() == k * n && x.len() == count / n * k {
        // One matrix for the whole batch: its rows are rows of one product.
        T::product(&mut out, Matrix::new(x, count / n, k), Matrix::new(y, k, n), T::ONE, false, true);
        return Array::new(shape, out);
    }
    let scaled = |strides: Vec<usize>, size: usize| strides.into_iter().map(|s| s * size).collect::<Vec<_>>();
    let a_strides = scaled(broadcast_strides(a_batch, &batch), m * k);
    let b_strides = scaled(broadcast_strides(b_batch, &batch), k * n);
    memory.check((count / (m * n)) as u64 * size_of::<[usize; 2]>() as u64)?;
    let mut offsets = Vec::with_capacity(count / (m * n));
    for_each_offset(&batch, [&a_strides, &b_strides], |offset| offsets.push(offset));
    batched(&mut out, Matrix::new(x, m, k), Matrix::new(y, k, n), &offsets);
    Array::new(shape, out)
}
