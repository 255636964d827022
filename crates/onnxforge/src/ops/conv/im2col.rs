//! Convolutions as matrix products: each window of the image becomes a column.

use std::ops::Range;

use rayon::prelude::*;

use super::Layer;
use super::direct::fill_bias;
use crate::ops::error::OpError;
use crate::ops::eval::Eval;
use crate::ops::kernel::gemm::{Matrix, gemm};
use crate::ops::kernel::map::PARALLEL;
use crate::ops::kernel::number::Float;
use crate::ops::kernel::window::{Geometry, combine};

/// Bytes that the columns of one product should take: what a core's cache holds.
const TILE_BYTES: usize = 1 << 20;

/// Bytes that the columns of one product may take.
pub const MAX_TILE_BYTES: usize = 64 << 20;

/// Columns below which a product is not worth splitting.
const MIN_TILE: usize = 128;

/// A convolution by one matrix product per image, group and tile of positions.
pub fn multiply<T: Float>(
    layer: &Layer,
    cx: &Eval<'_>,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    out: &mut [T],
) -> Result<(), OpError> {
    let geometry = &layer.geometry;
    let positions = geometry.output_len();
    let (depth, maps) = (layer.depth(), layer.maps);
    let tile = if geometry.is_pointwise() { positions } else { tile_len::<T>(depth, positions) };
    let products = layer.batch * layer.groups;
    // Products side by side where there are several, all cores on one product where there is only one.
    let side_by_side = products * positions.div_ceil(tile) > 1;
    let buffers = if side_by_side { rayon::current_num_threads() } else { 1 };
    if !geometry.is_pointwise() {
        cx.reserve::<T>((depth + maps).saturating_mul(tile).saturating_mul(buffers))?;
    }
    let weights = |index: usize| {
        let data = &w[index % layer.groups * maps * depth..][..maps * depth];
        Matrix::new(data, maps, depth)
    };
    let image_len = layer.channels * geometry.input_len();
    let image = |index: usize| &x[index * image_len..][..image_len];
    if tile == positions {
        fill_bias(out, bias, positions);
        let product = |(index, out): (usize, &mut [T])| {
            let (image, parallel) = (image(index), !side_by_side);
            if geometry.is_pointwise() {
                let columns = Matrix::new(image, depth, positions);
                gemm(out, weights(index), columns, T::ONE, bias.is_some(), parallel);
            } else {
                let columns = unfold(geometry, image, 0..positions, parallel);
                let columns = Matrix::new(&columns, depth, positions);
                gemm(out, weights(index), columns, T::ONE, bias.is_some(), parallel);
            }
        };
        if side_by_side {
            out.par_chunks_exact_mut(maps * positions).enumerate().for_each(product);
        } else {
            product((0, out));
        }
    } else {
        tiles(out, maps, positions, tile).into_par_iter().for_each(|Tile { index, range, rows }| {
            let width = range.len();
            let columns = unfold(geometry, image(index), range, false);
            let mut product = vec![T::ZERO; maps * width];
            gemm(&mut product, weights(index), Matrix::new(&columns, depth, width), T::ONE, false, false);
            let first = index % layer.groups * maps;
            for (map, (row, sums)) in rows.into_iter().zip(product.chunks_exact(width)).enumerate() {
                match bias {
                    Some(bias) => {
                        let bias = bias[first + map];
                        row.iter_mut().zip(sums).for_each(|(out, &sum)| *out = sum + bias);
                    }
                    None => row.copy_from_slice(sums),
                }
            }
        });
    }
    Ok(())
}

/// How many positions go into one product. Depends on sizes alone, so that results do not depend on the machine.
fn tile_len<T>(depth: usize, positions: usize) -> usize {
    let column = depth.saturating_mul(size_of::<T>()).max(1);
    let most = (MAX_TILE_BYTES / column).max(1);
    let wanted = (TILE_BYTES / column).max(MIN_TILE).min(most).min(positions);
    // Tiles of about the same length.
    positions.div_ceil(positions.div_ceil(wanted))
}

/// A part of the result: some positions of every map of one image and group.
struct Tile<'a, T> {
    /// Image and group: their number in the result.
    index: usize,
    /// The positions.
    range: Range<usize>,
    /// Their elements, one slice per map.
    rows: Vec<&'a mut [T]>,
}

fn tiles<T>(out: &mut [T], maps: usize, positions: usize, tile: usize) -> Vec<Tile<'_, T>> {
    let mut tiles = Vec::with_capacity(out.len() / (maps * positions) * positions.div_ceil(tile));
    for (index, block) in out.chunks_exact_mut(maps * positions).enumerate() {
        let first = tiles.len();
        for start in (0..positions).step_by(tile) {
            let range = start..positions.min(start + tile);
            tiles.push(Tile { index, range, rows: Vec::with_capacity(maps) });
        }
        for map in block.chunks_exact_mut(positions) {
            for (tile, row) in tiles[first..].iter_mut().zip(map.chunks_mut(tile)) {
                tile.rows.push(row);
            }
        }
    }
    tiles
}

/// The windows at the positions `range` as columns: a row per channel and kernel element, zero outside of the image.
fn unfold<T: Float>(geometry: &Geometry, image: &[T], range: Range<usize>, parallel: bool) -> Vec<T> {
    let (plane, kernel) = (geometry.input_len(), geometry.kernel_len());
    let block = kernel * range.len();
    let mut columns = vec![T::ZERO; image.len() / plane * block];
    if parallel {
        let channels = (PARALLEL / block).max(1);
        columns
            .par_chunks_mut(channels * block)
            .zip(image.par_chunks(channels * plane))
            .for_each(|(columns, image)| unfold_into(geometry, image, range.clone(), columns));
    } else {
        unfold_into(geometry, image, range, &mut columns);
    }
    columns
}

fn unfold_into<T: Float>(geometry: &Geometry, image: &[T], range: Range<usize>, columns: &mut [T]) {
    let (plane, first, width) = (geometry.input_len(), range.start, range.len());
    let block = geometry.kernel_len() * width;
    geometry.for_each_run(range, &mut |run| {
        let start = run.kernel * width + run.positions.start - first;
        let count = run.positions.len();
        for (image, columns) in image.chunks_exact(plane).zip(columns.chunks_exact_mut(block)) {
            let (from, to) = (&image[run.input..], &mut columns[start..start + count]);
            if run.step == 1 {
                to.copy_from_slice(&from[..count]);
            } else {
                combine(to, from, run.step, |to, from| *to = from);
            }
        }
    });
}
