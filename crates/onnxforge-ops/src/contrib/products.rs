//! Products of quantized matrices whose results are floats, or quantized again.

use super::fused::set_shape_of;
use crate::array::each_float;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::map::zip;
use crate::kernel::number::Number;
use crate::kernel::quantize::{Quantizable, Quantized, Spread};
use crate::kernel::strided::transpose;
use crate::quant::{self, Target, centered_product, dynamic_scale, floats, requantize, single_number};
use crate::{Array, Value};
use onnxforge_ir::DType;

/// The product of matrices of bytes as floats: exact sums times the scales (one of the first factor; one, or one for each
/// column, of the second), plus a bias for each column.
pub(super) fn product_to_float<T: Quantizable>(
    cx: &Eval<'_>,
    factors: [&Array; 2],
    [a_scale, b_scale]: [&Array; 2],
    zeros: [Option<&Array>; 2],
    bias: Option<&Array>,
) -> Result<Array, OpError> {
    if b_scale.rank() > 1 && b_scale.len() > 1 {
        return unsupported(format!("scales of shape {:?}", b_scale.shape()));
    }
    let sums = centered_product(cx, factors, zeros)?;
    let a_scale = single_number::<T>(a_scale)?;
    let scales: Vec<T> = floats::<T>(b_scale)?.into_iter().map(|b| a_scale * b).collect();
    scaled(cx, &sums, &scales, bias)
}

/// Sums times a factor (one, or one for each column), plus a bias for each column.
fn scaled<T: Quantizable>(
    cx: &Eval<'_>,
    sums: &Array,
    scales: &[T],
    bias: Option<&Array>,
) -> Result<Array, OpError> {
    let columns = sums.shape().last().copied().unwrap_or(1);
    let biases = bias.map(floats::<T>).transpose()?;
    if biases.as_ref().is_some_and(|bias| bias.len() != columns) {
        return invalid(format!("a bias for {columns} columns"));
    }
    let spread = column_spread(sums, scales.len())?;
    let mut out = cx.zeros::<T>(sums.shape())?;
    spread.apply(sums.slice::<i32>()?, &mut out, scales, None, |&sum, scale, _| {
        T::from_f64(sum.into()) * scale
    });
    if let Some(bias) = biases {
        out.iter_mut().zip(bias.iter().cycle()).for_each(|(out, &bias)| *out += bias);
    }
    Array::new(sums.shape(), out)
}

/// One parameter for all, or one for each column of the matrices.
fn column_spread(sums: &Array, params: usize) -> Result<Spread, OpError> {
    match params {
        1 => Ok(Spread::whole()),
        _ => Spread::new(sums.shape(), &[params], -1, 0),
    }
}

pub(super) fn infer_product(cx: &mut Infer<'_>) -> Result<(), OpError> {
    quant::shape_of_standard(cx, "MatMul", [0, 1])?;
    cx.copy_dtype(0, 2);
    Ok(())
}

pub(super) fn infer_dynamic_product(cx: &mut Infer<'_>) -> Result<(), OpError> {
    quant::shape_of_standard(cx, "MatMul", [0, 1])?;
    cx.copy_dtype(0, 0);
    Ok(())
}

pub(super) fn eval_integer_to_float(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (a_scale, b_scale) = (cx.array(2)?, cx.array(3)?);
    let zeros = [cx.opt_array(4)?, cx.opt_array(5)?];
    let factors = [cx.array(0)?, cx.array(1)?];
    each_float!(a_scale, T => {
        one(product_to_float::<T>(cx, factors, [a_scale, b_scale], zeros, cx.opt_array(6)?)?)
    })
}

pub(super) fn eval_dynamic(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let a = cx.array(0)?;
    each_float!(a, T => {
        let (scale, zero) = dynamic_scale::<T>(a.slice()?);
        let (scale, zero) = (Array::scalar(scale), Array::scalar(u8::saturating(zero)));
        let target = Target { dtype: DType::U8, axis: 0, block: 0, precision: DType::F32, saturate: true };
        let bytes = quant::quantize(cx, a, &scale, Some(&zero), &target)?;
        let zeros = [Some(&zero), cx.opt_array(3)?];
        let scales = [&scale, cx.array(2)?];
        one(product_to_float::<T>(cx, [&bytes, cx.array(1)?], scales, zeros, cx.opt_array(4)?)?)
    })
}

pub(super) fn infer_gemm(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let facts = [Some(cx.fact(0).clone()), Some(cx.fact(3).clone())];
    let outputs = cx.standard("Gemm", 13, &facts)?;
    set_shape_of(cx, &outputs);
    let typed = if cx.has(8) { 8 } else { 1 };
    cx.copy_dtype(0, typed);
    Ok(())
}

pub(super) fn eval_gemm(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let upright = |x: &Array, flag: &str| match cx.call.flag(flag)? {
        true if x.rank() == 2 => transpose(x, &[1, 0], cx.memory()),
        _ => Ok(x.clone()),
    };
    let (a, b) = (upright(cx.array(0)?, "transA")?, upright(cx.array(3)?, "transB")?);
    if a.rank() != 2 || b.rank() != 2 {
        return invalid(format!("factors {:?} and {:?}", a.shape(), b.shape()));
    }
    let sums = centered_product(cx, [&a, &b], [cx.opt_array(2)?, cx.opt_array(5)?])?;
    let sums = match cx.opt_array(6)? {
        Some(c) => {
            let sums = zip(&sums, c, cx.memory(), |&sum: &i32, &c: &i32| sum.wrapping_add(c))?;
            if sums.shape() != [a.shape()[0], b.shape()[1]] {
                return invalid(format!("a summand of shape {:?}", c.shape()));
            }
            sums
        }
        None => sums,
    };
    let scale = cx.array(1)?;
    each_float!(scale, T => {
        let factor = T::from_f64(cx.call.float_or("alpha", 1.0)?.into()) * single_number::<T>(scale)?;
        let factors: Vec<T> = floats::<T>(cx.array(4)?)?.into_iter().map(|b| factor * b).collect();
        match (cx.opt_array(7)?, cx.opt_array(8)?) {
            (Some(y_scale), Some(zero)) => {
                let y_scale = single_number::<T>(y_scale)?;
                let factors: Vec<T> = factors.into_iter().map(|factor| factor / y_scale).collect();
                let spread = column_spread(&sums, factors.len())?;
                one(requantize(cx, &sums, spread, &factors, zero)?)
            }
            (None, None) => one(scaled(cx, &sums, &factors, None)?),
            _ => unsupported("a result with a scale or a zero point alone"),
        }
    })
}

/// The product of matrices of 16-bit integers.
pub(super) fn eval_matmul_integer16(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (cx.array(0)?, cx.array(1)?);
    if [a, b].iter().any(|x| x.dtype() != DType::I16) {
        return unsupported("products of unsigned 16-bit integers");
    }
    one(quant::product(cx, a, b)?)
}

pub(super) fn infer_matmul_integer16(cx: &mut Infer<'_>) -> Result<(), OpError> {
    quant::shape_of_standard(cx, "MatMul", [0, 1])?;
    cx.set_dtype(0, DType::I32);
    Ok(())
}
