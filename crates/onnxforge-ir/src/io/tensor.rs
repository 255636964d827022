//! `TensorProto` to [`Tensor`] and back: one packed form in memory, every stored form on disk.

use std::sync::Arc;

use super::external::{ExternalFiles, Reference};
use crate::dtype::DType;
use crate::lazy::Lazy;
use crate::tensor::{Data, Storage, Tensor, TensorError, TensorNotes, element_count};
use onnxforge_proto::Str;
use onnxforge_proto::blob::{Blob, Payload};
use onnxforge_proto::schema::{StringStringEntryProto, TensorProto};
use onnxforge_proto::wire::{Packed, PackedFixed};

/// The metadata key under which a tensor without elements says what they looked like.
pub const RECIPE_KEY: &str = "onnxforge.redacted";

/// `TensorProto.DataLocation.EXTERNAL`.
const EXTERNAL: i32 = 1;

/// Why a stored tensor makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum StoredTensorError {
    /// The type's number is not one that ONNX defines.
    #[error("data type {0} is not known")]
    DataType(i32),
    /// A dimension is negative.
    #[error("dimension {0} is negative")]
    NegativeDim(i64),
    /// More than one of the data fields is filled.
    #[error("elements are stored twice, in {0} and in {1}")]
    Twice(&'static str, &'static str),
    /// The filled data field belongs to another type.
    #[error("elements of type {dtype} are stored in {field}")]
    Field {
        /// The tensor's type.
        dtype: DType,
        /// The field that is filled.
        field: &'static str,
    },
    /// A stored number does not fit the type.
    #[error("element {index} of {field} is {value}, which is not a {dtype}")]
    Value {
        /// Position in the field.
        index: usize,
        /// The field.
        field: &'static str,
        /// The number.
        value: i128,
        /// The tensor's type.
        dtype: DType,
    },
    /// Type, shape and length do not agree.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Reads a stored tensor. External data that cannot be had makes a tensor without elements that knows why.
pub fn from_proto(proto: TensorProto, files: &mut ExternalFiles) -> Result<Tensor, StoredTensorError> {
    let code = proto.data_type.unwrap_or(0);
    let dtype = DType::from_code(code).ok_or(StoredTensorError::DataType(code))?;
    let shape: Arc<[usize]> = proto
        .dims
        .iter()
        .map(|&dim| usize::try_from(dim).map_err(|_| StoredTensorError::NegativeDim(dim)))
        .collect::<Result<_, _>>()?;
    let count = element_count(&shape).ok_or_else(|| TensorError::TooLarge(shape.to_vec()))?;

    let external = proto.data_location == Some(EXTERNAL);
    let mut filled = Vec::new();
    let mut note = |present: bool, field: &'static str| {
        if present {
            filled.push(field);
        }
    };
    note(external, "external_data");
    note(
        proto.raw_data.is_some() && !(external && proto.raw_data.as_ref().is_some_and(|p| p.byte_len() == 0)),
        "raw_data",
    );
    note(proto.float_data != PackedFixed::Empty, "float_data");
    note(proto.double_data != PackedFixed::Empty, "double_data");
    note(!proto.int32_data.0.is_empty(), "int32_data");
    note(!proto.int64_data.0.is_empty(), "int64_data");
    note(!proto.uint64_data.0.is_empty(), "uint64_data");
    note(!proto.string_data.is_empty(), "string_data");
    if let [first, second, ..] = filled[..] {
        return Err(StoredTensorError::Twice(first, second));
    }

    let redacted = proto.metadata_props.iter().any(|entry| entry.key.as_deref() == Some(RECIPE_KEY));
    let notes = TensorNotes {
        name: proto.name,
        doc_string: proto.doc_string,
        metadata: proto.metadata_props,
        segment: proto.segment.map(|segment| *segment),
        location: proto.data_location.filter(|_| !external),
        unused_external: if external { Vec::new() } else { proto.external_data.clone() },
        empty_raw: external && proto.raw_data.is_some(),
        unknown: proto.unknown,
    };
    let field = filled.first().copied().unwrap_or("");
    let wrong_field = || StoredTensorError::Field { dtype, field };
    let (data, storage) = match field {
        "external_data" => {
            let blob = dtype.byte_len(count).ok_or_else(wrong_field).map(|needed| {
                Reference::parse(&proto.external_data)
                    .and_then(|reference| files.read(&reference, needed as u64))
            })?;
            let data = match blob {
                Ok(blob) => Data::Bytes(blob),
                Err(_) if redacted => Data::Unavailable(
                    "its elements were redacted; materialize the model to get random ones".into(),
                ),
                Err(error) => Data::Unavailable(error.to_string().into()),
            };
            (data, Storage::External(proto.external_data.into()))
        }
        "raw_data" => match proto.raw_data {
            Some(Payload::Bytes(blob)) => (Data::Bytes(blob), Storage::Raw),
            Some(Payload::Stream(stream)) => (Data::Lazy(Lazy::Generated(stream).into()), Storage::Raw),
            None => return Err(wrong_field()),
        },
        "string_data" => (Data::Strings(proto.string_data.into()), Storage::Typed),
        "float_data" if matches!(dtype, DType::F32 | DType::C64) => {
            (Data::Bytes(proto.float_data.into_blob().unwrap_or_default()), Storage::Typed)
        }
        "double_data" if matches!(dtype, DType::F64 | DType::C128) => {
            (Data::Bytes(proto.double_data.into_blob().unwrap_or_default()), Storage::Typed)
        }
        "int64_data" if dtype == DType::I64 => {
            let bytes: Vec<u8> = proto.int64_data.0.iter().flat_map(|v| v.to_le_bytes()).collect();
            (Data::Bytes(bytes.into()), Storage::Typed)
        }
        "uint64_data" if dtype == DType::U64 => {
            let bytes: Vec<u8> = proto.uint64_data.0.iter().flat_map(|v| v.to_le_bytes()).collect();
            (Data::Bytes(bytes.into()), Storage::Typed)
        }
        "uint64_data" if dtype == DType::U32 => {
            let values = proto.uint64_data.0.iter().map(|&value| i128::from(value));
            (Data::Bytes(narrow(values, field, dtype, 0, u32::MAX.into(), 4)?.into()), Storage::Typed)
        }
        "int32_data" => (Data::Bytes(pack_int32(&proto.int32_data.0, dtype)?.into()), Storage::Typed),
        "" if dtype == DType::String => (Data::Strings(Arc::new([])), Storage::Absent),
        "" => (Data::Bytes(Blob::default()), Storage::Absent),
        _ => return Err(wrong_field()),
    };
    let tensor = Tensor::new(dtype, shape, data).map_err(|error| match error {
        TensorError::Type { .. } => wrong_field(),
        other => other.into(),
    })?;
    Ok(tensor.with_storage(storage).with_notes(notes))
}

