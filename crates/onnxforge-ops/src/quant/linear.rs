//! Quantizing and dequantizing: y = saturate(round(x / scale) + zero) and x = (y − zero) · scale.

use half::{bf16, f16};

use super::{declared_dtype, floats};
use crate::array::{Buffer, Code, Typed, each_float, unsupported_type};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::kernel::number::{Float, Number};
use crate::kernel::quantize::{Quantizable, Quantized, Spread, saturating_code};
use crate::kernel::small_float::{Encoder, PowerRounding};
use crate::kernel::widen::narrow;
use crate::{Array, Value};
use onnxforge_ir::DType;
use onnxforge_ir::dtype::Kind;

/// How a tensor is quantized, besides its scales and zero points.
pub struct Target {
    /// The quantized type.
    pub dtype: DType,
    /// The axis that has a scale for each index.
    pub axis: i64,
    /// How many neighbours along the axis share a scale; 0 when scales are not blocked.
    pub block: usize,
    /// The type in which the division is rounded.
    pub precision: DType,
    /// Floats past the largest one become it.
    pub saturate: bool,
}

pub(super) fn quantize_linear(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, scale, zero) = (cx.array(0)?, cx.array(1)?, cx.opt_array(2)?);
    if !matches!(scale.dtype().kind(), Kind::Float) {
        return unsupported(format!("a scale of type {}", scale.dtype()));
    }
    let declared = declared_dtype(&cx.call, "output_dtype")?;
    let dtype = declared.or(zero.map(Array::dtype)).unwrap_or(DType::U8);
    if zero.is_some_and(|zero| zero.dtype() != dtype) {
        return invalid(format!("a zero point that is not of the type {dtype} of the result"));
    }
    let precision = match declared_dtype(&cx.call, "precision")? {
        Some(dtype) => dtype,
        // Since opset 23 the scale's type says how the quotient is rounded.
        None if cx.call.since() >= 23 && scale.dtype() != DType::F8E8M0 => scale.dtype(),
        None => DType::F32,
    };
    let target = Target {
        dtype,
        axis: cx.call.int_or("axis", 1)?,
        block: block_size(cx)?,
        precision,
        saturate: cx.call.int_or("saturate", 1)? != 0,
    };
    one(quantize(cx, x, scale, zero, &target)?)
}

fn block_size(cx: &Eval<'_>) -> Result<usize, OpError> {
    let block = cx.call.int_or("block_size", 0)?;
    usize::try_from(block).or_else(|_| invalid(format!("the block size {block}")))
}

/// The tensor quantized with these scales and zero points.
pub fn quantize(
    cx: &Eval<'_>,
    x: &Array,
    scale: &Array,
    zero: Option<&Array>,
    target: &Target,
) -> Result<Array, OpError> {
    if x.dtype() == DType::F64 || scale.dtype() == DType::F64 {
        return quantize_as::<f64>(cx, x, scale, zero, target, |quotient| quotient);
    }
    match target.precision {
        DType::F16 => quantize_as::<f32>(cx, x, scale, zero, target, |q| f16::from_f32(q).to_f32()),
        DType::BF16 => quantize_as::<f32>(cx, x, scale, zero, target, |q| bf16::from_f32(q).to_f32()),
        DType::F32 => quantize_as::<f32>(cx, x, scale, zero, target, |quotient| quotient),
        DType::F64 => quantize_as::<f64>(cx, x, scale, zero, target, |quotient| quotient),
        other => unsupported(format!("division with the precision of {other}")),
    }
}

