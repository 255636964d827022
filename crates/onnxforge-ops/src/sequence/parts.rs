//! Between a tensor and the sequence of its parts: SplitToSequence, ConcatFromSequence.

use super::{Overhead, known_sequence, one_of, sequence};
use crate::array::Array;
use crate::call;
use crate::concat::{chunks, concat_arrays, concat_shapes, split_array, stack_arrays};
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::fact::{Fact, TensorFact};
use crate::infer_call::Infer;
use crate::layout::axes::without;
use crate::layout::numbered::follow;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

/// Longest sequence whose elements inference tells apart.
const MAX_ITEMS: usize = 256;

pub fn split(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    let axis = call::axis(cx.call.int("axis")?, data.rank())?;
    let dim = data.shape()[axis];
    let sizes = match cx.opt_array(1)? {
        None => equal_sizes(cx, dim, 1)?,
        Some(size) if size.rank() == 0 => equal_sizes(cx, dim, size.to_i64()?)?,
        Some(sizes) => chunks(&sizes.to_i64s()?, dim)?,
    };
    let parts = split_array(cx, data, axis, &sizes)?;
    let squeezes = !cx.has(1) && !cx.call.flag("keepdims")?;
    let part = |part: Array| -> Result<Value, OpError> {
        let shape = if squeezes { without(part.shape(), &[axis]) } else { part.shape().to_vec() };
        Ok(part.reshaped(shape)?.into())
    };
    sequence(parts.into_iter().map(part).collect::<Result<_, _>>()?)
}

/// The sizes of the parts of `size` places each of which an axis of `dim` places consists; the last may be smaller.
fn equal_sizes(cx: &Eval<'_>, dim: usize, size: i64) -> Result<Vec<usize>, OpError> {
    let Some(size) = usize::try_from(size).ok().filter(|size| *size > 0) else {
        return invalid(format!("parts of size {size}"));
    };
    cx.reserve::<Overhead>(dim.div_ceil(size))?;
    Ok((0..dim.div_ceil(size)).map(|index| size.min(dim - index * size)).collect())
}

pub fn infer_split(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let element = Fact::from(TensorFact { dtype: cx.dtype(0), ..TensorFact::default() });
    cx.set(0, Fact::Sequence { element: Box::new(element), items: None });
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let axis = call::axis(cx.call.int("axis")?, shape.len())?;
    if follow(cx, &[0]) {
        return Ok(());
    }
    let dtype = cx.dtype(0);
    let squeezes = !cx.has(1) && !cx.call.flag("keepdims")?;
    let part = |size: Dim| {
        let mut shape = shape.to_vec();
        shape[axis] = size;
        let shape = if squeezes { without(&shape, &[axis]) } else { shape };
        Fact::from(TensorFact { dtype, shape: Some(shape), value: None })
    };
    let fact = match part_sizes(cx, &shape[axis])? {
        Some(sizes) if sizes.len() <= MAX_ITEMS => {
            Fact::sequence(sizes.into_iter().map(part).collect(), cx.symbols)
        }
        _ => {
            let size = if cx.has(1) { cx.fresh() } else { Dim::ONE };
            Fact::Sequence { element: Box::new(part(size)), items: None }
        }
    };
    cx.set(0, fact);
    Ok(())
}

/// The sizes of the parts of an axis of `dim` places, if their number is known and not too large.
fn part_sizes(cx: &Infer<'_>, dim: &Dim) -> Result<Option<Vec<Dim>>, OpError> {
    let size = match (cx.has(1), cx.rank(1), cx.dims(1)) {
        (false, ..) => Dim::ONE,
        (true, Some(0), Some(size)) => size.into_iter().next().unwrap_or(Dim::ONE),
        (true, Some(1), sizes) => return Ok(sizes),
        _ => return Ok(None),
    };
    let (Some(size), Some(dim)) = (size.as_const(), dim.as_const()) else { return Ok(None) };
    if size < 1 {
        return invalid(format!("parts of size {size}"));
    }
    if dim / size > MAX_ITEMS as i64 {
        return Ok(None);
    }
    let whole = vec![Dim::from(size); usize::try_from(dim / size).unwrap_or(0)];
    let rest = (dim % size != 0).then(|| Dim::from(dim % size));
    Ok(Some(whole.into_iter().chain(rest).collect()))
}

pub fn concat(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let values = cx.value(0).map_or_else(|| invalid("input 0 is missing"), Value::sequence)?;
    let arrays = values.iter().map(Value::array).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = arrays.first() else { return invalid("an empty sequence cannot be concatenated") };
    let axis = cx.call.int("axis")?;
    let result = if cx.call.flag("new_axis")? {
        let arrays: Vec<Array> = arrays.iter().map(|array| (*array).clone()).collect();
        stack_arrays(cx, &arrays, call::axis(axis, first.rank() + 1)?)?
    } else {
        concat_arrays(cx, &arrays, call::axis(axis, first.rank())?)?
    };
    Ok(vec![result.into()])
}

pub fn infer_concat(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if follow(cx, &[0]) {
        return Ok(());
    }
    let (element, items) = known_sequence(cx);
    if items.is_some_and(<[Fact]>::is_empty) {
        return invalid("an empty sequence cannot be concatenated");
    }
    let count = items.map(|items| Dim::from(items.len() as i64));
    // Without the elements themselves, all but the axis is as in any one of them.
    let any = one_of(element, cx.symbols);
    let facts: Vec<&Fact> = items.map_or_else(|| vec![&any], |items| items.iter().collect());
    let shapes: Vec<Option<&[Dim]>> = facts.iter().map(|fact| fact.tensor()?.shape.as_deref()).collect();
    let dtype = facts.iter().find_map(|fact| fact.tensor()?.dtype);
    if let Some(dtype) = dtype {
        cx.set_dtype(0, dtype);
    }
    let Some(rank) = shapes.iter().flatten().map(|shape| shape.len()).next() else { return Ok(()) };
    let axis = cx.call.int("axis")?;
    let shape = if cx.call.flag("new_axis")? {
        // No axis of the elements is left out of the comparison.
        let mut shape = concat_shapes(cx, &shapes, usize::MAX)?;
        shape.insert(call::axis(axis, rank + 1)?, cx.or_fresh(count));
        shape
    } else {
        let axis = call::axis(axis, rank)?;
        let mut shape = concat_shapes(cx, &shapes, axis)?;
        if items.is_none() {
            shape[axis] = cx.fresh();
        }
        shape
    };
    cx.set_shape(0, shape);
    Ok(())
}
