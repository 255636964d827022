//! How the operands of elementwise operators meet: broadcasting of every version, and loops over two or three operands.

use std::sync::Arc;

use crate::array::{Array, Buf, Elem, Typed};
use crate::call::{Call, axis};
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::map::{in_parts, zip};
use crate::kernel::parallel::PARALLEL;
use crate::kernel::shape::{broadcast, broadcast_strides, for_each_offset};
use onnxforge_ir::dim::Dim;

/// Whether the second operand is fitted to the first by the attributes `broadcast` and `axis`, as before opset 7.
fn is_fitted(call: &Call<'_>) -> bool {
    call.signature.is_some_and(|signature| signature.attribute("broadcast").is_some())
}

/// The shape under which the second operand broadcasts to the first: its axes stand from `axis` on, or at the end.
/// A single element has no axes.
fn fitted<D: Clone + PartialEq>(
    shape: &[D],
    rank: usize,
    one: D,
    call: &Call<'_>,
) -> Result<Vec<D>, OpError> {
    if shape.iter().all(|dim| *dim == one) {
        return Ok(Vec::new());
    }
    let Some(first) = call.opt_int("axis")? else { return Ok(shape.to_vec()) };
    let first = axis(first, rank)?;
    match rank.checked_sub(first + shape.len()) {
        Some(after) => Ok([shape, &vec![one; after]].concat()),
        None => invalid(format!("{} axes from axis {first} on, of {rank}", shape.len())),
    }
}

/// Both operands of the call, ready to be broadcast together.
pub fn operands(cx: &mut Eval<'_>) -> Result<(Array, Array), OpError> {
    let (a, b) = (cx.take(0)?, cx.take(1)?);
    if !is_fitted(&cx.call) {
        return Ok((a, b));
    }
    if !cx.call.flag("broadcast")? {
        return if a.shape() == b.shape() {
            Ok((a, b))
        } else {
            invalid(format!("the shapes {:?} and {:?} differ without broadcast", a.shape(), b.shape()))
        };
    }
    let b = b.reshaped(fitted(b.shape(), a.rank(), 1, &cx.call)?)?;
    if broadcast(&[a.shape(), b.shape()])? != a.shape() {
        return invalid(format!("the shape {:?} is broadcast to {:?}", b.shape(), a.shape()));
    }
    Ok((a, b))
}

/// Gives output 0 the shape that both operands have together; answers the shapes under which they are broadcast.
pub fn operand_shapes(cx: &mut Infer<'_>) -> Result<Option<Vec<Vec<Dim>>>, OpError> {
    if !is_fitted(&cx.call) {
        return broadcast_shapes(cx);
    }
    let Some(a) = cx.shape(0) else { return Ok(None) };
    let Some(b) = cx.shape(1) else {
        cx.set_shape(0, a.to_vec());
        return Ok(None);
    };
    if !cx.call.flag("broadcast")? {
        return equal_shapes(cx);
    }
    cx.set_shape(0, a.to_vec());
    let fitted = fitted(b, a.len(), Dim::ONE, &cx.call);
    // A dimension that is not known may turn out to be 1, and the operand a single element.
    if b.iter().all(Dim::is_const) { Ok(Some(vec![a.to_vec(), fitted?])) } else { Ok(None) }
}

/// Gives output 0 the shape that all inputs have together.
pub fn broadcast_shapes(cx: &mut Infer<'_>) -> Result<Option<Vec<Vec<Dim>>>, OpError> {
    let shapes: Option<Vec<&[Dim]>> = (0..cx.input_count()).map(|index| cx.shape(index)).collect();
    let Some(shapes) = shapes else { return Ok(None) };
    let shape = cx.broadcast(&shapes)?;
    cx.set_shape(0, shape);
    Ok(Some(shapes.into_iter().map(<[Dim]>::to_vec).collect()))
}

/// Gives output 0 the shape that each of the inputs has.
pub fn equal_shapes(cx: &mut Infer<'_>) -> Result<Option<Vec<Vec<Dim>>>, OpError> {
    let known: Vec<&[Dim]> = (0..cx.input_count()).filter_map(|index| cx.shape(index)).collect();
    let Some((first, others)) = known.split_first() else { return Ok(None) };
    let mut shape = first.to_vec();
    for other in others {
        if other.len() != shape.len() {
            return invalid(format!(
                "tensors of {} and {} axes where shapes must be equal",
                shape.len(),
                other.len()
            ));
        }
        for (dim, other) in shape.iter_mut().zip(*other) {
            *dim = cx.unify(dim, other)?;
        }
    }
    cx.set_shape(0, shape.clone());
    Ok(Some(vec![shape; cx.input_count()]))
}

