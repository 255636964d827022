//! Features: selecting, cleaning and scaling them.

use std::collections::HashMap;

use super::{Examples, as_declared, floats_attr};
use crate::array::{Elem, each_elem, each_number};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::map::map;
use crate::kernel::number::{Float, Number};
use crate::{Array, Value};
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::blob::Blob;

pub(super) fn infer_extractor(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let Some((_, outer)) = shape.split_last() else { return invalid("features without an axis") };
    let count = cx.shape(1).and_then(Dim::product);
    let count = cx.or_fresh(count);
    let mut result = if outer.is_empty() { vec![Dim::ONE] } else { outer.to_vec() };
    result.push(count);
    cx.set_shape(0, result);
    Ok(())
}

pub(super) fn extractor(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, indices) = (cx.array(0)?, cx.array(1)?.to_i64s()?);
    let Some((&features, outer)) = x.shape().split_last() else {
        return invalid("features without an axis");
    };
    let place = |&index: &i64| match usize::try_from(index) {
        Ok(index) if index < features => Ok(index),
        _ => invalid(format!("feature {index} of {features}")),
    };
    let places = indices.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let mut shape = if outer.is_empty() { vec![1] } else { outer.to_vec() };
    shape.push(places.len());
    each_elem!(x, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        extract(x.slice::<T>()?, features, &places, &mut out);
        one(Array::with_dtype(x.dtype(), shape, out)?)
    })
}

/// The features at these places of each row.
fn extract<T: Elem>(x: &[T], features: usize, places: &[usize], out: &mut [T]) {
    if out.is_empty() {
        return;
    }
    for (out, row) in out.chunks_exact_mut(places.len()).zip(x.chunks_exact(features)) {
        out.iter_mut().zip(places).for_each(|(out, &place)| out.clone_from(&row[place]));
    }
}

pub(super) fn binarizer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let threshold = f64::from(cx.call.float("threshold")?);
    let x = cx.take(0)?;
    each_number!(&x, T => one(map::<T>(x, |x| if x.to_f64() > threshold { T::ONE } else { T::ZERO })?))
}

pub(super) fn imputer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let floats = cx.call.floats_or("imputed_value_floats", Vec::new())?;
    let ints = cx.call.ints_or("imputed_value_int64s", Vec::new())?;
    let replaced_float = f64::from(cx.call.float("replaced_value_float")?);
    let replaced_int = cx.call.int("replaced_value_int64")?;
    let x = cx.take(0)?;
    match x.dtype() {
        DType::F32 => impute::<f32>(x, replaced_float as f32, &floats),
        DType::F64 => {
            let floats: Vec<f64> = floats.into_iter().map(f64::from).collect();
            impute::<f64>(x, replaced_float, &floats)
        }
        DType::I64 => impute::<i64>(x, replaced_int, &ints),
        DType::I32 => {
            let narrowed =
                |value: i64| i32::try_from(value).or_else(|_| invalid(format!("{value} as int32")));
            let values = ints.into_iter().map(narrowed).collect::<Result<Vec<_>, _>>()?;
            impute::<i32>(x, narrowed(replaced_int)?, &values)
        }
        other => invalid(format!("features of type {other}")),
    }
}

fn impute<T: Number>(x: Array, replaced: T, values: &[T]) -> Result<Vec<Value>, OpError> {
    let shape = x.shape().to_vec();
    let features = shape.last().copied().unwrap_or(1);
    if values.is_empty() || (values.len() != 1 && values.len() != features) {
        return invalid(format!("{} imputed values for {features} features", values.len()));
    }
    let is_replaced = |x: T| x == replaced || (x.is_nan() && replaced.is_nan());
    let mut data = x.into_vec::<T>()?;
    for (x, &value) in data.iter_mut().zip(values.iter().cycle()) {
        if is_replaced(*x) {
            *x = value;
        }
    }
    one(Array::new(shape, data)?)
}

pub(super) fn normalizer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let norm = cx.call.text("norm")?;
    if cx.wide { normalize::<f64>(cx, &norm) } else { normalize::<f32>(cx, &norm) }
}

fn normalize<T: Float>(cx: &Eval<'_>, norm: &str) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let mut examples = Examples::<T>::new(cx, x)?;
    for row in examples.data.chunks_mut(examples.features.max(1)) {
        let divisor = match norm {
            "MAX" => row.iter().fold(T::neg_infinity(), |max, &x| num_traits::Float::max(max, x)),
            "L1" => row.iter().fold(T::ZERO, |sum, &x| sum + Number::abs(x)),
            "L2" => num_traits::Float::sqrt(row.iter().fold(T::ZERO, |sum, &x| sum + x * x)),
            other => return invalid(format!("the norm {other}")),
        };
        if divisor != T::ZERO {
            row.iter_mut().for_each(|x| *x /= divisor);
        }
    }
    one(as_declared(cx, x.shape(), examples.data)?)
}

pub(super) fn infer_one_hot(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let ints = cx.call.ints_or("cats_int64s", Vec::new())?.len();
    let strings = cx.call.byte_strings_or("cats_strings", Vec::new())?.len();
    if let Some(shape) = cx.shape(0) {
        let mut shape = shape.to_vec();
        shape.push(Dim::from(if ints > 0 { ints } else { strings } as i64));
        cx.set_shape(0, shape);
    }
    Ok(())
}

