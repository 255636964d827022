//! Convolutions of single channels, without a matrix product.

use std::ops::Range;

use super::Layer;
use crate::kernel::number::Float;
use crate::kernel::parallel::PARALLEL;
use crate::kernel::window::{Run, combine};
use onnxforge_proto::parallel::for_each;

/// Most maps per channel for which the direct loop beats a matrix product.
pub const MAX_MAPS: usize = 4;

/// Most runs that are kept for all maps.
const MAX_SHARED_RUNS: usize = 1 << 16;

/// Every map as its bias, or zero; `map_len` elements each.
pub fn fill_bias<T: Float>(out: &mut [T], bias: Option<&[T]>, map_len: usize) {
    if let (Some(bias), 1..) = (bias, map_len) {
        out.chunks_exact_mut(map_len).zip(bias.iter().cycle()).for_each(|(map, &bias)| map.fill(bias));
    }
}

/// A convolution in which each map sees one channel. `out` is zero.
pub fn depthwise<T: Float>(layer: &Layer, x: &[T], w: &[T], bias: Option<&[T]>, out: &mut [T]) {
    let geometry = &layer.geometry;
    let (kernel, total) = (geometry.kernel_len(), layer.groups * layer.maps);
    let (row_len, map_len) = (geometry.row_len(), geometry.output_len());
    fill_bias(out, bias, map_len);
    // The runs are the same for all maps; those of very large maps are worked out row by row.
    let rows = map_len / row_len;
    let few = rows.saturating_mul(kernel) <= MAX_SHARED_RUNS;
    let shared: Vec<Vec<Run>> =
        if few { (0..rows).map(|row| geometry.row_runs(row)).collect() } else { Vec::new() };
    let convolve = |(index, map): (usize, &mut [T])| {
        let (image, place) = (index / total, index % total);
        let channel = image * layer.groups + place / layer.maps;
        let plane = &x[channel * geometry.input_len()..][..geometry.input_len()];
        let weights = &w[place * kernel..][..kernel];
        for (index, row) in map.chunks_exact_mut(row_len).enumerate() {
            match shared.get(index) {
                Some(runs) => add_products(runs, weights, plane, row),
                None => add_products(&geometry.row_runs(index), weights, plane, row),
            }
        }
    };
    for_each(out.chunks_exact_mut(map_len).enumerate(), PARALLEL / (map_len * kernel).max(1), convolve);
}

/// Adds the products of one channel with one kernel to a row of positions; `runs` are those of the row.
fn add_products<T: Float>(runs: &[Run], weights: &[T], plane: &[T], row: &mut [T]) {
    // The positions at which every kernel element lies inside the image.
    let inner = runs.iter().fold(0..row.len(), |inner, run| {
        inner.start.max(run.positions.start)..inner.end.min(run.positions.end)
    });
    let step = runs.first().map_or(1, |run| run.step);
    if inner.len() * 2 < row.len() || step > 2 {
        return add_runs(runs, weights, plane, row);
    }
    for position in (0..inner.start).chain(inner.end..row.len()) {
        for run in runs.iter().filter(|run| run.positions.contains(&position)) {
            let value = plane[run.input + (position - run.positions.start) * step];
            row[position] += weights[run.kernel] * value;
        }
    }
    match step {
        1 => add_blocks::<T, 1>(runs, weights, plane, inner, row),
        _ => add_blocks::<T, 2>(runs, weights, plane, inner, row),
    }
}

/// Adds the products one kernel element at a time.
fn add_runs<T: Float>(runs: &[Run], weights: &[T], plane: &[T], row: &mut [T]) {
    for run in runs {
        let weight = weights[run.kernel];
        combine(&mut row[run.positions.clone()], &plane[run.input..], run.step, |sum, value| {
            *sum += weight * value;
        });
    }
}

/// Adds the products at the positions `inner`, where every run has an element, `STEP` apart.
fn add_blocks<T: Float, const STEP: usize>(
    runs: &[Run],
    weights: &[T],
    plane: &[T],
    inner: Range<usize>,
    row: &mut [T],
) {
    let mut position = inner.start;
    while position < inner.end {
        position += match inner.end - position {
            16.. => add_block::<T, 16, STEP>(runs, weights, plane, position, row),
            8.. => add_block::<T, 8, STEP>(runs, weights, plane, position, row),
            4.. => add_block::<T, 4, STEP>(runs, weights, plane, position, row),
            _ => add_block::<T, 1, STEP>(runs, weights, plane, position, row),
        };
    }
}

/// Adds the products at `N` positions from `position` on; the sums stay in registers. Answers `N`.
fn add_block<T: Float, const N: usize, const STEP: usize>(
    runs: &[Run],
    weights: &[T],
    plane: &[T],
    position: usize,
    row: &mut [T],
) -> usize {
    let row = &mut row[position..position + N];
    let mut sums = [T::ZERO; N];
    sums.copy_from_slice(row);
    for run in runs {
        let first = run.input + (position - run.positions.start) * STEP;
        let (weight, values) = (weights[run.kernel], &plane[first..first + (N - 1) * STEP + 1]);
        for (index, sum) in sums.iter_mut().enumerate() {
            *sum += weight * values[index * STEP];
        }
    }
    row.copy_from_slice(&sums);
    N
}
