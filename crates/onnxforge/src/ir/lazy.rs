//! Tensors that are computed while they are written: a changed layout or a scale, in bounded memory.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};
use rayon::prelude::*;

use super::dtype::DType;
use super::tensor::{Data, Tensor, TensorError};
use crate::blob::Stream;

/// How many bytes are worked on at a time.
const CHUNK: usize = 256 * 1024;

/// How many bytes of a transposed tensor are made at a time, if that is enough for whole tiles.
const BLOCK: usize = 1 << 20;

/// Where a block of a transposed tensor ends being worth its memory.
const LARGEST_BLOCK: usize = 32 << 20;

/// A tensor that is derived from another one.
#[derive(Debug)]
pub enum Lazy {
    /// Axis `i` of the result is axis `perm[i]` of the source.
    Transpose {
        /// What is transposed.
        source: Tensor,
        /// The order of the axes.
        perm: Vec<usize>,
    },
    /// Every slice along `axis` is multiplied by its own factor, rounded once to the element type.
    Scale {
        /// What is scaled.
        source: Tensor,
        /// The axis that the factors run along.
        axis: usize,
        /// One factor per slice.
        factors: Vec<f64>,
    },
    /// Made by something else on the way out.
    Generated(Arc<dyn Stream>),
}

impl Tensor {
    /// The tensor with its axes in the order `perm`; elements must fill whole bytes.
    pub fn transposed(&self, perm: &[usize]) -> Result<Tensor, TensorError> {
        let mut seen = perm.to_vec();
        seen.sort_unstable();
        if seen.iter().copied().ne(0..self.shape().len()) {
            return Err(TensorError::Unavailable(
                format!("{perm:?} is not an order of the tensor's axes").into(),
            ));
        }
        if !self.dtype().bits().is_multiple_of(8) || self.dtype() == DType::String {
            return Err(TensorError::Type { wanted: "a type of whole bytes", found: self.dtype() });
        }
        let shape: Vec<usize> = perm.iter().filter_map(|&axis| self.shape().get(axis).copied()).collect();
        let lazy = Lazy::Transpose { source: self.clone(), perm: perm.to_vec() };
        Tensor::new(self.dtype(), shape, Data::Lazy(lazy.into()))
    }

    /// The tensor with every slice along `axis` multiplied by its factor; for floats of 16 bits and more.
    pub fn scaled(&self, axis: usize, factors: &[f64]) -> Result<Tensor, TensorError> {
        if !matches!(self.dtype(), DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
            return Err(TensorError::Type { wanted: "a float of 16 bits or more", found: self.dtype() });
        }
        if self.shape().get(axis) != Some(&factors.len()) {
            return Err(TensorError::Unavailable(
                format!("{} factors for axis {axis} of {:?}", factors.len(), self.shape()).into(),
            ));
        }
        let lazy = Lazy::Scale { source: self.clone(), axis, factors: factors.to_vec() };
        Tensor::new(self.dtype(), self.shape(), Data::Lazy(lazy.into()))
    }
}

