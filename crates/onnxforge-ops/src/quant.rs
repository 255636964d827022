//! Quantized numbers: to them, from them, and products of them.

mod linear;
mod product;

use super::call::Call;
use super::def::{Category, OpDef};
use super::error::OpError;
use super::infer_call::Infer;
use super::kernel::number::Float;
use super::{Array, Fact};
use onnxforge_ir::DType;

pub(super) use linear::{Target, dequantize, dynamic_scale, quantize};
pub(super) use product::{centered_product, product, requantize, single_number};

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("QuantizeLinear", Category::Conversion, infer_quantize, linear::quantize_linear),
    OpDef::new("DequantizeLinear", Category::Conversion, infer_dequantize, linear::dequantize_linear),
    OpDef::new("DynamicQuantizeLinear", Category::Conversion, infer_dynamic, linear::dynamic_quantize_linear),
    OpDef::new("QLinearMatMul", Category::Math, infer_qlinear_matmul, product::qlinear_matmul).widening(),
    OpDef::new("QLinearConv", Category::NeuralLayer, infer_qlinear_conv, product::qlinear_conv).widening(),
    OpDef::new("MatMulInteger", Category::Math, infer_matmul_integer, product::matmul_integer),
];

/// Every element of an array of real numbers as `T`.
pub(super) fn floats<T: Float>(array: &Array) -> Result<Vec<T>, OpError> {
    match array.slice::<T>() {
        Ok(values) => Ok(values.to_vec()),
        Err(_) => Ok(array.to_f64s()?.into_iter().map(T::from_f64).collect()),
    }
}

/// The element type that an attribute names; none where it is 0 or not given.
fn declared_dtype(call: &Call<'_>, name: &str) -> Result<Option<DType>, OpError> {
    match call.opt_int(name)? {
        None | Some(0) => Ok(None),
        Some(_) => call.dtype(name),
    }
}

fn infer_quantize(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let given = declared_dtype(&cx.call, "output_dtype")?;
    match (cx.has(2), given) {
        (_, Some(dtype)) => cx.set_dtype(0, dtype),
        (false, None) => cx.set_dtype(0, DType::U8),
        (true, None) => cx.copy_dtype(0, 2),
    }
    same_shape(cx);
    Ok(())
}

fn infer_dequantize(cx: &mut Infer<'_>) -> Result<(), OpError> {
    match declared_dtype(&cx.call, "output_dtype")? {
        Some(dtype) => cx.set_dtype(0, dtype),
        None => cx.copy_dtype(0, 1),
    }
    same_shape(cx);
    Ok(())
}

fn same_shape(cx: &mut Infer<'_>) {
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
}

fn infer_dynamic(cx: &mut Infer<'_>) -> Result<(), OpError> {
    same_shape(cx);
    cx.set_shape(1, Vec::new());
    cx.set_shape(2, Vec::new());
    Ok(())
}

fn infer_matmul_integer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    shape_of_standard(cx, "MatMul", [0, 1])
}

fn infer_qlinear_matmul(cx: &mut Infer<'_>) -> Result<(), OpError> {
    shape_of_standard(cx, "MatMul", [0, 3])
}

fn infer_qlinear_conv(cx: &mut Infer<'_>) -> Result<(), OpError> {
    shape_of_standard(cx, "Conv", [0, 3])
}

/// Output 0 has the shape that the standard operator `name` gives to these two inputs.
pub(super) fn shape_of_standard(cx: &mut Infer<'_>, name: &str, inputs: [usize; 2]) -> Result<(), OpError> {
    let facts = inputs.map(|index| Some(cx.fact(index).clone()));
    let outputs = cx.standard(name, 13, &facts)?;
    if let Some(shape) = outputs.first().and_then(Fact::tensor).and_then(|fact| fact.shape.clone()) {
        cx.set_shape(0, shape);
    }
    Ok(())
}
