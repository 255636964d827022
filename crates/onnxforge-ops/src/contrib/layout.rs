//! Forms of standard operators under another name, and matrices that are inverted.

use super::fused::set_shape_of;
use super::single;
use crate::array::each_float;
use crate::call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::fact::{Fact, Known, TensorFact};
use crate::infer_call::Infer;
use crate::kernel::number::{Float, Number};
use crate::{Array, Value};
use onnxforge_ir::dim::Dim;

/// The standard operator that an operator of this domain is the same as, if it is.
fn standard(name: &str) -> (&str, i64) {
    match name {
        "GridSample" => (name, 16),
        "GatherND" => (name, 12),
        _ => (name, 14),
    }
}

pub(super) fn infer_standard(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let (name, opset) = standard(cx.call.def.name);
    let facts: Vec<Option<Fact>> =
        (0..cx.input_count()).map(|index| cx.has(index).then(|| cx.fact(index).clone())).collect();
    let outputs = cx.standard(name, opset, &facts)?;
    set_shape_of(cx, &outputs);
    Ok(())
}

pub(super) fn eval_standard(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (name, opset) = standard(cx.call.def.name);
    let inputs = (0..cx.input_count()).map(|index| cx.take_value(index)).collect();
    one(single(cx.standard(name, opset, inputs)?)?)
}

pub(super) fn infer_pad(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    // A row of widths is as good as a list of them.
    let count = cx.shape(1).and_then(Dim::product);
    let count = cx.or_fresh(count);
    let value = cx.dims(1).map(|widths| Known::Dims(widths.into()));
    let widths = TensorFact { dtype: cx.dtype(1), shape: Some(vec![count]), value };
    let outputs = cx.standard("Pad", 13, &[Some(cx.fact(0).clone()), Some(widths.into())])?;
    set_shape_of(cx, &outputs);
    Ok(())
}

pub(super) fn eval_pad(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let widths = cx.array(1)?;
    let widths = widths.reshaped([widths.len()])?;
    // The value may be a list of one.
    let value = cx.opt_array(2)?.map(|value| value.reshaped([])).transpose()?;
    let inputs = vec![cx.value(0).cloned(), Some(widths.into()), value.map(Value::from)];
    one(single(cx.standard("Pad", 13, inputs)?)?)
}

/// The axis that a dimension of 1 is put in front of.
fn place(axis: i64, rank: usize) -> Result<usize, OpError> {
    call::axis(axis, rank + 1)
}

pub(super) fn infer_expand_dims(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let shape = match cx.ints(1).as_deref() {
        Some(&[axis]) => {
            let mut shape = shape.to_vec();
            shape.insert(place(axis, shape.len())?, Dim::ONE);
            shape
        }
        _ => cx.fresh_shape(shape.len() + 1),
    };
    cx.set_shape(0, shape);
    Ok(())
}

pub(super) fn eval_expand_dims(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, axis) = (cx.array(0)?, cx.array(1)?.to_i64()?);
    let mut shape = x.shape().to_vec();
    shape.insert(place(axis, shape.len())?, 1);
    one(x.reshaped(shape)?)
}

pub(super) fn eval_inverse(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let &[.., size, columns] = x.shape() else {
        return invalid(format!("matrices of shape {:?}", x.shape()));
    };
    if size != columns {
        return invalid(format!("matrices of shape {:?}", x.shape()));
    }
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(x.shape())?;
        if !out.is_empty() {
            let matrices = out.chunks_exact_mut(size * size).zip(x.slice::<T>()?.chunks_exact(size * size));
            for (out, matrix) in matrices {
                cx.check_time()?;
                invert(&mut matrix.to_vec(), out, size)?;
            }
        }
        one(Array::new(x.shape(), out)?)
    })
}

/// Gauss-Jordan elimination with the largest element of each column as pivot.
fn invert<T: Float>(matrix: &mut [T], out: &mut [T], size: usize) -> Result<(), OpError> {
    out.iter_mut().step_by(size + 1).for_each(|diagonal| *diagonal = T::ONE);
    for column in 0..size {
        let magnitude = |row: usize, matrix: &[T]| Number::abs(matrix[row * size + column]);
        let pivot = (column..size).fold(column, |best, row| {
            if magnitude(row, matrix) > magnitude(best, matrix) { row } else { best }
        });
        if magnitude(pivot, matrix) == T::ZERO {
            return unsupported("the inverse of a singular matrix");
        }
        for part in [&mut *matrix, &mut *out] {
            for i in 0..size {
                part.swap(column * size + i, pivot * size + i);
            }
        }
        let scale = T::ONE / matrix[column * size + column];
        for part in [&mut *matrix, &mut *out] {
            part[column * size..][..size].iter_mut().for_each(|x| *x *= scale);
        }
        for row in (0..size).filter(|&row| row != column) {
            let factor = matrix[row * size + column];
            for part in [&mut *matrix, &mut *out] {
                for i in 0..size {
                    part[row * size + i] -= factor * part[column * size + i];
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses() {
        let mut out = [0.0; 4];
        invert(&mut [0.0, 2.0, 1.0, 1.0], &mut out, 2).unwrap();
        assert_eq!(out, [-0.5, 1.0, 0.5, 0.0]);
        assert!(invert(&mut [1.0, 2.0, 2.0, 4.0], &mut [0.0; 4], 2).is_err());
    }
}
