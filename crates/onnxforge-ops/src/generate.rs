//! Tensors out of nothing, or of a shape: constants, ranges, diagonals, and shapes themselves.

use super::array::{Array, Elem, Typed, each_elem};
use super::call::Call;
use super::def::{Category, OpDef};
use super::elementwise::values::is_followed;
use super::error::{OpError, invalid};
use super::eval_call::{Eval, one};
use super::fact::{MAX_SYMBOLIC_ELEMENTS, TensorFact};
use super::infer_call::Infer;
use super::kernel::convert::{Rounding, convert};
use super::kernel::number::Number;
use super::kernel::sparse::densify;
use super::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;
use onnxforge_ir::tensor::element_count;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("Constant", Category::Constant, infer_constant, constant),
    OpDef::new("ConstantOfShape", Category::Constant, infer_constant_of_shape, constant_of_shape),
    OpDef::new("Range", Category::Constant, infer_range, range).widening(),
    OpDef::new("EyeLike", Category::Constant, infer_eye_like, eye_like).shape_only(),
    OpDef::new("Shape", Category::Shape, infer_shape, shape).shape_only(),
    OpDef::new("Size", Category::Shape, infer_size, size).shape_only(),
];

fn numbers(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&dim| Dim::from(dim as i64)).collect()
}

/// For constants that are too large to be known element by element.
fn infer_constant(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let call = cx.call;
    let vector = |dtype, len: usize| TensorFact::new(dtype, numbers(&[len]));
    let scalar = |dtype| TensorFact::new(dtype, Vec::new());
    let fact = if let Some(tensor) = call.opt_tensor("value")? {
        TensorFact::new(tensor.dtype(), numbers(tensor.shape()))
    } else if let Some(sparse) = call.opt_sparse("sparse_value")? {
        TensorFact::new(sparse.values.dtype(), sparse.dims.iter().map(|&dim| dim.into()).collect())
    } else if call.opt_int("value_int")?.is_some() {
        scalar(DType::I64)
    } else if call.opt_float("value_float")?.is_some() {
        scalar(DType::F32)
    } else if call.opt_bytes("value_string")?.is_some() {
        scalar(DType::String)
    } else if let Some(values) = call.opt_ints("value_ints")? {
        vector(DType::I64, values.len())
    } else if let Some(values) = call.opt_floats("value_floats")? {
        vector(DType::F32, values.len())
    } else if let Some(values) = call.opt_byte_strings("value_strings")? {
        vector(DType::String, values.len())
    } else {
        return invalid("a constant without a value");
    };
    cx.set(0, fact);
    Ok(())
}

fn constant(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let call = cx.call;
    one(if let Some(tensor) = call.opt_tensor("value")? {
        Array::from_tensor(&tensor)?
    } else if let Some(sparse) = call.opt_sparse("sparse_value")? {
        densify(&sparse, cx.memory())?
    } else if let Some(value) = call.opt_int("value_int")? {
        Array::scalar(value)
    } else if let Some(value) = call.opt_float("value_float")? {
        Array::scalar(value)
    } else if let Some(value) = call.opt_bytes("value_string")? {
        Array::strings([], vec![value])?
    } else if let Some(values) = call.opt_ints("value_ints")? {
        Array::vector(values)
    } else if let Some(values) = call.opt_floats("value_floats")? {
        Array::vector(values)
    } else if let Some(values) = call.opt_byte_strings("value_strings")? {
        Array::strings([values.len()], values)?
    } else {
        return invalid("a constant without a value");
    })
}

/// The element that a constant of some shape is filled with, as an array of one element.
fn filling(call: &Call<'_>) -> Result<Array, OpError> {
    let Some(tensor) = call.opt_tensor("value")? else { return Ok(Array::scalar(0f32)) };
    let array = Array::from_tensor(&tensor)?;
    if array.len() == 1 { Ok(array) } else { invalid(format!("a filling of {} elements", array.len())) }
}

