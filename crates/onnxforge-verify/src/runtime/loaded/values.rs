//! Tensors handed to ONNX Runtime, and taken back.

use half::{bf16, f16};
use ort::value::{DynValue, Tensor, TensorElementType, ValueType};

use super::RuntimeError;
use onnxforge_ir::DType;
use onnxforge_ops::{Array, Value};
use onnxforge_proto::blob::Blob;

/// Applies `$act` to the Rust type of elements of an element type, or answers `$other`.
macro_rules! each_type {
    ($dtype:expr, $act:ident, $other:expr) => {
        match $dtype {
            DType::F32 => $act!(f32),
            DType::F64 => $act!(f64),
            DType::F16 => $act!(f16),
            DType::BF16 => $act!(bf16),
            DType::I8 => $act!(i8),
            DType::I16 => $act!(i16),
            DType::I32 => $act!(i32),
            DType::I64 => $act!(i64),
            DType::U8 => $act!(u8),
            DType::U16 => $act!(u16),
            DType::U32 => $act!(u32),
            DType::U64 => $act!(u64),
            DType::Bool => $act!(bool),
            _ => $other,
        }
    };
}

/// The element type that ONNX Runtime means, as far as values of it are handed over.
fn dtype(ty: TensorElementType) -> Option<DType> {
    Some(match ty {
        TensorElementType::Float32 => DType::F32,
        TensorElementType::Float64 => DType::F64,
        TensorElementType::Float16 => DType::F16,
        TensorElementType::Bfloat16 => DType::BF16,
        TensorElementType::Int8 => DType::I8,
        TensorElementType::Int16 => DType::I16,
        TensorElementType::Int32 => DType::I32,
        TensorElementType::Int64 => DType::I64,
        TensorElementType::Uint8 => DType::U8,
        TensorElementType::Uint16 => DType::U16,
        TensorElementType::Uint32 => DType::U32,
        TensorElementType::Uint64 => DType::U64,
        TensorElementType::Bool => DType::Bool,
        TensorElementType::String => DType::String,
        _ => return None,
    })
}

fn cannot(what: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Value(what.to_string())
}

/// A value as ONNX Runtime's own. Elements that nobody else holds move there.
pub fn given(value: Value) -> Result<DynValue, RuntimeError> {
    let Value::Tensor(array) = value else { return Err(cannot(value.form())) };
    let shape: Vec<i64> = array.shape().iter().map(|&dim| dim as i64).collect();
    let dtype = array.dtype();
    macro_rules! tensor {
        ($type:ty) => {{
            let data = array.into_vec::<$type>().map_err(cannot)?;
            Ok(Tensor::from_array((shape, data)).map_err(super::refused)?.into_dyn())
        }};
    }
    if dtype == DType::String {
        let texts = array.slice::<Blob>().map_err(cannot)?.iter();
        let data: Result<Vec<String>, _> =
            texts.map(|text| String::from_utf8(text.to_vec()).map_err(cannot)).collect();
        return Ok(Tensor::from_string_array((shape, &data?[..])).map_err(super::refused)?.into_dyn());
    }
    each_type!(dtype, tensor, Err(cannot(format!("elements of type {dtype}"))))
}

/// An output of a session as a value.
pub fn taken(value: &DynValue) -> Result<Value, RuntimeError> {
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(cannot(format!("{}", value.dtype())));
    };
    macro_rules! array {
        ($type:ty) => {{
            let (shape, data) = value.try_extract_tensor::<$type>().map_err(super::refused)?;
            Ok(Array::new(sizes(shape), data.to_vec()).map_err(cannot)?.into())
        }};
    }
    match dtype(*ty) {
        Some(DType::String) => {
            let (shape, data) = value.try_extract_strings().map_err(super::refused)?;
            let data = data.into_iter().map(|text| Blob::from(text.into_bytes())).collect();
            Ok(Array::strings(sizes(shape), data).map_err(cannot)?.into())
        }
        Some(dtype) => each_type!(dtype, array, Err(cannot(format!("elements of type {ty}")))),
        None => Err(cannot(format!("elements of type {ty}"))),
    }
}

fn sizes(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).collect()
}
