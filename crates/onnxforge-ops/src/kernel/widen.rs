//! 16-bit floats as 32-bit floats and back.

use half::{bf16, f16};

use super::map::map_to;
use crate::array::Array;
use crate::error::OpError;
use crate::value::Value;
use onnxforge_ir::DType;

/// 16-bit floats as 32-bit floats; everything else as it is.
pub fn widen(array: &Array) -> Result<Array, OpError> {
    match array.dtype() {
        DType::F16 => map_to(array, |x: &f16| x.to_f32()),
        DType::BF16 => map_to(array, |x: &bf16| x.to_f32()),
        _ => Ok(array.clone()),
    }
}

/// 32-bit floats rounded to the nearest float of `dtype`; everything else as it is.
pub fn narrow(array: &Array, dtype: DType) -> Result<Array, OpError> {
    match (array.dtype(), dtype) {
        (DType::F32, DType::F16) => map_to(array, |x: &f32| f16::from_f32(*x)),
        (DType::F32, DType::BF16) => map_to(array, |x: &f32| bf16::from_f32(*x)),
        _ => Ok(array.clone()),
    }
}

/// Every float of 16 or 32 bits as a 64-bit float; everything else as it is.
pub fn widest(array: &Array) -> Result<Array, OpError> {
    match array.dtype() {
        DType::F32 => map_to(array, |x: &f32| f64::from(*x)),
        DType::F16 => map_to(array, |x: &f16| x.to_f64()),
        DType::BF16 => map_to(array, |x: &bf16| x.to_f64()),
        _ => Ok(array.clone()),
    }
}

/// The value with `change` applied to each tensor in it.
pub fn each_array(
    value: &Value,
    change: &dyn Fn(&Array) -> Result<Array, OpError>,
) -> Result<Value, OpError> {
    Ok(match value {
        Value::Tensor(array) => change(array)?.into(),
        Value::Sequence(values) => {
            let values =
                values.iter().map(|value| each_array(value, change)).collect::<Result<Vec<_>, _>>()?;
            Value::Sequence(values.into())
        }
        Value::Optional(Some(value)) => Value::Optional(Some(Box::new(each_array(value, change)?))),
        other => other.clone(),
    })
}
