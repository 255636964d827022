//! Convolutions as matrix products: each window of the image becomes a column.

use std::ops::Range;

use super::Layer;
use super::direct::fill_bias;
use crate::error::OpError;
use crate::eval_call::Eval;
use crate::kernel::gemm::{Matrix, gemm};
use crate::kernel::number::Float;
use crate::kernel::parallel::PARALLEL;
use crate::kernel::window::{Geometry, combine};
use onnxforge_proto::parallel::{for_each, thread_count};

/// Bytes that the columns of one product should take: what a core's cache holds.
const TILE_BYTES: usize = 1 << 20;

/// Bytes that the columns of one product may take.
pub const MAX_TILE_BYTES: usize = 64 << 20;

/// Columns below which a product is not worth splitting.
const MIN_TILE: usize = 128;

/// A convolution by one matrix product per image, group and tile of positions. `out` is zero.
pub fn multiply<T: Float>(
    layer: &Layer,
    cx: &Eval<'_>,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    out: &mut [T],
) -> Result<(), OpError> {
    let positions = layer.geometry.output_len();
    let pointwise = layer.geometry.is_pointwise();
    let tile = if pointwise { positions } else { tile_len::<T>(layer.depth(), positions) };
    // Products side by side where there are several, all cores on one product where there is only one.
    let side_by_side = layer.batch * layer.groups * positions.div_ceil(tile) > 1;
    let buffers = if side_by_side { thread_count() } else { 1 };
    if !pointwise {
        cx.reserve::<T>((layer.depth() + layer.maps).saturating_mul(tile).saturating_mul(buffers))?;
    }
    let operands = Operands { layer, x, w, bias };
    fill_bias(out, bias, positions);
    if tile < positions {
        let tiles = tiles(out, layer.maps, positions, tile).into_iter();
        for_each(tiles, 1, |tile| operands.multiply_tile(tile));
    } else if side_by_side {
        let blocks = out.chunks_exact_mut(layer.maps * positions).enumerate();
        for_each(blocks, 1, |(index, out)| operands.multiply_all(index, out, false));
    } else {
        operands.multiply_all(0, out, true);
    }
    Ok(())
}

/// What is multiplied. An index counts groups of all images.
struct Operands<'a, T> {
    layer: &'a Layer,
    x: &'a [T],
    w: &'a [T],
    bias: Option<&'a [T]>,
}

impl<T: Float> Operands<'_, T> {
    fn weights(&self, index: usize) -> Matrix<'_, T> {
        let (maps, depth) = (self.layer.maps, self.layer.depth());
        Matrix::new(&self.w[index % self.layer.groups * maps * depth..], maps, depth)
    }

    fn image(&self, index: usize) -> &[T] {
        let len = self.layer.channels * self.layer.geometry.input_len();
        &self.x[index * len..][..len]
    }

    /// Multiplies into all positions at once; `out` holds the bias.
    fn multiply_all(&self, index: usize, out: &mut [T], parallel: bool) {
        let geometry = &self.layer.geometry;
        let (image, positions) = (self.image(index), geometry.output_len());
        let unfolded;
        let columns = if geometry.is_pointwise() {
            image
        } else {
            unfolded = unfold(geometry, image, 0..positions, parallel);
            &unfolded
        };
        let columns = Matrix::new(columns, self.layer.depth(), positions);
        gemm(out, self.weights(index), columns, T::ONE, self.bias.is_some(), parallel);
    }

    /// Multiplies into a tile, which holds the bias.
    fn multiply_tile(&self, Tile { index, range, rows }: Tile<'_, T>) {
        let width = range.len();
        let columns = unfold(&self.layer.geometry, self.image(index), range, false);
        let columns = Matrix::new(&columns, self.layer.depth(), width);
        let mut product = vec![T::ZERO; self.layer.maps * width];
        gemm(&mut product, self.weights(index), columns, T::ONE, false, false);
        for (row, sums) in rows.into_iter().zip(product.chunks_exact(width)) {
            row.iter_mut().zip(sums).for_each(|(out, &sum)| *out += sum);
        }
    }
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
        let parts = columns.chunks_mut(channels * block).zip(image.chunks(channels * plane));
        for_each(parts, 1, |(columns, image)| unfold_into(geometry, image, range.clone(), columns));
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
