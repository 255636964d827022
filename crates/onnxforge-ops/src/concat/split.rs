//! Split.

use crate::array::Array;
use crate::call::{self, Call};
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::shape::strides;
use crate::kernel::strided::View;
use crate::layout::numbered::follow;
use crate::layout::parameter::{Given, Parameter};
use crate::value::Value;
use onnxforge_ir::dim::Dim;

static SPLIT: Parameter = Parameter { name: "split", input: 1, since: 13 };

pub fn split(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    let axis = call::axis(cx.call.int_or("axis", 0)?, data.rank())?;
    let dim = data.shape()[axis];
    // The very first version also takes the sizes as an input, of the type of the data.
    let given = match (cx.call.since(), cx.opt_array(1)?) {
        (1, Some(sizes)) => Some(sizes.to_f64s()?.into_iter().map(|size| size as i64).collect()),
        _ => SPLIT.evaluate(cx)?,
    };
    let sizes = match given {
        Some(sizes) => chunks(&sizes, dim)?,
        None => equal_chunks(dim, parts(&cx.call)?, cx.call.since() >= 18)?,
    };
    Ok(split_array(cx, data, axis, &sizes)?.into_iter().map(Value::from).collect())
}

/// How many parts there are when their sizes are not given.
fn parts(call: &Call<'_>) -> Result<usize, OpError> {
    let count = call.output_count();
    match call.opt_int("num_outputs")? {
        Some(parts) if parts != count as i64 => invalid(format!("{parts} parts for {count} outputs")),
        _ if count == 0 => invalid("no outputs"),
        _ => Ok(count),
    }
}

/// The sizes of `parts` equal parts of `dim`; the last may be smaller where the version allows it.
fn equal_chunks(dim: usize, parts: usize, uneven: bool) -> Result<Vec<usize>, OpError> {
    let size = dim.div_ceil(parts);
    let last = size.checked_mul(parts - 1).and_then(|others| dim.checked_sub(others));
    match last {
        Some(last) if last == size || uneven => Ok([vec![size; parts - 1], vec![last]].concat()),
        _ => invalid(format!("an axis of {dim} cannot be split into {parts} parts")),
    }
}

/// The given sizes, which must be those of parts of `dim`.
pub fn chunks(sizes: &[i64], dim: usize) -> Result<Vec<usize>, OpError> {
    let found: Option<Vec<usize>> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
    let sum = |sizes: &Vec<usize>| sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
    match found {
        Some(found) if sum(&found) == Some(dim) => Ok(found),
        _ => invalid(format!("an axis of {dim} cannot be split into {sizes:?}")),
    }
}

/// The parts of `array` along `axis`, whose sizes add up to that of the axis.
pub fn split_array(
    cx: &Eval<'_>,
    array: &Array,
    axis: usize,
    sizes: &[usize],
) -> Result<Vec<Array>, OpError> {
    let own: Vec<isize> = strides(array.shape()).into_iter().map(|stride| stride as isize).collect();
    let mut view = View { shape: array.shape().to_vec(), strides: own, offset: 0 };
    let mut parts = Vec::with_capacity(sizes.len());
    for &size in sizes {
        view.shape[axis] = size;
        parts.push(view.copy(array, cx.memory())?);
        view.offset = view.offset.saturating_add(size.saturating_mul(view.strides[axis].unsigned_abs()));
    }
    Ok(parts)
}

pub fn infer_split(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let axis = call::axis(cx.call.int_or("axis", 0)?, shape.len())?;
    if follow(cx, &[0]) {
        return Ok(());
    }
    let count = cx.call.output_count();
    let given = match (cx.call.since(), cx.has(1)) {
        (1, true) => Given::Unknown,
        _ => SPLIT.dims(cx)?,
    };
    let sizes = match given {
        Given::Known(sizes) if sizes.len() < count => {
            return invalid(format!("{} sizes for {count} outputs", sizes.len()));
        }
        Given::Known(sizes) => {
            if let Some(sum) = Dim::sum(&sizes) {
                cx.unify(&shape[axis], &sum)?;
            }
            sizes
        }
        Given::Unknown => cx.fresh_shape(count),
        Given::Absent => equal_dims(cx, &shape[axis])?,
    };
    for (index, size) in sizes.into_iter().take(count).enumerate() {
        let mut part = shape.to_vec();
        part[axis] = size;
        cx.set_shape(index, part);
    }
    Ok(())
}

/// The sizes of equal parts of `dim`.
fn equal_dims(cx: &mut Infer<'_>, dim: &Dim) -> Result<Vec<Dim>, OpError> {
    let parts = parts(&cx.call)?;
    let uneven = cx.call.since() >= 18;
    if let Some(dim) = dim.as_const().and_then(|dim| usize::try_from(dim).ok()) {
        return Ok(equal_chunks(dim, parts, uneven)?
            .into_iter()
            .map(|size| Dim::from(size as i64))
            .collect());
    }
    let divisor = Dim::from(parts as i64);
    if !uneven {
        let size = cx.or_fresh(dim.floor_div(&divisor, cx.symbols));
        return Ok(vec![size; parts]);
    }
    let size = dim.ceil_div(&divisor, cx.symbols);
    let others = size.as_ref().and_then(|size| size.mul(&Dim::from(parts as i64 - 1)));
    let last = others.and_then(|others| dim.sub(&others));
    let (size, last) = (cx.or_fresh(size), cx.or_fresh(last));
    Ok([vec![size; parts - 1], vec![last]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(equal_chunks(7, 4, true).unwrap(), [2, 2, 2, 1]);
        assert_eq!(equal_chunks(6, 3, false).unwrap(), [2, 2, 2]);
        assert!(equal_chunks(7, 3, false).is_err());
        assert!(equal_chunks(5, 4, true).is_err());
        assert_eq!(equal_chunks(0, 2, false).unwrap(), [0, 0]);
        assert_eq!(chunks(&[1, 0, 2], 3).unwrap(), [1, 0, 2]);
        assert!(chunks(&[-1, 4], 3).is_err());
        assert!(chunks(&[i64::MAX, i64::MAX, 5], 3).is_err());
    }
}