pub(super) fn one_hot(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let ints = cx.call.ints_or("cats_int64s", Vec::new())?;
    let strings = cx.call.byte_strings_or("cats_strings", Vec::new())?;
    let (count, found): (usize, Vec<Option<usize>>) = match (x.dtype(), ints.is_empty()) {
        (DType::String, true) => {
            let places: HashMap<&[u8], usize> =
                strings.iter().enumerate().map(|(place, text)| (&text[..], place)).collect();
            let texts = x.slice::<Blob>()?.iter();
            (strings.len(), texts.map(|text| places.get(&text[..]).copied()).collect())
        }
        (DType::String, false) => return invalid("strings with categories that are integers"),
        (_, true) => return invalid("numbers without categories that are integers"),
        (_, false) => {
            let places: HashMap<i64, usize> =
                ints.iter().enumerate().map(|(place, &value)| (value, place)).collect();
            // Floats are cut to integers, as everywhere.
            let values: Vec<i64> = match x.dtype() {
                DType::F32 | DType::F64 => x.to_f64s()?.into_iter().map(|value| value as i64).collect(),
                _ => x.to_i64s()?,
            };
            (ints.len(), values.iter().map(|value| places.get(value).copied()).collect())
        }
    };
    if !cx.call.flag("zeros")? && found.iter().any(Option::is_none) {
        return invalid("a value that is no category, where zeros is 0");
    }
    let mut shape = x.shape().to_vec();
    shape.push(count);
    let mut out = cx.zeros::<f32>(&shape)?;
    for (row, place) in found.into_iter().enumerate() {
        if let Some(place) = place {
            out[row * count + place] = 1.0;
        }
    }
    one(Array::new(shape, out)?)
}

pub(super) fn scaler(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    // What is given in 64 bits is scaled in 64 bits and rounded once.
    if cx.array(0)?.dtype() == DType::F64 { scale::<f64>(cx) } else { scale::<f32>(cx) }
}

fn scale<T: Float>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let (offsets, scales) = (floats_attr::<T>(&cx.call, "offset")?, floats_attr::<T>(&cx.call, "scale")?);
    let features = match (x.shape(), scales.len()) {
        ([features] | [_, features], _) => *features,
        (_, 1) => 1,
        (shape, count) => return unsupported(format!("{count} scales for features of shape {shape:?}")),
    };
    if scales.len() != offsets.len() || (scales.len() != 1 && scales.len() != features) {
        return invalid(format!("{} scales and {} offsets", scales.len(), offsets.len()));
    }
    cx.reserve::<[f64; 2]>(x.len())?;
    let mut data: Vec<T> = crate::quant::floats(x)?;
    for (x, (&offset, &scale)) in data.iter_mut().zip(offsets.iter().zip(&scales).cycle()) {
        *x = (*x - offset) * scale;
    }
    one(as_declared(cx, x.shape(), data)?)
}

/// The widths to which the inputs are cut or filled up, if they are given or known.
fn widths(given: Vec<i64>, own: impl Iterator<Item = Option<usize>>) -> Option<Vec<usize>> {
    match given.is_empty() {
        true => own.collect(),
        false => given.into_iter().map(|width| usize::try_from(width).ok()).collect(),
    }
}

fn total(widths: &[usize]) -> Option<usize> {
    widths.iter().try_fold(0usize, |sum, &width| sum.checked_add(width))
}

pub(super) fn infer_vectorizer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let given = cx.call.ints_or("inputdimensions", Vec::new())?;
    let own = (0..cx.input_count()).map(|index| match cx.shape(index)? {
        [features] | [_, features] => usize::try_from(features.as_const()?).ok(),
        _ => None,
    });
    let width =
        widths(given, own).and_then(|widths| total(&widths)).and_then(|width| i64::try_from(width).ok());
    let examples = match cx.shape(0) {
        Some([_]) => Dim::ONE,
        Some([examples, ..]) => examples.clone(),
        _ => cx.fresh(),
    };
    let width = cx.or_fresh(width.map(Dim::from));
    cx.set_shape(0, vec![examples, width]);
    Ok(())
}

pub(super) fn vectorizer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.wide { vectorize::<f64>(cx) } else { vectorize::<f32>(cx) }
}

fn vectorize<T: Float>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let inputs = cx.arrays_from(0)?;
    let examples = inputs.iter().map(|x| Examples::<T>::new(cx, x)).collect::<Result<Vec<_>, _>>()?;
    let given = cx.call.ints_or("inputdimensions", Vec::new())?;
    let Some(widths) = widths(given, examples.iter().map(|part| Some(part.features))) else {
        return invalid("inputdimensions has a negative element");
    };
    let count = examples.first().map_or(0, |part| part.count);
    if widths.len() != examples.len() || examples.iter().any(|part| part.count != count) {
        return invalid(format!("{} inputs with {} widths", examples.len(), widths.len()));
    }
    let Some(width) = total(&widths) else {
        return invalid("inputdimensions is too large");
    };
    let mut out = cx.zeros::<T>(&[count, width])?;
    for (index, row) in out.chunks_mut(width.max(1)).enumerate() {
        let mut rest = row;
        for (part, &width) in examples.iter().zip(&widths) {
            let (place, after) = rest.split_at_mut(width);
            place.iter_mut().zip(part.row(index)).for_each(|(place, &x)| *place = x);
            rest = after;
        }
    }
    one(as_declared(cx, &[count, width], out)?)
}
