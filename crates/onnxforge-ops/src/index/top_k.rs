//! TopK.

use std::cmp::Ordering;

use super::order::Ordered;
use crate::array::{Array, each_number};
use crate::call::{self, Call};
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::number::Number;
use crate::kernel::parallel::PARALLEL;
use crate::kernel::shape::around;
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::parallel::for_each;

pub fn top_k(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    let k = if cx.call.since() < 10 { cx.call.int("k")? } else { cx.array(1)?.to_i64()? };
    let axis = call::axis(cx.call.int("axis")?, data.rank())?;
    let dim = data.shape()[axis];
    let Some(k) = usize::try_from(k).ok().filter(|&k| k <= dim) else {
        return invalid(format!("the first {k} of {dim} elements"));
    };
    let largest = is_largest(&cx.call)?;
    each_number!(data, T => best::<T>(cx, data, axis, k, largest))
}

fn is_largest(call: &Call<'_>) -> Result<bool, OpError> {
    if call.since() < 11 { Ok(true) } else { call.flag("largest") }
}

/// The `k` best elements along `axis`, best first, and where they stand; of equal ones the first is better.
fn best<T: Number + Ordered>(
    cx: &Eval<'_>,
    data: &Array,
    axis: usize,
    k: usize,
    largest: bool,
) -> Result<Vec<Value>, OpError> {
    let (_, dim, inner) = around(data.shape(), axis);
    let mut shape = data.shape().to_vec();
    shape[axis] = k;
    let (mut values, mut places) = (cx.zeros::<T>(&shape)?, cx.zeros::<i64>(&shape)?);
    cx.reserve::<usize>(dim)?;
    let from = data.slice::<T>()?;
    // All lanes with the same place on the axes before `axis` lie in one block.
    let block = |(row, (values, places)): (usize, (&mut [T], &mut [i64]))| {
        let mut order: Vec<usize> = Vec::with_capacity(dim);
        for column in 0..inner {
            let element = |place: usize| &from[(row * dim + place) * inner + column];
            let better = |a: &usize, b: &usize| -> Ordering {
                let (x, y) = (element(*a), element(*b));
                let by_value = if largest { y.order(x) } else { x.order(y) };
                by_value.then(a.cmp(b))
            };
            order.clear();
            order.extend(0..dim);
            if k < dim {
                order.select_nth_unstable_by(k, better);
            }
            order[..k].sort_unstable_by(better);
            for (rank, &place) in order[..k].iter().enumerate() {
                values[rank * inner + column] = *element(place);
                places[rank * inner + column] = place as i64;
            }
        }
    };
    if !values.is_empty() {
        let size = k * inner;
        let blocks = values.chunks_mut(size).zip(places.chunks_mut(size));
        for_each(blocks.enumerate(), PARALLEL / (dim * inner), block);
    }
    Ok(vec![Array::new(&shape[..], values)?.into(), Array::new(shape, places)?.into()])
}

pub fn infer_top_k(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.set_dtype(1, DType::I64);
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let axis = call::axis(cx.call.int("axis")?, shape.len())?;
    let k = if cx.call.since() < 10 {
        Some(Dim::from(cx.call.int("k")?))
    } else {
        cx.dims(1).and_then(|dims| dims.first().cloned())
    };
    if let (Some(k), dim) = (&k, &shape[axis])
        && dim.sub(k).is_some_and(|left| left.provably_negative(cx.symbols))
    {
        let (k, dim) = (k.display(cx.symbols), dim.display(cx.symbols));
        return invalid(format!("the first {k} of {dim} elements"));
    }
    let mut shape = shape.to_vec();
    shape[axis] = cx.or_fresh(k);
    cx.set_shape(0, shape.clone());
    cx.set_shape(1, shape);
    Ok(())
}