impl Tensor {
    /// Whether [`Tensor::scaled`] loses no more than the last place, at the scale of the result: its largest number is a normal
    /// one of the element type, or all are zero.
    pub fn scales_well(&self, axis: usize, factors: &[f64]) -> Result<bool, TensorError> {
        if let Data::Lazy(lazy) = self.data()
            && let Lazy::Transpose { source, perm } = &**lazy
            && let Some(&axis) = perm.get(axis)
        {
            return source.scales_well(axis, factors);
        }
        if self.is_empty() {
            return Ok(true);
        }
        if let Data::Bytes(blob) = self.data() {
            blob.will_read();
        }
        let bytes = self.bytes()?;
        let factors = Factors { values: factors, repeat: self.shape().iter().skip(axis + 1).product() };
        let (largest, range) = match self.dtype() {
            DType::F32 => (
                factors.largest(&bytes, |bits| f64::from(f32::from_le_bytes(bits))),
                [f32::MIN_POSITIVE, f32::MAX].map(f64::from),
            ),
            DType::F64 => (factors.largest(&bytes, f64::from_le_bytes), [f64::MIN_POSITIVE, f64::MAX]),
            DType::F16 => (
                factors.largest(&bytes, |bits| f64::from(f16::from_le_bytes(bits))),
                [f16::MIN_POSITIVE, f16::MAX].map(f64::from),
            ),
            DType::BF16 => (
                factors.largest(&bytes, |bits| f64::from(bf16::from_le_bytes(bits))),
                [bf16::MIN_POSITIVE, bf16::MAX].map(f64::from),
            ),
            found => return Err(TensorError::Type { wanted: "a float of 16 bits or more", found }),
        };
        Ok(largest == 0.0 || (range[0]..=range[1]).contains(&largest))
    }
}

impl Lazy {
    /// Writes the packed elements, holding no more than a chunk of them (and the source, when that is lazy too).
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Transpose { source, perm } => transpose(source, perm, out),
            Self::Scale { source, axis, factors } => scale(source, *axis, factors, out),
            Self::Generated(stream) => stream.write_to(out),
        }
    }
}

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

/// The elements of a tensor, as many as its shape says.
fn packed(source: &Tensor) -> io::Result<Cow<'_, [u8]>> {
    if let Data::Bytes(blob) = source.data() {
        blob.will_read();
    }
    let bytes = source.bytes().map_err(io::Error::other)?;
    if bytes.len() as u64 != source.byte_len() {
        return Err(io::Error::other("a tensor shrank"));
    }
    Ok(bytes)
}

fn transpose(source: &Tensor, perm: &[usize], out: &mut dyn Write) -> io::Result<()> {
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

fn scale(source: &Tensor, axis: usize, factors: &[f64], out: &mut dyn Write) -> io::Result<()> {
    if source.is_empty() {
        return Ok(());
    }
    let bytes = packed(source)?;
    let factors = Factors { values: factors, repeat: source.shape().iter().skip(axis + 1).product() };
    match source.dtype() {
        DType::F32 => factors.apply(&bytes, out, |element, factor| {
            ((f64::from(f32::from_le_bytes(element)) * factor) as f32).to_le_bytes()
        }),
        DType::F64 => {
            factors.apply(&bytes, out, |element, factor| (f64::from_le_bytes(element) * factor).to_le_bytes())
        }
        DType::F16 => factors.apply(&bytes, out, |element, factor| {
            f16::from_f64(f64::from(f16::from_le_bytes(element)) * factor).to_le_bytes()
        }),
        DType::BF16 => factors.apply(&bytes, out, |element, factor| {
            bf16::from_f64(f64::from(bf16::from_le_bytes(element)) * factor).to_le_bytes()
        }),
        _ => Err(io::Error::other("not a float of 16 bits or more")),
    }
}

/// Factors of consecutive elements: each value `repeat` times, and then all over again.
struct Factors<'a> {
    values: &'a [f64],
    repeat: usize,
}