fn infer_constant_of_shape(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let filling = filling(&cx.call)?;
    let dtype = filling.dtype();
    cx.set_dtype(0, dtype);
    let shape = match (cx.dims(0), cx.shape(0)) {
        (Some(dims), _) => dims,
        (None, Some([rank])) => match rank.as_const().and_then(|rank| usize::try_from(rank).ok()) {
            Some(rank) if rank <= MAX_SYMBOLIC_ELEMENTS => cx.fresh_shape(rank),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    if let Some(dim) = shape.iter().find(|dim| dim.provably_negative(cx.symbols)) {
        return invalid(format!("a dimension of {}", dim.display(cx.symbols)));
    }
    cx.set_shape(0, shape);
    let count =
        cx.output(0).tensor().and_then(TensorFact::static_shape).and_then(|shape| element_count(&shape));
    if let Some(count) = count.filter(|&count| is_followed(dtype) && count <= MAX_SYMBOLIC_ELEMENTS) {
        cx.set_dims(0, vec![filling.to_i64()?.into(); count]);
    }
    Ok(())
}

fn constant_of_shape(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let dims = cx.ints(0)?.unwrap_or_default();
    let shape = dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let Ok(shape) = shape else { return invalid(format!("the shape {dims:?}")) };
    let filling = filling(&cx.call)?;
    each_elem!(filling, T => one(filled::<T>(cx, &filling, &shape)?))
}

fn filled<T: Elem>(cx: &Eval<'_>, filling: &Array, shape: &[usize]) -> Result<Array, OpError> {
    let mut data = cx.zeros::<T>(shape)?;
    if let [element] = filling.slice::<T>()? {
        data.fill(element.clone());
    }
    Array::with_dtype(filling.dtype(), shape, data)
}

/// The only element of input `index`, if it is known.
fn element(cx: &Infer<'_>, index: usize) -> Option<Dim> {
    match &cx.dims(index)?[..] {
        [element] => Some(element.clone()),
        _ => None,
    }
}

/// `max(⌈(limit - start) / delta⌉, 0)` elements, each `delta` more than the one before.
fn infer_range(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let known = element(cx, 0).zip(element(cx, 1)).zip(element(cx, 2));
    let Some(((start, limit), delta)) = known.filter(|_| cx.dtype(0).is_some_and(is_followed)) else {
        let length = cx.fresh();
        cx.set_shape(0, vec![length]);
        return Ok(());
    };
    if delta == Dim::ZERO {
        return invalid("a range in steps of 0");
    }
    let symbols = &*cx.symbols;
    let count = delta
        .as_const()
        .and_then(|_| limit.sub(&start)?.ceil_div(&delta, symbols)?.maximum(&Dim::ZERO, symbols));
    let count = cx.or_fresh(count);
    cx.set_shape(0, vec![count.clone()]);
    let few = count.as_const().filter(|&count| count <= MAX_SYMBOLIC_ELEMENTS as i64);
    let at = |index: i64| start.add(&delta.mul(&index.into())?);
    if let Some(elements) = few.and_then(|count| (0..count).map(at).collect()) {
        cx.set_dims(0, elements);
    }
    Ok(())
}

fn range(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    match cx.array(0)?.dtype() {
        DType::F32 => float_range::<f32>(cx),
        DType::F64 => float_range::<f64>(cx),
        DType::I16 => integer_range::<i16>(cx),
        DType::I32 => integer_range::<i32>(cx),
        DType::I64 => integer_range::<i64>(cx),
        other => Err(OpError::Unsupported(format!("a range of {other}"))),
    }
}

/// Start, limit and step.
fn ends<T: Typed>(cx: &Eval<'_>) -> Result<[T; 3], OpError> {
    let element = |index: usize| match cx.array(index)?.slice::<T>()? {
        [element] => Ok(*element),
        elements => invalid(format!("{} elements where a range takes one", elements.len())),
    };
    Ok([element(0)?, element(1)?, element(2)?])
}

/// As many elements as `count` says, in the memory that there is.
fn counted<T: Typed>(cx: &Eval<'_>, count: u64, at: impl Fn(u64) -> T) -> Result<Vec<Value>, OpError> {
    let length = usize::try_from(count).unwrap_or(usize::MAX);
    cx.reserve::<T>(length)?;
    one(Array::vector((0..count).map(at).collect()))
}

fn float_range<T: Number>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let [start, limit, delta] = ends::<T>(cx)?.map(Number::to_f64);
    let count = ((limit - start) / delta).ceil();
    if !count.is_finite() || delta == 0.0 {
        return invalid(format!("a range from {start} to {limit} in steps of {delta}"));
    }
    // Negative counts are 0.
    counted(cx, count as u64, |index| T::from_f64(start + index as f64 * delta))
}

fn integer_range<T: Number + TryFrom<i128>>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError>
where
    i128: From<T>,
{
    let [start, limit, delta] = ends::<T>(cx)?.map(i128::from);
    if delta == 0 {
        return invalid("a range in steps of 0");
    }
    let way = (limit - start) * delta.signum();
    let count = if way > 0 { (way - 1) / delta.abs() + 1 } else { 0 };
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    counted(cx, count, |index| T::try_from(start + index as i128 * delta).unwrap_or(T::ZERO))
}

fn infer_eye_like(cx: &mut Infer<'_>) -> Result<(), OpError> {
    match cx.call.dtype("dtype")? {
        Some(dtype) => cx.set_dtype(0, dtype),
        None => cx.copy_dtype(0, 0),
    }
    match cx.shape(0) {
        Some(shape) if shape.len() != 2 => invalid(format!("a matrix with {} axes", shape.len())),
        Some(shape) => {
            cx.set_shape(0, shape.to_vec());
            Ok(())
        }
        None => {
            let shape = cx.fresh_shape(2);
            cx.set_shape(0, shape);
            Ok(())
        }
    }
}

fn eye_like(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, shift) = (cx.array(0)?, cx.call.int("k")?);
    let [rows, columns] = *x.shape() else {
        return invalid(format!("a matrix with {} axes", x.rank()));
    };
    let dtype = cx.call.dtype("dtype")?.unwrap_or(x.dtype());
    let mut eye = cx.zeros::<u8>(x.shape())?;
    // The diagonal begins at the left or at the upper edge.
    let skipped = |by: Option<i64>| by.and_then(|by| usize::try_from(by).ok()).unwrap_or(usize::MAX);
    let (above, left) = (skipped(shift.min(0).checked_neg()), skipped(Some(shift.max(0))));
    for at in 0..rows.saturating_sub(above).min(columns.saturating_sub(left)) {
        eye[(above + at) * columns + left + at] = 1;
    }
    one(convert(&Array::new(x.shape(), eye)?, dtype, Rounding::default(), cx.memory())?)
}

