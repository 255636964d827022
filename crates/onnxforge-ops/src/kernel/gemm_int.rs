//! Products of integer matrices, exact up to overflow of 32 bits.

use onnxforge_proto::parallel::for_each;

/// Products from this many multiplications on are spread over the cores.
const PARALLEL: usize = 64 * 64 * 64;
/// Rows of the result that one core computes at a time.
const ROWS: usize = 16;
/// Columns of the result whose factors stay in the cache meanwhile.
const COLUMNS: usize = 64;

/// `out = a · b` for rows of `depth` elements in `a` and *columns* of `depth` elements in `b`: `b` is stored transposed.
/// `out` has `columns` elements per row. Sums wrap around at 32 bits.
pub fn gemm_int(out: &mut [i32], a: &[i16], b: &[i16], depth: usize, columns: usize) {
    if columns == 0 || depth == 0 {
        out.fill(0);
        return;
    }
    let block = |(out, a): (&mut [i32], &[i16])| {
        for first in (0..columns).step_by(COLUMNS) {
            let last = (first + COLUMNS).min(columns);
            for (out, a) in out.chunks_exact_mut(columns).zip(a.chunks_exact(depth)) {
                let b = b[first * depth..last * depth].chunks_exact(depth);
                out[first..last].iter_mut().zip(b).for_each(|(out, b)| *out = dot(a, b));
            }
        }
    };
    if out.len().saturating_mul(depth) < PARALLEL {
        return block((out, a));
    }
    for_each(out.chunks_mut(ROWS * columns).zip(a.chunks(ROWS * depth)), 1, block);
}

fn dot(a: &[i16], b: &[i16]) -> i32 {
    a.iter().zip(b).fold(0i32, |sum, (&a, &b)| sum.wrapping_add(i32::from(a) * i32::from(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds_across_blocks() {
        let (rows, depth, columns) = (37, 65, 131);
        let a: Vec<i16> = (0..rows * depth).map(|i| (i * 31 % 511) as i16 - 255).collect();
        let b: Vec<i16> = (0..columns * depth).map(|i| (i * 17 % 511) as i16 - 255).collect();
        let mut out = vec![0; rows * columns];
        gemm_int(&mut out, &a, &b, depth, columns);
        for (i, found) in out.iter().enumerate() {
            let (row, column) = (i / columns, i % columns);
            let sum = (0..depth).map(|k| i32::from(a[row * depth + k]) * i32::from(b[column * depth + k]));
            assert_eq!(*found, sum.sum::<i32>());
        }
        gemm_int(&mut out, &[], &[], 0, columns);
        assert!(out.iter().all(|&x| x == 0));
    }
}
