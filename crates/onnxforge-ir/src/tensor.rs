//! Constants. A clone costs a reference count; elements stay in the file until somebody asks for them.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use super::dtype::DType;
pub use super::element::{Element, Elements};
use super::lazy::Lazy;
use onnxforge_proto::Str;
use onnxforge_proto::blob::{Blob, Payload, Stream};
use onnxforge_proto::schema::{Segment, StringStringEntryProto};
use onnxforge_proto::wire::Unknown;

/// Why a tensor's elements cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The dimensions multiply to more than fits.
    #[error("the dimensions {0:?} multiply to more elements than can be addressed")]
    TooLarge(Vec<usize>),
    /// The bytes are not as many as type and shape need.
    #[error("{dtype}{shape:?} needs {needed} bytes, {found} are there")]
    Length {
        /// Element type.
        dtype: DType,
        /// Dimensions.
        shape: Vec<usize>,
        /// Bytes that type and shape need.
        needed: usize,
        /// Bytes found.
        found: usize,
    },
    /// The external file is missing, too short or out of bounds.
    #[error("{0}")]
    Unavailable(Str),
    /// The elements have another type than the question assumed.
    #[error("elements are {found}, not {wanted}")]
    Type {
        /// What was asked for.
        wanted: &'static str,
        /// What it is.
        found: DType,
    },
}

/// Where a tensor's elements are.
#[derive(Clone, Debug)]
pub enum Data {
    /// Packed little-endian elements.
    Bytes(Blob),
    /// Byte strings.
    Strings(Arc<[Blob]>),
    /// One element, as packed bytes, that stands for all of them.
    Splat(Blob),
    /// A layout change or scale of another tensor, computed when needed.
    Lazy(Arc<Lazy>),
    /// The elements could not be found; the text says why and what to do.
    Unavailable(Str),
}

/// How the file stores the elements. It is a preference: a tensor whose elements change falls back to [`Storage::Raw`].
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Storage {
    /// As one byte string (`raw_data`).
    #[default]
    Raw,
    /// In the field that belongs to the type (`float_data`, `int32_data`, …).
    Typed,
    /// Nowhere: a tensor without elements and without a data field.
    Absent,
    /// In another file: the entries of `external_data` as they were read.
    External(Arc<[StringStringEntryProto]>),
}

/// The rarely used rest of a tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorNotes {
    /// `TensorProto.name`, when it is not the name of the value that the tensor defines.
    pub name: Option<Str>,
    /// Documentation.
    pub doc_string: Option<Str>,
    /// Metadata.
    pub metadata: Vec<StringStringEntryProto>,
    /// The chunk of a larger tensor that this is.
    pub segment: Option<Segment>,
    /// `data_location` where it is written although the elements are not external.
    pub location: Option<i32>,
    /// `external_data` of a tensor that is not external.
    pub unused_external: Vec<StringStringEntryProto>,
    /// An external tensor has an empty `raw_data` too.
    pub empty_raw: bool,
    /// Fields of a later version.
    pub unknown: Unknown,
}

/// A constant of known type and shape.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: DType,
    shape: Arc<[usize]>,
    data: Data,
    storage: Storage,
    notes: Option<Arc<TensorNotes>>,
}

/// The number of elements of a shape, if it fits.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))
}

impl Tensor {
    /// A tensor over `data`, whose length must fit type and shape.
    pub fn new(dtype: DType, shape: impl Into<Arc<[usize]>>, data: Data) -> Result<Self, TensorError> {
        let shape = shape.into();
        let count = element_count(&shape).ok_or_else(|| TensorError::TooLarge(shape.to_vec()))?;
        let length_error =
            |needed, found| TensorError::Length { dtype, shape: shape.to_vec(), needed, found };
        match &data {
            Data::Strings(strings) if dtype != DType::String || strings.len() != count => {
                return Err(length_error(count, strings.len()));
            }
            Data::Bytes(_) | Data::Splat(_) if dtype == DType::String => {
                return Err(TensorError::Type { wanted: "a type with packed elements", found: dtype });
            }
            Data::Bytes(blob) => {
                let needed = dtype.byte_len(count).ok_or_else(|| TensorError::TooLarge(shape.to_vec()))?;
                if blob.len() != needed {
                    return Err(length_error(needed, blob.len()));
                }
            }
            Data::Splat(blob) if dtype.byte_len(1) != Some(blob.len()) => {
                return Err(length_error(dtype.byte_len(1).unwrap_or(0), blob.len()));
            }
            Data::Lazy(lazy) if matches!(&**lazy, Lazy::Generated(stream) if dtype.byte_len(count).map(|n| n as u64) != Some(stream.byte_len())) =>
            {
                return Err(length_error(dtype.byte_len(count).unwrap_or(0), 0));
            }
            _ => {}
        }
        Ok(Self { dtype, shape, data, storage: Storage::Raw, notes: None })
    }

