//! Causal depthwise convolutions that carry the end of the sequence over to the next call.

use super::Layer;
use super::direct::depthwise;
use crate::array::{Array, each_float};
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::number::{Float, Number};
use crate::kernel::window::{Axis, Geometry};
use crate::value::Value;
use onnxforge_ir::dim::Dim;

pub fn causal_conv(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, w, bias, past) = (cx.array(0)?, cx.array(1)?, cx.opt_array(2)?, cx.opt_array(3)?);
    let (&[batch, channels, length], &[maps, 1, kernel]) = (x.shape(), w.shape()) else {
        return invalid(format!("a causal convolution of {:?} with {:?}", x.shape(), w.shape()));
    };
    let carried = [batch, channels, kernel.saturating_sub(1)];
    if kernel == 0 || maps != channels || past.is_some_and(|past| past.shape() != carried) {
        return invalid(format!("a causal convolution of {:?} with {:?}", x.shape(), w.shape()));
    }
    let silu = match cx.call.text("activation")?.as_str() {
        "none" => false,
        "silu" | "swish" => true,
        other => return invalid(format!("the activation {other:?}")),
    };
    let padded = length + kernel - 1;
    let axis = Axis { input: padded, output: length, kernel, stride: 1, dilation: 1, pad: 0, pad_end: 0 };
    let geometry = Geometry::new(vec![axis])?;
    let layer = Layer { batch, groups: channels, channels: 1, maps: 1, geometry };
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(x.shape())?;
        let sequence = joined::<T>(cx, past, x, [batch, channels, padded])?;
        let bias = layer.bias::<T>(bias)?;
        if !out.is_empty() {
            depthwise(&layer, &sequence, w.slice()?, bias, &mut out);
        }
        if silu {
            out.iter_mut().for_each(|y| *y = *y / (T::ONE + num_traits::Float::exp(-*y)));
        }
        let mut present = Vec::with_capacity(batch * channels * (kernel - 1));
        sequence.chunks_exact(padded.max(1)).for_each(|channel| present.extend_from_slice(&channel[length..]));
        Ok(vec![Array::new(x.shape(), out)?.into(), Array::new(carried, present)?.into()])
    })
}

/// Each channel of `x` behind what `past` holds of it, or behind zeros.
fn joined<T: Float>(
    cx: &Eval<'_>,
    past: Option<&Array>,
    x: &Array,
    shape: [usize; 3],
) -> Result<Vec<T>, OpError> {
    let mut sequence = cx.zeros::<T>(&shape)?;
    let (length, padded) = (x.shape()[2], shape[2].max(1));
    let start = shape[2] - length;
    if let (Some(past), 1..) = (past, start) {
        let parts = past.slice::<T>()?.chunks_exact(start);
        sequence.chunks_exact_mut(padded).zip(parts).for_each(|(to, from)| to[..start].copy_from_slice(from));
    }
    if length > 0 {
        let parts = x.slice::<T>()?.chunks_exact(length);
        sequence.chunks_exact_mut(padded).zip(parts).for_each(|(to, from)| to[start..].copy_from_slice(from));
    }
    Ok(sequence)
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    for index in [0, 1, 3] {
        if cx.rank(index).is_some_and(|rank| rank != 3) {
            return invalid(format!("input {index} must have 3 axes"));
        }
    }
    let dim = |index: usize, axis: usize| cx.shape(index).map(|shape| shape[axis].clone());
    let (batch, channels) = (dim(0, 0).or_else(|| dim(3, 0)), dim(0, 1).or_else(|| dim(1, 0)));
    let (length, carried) =
        (dim(0, 2), dim(1, 2).and_then(|kernel| kernel.sub(&Dim::ONE)).or_else(|| dim(3, 2)));
    let shared = [cx.or_fresh(batch), cx.or_fresh(channels)];
    for (index, last) in [length, carried].into_iter().enumerate() {
        let last = cx.or_fresh(last);
        cx.set_shape(index, shared.iter().cloned().chain([last]).collect());
    }
    Ok(())
}