/// Gives a tensor that stays in its message the bytes of its external data, beside the entries that say where they are.
/// Such a message exists in memory only; [`attached`] is the way back.
pub fn attach(proto: &mut TensorProto, files: &mut ExternalFiles) {
    if proto.data_location != Some(EXTERNAL) {
        return;
    }
    let shape: Option<Vec<usize>> = proto.dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let dtype = DType::from_code(proto.data_type.unwrap_or(0));
    let needed = dtype.zip(shape.as_deref().and_then(element_count)).and_then(|(dtype, n)| dtype.byte_len(n));
    if let (Some(needed), Ok(reference)) = (needed, Reference::parse(&proto.external_data)) {
        proto.raw_data = files.read(&reference, needed as u64).ok().map(Payload::Bytes);
    }
}

/// The tensor that [`attach`] gave its bytes; `None` for one that is stored in its message.
pub fn attached(proto: &TensorProto) -> Result<Option<Tensor>, TensorError> {
    if proto.data_location != Some(EXTERNAL) {
        return Ok(None);
    }
    if proto.raw_data.is_none() {
        let name = proto.name.as_deref().unwrap_or_default();
        return Err(TensorError::Unavailable(
            format!("external data of tensor {name:?} cannot be read").into(),
        ));
    }
    let inside = TensorProto { data_location: None, external_data: Vec::new(), ..proto.clone() };
    let tensor = from_proto(inside, &mut ExternalFiles::default())
        .map_err(|error| TensorError::Unavailable(error.to_string().into()))?;
    Ok(Some(tensor.with_storage(Storage::External(proto.external_data.clone().into()))))
}

/// The low bytes of `values`, each of which must lie between `low` and `high`.
fn narrow(
    values: impl Iterator<Item = i128>,
    field: &'static str,
    dtype: DType,
    low: i128,
    high: i128,
    width: usize,
) -> Result<Vec<u8>, StoredTensorError> {
    let mut bytes = Vec::with_capacity(values.size_hint().0.saturating_mul(width));
    for (index, value) in values.enumerate() {
        if !(low..=high).contains(&value) {
            return Err(StoredTensorError::Value { index, field, value, dtype });
        }
        bytes.extend(value.to_le_bytes().iter().take(width));
    }
    Ok(bytes)
}

