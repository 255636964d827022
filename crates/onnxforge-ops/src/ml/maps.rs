//! Maps: from tensors and to tensors.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::array::Elem;
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::value::Key;
use crate::{Array, Fact, Value};
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::blob::Blob;

/// The map at input 0.
fn input<'a>(cx: &'a Eval<'_>) -> Result<&'a BTreeMap<Key, Value>, OpError> {
    match cx.value(0) {
        Some(Value::Map(map)) => Ok(map),
        Some(other) => invalid(format!("a map is needed, not {}", other.form())),
        None => invalid("input 0 is missing"),
    }
}

fn cast_type(call: &Call<'_>) -> Result<DType, OpError> {
    match call.text("cast_to")?.as_str() {
        "TO_FLOAT" => Ok(DType::F32),
        "TO_INT64" => Ok(DType::I64),
        "TO_STRING" => Ok(DType::String),
        other => invalid(format!("cast_to is {other}")),
    }
}

/// The length of the result, where it is not the number of entries.
fn sparse_length(call: &Call<'_>) -> Result<Option<usize>, OpError> {
    match call.text("map_form")?.as_str() {
        "DENSE" => Ok(None),
        "SPARSE" => {
            let length = call.int("max_map")?;
            usize::try_from(length).map(Some).or_else(|_| invalid(format!("max_map is {length}")))
        }
        other => invalid(format!("map_form is {other}")),
    }
}

pub(super) fn infer_cast(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let dtype = cast_type(&cx.call)?;
    let length = sparse_length(&cx.call)?.map(|length| Dim::from(length as i64));
    let length = cx.or_fresh(length);
    cx.set_dtype(0, dtype);
    cx.set_shape(0, vec![Dim::ONE, length]);
    Ok(())
}

pub(super) fn cast(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let values: Vec<Array> =
        input(cx)?.values().map(|value| value.array().cloned()).collect::<Result<_, _>>()?;
    let texts = |value: &Array| match value.slice::<Blob>()? {
        [text] => Ok(String::from_utf8_lossy(text).trim().to_owned()),
        _ => invalid("a map of tensors that are no scalars"),
    };
    let is_text = |value: &Array| value.dtype() == DType::String;
    match cast_type(&cx.call)? {
        DType::F32 => {
            let number = |value: &Array| match is_text(value) {
                true => texts(value)?.parse().or_else(|_| invalid("a string that is no number")),
                false => Ok(value.to_f64()? as f32),
            };
            place(cx, DType::F32, values.iter().map(number).collect::<Result<Vec<f32>, _>>()?)
        }
        DType::I64 => {
            let number = |value: &Array| match is_text(value) {
                true => texts(value)?.parse().or_else(|_| invalid("a string that is no integer")),
                false => Ok(value.to_f64()? as i64),
            };
            place(cx, DType::I64, values.iter().map(number).collect::<Result<Vec<i64>, _>>()?)
        }
        _ => {
            if !values.iter().all(is_text) {
                return unsupported("numbers as strings, whose form is not defined");
            }
            if sparse_length(&cx.call)?.is_some() {
                return unsupported("strings in sparse form, whose padding is not defined");
            }
            let texts =
                values.iter().map(|value| Ok(value.slice::<Blob>()?.first().cloned().unwrap_or_default()));
            place(cx, DType::String, texts.collect::<Result<Vec<Blob>, OpError>>()?)
        }
    }
}

/// The values in the order of their keys, one after the other or each at the place that its key names.
fn place<T: Elem>(cx: &Eval<'_>, dtype: DType, values: Vec<T>) -> Result<Vec<Value>, OpError> {
    let Some(length) = sparse_length(&cx.call)? else {
        return one(Array::with_dtype(dtype, [1, values.len()], values)?);
    };
    let mut out = cx.zeros::<T>(&[1, length])?;
    for (key, value) in input(cx)?.keys().zip(values) {
        let Key::Int(index) = key else { return invalid("a map whose keys are no integers") };
        match usize::try_from(*index).ok().and_then(|index| out.get_mut(index)) {
            Some(place) => *place = value,
            None => return invalid(format!("the key {index} in a sparse form of length {length}")),
        }
    }
    one(Array::with_dtype(dtype, [1, length], out)?)
}

