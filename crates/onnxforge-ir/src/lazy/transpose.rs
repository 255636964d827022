//! Elements in another order of the axes, in tiles.

use std::io::{self, Write};

use super::{CHUNK, packed};
use crate::tensor::Tensor;

/// How many bytes of a transposed tensor are made at a time, if that is enough for whole tiles.
const BLOCK: usize = 1 << 20;

/// Where a block of a transposed tensor ends being worth its memory.
const LARGEST_BLOCK: usize = 32 << 20;

/// One axis of a result: how long it is, and how far apart its neighbours are in the source, in elements.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    step: usize,
}

/// The axes of a transposed tensor, outermost first, those that run on in the source as one.
fn walk(shape: &[usize], perm: &[usize]) -> Vec<Axis> {
    let mut steps = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        steps[axis - 1] = steps[axis] * shape[axis];
    }
    let mut axes: Vec<Axis> = Vec::with_capacity(perm.len());
    for axis in perm.iter().map(|&axis| Axis { size: shape[axis], step: steps[axis] }) {
        match axes.last_mut() {
            _ if axis.size == 1 => {}
            Some(last) if last.step == axis.step * axis.size => {
                *last = Axis { size: last.size * axis.size, step: axis.step };
            }
            _ => axes.push(axis),
        }
    }
    axes
}

/// Where in the source the element `index` of a walk along `axes` is.
fn offset(axes: &[Axis], mut index: usize) -> usize {
    let mut offset = 0;
    for axis in axes.iter().rev() {
        offset += index % axis.size * axis.step;
        index /= axis.size;
    }
    offset
}

/// Writes the tensor with its axes in the order `perm`.
pub(super) fn transpose(source: &Tensor, perm: &[usize], out: &mut dyn Write) -> io::Result<()> {
    if source.is_empty() {
        return Ok(());
    }
    let bytes = packed(source)?;
    let axes = walk(source.shape(), perm);
    match source.dtype().bits() / 8 {
        1 => transpose_elements::<1>(&bytes, &axes, out),
        2 => transpose_elements::<2>(&bytes, &axes, out),
        4 => transpose_elements::<4>(&bytes, &axes, out),
        8 => transpose_elements::<8>(&bytes, &axes, out),
        16 => transpose_elements::<16>(&bytes, &axes, out),
        _ => Err(io::Error::other("elements of an unknown size")),
    }
}

/// The side of a tile: as many elements of 4 bytes as a line of the cache has.
const NEIGHBOURS: usize = 16;

/// Writes elements of `W` bytes in the order of `axes`.
///
/// Neighbours in the source lie `slab` elements apart in the result. A block takes several neighbours and their whole
/// slabs, which are one run of the result: it is read along the source and filled in columns.
fn transpose_elements<const W: usize>(bytes: &[u8], axes: &[Axis], out: &mut dyn Write) -> io::Result<()> {
    let (elements, _) = bytes.as_chunks::<W>();
    let Some(near) = axes.iter().position(|axis| axis.step == 1) else {
        // A single element.
        return out.write_all(bytes);
    };
    let (outer, inner) = (&axes[..near], &axes[near + 1..]);
    let count = axes[near].size;
    let slab: usize = inner.iter().map(|axis| axis.size).product();
    let starts = (0..outer.iter().map(|axis| axis.size).product()).map(|index| offset(outer, index));
    if inner.is_empty() {
        return copy_runs(elements, starts, count, out);
    }
    let rows = (BLOCK / (slab * W) / NEIGHBOURS * NEIGHBOURS).max(NEIGHBOURS).min(count);
    if rows * slab * W > LARGEST_BLOCK {
        return copy_columns(elements, starts, count, inner, out);
    }
    let mut buffer = vec![[0; W]; rows * slab];
    for start in starts {
        for first in (0..count).step_by(rows) {
            let block = &mut buffer[..rows.min(count - first) * slab];
            fill(block, &elements[start + first..], slab, inner);
            out.write_all(block.as_flattened())?;
        }
    }
    Ok(())
}

/// Fills a block of whole slabs; `elements` start with the first element of the first slab.
///
/// Square tiles pass through a buffer, because columns whose distance is a power of two share a few places of the cache.
fn fill<const W: usize>(block: &mut [[u8; W]], elements: &[[u8; W]], slab: usize, inner: &[Axis]) {
    let Some((&last, before)) = inner.split_last() else { return };
    let rows = block.len() / slab;
    let mut tile = [[[0; W]; NEIGHBOURS]; NEIGHBOURS];
    for run in 0..slab / last.size {
        let elements = &elements[offset(before, run)..];
        for left in (0..last.size).step_by(NEIGHBOURS) {
            let width = NEIGHBOURS.min(last.size - left);
            for top in (0..rows).step_by(NEIGHBOURS) {
                let height = NEIGHBOURS.min(rows - top);
                for column in 0..width {
                    let from = &elements[(left + column) * last.step + top..];
                    // A length that is known when this is compiled makes whole tiles fast.
                    match from.first_chunk::<NEIGHBOURS>().filter(|_| height == NEIGHBOURS) {
                        Some(from) => tile.iter_mut().zip(from).for_each(|(row, from)| row[column] = *from),
                        None => {
                            tile.iter_mut().zip(&from[..height]).for_each(|(row, from)| row[column] = *from);
                        }
                    }
                }
                for (row, tile) in tile[..height].iter().enumerate() {
                    let to = &mut block[(top + row) * slab + run * last.size + left..];
                    match to.first_chunk_mut::<NEIGHBOURS>().filter(|_| width == NEIGHBOURS) {
                        Some(to) => *to = *tile,
                        None => to[..width].copy_from_slice(&tile[..width]),
                    }
                }
            }
        }
    }
}