/// The axes of `rank` that Shape answers: from `start` to before `end`, both clamped.
fn shape_axes(call: &Call<'_>, rank: usize) -> Result<std::ops::Range<usize>, OpError> {
    let clamped = |axis: i64| {
        let axis = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        axis.clamp(0, rank as i64) as usize
    };
    let start = clamped(call.int_or("start", 0)?);
    let end = clamped(call.int_or("end", rank as i64)?);
    Ok(start..end.max(start))
}

fn infer_shape(cx: &mut Infer<'_>) -> Result<(), OpError> {
    match cx.shape(0) {
        Some(shape) => {
            let dims = &shape[shape_axes(&cx.call, shape.len())?];
            cx.set_shape(0, vec![Dim::from(dims.len() as i64)]);
            cx.set_dims(0, dims.to_vec());
        }
        None => {
            let rank = cx.fresh();
            cx.set_shape(0, vec![rank]);
        }
    }
    Ok(())
}

fn shape(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let shape = cx.array(0)?.shape();
    let axes = shape_axes(&cx.call, shape.len())?;
    one(Array::vector(shape[axes].iter().map(|&dim| dim as i64).collect()))
}

fn infer_size(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.set_shape(0, Vec::new());
    if let Some(shape) = cx.shape(0) {
        let size = cx.or_fresh(Dim::product(shape));
        cx.set_dims(0, vec![size]);
    }
    Ok(())
}

fn size(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    one(Array::scalar(cx.array(0)?.len() as i64))
}
