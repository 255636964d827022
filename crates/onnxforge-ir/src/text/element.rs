//! The elements of tensors: which field holds them, and how they stand in `raw_data`.

use crate::dtype::{DType, Kind};
use onnxforge_proto::schema::TensorProto;

/// The number for a tensor whose elements are in another file, in `TensorProto.data_location`.
pub(super) const EXTERNAL: i32 = 1;

/// The field of a tensor that holds elements of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Float,
    Double,
    Int32,
    Int64,
    Uint64,
    String,
}

impl Field {
    /// The field that belongs to `dtype`.
    pub(super) fn of(dtype: DType) -> Self {
        match dtype {
            DType::F32 | DType::C64 => Self::Float,
            DType::F64 | DType::C128 => Self::Double,
            DType::I64 => Self::Int64,
            DType::U32 | DType::U64 => Self::Uint64,
            DType::String => Self::String,
            _ => Self::Int32,
        }
    }
}

/// A number in `raw_data`. Complex numbers are two of them; elements smaller than a byte are as many as fill
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    F32,
    F64,
    Signed(usize),
    Unsigned(usize),
}

impl Unit {
    /// The numbers that a tensor of `dtype` consists of; `None` for strings.
    pub(super) fn of(dtype: DType) -> Option<Self> {
        let bytes = (dtype.bits() as usize).div_ceil(8);
        Some(match dtype.kind() {
            Kind::String => return None,
            _ if Field::of(dtype) == Field::Float => Self::F32,
            _ if Field::of(dtype) == Field::Double => Self::F64,
            Kind::Signed if dtype.bits() >= 8 => Self::Signed(bytes),
            _ => Self::Unsigned(bytes),
        })
    }

    /// Bytes of one number.
    pub(super) fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Signed(width) | Self::Unsigned(width) => width,
        }
    }

    /// Whether an integer has a place in it.
    fn holds(self, value: i128) -> bool {
        match self {
            Self::Signed(width) => {
                let half = 1i128 << (width * 8 - 1);
                (-half..half).contains(&value)
            }
            Self::Unsigned(width) => (0..1i128 << (width * 8)).contains(&value),
            Self::F32 | Self::F64 => false,
        }
    }
}

/// Moves the elements from the field of `dtype` to `raw_data`.
pub(super) fn make_raw(tensor: &mut TensorProto, dtype: DType) -> Result<(), String> {
    let unit = Unit::of(dtype).ok_or("strings cannot be stored raw")?;
    let integers: Vec<u8> = match Field::of(dtype) {
        Field::Float => {
            tensor.raw_data =
                Some(std::mem::take(&mut tensor.float_data).into_blob().unwrap_or_default().into());
            return Ok(());
        }
        Field::Double => {
            tensor.raw_data =
                Some(std::mem::take(&mut tensor.double_data).into_blob().unwrap_or_default().into());
            return Ok(());
        }
        Field::Int32 => pack(unit, std::mem::take(&mut tensor.int32_data.0)),
        Field::Int64 => pack(unit, std::mem::take(&mut tensor.int64_data.0)),
        Field::Uint64 | Field::String => pack(unit, std::mem::take(&mut tensor.uint64_data.0)),
    }
    .map_err(|value| format!("{value} does not fit an element of {dtype}"))?;
    tensor.raw_data = Some(onnxforge_proto::blob::Blob::from(integers).into());
    Ok(())
}

/// The integers as they stand in `raw_data`, or the first one that does not fit.
fn pack(unit: Unit, values: Vec<impl Into<i128>>) -> Result<Vec<u8>, i128> {
    let mut bytes = Vec::with_capacity(values.len().saturating_mul(unit.width()));
    for value in values {
        let value = value.into();
        if !unit.holds(value) {
            return Err(value);
        }
        bytes.extend(value.to_le_bytes().into_iter().take(unit.width()));
    }
    Ok(bytes)
}
