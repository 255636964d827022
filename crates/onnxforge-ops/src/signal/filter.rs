//! Windows for frames of a signal, and filters on the mel scale.

use std::f64::consts::{LN_10, TAU};

use crate::array::Array;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::Number;
use crate::kernel::window::as_sizes;
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;

pub fn hann(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    cosines(cx, [0.5, 0.5, 0.0])
}

pub fn hamming(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    cosines(cx, [25.0 / 46.0, 1.0 - 25.0 / 46.0, 0.0])
}

pub fn blackman(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    cosines(cx, [0.42, 0.5, 0.08])
}

/// `a - b · cos(x) + c · cos(2x)` over one turn.
fn cosines(cx: &Eval<'_>, [a, b, c]: [f64; 3]) -> Result<Vec<Value>, OpError> {
    let size = cx.array(0)?.to_i64()?;
    let Ok(size) = usize::try_from(size) else { return invalid(format!("a window of {size} elements")) };
    let turn = if cx.call.flag("periodic")? { size as f64 } else { size as f64 - 1.0 };
    let mut values = cx.zeros::<f64>(&[size])?;
    for (index, value) in values.iter_mut().enumerate() {
        let x = TAU * index as f64 / turn;
        *value = a + (c * (2.0 * x).cos() - b * x.cos());
    }
    one(rounded(cx, vec![size], &values)?)
}

/// The numbers in the type that the attribute `output_datatype` names.
fn rounded(cx: &Eval<'_>, shape: Vec<usize>, values: &[f64]) -> Result<Array, OpError> {
    fn array<T: Number>(cx: &Eval<'_>, shape: Vec<usize>, values: &[f64]) -> Result<Array, OpError> {
        cx.reserve::<T>(values.len())?;
        Array::new(shape, values.iter().map(|&value| T::from_f64(value)).collect::<Vec<T>>())
    }
    let dtype = cx.call.dtype("output_datatype")?.unwrap_or(DType::F32);
    match cx.computed(dtype) {
        DType::F32 => array::<f32>(cx, shape, values),
        DType::F64 => array::<f64>(cx, shape, values),
        DType::F16 => array::<half::f16>(cx, shape, values),
        DType::BF16 => array::<half::bf16>(cx, shape, values),
        DType::I8 => array::<i8>(cx, shape, values),
        DType::I16 => array::<i16>(cx, shape, values),
        DType::I32 => array::<i32>(cx, shape, values),
        DType::I64 => array::<i64>(cx, shape, values),
        DType::U8 => array::<u8>(cx, shape, values),
        DType::U16 => array::<u16>(cx, shape, values),
        DType::U32 => array::<u32>(cx, shape, values),
        DType::U64 => array::<u64>(cx, shape, values),
        other => unsupported(format!("the element type {other}")),
    }
}

pub fn mel_weight_matrix(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let count = |index: usize| {
        let value = cx.array(index)?.to_i64()?;
        usize::try_from(value).map_err(|_| OpError::Invalid(format!("input {index} is {value}")))
    };
    let (filters, dft_length, sample_rate) = (count(0)?, count(1)?, count(2)?);
    let (low, high) = (mel(cx.array(3)?.to_f64()?), mel(cx.array(4)?.to_f64()?));
    let bins = dft_length / 2 + 1;
    let mut weights = cx.zeros::<f64>(&[bins, filters])?;
    let step = (high - low) / (filters as f64 + 2.0);
    let edge = |index: usize| {
        let hertz = 700.0 * ((low + index as f64 * step) / 2595.0 * LN_10).exp_m1();
        let bin = ((dft_length as f64 + 1.0) * hertz / sample_rate as f64).floor();
        if bin >= 0.0 && bin <= bins as f64 {
            Ok(bin as usize)
        } else {
            invalid(format!("a filter at {hertz} hertz"))
        }
    };
    for filter in 0..filters {
        triangle([edge(filter)?, edge(filter + 1)?, edge(filter + 2)?], |bin, weight| {
            match weights.get_mut(bin * filters + filter) {
                Some(place) => *place = weight,
                None => return invalid(format!("a filter at bin {bin} of {bins}")),
            }
            Ok(())
        })?;
    }
    one(rounded(cx, vec![bins, filters], &weights)?)
}

/// The weights of a filter that rises from the first edge to the second and falls to the third.
fn triangle(
    [left, centre, right]: [usize; 3],
    mut set: impl FnMut(usize, f64) -> Result<(), OpError>,
) -> Result<(), OpError> {
    if left >= centre {
        set(centre, 1.0)?;
    } else {
        (left..=centre).try_for_each(|bin| set(bin, (bin - left) as f64 / (centre - left) as f64))?;
    }
    (centre..right).try_for_each(|bin| set(bin, (right - bin) as f64 / (right - centre) as f64))
}

/// The mel of a frequency in hertz.
fn mel(hertz: f64) -> f64 {
    2595.0 * (hertz / 700.0).ln_1p() / LN_10
}

/// The single integer at input `index` as a dimension, or a new unknown one.
fn size(cx: &mut Infer<'_>, index: usize) -> Result<Dim, OpError> {
    match cx.dims(index).map(as_sizes).transpose()?.as_deref() {
        Some([size]) => Ok(size.clone()),
        _ => Ok(cx.fresh()),
    }
}

fn set_dtype(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.set_dtype(0, cx.call.dtype("output_datatype")?.unwrap_or(DType::F32));
    Ok(())
}

pub fn infer_window(cx: &mut Infer<'_>) -> Result<(), OpError> {
    set_dtype(cx)?;
    let size = size(cx, 0)?;
    cx.set_shape(0, vec![size]);
    Ok(())
}

pub fn infer_mel(cx: &mut Infer<'_>) -> Result<(), OpError> {
    set_dtype(cx)?;
    let (filters, dft_length) = (size(cx, 0)?, size(cx, 1)?);
    let bins = dft_length.floor_div(&Dim::from(2), cx.symbols).and_then(|half| half.add(&Dim::ONE));
    let shape = vec![cx.or_fresh(bins), filters];
    cx.set_shape(0, shape);
    Ok(())
}