/// The keys whose values the result holds.
fn vocabulary(call: &Call<'_>) -> Result<Vec<Key>, OpError> {
    let ints = call.ints_or("int64_vocabulary", Vec::new())?;
    if !ints.is_empty() {
        return Ok(ints.into_iter().map(Key::Int).collect());
    }
    Ok(call.byte_strings_or("string_vocabulary", Vec::new())?.iter().map(Key::string).collect())
}

/// The standard speaks of a vector and runtimes give a matrix of one row, so only the type would be safe to state, and that
/// is not known of a map.
pub(super) fn infer_vectorizer(_: &mut Infer<'_>) -> Result<(), OpError> {
    Ok(())
}

pub(super) fn vectorizer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (map, keys) = (input(cx)?, vocabulary(&cx.call)?);
    let Some(first) = map.values().next() else {
        return unsupported("an empty map, whose values have no type");
    };
    let dtype = first.array()?.dtype();
    match dtype {
        DType::F32 => vectorize::<f32>(cx, dtype, map, &keys),
        DType::F64 => vectorize::<f64>(cx, dtype, map, &keys),
        DType::I64 => vectorize::<i64>(cx, dtype, map, &keys),
        DType::String => vectorize::<Blob>(cx, dtype, map, &keys),
        other => invalid(format!("a map to {other}")),
    }
}

fn vectorize<T: Elem>(
    cx: &Eval<'_>,
    dtype: DType,
    map: &BTreeMap<Key, Value>,
    keys: &[Key],
) -> Result<Vec<Value>, OpError> {
    let mut out = cx.zeros::<T>(&[1, keys.len()])?;
    for (place, key) in out.iter_mut().zip(keys) {
        if let Some(value) = map.get(key) {
            *place = value.array()?.slice::<T>()?.first().cloned().unwrap_or_default();
        }
    }
    one(Array::with_dtype(dtype, [1, keys.len()], out)?)
}

pub(super) fn infer_zip(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let count = match cx.shape(0) {
        Some([_]) => Some(1),
        Some([count, _]) => count.as_const().and_then(|count| usize::try_from(count).ok()),
        _ => None,
    };
    let items = count.filter(|&count| count <= 1024).map(|count| Arc::new(vec![Fact::Map; count]));
    cx.set(0, Fact::Sequence { element: Box::new(Fact::Map), items });
    Ok(())
}

pub(super) fn zip(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let ints = cx.call.ints_or("classlabels_int64s", Vec::new())?;
    let keys: Vec<Key> = match ints.is_empty() {
        false => ints.into_iter().map(Key::Int).collect(),
        true => cx.call.byte_strings_or("classlabels_strings", Vec::new())?.iter().map(Key::string).collect(),
    };
    let (count, width) = match *x.shape() {
        [width] => (1, width),
        [count, width] => (count, width),
        _ => return invalid(format!("scores of shape {:?}", x.shape())),
    };
    if width != keys.len() || keys.is_empty() {
        return invalid(format!("{width} scores for {} classes", keys.len()));
    }
    // Each entry is a key, a value and their places in a tree.
    cx.reserve::<[u64; 16]>(count.saturating_mul(width))?;
    let map = |row: usize| {
        let entries =
            keys.iter().cloned().enumerate().map(|(column, key)| Ok((key, cell(x, row * width + column)?)));
        Ok(Value::Map(Arc::new(entries.collect::<Result<BTreeMap<_, _>, OpError>>()?)))
    };
    let maps = (0..count).map(map).collect::<Result<Vec<_>, OpError>>()?;
    Ok(vec![Value::Sequence(Arc::new(maps))])
}

/// One element as a scalar.
fn cell(x: &Array, at: usize) -> Result<Value, OpError> {
    Ok(match x.dtype() {
        DType::F64 => Array::scalar(x.slice::<f64>()?[at]),
        _ => Array::scalar(x.slice::<f32>()?[at]),
    }
    .into())
}