fn quantize_as<T: Quantizable>(
    cx: &Eval<'_>,
    x: &Array,
    scale: &Array,
    zero: Option<&Array>,
    target: &Target,
    round: impl Fn(T) -> T + Sync + Copy,
) -> Result<Array, OpError> {
    let params = Params::<T>::new(cx, x, scale, zero, target.axis, target.block)?;
    let scales = params.scales.iter().map(|&scale| round(scale)).collect();
    let params = Params { scales, ..params };
    let dtype = target.dtype;
    cx.reserve::<T>(x.len())?;
    let converted;
    let values = match x.slice::<T>() {
        Ok(values) => values,
        Err(_) => {
            converted = floats::<T>(x)?;
            &converted
        }
    };
    let quotient = |x: T, scale: T| round(round(x) / scale);
    match dtype {
        DType::U8 => params.integers::<u8>(cx, x.shape(), values, quotient),
        DType::I8 => params.integers::<i8>(cx, x.shape(), values, quotient),
        DType::U16 => params.integers::<u16>(cx, x.shape(), values, quotient),
        DType::I16 => params.integers::<i16>(cx, x.shape(), values, quotient),
        DType::U4 | DType::I4 | DType::U2 | DType::I2 => {
            params.codes(cx, dtype, x.shape(), values, |x, scale, zero| {
                saturating_code(dtype, quotient(x, scale).round_even() + zero)
            })
        }
        _ => {
            // Powers of two are for scales alone.
            let encoder = Encoder::new(dtype, target.saturate, PowerRounding::Nearest);
            let Some(encoder) = encoder.filter(|_| dtype != DType::F8E8M0) else {
                return invalid(format!("quantization to {dtype}"));
            };
            params.needs_no_zero(dtype)?;
            let encode = |x, scale, _| encoder.encode(quotient(x, scale).to_f64());
            params.codes(cx, dtype, x.shape(), values, encode)
        }
    }
}

/// Scales, zero points and the elements that they belong to.
struct Params<T> {
    spread: Spread,
    scales: Vec<T>,
    zeros: Option<Vec<T>>,
}

impl<T: Quantizable> Params<T> {
    fn new(
        cx: &Eval<'_>,
        x: &Array,
        scale: &Array,
        zero: Option<&Array>,
        axis: i64,
        block: usize,
    ) -> Result<Self, OpError> {
        if let Some(zero) = zero.filter(|zero| zero.len() != scale.len()) {
            return invalid(format!("zero points {:?} for scales {:?}", zero.shape(), scale.shape()));
        }
        cx.reserve::<[f64; 2]>(scale.len())?;
        Ok(Self {
            spread: Spread::new(x.shape(), scale.shape(), axis, block)?,
            scales: floats(scale)?,
            zeros: zero.map(floats).transpose()?,
        })
    }

    /// Zero points other than 0 have no agreed meaning for small floats and 32-bit integers.
    fn needs_no_zero(&self, dtype: DType) -> Result<(), OpError> {
        match self.zeros.iter().flatten().all(|&zero| zero == T::ZERO) {
            true => Ok(()),
            false => unsupported(format!("a zero point other than 0 for {dtype}")),
        }
    }

    fn integers<Q: Quantized>(
        &self,
        cx: &Eval<'_>,
        shape: &[usize],
        x: &[T],
        quotient: impl Fn(T, T) -> T + Sync,
    ) -> Result<Array, OpError> {
        let mut out = cx.zeros::<Q>(shape)?;
        let quantize = |&x: &T, scale, zero| Q::saturating(quotient(x, scale).round_even() + zero);
        self.spread.apply(x, &mut out, &self.scales, self.zeros.as_deref(), quantize);
        Array::new(shape, out)
    }

    fn codes(
        &self,
        cx: &Eval<'_>,
        dtype: DType,
        shape: &[usize],
        x: &[T],
        f: impl Fn(T, T, T) -> Code + Sync,
    ) -> Result<Array, OpError> {
        let mut out = cx.zeros::<Code>(shape)?;
        self.spread.apply(x, &mut out, &self.scales, self.zeros.as_deref(), |&x, s, z| f(x, s, z));
        Array::with_dtype(dtype, shape, out)
    }
}