    /// A tensor of packed little-endian elements.
    pub fn from_bytes(
        dtype: DType,
        shape: impl Into<Arc<[usize]>>,
        bytes: impl Into<Blob>,
    ) -> Result<Self, TensorError> {
        Self::new(dtype, shape, Data::Bytes(bytes.into()))
    }

    /// A one-dimensional tensor of 64-bit integers, the form in which operators take axes and shapes.
    pub fn from_i64s(values: &[i64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self {
            dtype: DType::I64,
            shape: [values.len()].into(),
            data: Data::Bytes(bytes.into()),
            storage: Storage::Raw,
            notes: None,
        }
    }

    /// A tensor of 32-bit floats; the values must be as many as the shape says.
    pub fn from_f32s(shape: impl Into<Arc<[usize]>>, values: &[f32]) -> Result<Self, TensorError> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::from_bytes(DType::F32, shape, bytes)
    }

    /// The same tensor, stored in another way.
    pub fn with_storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// The same tensor with other notes.
    pub fn with_notes(mut self, notes: TensorNotes) -> Self {
        self.notes = (notes != TensorNotes::default()).then(|| Arc::new(notes));
        self
    }

    /// The same elements in another shape of as many elements.
    pub fn reshaped(&self, shape: impl Into<Arc<[usize]>>) -> Result<Self, TensorError> {
        let shape = shape.into();
        let (needed, found) = (element_count(&shape), self.len());
        if needed != Some(found) {
            return Err(TensorError::Length {
                dtype: self.dtype,
                shape: shape.to_vec(),
                needed: needed.unwrap_or(usize::MAX),
                found,
            });
        }
        Ok(Self { shape, ..self.clone() })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        element_count(&self.shape).unwrap_or(usize::MAX)
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the elements are.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// How the file stores, or should store, the elements.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The rarely used rest.
    pub fn notes(&self) -> &TensorNotes {
        static NONE: TensorNotes = TensorNotes {
            name: None,
            doc_string: None,
            metadata: Vec::new(),
            segment: None,
            location: None,
            unused_external: Vec::new(),
            empty_raw: false,
            unknown: Unknown(Vec::new()),
        };
        self.notes.as_deref().unwrap_or(&NONE)
    }

    /// Bytes of the elements, packed; for strings the bytes of all strings together.
    pub fn byte_len(&self) -> u64 {
        match &self.data {
            Data::Strings(strings) => strings.iter().map(|s| s.len() as u64).sum(),
            _ => self.dtype.byte_len(self.len()).unwrap_or(0) as u64,
        }
    }

    /// The packed elements. Borrowed when they are at hand, computed for a splat or a lazy tensor.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>, TensorError> {
        match &self.data {
            Data::Bytes(blob) => Ok(Cow::Borrowed(blob)),
            Data::Strings(_) => {
                Err(TensorError::Type { wanted: "a type with packed elements", found: self.dtype })
            }
            Data::Unavailable(why) => Err(TensorError::Unavailable(why.clone())),
            Data::Splat(_) | Data::Lazy(_) => {
                let mut bytes = Vec::new();
                bytes
                    .try_reserve_exact(self.byte_len() as usize)
                    .map_err(|_| TensorError::TooLarge(self.shape.to_vec()))?;
                self.write_packed(&mut bytes)
                    .map_err(|error| TensorError::Unavailable(error.to_string().into()))?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// The packed elements as something to write, without holding them.
    pub fn payload(&self) -> Result<Payload, TensorError> {
        match &self.data {
            Data::Bytes(blob) => Ok(blob.clone().into()),
            Data::Strings(_) | Data::Unavailable(_) => {
                self.bytes().map(|bytes| Payload::Bytes((&*bytes).into()))
            }
            Data::Splat(_) | Data::Lazy(_) => Ok(Payload::Stream(Arc::new(self.clone()))),
        }
    }

    fn write_packed(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.data {
            Data::Bytes(blob) => out.write_all(blob),
            Data::Lazy(lazy) => lazy.write_to(out),
            Data::Splat(element) => self.write_splat(element, out),
            Data::Strings(_) | Data::Unavailable(_) => {
                Err(io::Error::other("the elements are not packed bytes"))
            }
        }
    }

    fn write_splat(&self, element: &Blob, out: &mut dyn Write) -> io::Result<()> {
        let total = self.byte_len() as usize;
        let bits = self.dtype.bits();
        // The pattern repeats after a whole number of bytes; a run of it fills the buffer.
        let unit: Vec<u8> = if bits < 8 {
            let code = u32::from(element.first().copied().unwrap_or(0)) & ((1 << bits) - 1);
            let group = (0..24 / bits).fold(0u32, |group, i| group | code << (i * bits));
            group.to_le_bytes()[..3].to_vec()
        } else {
            element.to_vec()
        };
        let buffer = unit.repeat((64 * 1024 / unit.len().max(1)).max(1));
        let mut left = total;
        while left > 0 {
            let part = left.min(buffer.len());
            let last = part == left;
            let mut bytes = Cow::Borrowed(buffer.get(..part).unwrap_or_default());
            let used = (self.len() * bits as usize) % 8;
            if last && bits < 8 && used != 0 {
                // Bits past the last element are zero.
                if let Some(byte) = bytes.to_mut().last_mut() {
                    *byte &= (1u8 << used) - 1;
                }
            }
            out.write_all(&bytes)?;
            left -= part;
        }
        Ok(())
    }

    /// The byte strings of a string tensor.
    pub fn strings(&self) -> Result<&[Blob], TensorError> {
        match &self.data {
            Data::Strings(strings) => Ok(strings),
            _ => Err(TensorError::Type { wanted: "string", found: self.dtype }),
        }
    }

    /// Every element, decoded, in row-major order.
    pub fn elements(&self) -> Result<Elements<'_>, TensorError> {
        let bytes = match &self.data {
            Data::Strings(strings) => return Ok(Elements::Strings(strings.iter())),
            _ => self.bytes()?,
        };
        Ok(Elements::Packed { dtype: self.dtype, bytes, next: 0, count: self.len() })
    }

    /// The elements of a tensor of small integers: shapes, axes, indices.
    pub fn to_i64s(&self) -> Result<Vec<i64>, TensorError> {
        self.elements()?
            .map(|element| match element {
                Element::Int(value) => Ok(value),
                Element::Uint(value) => i64::try_from(value)
                    .map_err(|_| TensorError::Type { wanted: "integers below 2^63", found: self.dtype }),
                _ => Err(TensorError::Type { wanted: "an integer type", found: self.dtype }),
            })
            .collect()
    }

    /// Whether both have the same type, shape and bits.
    pub fn same_bits(&self, other: &Self) -> bool {
        self.dtype == other.dtype
            && self.shape == other.shape
            && match (&self.data, &other.data) {
                (Data::Strings(a), Data::Strings(b)) => a == b,
                (Data::Bytes(a), Data::Bytes(b)) => a.same_place(b) || a == b,
                (Data::Lazy(a), Data::Lazy(b)) if Arc::ptr_eq(a, b) => true,
                _ => matches!((self.bytes(), other.bytes()), (Ok(a), Ok(b)) if a == b),
            }
    }
}

impl Stream for Tensor {
    fn byte_len(&self) -> u64 {
        Self::byte_len(self)
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_packed(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_elements_decode() {
        let t = Tensor::from_bytes(DType::I4, [3], vec![0x8f, 0x07]).unwrap();
        assert_eq!(t.to_i64s().unwrap(), [-1, -8, 7]);
        let t = Tensor::from_bytes(DType::U2, [5], vec![0b11_10_01_00, 0b01]).unwrap();
        assert_eq!(t.to_i64s().unwrap(), [0, 1, 2, 3, 1]);
        let codes = [0x3fu32, 0x01, 0x20, 0x1f];
        let bits = codes.iter().rev().fold(0u32, |all, c| all << 6 | c);
        let t = Tensor::from_bytes(DType::F6E2M3, [4], bits.to_le_bytes()[..3].to_vec()).unwrap();
        let values: Vec<_> = t.elements().unwrap().collect();
        assert_eq!(values, [-7.5, 0.125, -0.0, 7.5].map(Element::Float));
    }

    #[test]
    fn a_splat_is_what_it_stands_for() {
        for (dtype, element, shape, expected) in [
            (DType::I4, vec![0x0f], vec![3], vec![0xff, 0x0f]),
            (DType::U2, vec![0x01], vec![5], vec![0x55, 0x01]),
            (DType::I16, vec![1, 2], vec![2, 1], vec![1, 2, 1, 2]),
            (DType::F6E3M2, vec![0x3f], vec![5], vec![0xff, 0xff, 0xff, 0x3f]),
        ] {
            let t = Tensor::new(dtype, shape, Data::Splat(element.into())).unwrap();
            assert_eq!(*t.bytes().unwrap(), expected[..], "{dtype}");
        }
        let large =
            Tensor::new(DType::F32, [100_003], Data::Splat(1f32.to_le_bytes().to_vec().into())).unwrap();
        assert!(large.elements().unwrap().all(|e| e == Element::Float(1.0)));
        assert_eq!(large.elements().unwrap().count(), 100_003);
    }

    #[test]
    fn wrong_lengths_are_refused() {
        assert!(Tensor::from_bytes(DType::F32, [2], vec![0; 7]).is_err());
        assert!(Tensor::from_bytes(DType::F32, [usize::MAX, 2], vec![]).is_err());
        assert!(Tensor::from_bytes(DType::F32, [0, usize::MAX], vec![]).is_ok());
        assert!(Tensor::from_bytes(DType::String, [1], vec![0]).is_err());
        assert!(Tensor::from_i64s(&[1, 2]).reshaped([3]).is_err());
    }
}
