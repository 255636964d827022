//! Single elements out of packed bytes, for every element type.

use std::borrow::Cow;

use half::{bf16, f16};

use super::dtype::{DType, Kind};
use onnxforge_proto::blob::Blob;

/// One element of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
    /// A floating-point number; every narrower format is exact in 64 bits.
    Float(f64),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A truth value.
    Bool(bool),
    /// Real and imaginary part.
    Complex(f64, f64),
    /// A byte string.
    Bytes(Blob),
}

/// The elements of a tensor, one after the other.
pub enum Elements<'a> {
    /// Numbers in packed form.
    Packed {
        /// Element type.
        dtype: DType,
        /// All elements.
        bytes: Cow<'a, [u8]>,
        /// The next one.
        next: usize,
        /// How many there are.
        count: usize,
    },
    /// Byte strings.
    Strings(std::slice::Iter<'a, Blob>),
}

impl Iterator for Elements<'_> {
    type Item = Element;

    fn next(&mut self) -> Option<Element> {
        match self {
            Self::Strings(strings) => strings.next().map(|s| Element::Bytes(s.clone())),
            Self::Packed { dtype, bytes, next, count } => {
                if next >= count {
                    return None;
                }
                let element = decode(*dtype, bytes, *next);
                *next += 1;
                element
            }
        }
    }
}

/// Element `index` of packed `bytes`.
fn decode(dtype: DType, bytes: &[u8], index: usize) -> Option<Element> {
    fn at<const N: usize>(bytes: &[u8], index: usize) -> Option<[u8; N]> {
        bytes.get(index.checked_mul(N)?..)?.first_chunk().copied()
    }
    let small = |bits: u32| -> Option<u8> {
        let first = index.checked_mul(bits as usize)?;
        let low = u16::from(*bytes.get(first / 8)?);
        let high = u16::from(bytes.get(first / 8 + 1).copied().unwrap_or(0));
        Some(((low | high << 8) >> (first % 8) & ((1 << bits) - 1)) as u8)
    };
    Some(match dtype {
        DType::F32 => Element::Float(f32::from_le_bytes(at(bytes, index)?).into()),
        DType::F64 => Element::Float(f64::from_le_bytes(at(bytes, index)?)),
        DType::F16 => Element::Float(f16::from_le_bytes(at(bytes, index)?).into()),
        DType::BF16 => Element::Float(bf16::from_le_bytes(at(bytes, index)?).into()),
        DType::I8 => Element::Int(i8::from_le_bytes(at(bytes, index)?).into()),
        DType::I16 => Element::Int(i16::from_le_bytes(at(bytes, index)?).into()),
        DType::I32 => Element::Int(i32::from_le_bytes(at(bytes, index)?).into()),
        DType::I64 => Element::Int(i64::from_le_bytes(at(bytes, index)?)),
        DType::U8 => Element::Uint(u8::from_le_bytes(at(bytes, index)?).into()),
        DType::U16 => Element::Uint(u16::from_le_bytes(at(bytes, index)?).into()),
        DType::U32 => Element::Uint(u32::from_le_bytes(at(bytes, index)?).into()),
        DType::U64 => Element::Uint(u64::from_le_bytes(at(bytes, index)?)),
        DType::Bool => Element::Bool(at::<1>(bytes, index)? != [0]),
        DType::C64 => Element::Complex(
            f32::from_le_bytes(at(bytes, index * 2)?).into(),
            f32::from_le_bytes(at(bytes, index * 2 + 1)?).into(),
        ),
        DType::C128 => Element::Complex(
            f64::from_le_bytes(at(bytes, index * 2)?),
            f64::from_le_bytes(at(bytes, index * 2 + 1)?),
        ),
        DType::String => return None,
        _ => {
            let code = small(dtype.bits())?;
            match dtype.kind() {
                Kind::Unsigned => Element::Uint(code.into()),
                // Move the sign bit to the top and back, which extends it.
                Kind::Signed => {
                    Element::Int(((code << (8 - dtype.bits())) as i8 >> (8 - dtype.bits())).into())
                }
                _ => Element::Float(dtype.small_float(code)?.into()),
            }
        }
    })
}
