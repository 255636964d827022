//! A row times a matrix. Nothing is copied: every element of the matrix is used once.

use pulp::{Simd, WithSimd};

use super::Matrix;
use crate::kernel::number::Float;

/// Rows of the matrix that are added at once.
const ROWS: usize = 4;

/// Vectors of sums of an inner product.
const PARTIAL_SUMS: usize = 4;

/// Part of a row times a matrix.
pub struct Vector<'a, T> {
    /// Columns of the result.
    pub out: &'a mut [T],
    /// The row.
    pub row: &'a [T],
    /// The matrix.
    pub b: Matrix<'a, T>,
    /// Which column of the matrix the first of the result is.
    pub first: usize,
    /// What the result is multiplied with.
    pub alpha: T,
    /// Whether it is added to what is there.
    pub add: bool,
}

impl<T: Float> WithSimd for Vector<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { out, row, b, first, alpha, add } = self;
        let finish = |out: &mut T, sum: T| *out = if add { *out + alpha * sum } else { alpha * sum };
        if b.transposed {
            let columns = b.data[first * row.len()..].chunks_exact(row.len());
            out.iter_mut().zip(columns).for_each(|(out, column)| finish(out, dot(simd, row, column)));
            return;
        }
        let mut sums = vec![T::ZERO; out.len()];
        let part = |at: usize| &b.data[at * b.columns + first..][..out.len()];
        let (whole, rest) = row.as_chunks::<ROWS>();
        for (at, &factors) in whole.iter().enumerate() {
            accumulate(simd, &mut sums, std::array::from_fn::<_, ROWS, _>(|r| part(at * ROWS + r)), factors);
        }
        for (at, &factor) in rest.iter().enumerate() {
            accumulate(simd, &mut sums, [part(whole.len() * ROWS + at)], [factor]);
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| finish(out, sum));
    }
}

/// Adds rows, each times its factor, one after the other.
#[inline(always)]
fn accumulate<T: Float, S: Simd, const R: usize>(simd: S, sums: &mut [T], rows: [&[T]; R], factors: [T; R]) {
    let factors = factors.map(|factor| T::splat(simd, factor));
    let whole = T::vectors_mut::<S>(sums);
    let vectors = rows.map(|row| &T::vectors::<S>(row)[..whole.len()]);
    for (at, sum) in whole.iter_mut().enumerate() {
        for r in 0..R {
            *sum = T::times_plus(simd, factors[r], vectors[r][at], *sum);
        }
    }
    let done = whole.len() * (size_of::<T::Vector<S>>() / size_of::<T>());
    let rest = &mut sums[done..];
    if !rest.is_empty() {
        let mut sum = T::partial(simd, rest);
        for r in 0..R {
            sum = T::times_plus(simd, factors[r], T::partial(simd, &rows[r][done..]), sum);
        }
        T::write_partial(simd, rest, sum);
    }
}

/// The inner product of two slices of the same length, in as many partial sums as keep the processor busy.
#[inline(always)]
fn dot<T: Float, S: Simd>(simd: S, a: &[T], b: &[T]) -> T {
    let mut sums = [T::splat(simd, T::ZERO); PARTIAL_SUMS];
    let (x, y) = (T::vectors::<S>(a), T::vectors::<S>(b));
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<PARTIAL_SUMS>(), y.as_chunks::<PARTIAL_SUMS>());
    for (x, y) in x.iter().zip(y) {
        for i in 0..PARTIAL_SUMS {
            sums[i] = T::times_plus(simd, x[i], y[i], sums[i]);
        }
    }
    for ((sum, &x), &y) in sums.iter_mut().zip(x_rest).zip(y_rest) {
        *sum = T::times_plus(simd, x, y, *sum);
    }
    let done = (x.len() * PARTIAL_SUMS + x_rest.len()) * (size_of::<T::Vector<S>>() / size_of::<T>());
    if done < a.len() {
        sums[0] = T::times_plus(simd, T::partial(simd, &a[done..]), T::partial(simd, &b[done..]), sums[0]);
    }
    let [first, second, third, fourth] = sums;
    let halves = [T::plus(simd, first, second), T::plus(simd, third, fourth)];
    T::sum(simd, T::plus(simd, halves[0], halves[1]))
}
