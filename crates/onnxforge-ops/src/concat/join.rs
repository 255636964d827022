//! Concat.

use crate::array::{Array, Elem, each_elem};
use crate::call::{self, Call};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::parallel::each_piece;
use crate::kernel::shape::around;
use crate::layout::numbered::follow;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn concat(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let arrays = cx.arrays_from(0)?;
    let Some(first) = arrays.first() else { return invalid("nothing to concatenate") };
    let axis = concat_axis(&cx.call, first.rank())?;
    one(concat_arrays(cx, &arrays, axis)?)
}

fn concat_axis(call: &Call<'_>, rank: usize) -> Result<usize, OpError> {
    call::axis(if call.since() < 4 { call.int_or("axis", 1)? } else { call.int("axis")? }, rank)
}

/// The arrays (at least one) one after the other along `axis`, which must be an axis of the first. They must have the same
/// element type and, but for that axis, the same shape.
pub fn concat_arrays(cx: &Eval<'_>, arrays: &[&Array], axis: usize) -> Result<Array, OpError> {
    let Some(first) = arrays.first() else { return invalid("nothing to concatenate") };
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for array in arrays {
        let same = |(other, (&a, &b)): (usize, (&usize, &usize))| other == axis || a == b;
        let fits = array.rank() == first.rank()
            && array.dtype() == first.dtype()
            && array.shape().iter().zip(first.shape()).enumerate().all(same);
        if !fits {
            return invalid(format!("{first:?} and {array:?} cannot be concatenated along axis {axis}"));
        }
        shape[axis] = shape[axis].saturating_add(array.shape()[axis]);
    }
    if let [only] = arrays {
        return Ok((*only).clone());
    }
    each_elem!(first, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        if !out.is_empty() {
            let parts = arrays.iter().map(|array| array.slice::<T>()).collect::<Result<Vec<_>, _>>()?;
            let (outer, _, _) = around(&shape, axis);
            weave(&mut out, &parts, outer);
        }
        Array::with_dtype(first.dtype(), shape, out)
    })
}

/// The arrays (at least one, all of the same shape) one after the other along a new axis at `axis`.
pub fn stack_arrays(cx: &Eval<'_>, arrays: &[Array], axis: usize) -> Result<Array, OpError> {
    let layer = |array: &Array| {
        let mut shape = array.shape().to_vec();
        if axis > shape.len() {
            return invalid(format!("a new axis {axis} for the shape {shape:?}"));
        }
        shape.insert(axis, 1);
        array.reshaped(shape)
    };
    let layers = arrays.iter().map(layer).collect::<Result<Vec<_>, _>>()?;
    let layers: Vec<&Array> = layers.iter().collect();
    concat_arrays(cx, &layers, axis)
}

/// Writes `rows` rows, each made of one row of every part.
fn weave<T: Elem>(out: &mut [T], parts: &[&[T]], rows: usize) {
    let width = out.len() / rows;
    each_piece(out, width, width, &|row, mut out| {
        for part in parts {
            let width = part.len() / rows;
            let (now, later) = out.split_at_mut(width);
            now.clone_from_slice(&part[row * width..(row + 1) * width]);
            out = later;
        }
    });
}

pub fn infer_concat(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let carriers: Vec<usize> = (0..cx.input_count()).collect();
    if follow(cx, &carriers) {
        return Ok(());
    }
    let shapes: Vec<Option<&[Dim]>> = carriers.iter().map(|&index| cx.shape(index)).collect();
    let Some(rank) = shapes.iter().flatten().map(|shape| shape.len()).next() else { return Ok(()) };
    let axis = concat_axis(&cx.call, rank)?;
    let shape = concat_shapes(cx, &shapes, axis)?;
    cx.set_shape(0, shape);
    Ok(())
}

/// The shape of what results when tensors of these shapes, of which at least one is known and has the axis, are put
/// together along `axis`.
pub fn concat_shapes(
    cx: &mut Infer<'_>,
    shapes: &[Option<&[Dim]>],
    axis: usize,
) -> Result<Vec<Dim>, OpError> {
    let mut known = shapes.iter().flatten();
    let mut result = known.next().map_or_else(Vec::new, |shape| shape.to_vec());
    for shape in known {
        if shape.len() != result.len() {
            return invalid(format!("tensors with {} and {} axes", result.len(), shape.len()));
        }
        for (other, (dim, found)) in result.iter_mut().zip(shape.iter()).enumerate() {
            if other != axis {
                *dim = cx.unify(dim, found)?;
            }
        }
    }
    let along: Option<Vec<&Dim>> =
        shapes.iter().map(|shape| shape.and_then(|shape| shape.get(axis))).collect();
    let sum = cx.or_fresh(along.and_then(Dim::sum));
    if let Some(dim) = result.get_mut(axis) {
        *dim = sum;
    }
    Ok(result)
}