impl Factors<'_> {
    /// Writes the elements, each multiplied by its factor.
    fn apply<const W: usize>(
        &self,
        bytes: &[u8],
        out: &mut dyn Write,
        times: impl Fn([u8; W], f64) -> [u8; W],
    ) -> io::Result<()> {
        let (elements, _) = bytes.as_chunks::<W>();
        let piece = CHUNK / W;
        let mut buffer = vec![[0; W]; piece.min(elements.len())];
        for (index, from) in elements.chunks(piece).enumerate() {
            let to = &mut buffer[..from.len()];
            self.multiply(index * piece, from, to, &times);
            out.write_all(to.as_flattened())?;
        }
        Ok(())
    }

    /// Multiplies elements that start at the place `first` of the tensor.
    fn multiply<const W: usize>(
        &self,
        first: usize,
        from: &[[u8; W]],
        to: &mut [[u8; W]],
        times: &impl Fn([u8; W], f64) -> [u8; W],
    ) {
        for (run, factors) in self.runs(first, from.len()) {
            let pairs = to[run.clone()].iter_mut().zip(&from[run]);
            match factors {
                Run::One(factor) => pairs.for_each(|(to, from)| *to = times(*from, factor)),
                Run::Each(factors) => {
                    pairs.zip(factors).for_each(|((to, from), factor)| *to = times(*from, *factor));
                }
            }
        }
    }

    /// The largest magnitude of a product.
    fn largest<const W: usize>(&self, bytes: &[u8], read: impl Fn([u8; W]) -> f64 + Sync) -> f64 {
        let piece = CHUNK / W;
        let (elements, _) = bytes.as_chunks::<W>();
        let of_piece = |(index, elements): (usize, &[[u8; W]])| {
            let of_run = |(run, factors): (Range<usize>, Run<'_>)| {
                let numbers = elements[run].iter().map(|&bits| read(bits).abs());
                match factors {
                    Run::One(factor) => numbers.fold(0.0, f64::max) * factor.abs(),
                    Run::Each(factors) => numbers
                        .zip(factors)
                        .fold(0.0, |largest, (number, factor)| f64::max(largest, number * factor.abs())),
                }
            };
            self.runs(index * piece, elements.len()).map(of_run).fold(0.0, f64::max)
        };
        elements.par_chunks(piece).enumerate().map(of_piece).reduce(|| 0.0, f64::max)
    }

    /// The factors of `count` elements that start at the place `first` of the tensor, in stretches.
    fn runs(&self, first: usize, count: usize) -> impl Iterator<Item = (Range<usize>, Run<'_>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let (start, place) = (done, first + done);
            let value = place / self.repeat % self.values.len();
            if start == count {
                return None;
            }
            if self.repeat == 1 {
                // Up to the last of the values.
                done = (start + self.values.len() - value).min(count);
                return Some((start..done, Run::Each(&self.values[value..])));
            }
            done = (start + self.repeat - place % self.repeat).min(count);
            Some((start..done, Run::One(self.values[value])))
        })
    }
}

/// Factors of a stretch of elements.
enum Run<'a> {
    One(f64),
    Each(&'a [f64]),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iota(shape: &[usize]) -> Tensor {
        let count = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
        Tensor::from_f32s(shape, &values).unwrap()
    }

    fn floats(t: &Tensor) -> Vec<f32> {
        t.bytes().unwrap().chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
    }

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

    #[test]
    fn scales_along_an_axis() {
        let t = iota(&[2, 3]);
        assert_eq!(floats(&t.scaled(0, &[1.0, 10.0]).unwrap()), [0.0, 1.0, 2.0, 30.0, 40.0, 50.0]);
        assert_eq!(floats(&t.scaled(1, &[1.0, 10.0, 100.0]).unwrap()), [0.0, 10.0, 200.0, 3.0, 40.0, 500.0]);
        let large = iota(&[3, 100_000]).scaled(0, &[1.0, 2.0, 4.0]).unwrap();
        assert_eq!(floats(&large)[250_000], 1_000_000.0);
        assert!(t.scales_well(1, &[1e38, 1e37, 0.0]).unwrap() && t.scales_well(1, &[1.0, 0.0, 0.0]).unwrap());
        assert!(!t.scales_well(1, &[1e38, 1e38, 1e38]).unwrap());
        assert!(!t.scales_well(0, &[1e-40, 1e-40]).unwrap());
        assert!(!t.transposed(&[1, 0]).unwrap().scales_well(0, &[1.0, 1e38, 1e38]).unwrap());
        assert!(t.scaled(0, &[1.0]).is_err());
        assert!(Tensor::from_i64s(&[1]).scaled(0, &[1.0]).is_err());
    }
}
