//! Tensors that are computed while they are written: a changed layout or a scale, in bounded memory.

use std::io::{self, Write};
use std::sync::Arc;

use half::{bf16, f16};

use super::dtype::DType;
use super::tensor::{Data, Tensor, TensorError};
use crate::blob::Stream;

/// How many bytes are worked on at a time.
const CHUNK: usize = 256 * 1024;

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

fn transpose(source: &Tensor, perm: &[usize], out: &mut dyn Write) -> io::Result<()> {
    let bytes = source.bytes().map_err(io::Error::other)?;
    let width = (source.dtype().bits() / 8) as usize;
    let shape = source.shape();
    let mut strides = vec![width; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1];
    }
    let sizes: Vec<usize> = perm.iter().map(|&axis| shape[axis]).collect();
    let steps: Vec<usize> = perm.iter().map(|&axis| strides[axis]).collect();
    if source.is_empty() {
        return Ok(());
    }
    // Trailing axes that keep their place move as one run.
    let kept = perm.iter().enumerate().rev().take_while(|&(i, &axis)| i == axis).count();
    let outer = perm.len() - kept;
    let run = sizes.iter().skip(outer).product::<usize>() * width;
    let mut index = vec![0usize; outer];
    let mut offset = 0usize;
    let mut buffer = Vec::with_capacity(CHUNK.min(bytes.len()) + run.min(CHUNK));
    loop {
        let part = bytes.get(offset..offset + run).ok_or_else(|| io::Error::other("a tensor shrank"))?;
        if run >= CHUNK {
            out.write_all(part)?;
        } else {
            buffer.extend_from_slice(part);
            if buffer.len() >= CHUNK {
                out.write_all(&buffer)?;
                buffer.clear();
            }
        }
        // The next index, last axis first.
        let mut axis = outer;
        loop {
            if axis == 0 {
                return out.write_all(&buffer);
            }
            axis -= 1;
            index[axis] += 1;
            offset += steps[axis];
            if index[axis] < sizes[axis] {
                break;
            }
            offset -= index[axis] * steps[axis];
            index[axis] = 0;
        }
    }
}

fn scale(source: &Tensor, axis: usize, factors: &[f64], out: &mut dyn Write) -> io::Result<()> {
    let bytes = source.bytes().map_err(io::Error::other)?;
    let inner: usize = source.shape().iter().skip(axis + 1).product();
    if source.is_empty() {
        return Ok(());
    }
    let width = (source.dtype().bits() / 8) as usize;
    let mut scaled = Vec::with_capacity(CHUNK);
    for (chunk_index, chunk) in bytes.chunks(CHUNK).enumerate() {
        scaled.clear();
        let first = chunk_index * (CHUNK / width);
        for (i, element) in chunk.chunks_exact(width).enumerate() {
            let factor = factors.get((first + i) / inner % factors.len()).copied().unwrap_or(1.0);
            match (source.dtype(), element) {
                (DType::F32, &[a, b, c, d]) => {
                    let value = f64::from(f32::from_le_bytes([a, b, c, d])) * factor;
                    scaled.extend_from_slice(&(value as f32).to_le_bytes());
                }
                (DType::F16, &[a, b]) => {
                    let value = f64::from(f16::from_le_bytes([a, b])) * factor;
                    scaled.extend_from_slice(&f16::from_f64(value).to_le_bytes());
                }
                (DType::BF16, &[a, b]) => {
                    let value = f64::from(bf16::from_le_bytes([a, b])) * factor;
                    scaled.extend_from_slice(&bf16::from_f64(value).to_le_bytes());
                }
                (_, &[a, b, c, d, e, f, g, h]) => {
                    let value = f64::from_le_bytes([a, b, c, d, e, f, g, h]) * factor;
                    scaled.extend_from_slice(&value.to_le_bytes());
                }
                _ => return Err(io::Error::other("not a float of 16 bits or more")),
            }
        }
        out.write_all(&scaled)?;
    }
    Ok(())
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
        assert!(t.scaled(0, &[1.0]).is_err());
        assert!(Tensor::from_i64s(&[1]).scaled(0, &[1.0]).is_err());
    }
}