/// Writes runs that lie together in the source.
fn copy_runs<const W: usize>(
    elements: &[[u8; W]],
    starts: impl Iterator<Item = usize>,
    length: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut buffer = io::BufWriter::with_capacity(CHUNK, out);
    for start in starts {
        buffer.write_all(elements[start..start + length].as_flattened())?;
    }
    buffer.flush()
}

/// Writes element by element: for slabs of which not even a few fit into memory.
fn copy_columns<const W: usize>(
    elements: &[[u8; W]],
    starts: impl Iterator<Item = usize>,
    count: usize,
    inner: &[Axis],
    out: &mut dyn Write,
) -> io::Result<()> {
    let slab: usize = inner.iter().map(|axis| axis.size).product();
    let mut buffer = io::BufWriter::with_capacity(CHUNK, out);
    for start in starts.flat_map(|start| start..start + count) {
        for index in 0..slab {
            buffer.write_all(&elements[start + offset(inner, index)])?;
        }
    }
    buffer.flush()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{floats, iota};
    use super::*;

    #[test]
    fn transposes() {
        assert_eq!(floats(&iota(&[2, 3]).transposed(&[1, 0]).unwrap()), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let t = iota(&[2, 3, 4]).transposed(&[1, 0, 2]).unwrap();
        assert_eq!(t.shape(), [3, 2, 4]);
        assert_eq!(floats(&t)[..8], [0.0, 1.0, 2.0, 3.0, 12.0, 13.0, 14.0, 15.0]);
        let twice = iota(&[5, 7, 3]).transposed(&[2, 0, 1]).unwrap().transposed(&[1, 2, 0]).unwrap();
        assert!(twice.same_bits(&iota(&[5, 7, 3])));
        assert_eq!(floats(&iota(&[]).transposed(&[]).unwrap()), [0.0]);
        assert!(floats(&iota(&[0, 3]).transposed(&[1, 0]).unwrap()).is_empty());
        assert!(iota(&[2, 3]).transposed(&[0, 0]).is_err());
    }

    #[test]
    fn transposes_like_the_definition() {
        for (shape, perm) in [
            (&[3, 3, 5, 70][..], &[3, 2, 0, 1][..]),
            (&[4, 33, 1, 17], &[0, 3, 2, 1]),
            (&[2, 3, 4, 5, 6], &[4, 1, 3, 0, 2]),
            (&[1, 1, 9], &[2, 0, 1]),
            (&[600, 700], &[1, 0]),
            (&[2, 200_000], &[1, 0]),
            (&[200_000, 2], &[1, 0]),
        ] {
            let t = iota(shape);
            let found = floats(&t.transposed(perm).unwrap());
            let sizes: Vec<usize> = perm.iter().map(|&axis| shape[axis]).collect();
            for (place, &value) in found.iter().enumerate() {
                let (mut rest, mut index) = (place, vec![0; shape.len()]);
                for (&size, &axis) in sizes.iter().zip(perm).rev() {
                    index[axis] = rest % size;
                    rest /= size;
                }
                let wanted = index.iter().zip(shape).fold(0, |sum, (i, size)| sum * size + i);
                assert_eq!(value, wanted as f32, "{shape:?} {perm:?} at {place}");
            }
        }
    }

    #[test]
    fn columns_without_blocks_are_the_same() {
        let t = iota(&[7, 3, 5]);
        let axes = walk(t.shape(), &[2, 0, 1]);
        let bytes = t.bytes().unwrap();
        let (elements, _) = bytes.as_chunks::<4>();
        let mut found = Vec::new();
        copy_columns(elements, [0].into_iter(), 5, &axes[1..], &mut found).unwrap();
        assert_eq!(found, *t.transposed(&[2, 0, 1]).unwrap().bytes().unwrap());
    }

    #[test]
    fn a_large_transpose_crosses_chunks() {
        let t = iota(&[301, 499]).transposed(&[1, 0]).unwrap();
        let values = floats(&t);
        for (i, &value) in values.iter().enumerate() {
            assert_eq!(value, ((i % 301) * 499 + i / 301) as f32);
        }
    }
}