/// The range of the numbers that `int32_data` holds for a type, and the bytes of each in packed form.
fn int32_form(dtype: DType) -> Option<(i128, i128, usize)> {
    Some(match dtype {
        DType::I32 => (i32::MIN.into(), i32::MAX.into(), 4),
        DType::I16 => (i16::MIN.into(), i16::MAX.into(), 2),
        DType::I8 => (i8::MIN.into(), i8::MAX.into(), 1),
        DType::U16 | DType::F16 | DType::BF16 => (0, u16::MAX.into(), 2),
        // Two or four elements per number for the 4- and 2-bit types: each number is one packed byte.
        _ if matches!(dtype.bits(), 2 | 4 | 8) => (0, u8::MAX.into(), 1),
        // One element per number; packed below.
        _ if dtype.bits() == 6 => (0, 63, 1),
        _ => return None,
    })
}

fn pack_int32(values: &[i32], dtype: DType) -> Result<Vec<u8>, StoredTensorError> {
    let field = "int32_data";
    let (low, high, width) = int32_form(dtype).ok_or(StoredTensorError::Field { dtype, field })?;
    let bytes = narrow(values.iter().map(|&value| i128::from(value)), field, dtype, low, high, width)?;
    if dtype.bits() != 6 {
        return Ok(bytes);
    }
    Ok(bytes
        .chunks(4)
        .flat_map(|group| {
            let bits = group.iter().rev().fold(0u32, |bits, &code| bits << 6 | u32::from(code));
            bits.to_le_bytes().into_iter().take((group.len() * 6).div_ceil(8))
        })
        .collect())
}

fn unpack_int32(bytes: &[u8], dtype: DType, count: usize) -> Vec<i32> {
    match dtype {
        DType::I32 => bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect(),
        DType::I16 => bytes.as_chunks::<2>().0.iter().map(|b| i16::from_le_bytes(*b).into()).collect(),
        DType::I8 => bytes.iter().map(|&b| i32::from(b as i8)).collect(),
        _ if dtype.bits() == 16 => {
            bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b).into()).collect()
        }
        _ if dtype.bits() == 6 => bytes
            .chunks(3)
            .flat_map(|group| {
                let bits = group.iter().rev().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte));
                (0..4).map(move |i| (bits >> (6 * i) & 63) as i32)
            })
            .take(count)
            .collect(),
        _ => bytes.iter().map(|&b| b.into()).collect(),
    }
}

/// Where the elements of a tensor go.
pub enum Place {
    /// Into the message.
    Inside,
    /// Into another file, described by these entries.
    Beside(Vec<StringStringEntryProto>),
}

/// The stored form of `tensor`. `name`: what it is called in the file, when a value's name decides that.
pub fn to_proto(tensor: &Tensor, name: Option<Str>, place: Place) -> Result<TensorProto, TensorError> {
    let notes = tensor.notes();
    let dtype = tensor.dtype();
    let mut proto = TensorProto {
        dims: tensor.shape().iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect(),
        data_type: Some(dtype.code()),
        name: name.or_else(|| notes.name.clone()),
        doc_string: notes.doc_string.clone(),
        metadata_props: notes.metadata.clone(),
        segment: notes.segment.clone().map(Box::new),
        data_location: notes.location,
        external_data: notes.unused_external.clone(),
        unknown: notes.unknown.clone(),
        ..TensorProto::default()
    };
    match (place, tensor.data(), tensor.storage()) {
        (Place::Beside(entries), ..) => {
            proto.external_data = entries;
            proto.data_location = Some(EXTERNAL);
            proto.raw_data = notes.empty_raw.then(|| Blob::default().into());
        }
        (_, Data::Strings(strings), _) => proto.string_data = strings.to_vec(),
        (_, Data::Bytes(_), Storage::Absent) if tensor.is_empty() => {}
        (_, Data::Bytes(blob), Storage::Typed) => match dtype {
            DType::F32 | DType::C64 => proto.float_data = PackedFixed::Shared(blob.clone()),
            DType::F64 | DType::C128 => proto.double_data = PackedFixed::Shared(blob.clone()),
            DType::I64 => {
                proto.int64_data =
                    Packed(blob.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect());
            }
            DType::U64 => {
                proto.uint64_data =
                    Packed(blob.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect());
            }
            DType::U32 => {
                proto.uint64_data =
                    Packed(blob.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b).into()).collect());
            }
            _ => proto.int32_data = Packed(unpack_int32(blob, dtype, tensor.len())),
        },
        _ => proto.raw_data = Some(tensor.payload()?),
    }
    Ok(proto)
}

/// The entries that point to `length` bytes at `offset` of the file `location`.
pub fn external_entries(location: &str, offset: u64, length: u64) -> Vec<StringStringEntryProto> {
    [("location", location.to_owned()), ("offset", offset.to_string()), ("length", length.to_string())]
        .map(|(key, value)| StringStringEntryProto {
            key: Some(key.into()),
            value: Some(value.into()),
            ..StringStringEntryProto::default()
        })
        .into()
}
