//! Labels: one value for another, by a table.

use std::collections::HashMap;

use crate::array::{Buffer, Elem, each_elem};
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::{Array, Value};
use onnxforge_ir::DType;
use onnxforge_proto::blob::Blob;

/// What is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key<'a> {
    Int(i64),
    /// A float as 64 bits.
    Bits(u64),
    Text(&'a [u8]),
}

/// The elements as keys. Without `bitwise`, all NaNs are one key and so are both zeros.
fn keys(array: &Array, bitwise: bool) -> Result<Vec<Key<'_>>, OpError> {
    let float = |value: f64| match bitwise {
        true => Key::Bits(value.to_bits()),
        false if value.is_nan() => Key::Bits(f64::NAN.to_bits()),
        false => Key::Bits((value + 0.0).to_bits()),
    };
    Ok(match array.buffer() {
        Buffer::Str(texts) => texts.iter().map(|text| Key::Text(text)).collect(),
        Buffer::F32(_) | Buffer::F64(_) => array.to_f64s()?.into_iter().map(float).collect(),
        _ => array.to_i64s()?.into_iter().map(Key::Int).collect(),
    })
}

/// The value at the place of each key, or the default. A later key takes precedence over an earlier one.
fn look_up(
    cx: &Eval<'_>,
    x: &Array,
    table: &Array,
    values: &Array,
    default: &Array,
    bitwise: bool,
) -> Result<Vec<Value>, OpError> {
    if table.len() != values.len() || default.len() != 1 || values.dtype() != default.dtype() {
        return invalid(format!("{} keys, {} values, default {default:?}", table.len(), values.len()));
    }
    let places: HashMap<Key<'_>, usize> =
        keys(table, bitwise)?.into_iter().enumerate().map(|(place, key)| (key, place)).collect();
    let found = keys(x, bitwise)?.into_iter().map(|key| places.get(&key).copied()).collect::<Vec<_>>();
    each_elem!(values, T => {
        cx.reserve::<T>(x.len())?;
        let found = picked(values.slice::<T>()?, &default.slice::<T>()?[0], &found);
        one(Array::with_dtype(values.dtype(), x.shape(), found)?)
    })
}

/// The values at these places, and the default where there is none.
fn picked<T: Elem>(values: &[T], default: &T, places: &[Option<usize>]) -> Vec<T> {
    places.iter().map(|place| place.map_or(default, |place| &values[place]).clone()).collect()
}

fn infer_to(cx: &mut Infer<'_>, dtype: Option<DType>) {
    if let Some(dtype) = dtype {
        cx.set_dtype(0, dtype);
    }
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
}

/// Strings become integers and integers strings.
fn opposite(dtype: DType) -> DType {
    if dtype == DType::String { DType::I64 } else { DType::String }
}

pub(super) fn infer_mapper(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let dtype = cx.dtype(0).map(opposite);
    infer_to(cx, dtype);
    Ok(())
}

pub(super) fn mapper(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let strings = text_list(cx.call.byte_strings_or("cats_strings", Vec::new())?)?;
    let ints = Array::vector(cx.call.ints_or("cats_int64s", Vec::new())?);
    translate(cx, &strings, &ints)
}

/// Strings to integers and integers to strings, by lists of the same length.
fn translate(cx: &Eval<'_>, strings: &Array, ints: &Array) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    match x.dtype() {
        DType::String => look_up(cx, x, strings, ints, &Array::scalar(cx.call.int("default_int64")?), true),
        _ => look_up(cx, x, ints, strings, &text_list(vec![cx.call.bytes("default_string")?])?, true),
    }
}

fn text_list(texts: Vec<Blob>) -> Result<Array, OpError> {
    Array::strings([texts.len()], texts)
}

pub(super) fn infer_encoder(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let dtype = match cx.call.since() {
        1 => cx.dtype(0).map(opposite),
        _ => {
            is_given_once(&cx.call, "keys")?;
            is_given_once(&cx.call, "values")?;
            list_type(&cx.call, "values")?
        }
    };
    infer_to(cx, dtype);
    Ok(())
}

/// Fails where several attributes give the same list.
fn is_given_once(call: &Call<'_>, what: &str) -> Result<(), OpError> {
    let kinds = ["tensor", "floats", "int64s", "strings"];
    match kinds.into_iter().filter(|kind| call.attr(&format!("{what}_{kind}")).is_some()).count() {
        0 | 1 => Ok(()),
        _ => invalid(format!("{what} are given by several attributes")),
    }
}

/// The element type of the list that one of several attributes gives, without reading it.
fn list_type(call: &Call<'_>, what: &str) -> Result<Option<DType>, OpError> {
    if let Some(tensor) = call.opt_tensor(&format!("{what}_tensor"))? {
        return Ok(Some(tensor.dtype()));
    }
    let kinds = [("floats", DType::F32), ("int64s", DType::I64), ("strings", DType::String)];
    Ok(kinds
        .into_iter()
        .find(|(kind, _)| call.attr(&format!("{what}_{kind}")).is_some())
        .map(|(_, dtype)| dtype))
}

/// The list that one of several attributes gives.
fn list(call: &Call<'_>, what: &str) -> Result<Array, OpError> {
    let name = |kind: &str| format!("{what}_{kind}");
    match list_type(call, what)? {
        _ if call.attr(&name("tensor")).is_some() => Array::from_tensor(&call.tensor(&name("tensor"))?),
        Some(DType::F32) => Ok(Array::vector(call.floats(&name("floats"))?)),
        Some(DType::I64) => Ok(Array::vector(call.ints(&name("int64s"))?)),
        Some(_) => text_list(call.byte_strings(&name("strings"))?),
        None => invalid(format!("none of the attributes {what}_* is given")),
    }
}

/// What values that are not found become.
fn default(call: &Call<'_>, values: &Array) -> Result<Array, OpError> {
    if let Some(tensor) = call.opt_tensor("default_tensor")? {
        return Array::from_tensor(&tensor);
    }
    match values.dtype() {
        DType::F32 => Ok(Array::scalar(call.float("default_float")?)),
        DType::F64 => Ok(Array::scalar(f64::from(call.float("default_float")?))),
        DType::I64 => Ok(Array::scalar(call.int("default_int64")?)),
        DType::String => text_list(vec![call.bytes("default_string")?]),
        // The attribute for these is the tensor; without it, it is -1.
        DType::I32 => Ok(Array::scalar(-1i32)),
        DType::I16 => Ok(Array::scalar(-1i16)),
        other => invalid(format!("values of type {other}")),
    }
}

pub(super) fn encoder(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.call.since() == 1 {
        let strings = text_list(cx.call.byte_strings_or("classes_strings", Vec::new())?)?;
        let ints = Array::vector((0..strings.len() as i64).collect());
        return translate(cx, &strings, &ints);
    }
    let (table, values) = (list(&cx.call, "keys")?, list(&cx.call, "values")?);
    let default = default(&cx.call, &values)?;
    look_up(cx, cx.array(0)?, &table, &values, &default, cx.call.since() < 4)
}