/// `f` of two arrays of one type broadcast together; in place of one of them when nobody else holds it and the other
/// is repeated to its shape as a whole.
pub fn combine<T: Typed>(
    a: Array,
    b: Array,
    cx: &Eval<'_>,
    f: impl Fn(T, T) -> T + Sync,
) -> Result<Array, OpError> {
    if repeats(&b, &a) && is_held_alone::<T>(&a) {
        update::<T>(a, &b, &f)
    } else if repeats(&a, &b) && is_held_alone::<T>(&b) {
        update::<T>(b, &a, |y, x| f(x, y))
    } else {
        zip(&a, &b, cx.memory(), |&x: &T, &y: &T| f(x, y))
    }
}

/// Whether broadcasting `small` to the shape of `large` means writing its elements again and again.
fn repeats(small: &Array, large: &Array) -> bool {
    let ones = small.shape().iter().take_while(|&&dim| dim == 1).count();
    small.rank() <= large.rank() && !small.is_empty() && large.shape().ends_with(&small.shape()[ones..])
}

fn is_held_alone<T: Elem>(array: &Array) -> bool {
    matches!(T::of(array.buffer()), Some(Buf::Owned(elements)) if Arc::strong_count(elements) == 1)
}

/// Sets each element of `large` to `f` of it and the one of `small`, which is repeated.
fn update<T: Typed>(large: Array, small: &Array, f: impl Fn(T, T) -> T + Sync) -> Result<Array, OpError> {
    let (shape, small) = (large.shape().to_vec(), small.slice::<T>()?);
    let mut data = large.into_vec::<T>()?;
    let part = match small.len() {
        1 => PARALLEL,
        period if period == data.len() => PARALLEL,
        period => (PARALLEL / period).max(1) * period,
    };
    in_parts(&mut data, part, &|at, part_of_large| match small {
        [y] => part_of_large.iter_mut().for_each(|x| *x = f(*x, *y)),
        _ => {
            // Parts begin where `small` begins, or `small` is as long as the whole.
            let from = &small[at % small.len()..];
            for row in part_of_large.chunks_mut(from.len()) {
                row.iter_mut().zip(from).for_each(|(x, y)| *x = f(*x, *y));
            }
        }
    });
    Array::new(shape, data)
}

/// The elements of `a` where `condition` holds and those of `b` elsewhere, all broadcast together.
pub fn select<T: Elem>(condition: &Array, a: &Array, b: &Array, cx: &Eval<'_>) -> Result<Array, OpError> {
    let shape = broadcast(&[condition.shape(), a.shape(), b.shape()])?;
    let mut out = cx.zeros::<T>(&shape)?;
    let run = shape.last().copied().unwrap_or(1);
    if out.is_empty() {
        return Array::with_dtype(a.dtype(), shape, out);
    }
    let (choice, x, y) = (condition.slice::<bool>()?, a.slice::<T>()?, b.slice::<T>()?);
    let strides = [condition, a, b].map(|operand| broadcast_strides(operand.shape(), &shape));
    let step = [0, 1, 2].map(|operand| strides[operand].last().copied().unwrap_or(0));
    let outer = shape.len().saturating_sub(1);
    cx.reserve::<[usize; 3]>(out.len() / run)?;
    let mut starts = Vec::with_capacity(out.len() / run);
    let outer_strides = [&strides[0][..outer], &strides[1][..outer], &strides[2][..outer]];
    for_each_offset(&shape[..outer], outer_strides, |at| starts.push(at));
    let fill = |row: &mut [T], at: [usize; 3]| {
        for (i, out) in row.iter_mut().enumerate() {
            let chosen =
                if choice[at[0] + i * step[0]] { &x[at[1] + i * step[1]] } else { &y[at[2] + i * step[2]] };
            out.clone_from(chosen);
        }
    };
    in_parts(&mut out, run, &|at, row| fill(row, starts[at / run]));
    Array::with_dtype(a.dtype(), shape, out)
}