pub(super) fn dequantize_linear(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, scale, zero) = (cx.array(0)?, cx.array(1)?, cx.opt_array(2)?);
    let dtype = declared_dtype(&cx.call, "output_dtype")?.unwrap_or(scale.dtype());
    let (axis, block) = (cx.call.int_or("axis", 1)?, block_size(cx)?);
    if cx.wide || scale.dtype() == DType::F64 {
        return one(dequantize::<f64>(cx, x, scale, zero, axis, block)?);
    }
    let y = dequantize::<f32>(cx, x, scale, zero, axis, block)?;
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => one(narrow(&y, dtype)?),
        other => invalid(format!("dequantization to {other}")),
    }
}

/// The numbers that a quantized tensor with these scales and zero points stands for.
pub fn dequantize<T: Quantizable>(
    cx: &Eval<'_>,
    x: &Array,
    scale: &Array,
    zero: Option<&Array>,
    axis: i64,
    block: usize,
) -> Result<Array, OpError> {
    if zero.is_some_and(|zero| zero.dtype() != x.dtype()) {
        return invalid(format!("a zero point that is not of the type {} of the input", x.dtype()));
    }
    let params = Params::<T>::new(cx, x, scale, zero, axis, block)?;
    if x.dtype() == DType::I32 || x.dtype().kind() == Kind::Float {
        params.needs_no_zero(x.dtype())?;
    }
    let mut out = cx.zeros::<T>(x.shape())?;
    let (out_slice, scales, zeros) = (&mut out[..], &params.scales[..], params.zeros.as_deref());
    macro_rules! numbers {
        ($data:expr) => {
            params.spread.apply($data, out_slice, scales, zeros, |&x, scale, zero| {
                (T::from_f64(x.to_f64()) - zero) * scale
            })
        };
    }
    match x.buffer() {
        Buffer::U8(data) => numbers!(data),
        Buffer::I8(data) => numbers!(data),
        Buffer::U16(data) => numbers!(data),
        Buffer::I16(data) => numbers!(data),
        Buffer::I32(data) => numbers!(data),
        Buffer::Code(data) => {
            let numbers = code_numbers::<T>(x.dtype())?;
            params.spread.apply(data, out_slice, scales, zeros, |&Code(code), scale, zero| {
                (numbers[usize::from(code)] - zero) * scale
            });
        }
        _ => return Err(unsupported_type(x)),
    }
    Array::new(x.shape(), out)
}

/// The number that each of 256 codes stands for.
fn code_numbers<T: Typed + Float>(dtype: DType) -> Result<Vec<T>, OpError> {
    let codes = (0..=255u8).map(|code| Code(code & (((1u16 << dtype.bits()) - 1) as u8))).collect();
    floats(&Array::with_dtype(dtype, [256], codes)?)
}

pub(super) fn dynamic_quantize_linear(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    each_float!(x, T => {
        let (scale, zero) = dynamic_scale::<T>(x.slice()?);
        let mut y = cx.zeros::<u8>(x.shape())?;
        let spread = Spread::new(x.shape(), &[], 0, 0)?;
        spread.apply(x.slice::<T>()?, &mut y, &[scale], Some(&[zero]), |&x, scale, zero| {
            u8::saturating((x / scale).round_even() + zero)
        });
        let zero = Array::scalar(u8::saturating(zero));
        Ok(vec![Array::new(x.shape(), y)?.into(), Array::scalar(scale).into(), zero.into()])
    })
}

/// The scale and zero point with which unsigned bytes cover the range of the values and 0.
pub fn dynamic_scale<T: Quantizable>(values: &[T]) -> (T, T) {
    let low = values.iter().fold(T::ZERO, |low, &x| num_traits::Float::min(low, x));
    let high = values.iter().fold(T::ZERO, |high, &x| num_traits::Float::max(high, x));
    let scale = if low == high { T::ONE } else { (high - low) / T::from_f64(255.0) };
    let zero = (-low / scale).round_even();
    (scale, T::from_f64(u8::saturating(zero).into()))
}
