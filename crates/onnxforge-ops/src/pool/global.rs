//! Pooling of whole planes.

use super::{norm_order, power, root};
use crate::array::{Array, each_float};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::Number;
use crate::kernel::parallel::each_piece;
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn max_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let greater = |best: f64, value: f64| if value > best || value.is_nan() { value } else { best };
    reduce(cx, f64::NEG_INFINITY, greater, |best, _| best)
}

pub fn average_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    reduce(cx, 0.0, |sum, value| sum + value, |sum, count| sum / count as f64)
}

pub fn lp_pool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let p = norm_order(&cx.call)?;
    reduce(cx, 0.0, |sum, value| sum + power(value, p), |sum, _| root(sum, p))
}

/// Each plane folded to one number in 64 bits; `finish` also gets the number of elements of a plane.
fn reduce(
    cx: &Eval<'_>,
    start: f64,
    fold: impl Fn(f64, f64) -> f64 + Sync,
    finish: impl Fn(f64, usize) -> f64 + Sync,
) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let [batch, channels, image @ ..] = x.shape() else {
        return invalid(format!("pooling of a tensor of {:?}", x.shape()));
    };
    let shape: Vec<usize> = [*batch, *channels].into_iter().chain(image.iter().map(|_| 1)).collect();
    if image.contains(&0) {
        return invalid(format!("pooling of planes without elements, {:?}", x.shape()));
    }
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        let plane = x.len() / out.len().max(1);
        if plane > 0 {
            let x = x.slice::<T>()?;
            each_piece(&mut out, 1, plane, &|index, out| {
                let plane = &x[index * plane..][..plane];
                let folded = plane.iter().fold(start, |sum, &value| fold(sum, value.to_f64()));
                out.fill(T::from_f64(finish(folded, plane.len())));
            });
        }
        one(Array::new(shape, out)?)
    })
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    match cx.shape(0) {
        None => Ok(()),
        Some([batch, channels, image @ ..]) => {
            let ones = image.iter().map(|_| Dim::ONE);
            cx.set_shape(0, [batch.clone(), channels.clone()].into_iter().chain(ones).collect());
            Ok(())
        }
        Some(shape) => invalid(format!("pooling of a tensor with {} axes", shape.len())),
    }
}
