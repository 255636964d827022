//! The way back from pooling: each element returns to where it was the greatest.

use crate::array::{Array, each_float};
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::shape::strides;
use crate::kernel::window::{Padding, Sliding, as_sizes, kernel_shape};
use crate::value::Value;
use onnxforge_ir::dim::Dim;

/// The shape of the tensor that was pooled, as far as the attributes tell.
fn pooled_shape(call: &Call<'_>, x: &[Dim]) -> Result<Option<Vec<Dim>>, OpError> {
    let kernel = kernel_shape(call)?.unwrap_or_default();
    let [batch, channels, image @ ..] = x else {
        return invalid(format!("unpooling of a tensor with {} axes", x.len()));
    };
    if kernel.len() != image.len() {
        return invalid(format!("a kernel of {kernel:?} for a tensor with {} axes", x.len()));
    }
    let sliding = Sliding::of(call, image.len())?;
    let Padding::Explicit(pads) = &sliding.padding else { return invalid("MaxUnpool has no auto_pad") };
    let size = |index: usize| {
        let last = image[index].sub(&Dim::ONE)?.mul(&Dim::from(sliding.strides[index] as i64))?;
        let [before, after] = pads[index];
        last.add(&Dim::from(kernel[index] as i64 - (before + after) as i64))
    };
    let sizes = (0..image.len()).map(size);
    Ok([batch.clone(), channels.clone()].into_iter().map(Some).chain(sizes).collect())
}

pub fn max_unpool(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, indices) = (cx.array(0)?, cx.array(1)?);
    if x.shape() != indices.shape() {
        return invalid(format!("indices of {:?} for {:?}", indices.shape(), x.shape()));
    }
    let dims: Vec<Dim> = x.shape().iter().map(|&dim| Dim::from(dim as i64)).collect();
    let size = |dim: &Dim| dim.as_const().and_then(|dim| usize::try_from(dim).ok());
    let pooled: Option<Vec<usize>> =
        pooled_shape(&cx.call, &dims)?.and_then(|shape| shape.iter().map(size).collect());
    let Some(pooled) = pooled else {
        return invalid(format!("unpooling of {:?} to a negative size", x.shape()));
    };
    let shape: Vec<usize> = match cx.ints(2)? {
        None => pooled.clone(),
        Some(given) => match given.iter().map(|&dim| usize::try_from(dim)).collect() {
            Ok(shape) => shape,
            Err(_) => return invalid(format!("the output shape {given:?}")),
        },
    };
    if shape.len() != pooled.len() || shape.iter().zip(&pooled).any(|(given, pooled)| given < pooled) {
        return invalid(format!("the output shape {shape:?} for a tensor of {pooled:?}"));
    }
    let count = cx.count(&pooled)?;
    let (own, wider) = (strides(&pooled), strides(&shape));
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        for (&value, index) in x.slice::<T>()?.iter().zip(indices.to_i64s()?) {
            let Some(at) = usize::try_from(index).ok().filter(|&at| at < count) else {
                return invalid(format!("the index {index} of a tensor of {pooled:?}"));
            };
            let moved = own.iter().zip(&wider).zip(&pooled).map(|((own, wider), dim)| at / own % dim * wider);
            out[moved.sum::<usize>()] = value;
        }
        one(Array::new(shape, out)?)
    })
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let shape = cx.shape(0).or_else(|| cx.shape(1));
    if let (true, Some(given)) = (cx.has(2), cx.dims(2)) {
        cx.set_shape(0, as_sizes(given)?);
    } else if let Some(shape) = shape {
        let pooled = if cx.has(2) { None } else { pooled_shape(&cx.call, shape)? };
        let pooled = pooled.unwrap_or_else(|| cx.fresh_shape(shape.len()));
        cx.set_shape(0, pooled);
    }
    Ok(())
}
