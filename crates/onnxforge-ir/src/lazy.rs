//! Tensors that are computed while they are written: a changed layout, a scale or several in one, in bounded memory.

mod concat;
mod scale;
mod transpose;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use super::dtype::DType;
use super::tensor::{Data, Storage, Tensor, TensorError};
use onnxforge_proto::blob::Stream;

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
    /// Tensors one behind the other along `axis`.
    Concat {
        /// What stands one behind the other, in this order.
        parts: Vec<Tensor>,
        /// The axis that they follow each other along.
        axis: usize,
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
        // An order of an order is one order of the source, which may be the source as it is.
        let (source, perm) = match self.untransposed() {
            Some((source, first)) => (source, perm.iter().map(|&axis| first[axis]).collect()),
            None => (self, perm.to_vec()),
        };
        if perm.is_sorted() {
            // With the place in a data file that the source has.
            return Ok(source.clone());
        }
        let lazy = Lazy::Transpose { source: source.clone(), perm };
        Tensor::new(self.dtype(), shape, Data::Lazy(lazy.into()))
    }

    /// Whether the elements come from a data file, possibly in another form.
    pub(crate) fn is_of_data_file(&self) -> bool {
        match self.data() {
            Data::Lazy(lazy) => match &**lazy {
                Lazy::Transpose { source, .. } | Lazy::Scale { source, .. } => source.is_of_data_file(),
                Lazy::Concat { parts, .. } => parts.iter().any(Self::is_of_data_file),
                Lazy::Generated(_) => false,
            },
            _ => matches!(self.storage(), Storage::External(_)),
        }
    }

    /// What this tensor is the transpose of, and by which order, where its shape is still what came out.
    fn untransposed(&self) -> Option<(&Tensor, &[usize])> {
        let Data::Lazy(lazy) = self.data() else { return None };
        let Lazy::Transpose { source, perm } = &**lazy else { return None };
        let moved = perm.iter().map(|&axis| source.shape().get(axis));
        moved.eq(self.shape().iter().map(Some)).then_some((source, perm))
    }

    /// The tensor with every slice along `axis` multiplied by its factor; for floats of 16 bits and more.
    pub fn scaled(&self, axis: usize, factors: &[f64]) -> Result<Tensor, TensorError> {
        self.check_factors(axis, factors)?;
        let lazy = Lazy::Scale { source: self.clone(), axis, factors: factors.to_vec() };
        Tensor::new(self.dtype(), self.shape(), Data::Lazy(lazy.into()))
    }

    /// The tensors one behind the other along `axis`: of one element type, which must fill whole bytes, and of shapes that differ along
    /// this axis at most.
    pub fn concatenated(parts: &[Tensor], axis: usize) -> Result<Tensor, TensorError> {
        let misfit = || TensorError::Unavailable(format!("parts that do not fit along axis {axis}").into());
        let first = parts.first().ok_or_else(misfit)?;
        if !first.dtype().bits().is_multiple_of(8) || first.dtype() == DType::String {
            return Err(TensorError::Type { wanted: "a type of whole bytes", found: first.dtype() });
        }
        let mut shape = first.shape().to_vec();
        let mut size = 0usize;
        for part in parts {
            let along = *part.shape().get(axis).ok_or_else(misfit)?;
            size = size.checked_add(along).ok_or_else(misfit)?;
            *shape.get_mut(axis).ok_or_else(misfit)? = along;
            if part.shape() != shape || part.dtype() != first.dtype() {
                return Err(misfit());
            }
        }
        *shape.get_mut(axis).ok_or_else(misfit)? = size;
        let lazy = Lazy::Concat { parts: parts.to_vec(), axis };
        Tensor::new(first.dtype(), shape, Data::Lazy(lazy.into()))
    }

    /// Fails unless there is a factor for each slice along `axis`, and floats to multiply.
    fn check_factors(&self, axis: usize, factors: &[f64]) -> Result<(), TensorError> {
        if !matches!(self.dtype(), DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
            return Err(TensorError::Type { wanted: "a float of 16 bits or more", found: self.dtype() });
        }
        if self.shape().get(axis) != Some(&factors.len()) {
            return Err(TensorError::Unavailable(
                format!("{} factors for axis {axis} of {:?}", factors.len(), self.shape()).into(),
            ));
        }
        Ok(())
    }
}

impl Lazy {
    /// Writes the packed elements, holding no more than a chunk of them (and the source, when that is lazy too).
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Transpose { source, perm } => transpose::transpose(source, perm, out),
            Self::Scale { source, axis, factors } => scale::scale(source, *axis, factors, out),
            Self::Concat { parts, axis } => concat::concat(parts, *axis, out),
            Self::Generated(stream) => stream.write_to(out),
        }
    }
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn iota(shape: &[usize]) -> Tensor {
        let count = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
        Tensor::from_f32s(shape, &values).unwrap()
    }

    pub fn floats(t: &Tensor) -> Vec<f32> {
        t.bytes().unwrap().chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    #[test]
    fn orders_of_orders() {
        let tensor = iota(&[2, 3, 4]);
        let turned = tensor.transposed(&[1, 2, 0]).unwrap();
        let back = turned.transposed(&[2, 0, 1]).unwrap();
        assert!(!matches!(back.data(), Data::Lazy(_)));
        assert_eq!((back.shape(), back.bytes().unwrap()), (tensor.shape(), tensor.bytes().unwrap()));
        let twice = turned.transposed(&[1, 0, 2]).unwrap();
        let once = tensor.transposed(&[2, 1, 0]).unwrap();
        assert_eq!((twice.shape(), twice.bytes().unwrap()), (once.shape(), once.bytes().unwrap()));
        // Another shape between, and the axes are others.
        let reshaped = turned.reshaped(vec![4, 3, 2]).unwrap();
        let moved = reshaped.transposed(&[2, 0, 1]).unwrap();
        let plain =
            Tensor::new(DType::F32, vec![4, 3, 2], Data::Bytes(turned.bytes().unwrap().into_owned().into()))
                .unwrap();
        assert_eq!(moved.bytes().unwrap(), plain.transposed(&[2, 0, 1]).unwrap().bytes().unwrap());
    }
}
