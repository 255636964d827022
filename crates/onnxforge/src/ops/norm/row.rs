//! Normalizations of elements that lie side by side: layers, instances and groups of channels.

use rayon::prelude::*;

use super::Moments;
use crate::ir::DType;
use crate::ir::dim::Dim;
use crate::ops::array::{Array, Elem, each_float};
use crate::ops::call;
use crate::ops::error::{OpError, invalid};
use crate::ops::eval::{Eval, one};
use crate::ops::infer::{Infer, same_as_input};
use crate::ops::kernel::fold::Fold;
use crate::ops::kernel::map::{PARALLEL, zip};
use crate::ops::kernel::number::{Float, Number};
use crate::ops::kernel::shape::broadcast;
use crate::ops::kernel::widen::narrow;
use crate::ops::value::Value;

/// Changes each row of `n` elements, which gets its number too, and collects what that gives.
fn each_row<T: Elem, R: Send>(
    data: &mut [T],
    n: usize,
    change: impl Fn((usize, &mut [T])) -> R + Sync + Send,
) -> Vec<R> {
    if data.len() >= PARALLEL {
        data.par_chunks_mut(n).enumerate().with_min_len((PARALLEL / n).max(1)).map(change).collect()
    } else {
        data.chunks_mut(n).enumerate().map(change).collect()
    }
}

pub fn instance(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    let [_, channels, ..] = *x.shape() else {
        return invalid(format!("channels are needed, not the shape {:?}", x.shape()));
    };
    by_channel(cx, x, channels, channels)
}

pub fn group(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    let [_, channels, ..] = *x.shape() else {
        return invalid(format!("channels are needed, not the shape {:?}", x.shape()));
    };
    let groups = cx.call.int("num_groups")?;
    let parameters = |groups: usize| if cx.call.since() < 21 { groups } else { channels };
    match usize::try_from(groups) {
        Ok(groups) if groups > 0 && channels % groups == 0 => by_channel(cx, x, groups, parameters(groups)),
        _ => invalid(format!("{groups} groups of {channels} channels")),
    }
}

/// Normalizes each group of channels of each image. Scale and bias are those of a channel, or where there are fewer
/// `parameters` those of as many neighbours each.
fn by_channel(cx: &Eval<'_>, x: Array, groups: usize, parameters: usize) -> Result<Vec<Value>, OpError> {
    let parameter = |index: usize| {
        let array = cx.array(index)?;
        if array.len() == parameters {
            Ok(array)
        } else {
            invalid(format!("{} parameters for {parameters}", array.len()))
        }
    };
    let (scale, bias) = (parameter(1)?, parameter(2)?);
    if x.is_empty() {
        return one(x);
    }
    let epsilon = f64::from(cx.call.float("epsilon")?);
    let shape = x.shape().to_vec();
    let n = x.len() / (shape[0] * groups);
    let run = x.len() / (shape[0] * parameters);
    each_float!(&x, T => {
        let (scale, bias) = (scale.slice::<T>()?, bias.slice::<T>()?);
        cx.reserve::<T>(x.len())?;
        let mut data = x.into_vec::<T>()?;
        each_row(&mut data, n, |(row, data)| {
            let moments = Moments::of(data);
            moments.center(data, (moments.variance + epsilon).sqrt());
            for (part, data) in data.chunks_mut(run).enumerate() {
                let parameter = (row * (n / run) + part) % parameters;
                let (scale, bias) = (scale[parameter], bias[parameter]);
                data.iter_mut().for_each(|x| *x = *x * scale + bias);
            }
        });
        one(Array::new(shape, data)?)
    })
}

/// The type of the statistics that a LayerNormalization gives.
fn stash_type(call: &call::Call<'_>) -> Result<DType, OpError> {
    match call.dtype("stash_type")? {
        Some(dtype @ (DType::F32 | DType::BF16)) => Ok(dtype),
        other => invalid(format!("statistics of the type {other:?}")),
    }
}

pub fn infer_layer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    same_as_input(cx)?;
    let stash = stash_type(&cx.call)?;
    let shape = match cx.shape(0) {
        Some(shape) => {
            let axis = cx.axis_attr("axis", shape.len())?;
            let dims = shape.iter().enumerate();
            Some(dims.map(|(at, dim)| if at < axis { dim.clone() } else { Dim::ONE }).collect::<Vec<_>>())
        }
        None => None,
    };
    for output in 1..cx.call.output_count() {
        cx.set_dtype(output, stash);
        if let Some(shape) = &shape {
            cx.set_shape(output, shape.clone());
        }
    }
    Ok(())
}

pub fn layer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    let rows = Rows::of(cx, &x)?;
    let epsilon = f64::from(cx.call.float("epsilon")?);
    let (y, moments) = each_float!(&x, T => {
        let (y, moments) = rows.each(cx, x, |data: &mut [T]| {
            let moments = Moments::of(data);
            moments.center(data, (moments.variance + epsilon).sqrt());
            moments
        })?;
        let scaled = stretched::<T>(cx, y, cx.array(1)?, Number::mul)?;
        let y = match cx.opt_array(2)? {
            Some(bias) => stretched::<T>(cx, scaled, bias, Number::add)?,
            None => scaled,
        };
        Ok::<_, OpError>((y, moments))
    })?;
    let mut outputs = vec![y.into()];
    if cx.call.wants(1) || cx.call.wants(2) {
        let inverse = |moments: &Moments| 1.0 / (moments.variance + epsilon).sqrt();
        outputs.push(rows.statistics(cx, &moments, |moments| moments.mean)?.into());
        outputs.push(rows.statistics(cx, &moments, inverse)?.into());
    }
    Ok(outputs)
}

pub fn infer_rms(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let Some(shape) = cx.shape(0) {
        cx.axis_attr("axis", shape.len())?;
        cx.set_shape(0, shape.to_vec());
    }
    Ok(())
}

pub fn rms(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    let rows = Rows::of(cx, &x)?;
    let epsilon = f64::from(cx.call.float("epsilon")?);
    let (normalized, _) = each_float!(&x, T => rows.each(cx, x, |data: &mut [T]| {
        let squares = Fold::new(0.0, |sum: f64, x: T| sum + x.to_f64().powi(2), |a, b| a + b).slice(data);
        let root = (squares / data.len() as f64 + epsilon).sqrt();
        data.iter_mut().for_each(|x| *x = T::from_f64(x.to_f64() / root));
    }))?;
    // The result has the type of the scale.
    let scale = cx.array(1)?;
    each_float!(scale, V => {
        let normalized = if normalized.dtype() == scale.dtype() {
            normalized
        } else {
            let elements = normalized.to_f64s()?.into_iter().map(V::from_f64);
            Array::new(normalized.shape(), elements.collect::<Vec<V>>())?
        };
        one(stretched::<V>(cx, normalized, scale, Number::mul)?)
    })
}

/// A tensor seen as rows that are normalized.
struct Rows {
    shape: Vec<usize>,
    /// The first axis inside a row.
    axis: usize,
}

impl Rows {
    fn of(cx: &Eval<'_>, x: &Array) -> Result<Self, OpError> {
        Ok(Self { shape: x.shape().to_vec(), axis: call::axis(cx.call.int("axis")?, x.rank())? })
    }

    /// Changes each row, and collects what that gives.
    fn each<T: Float, R: Send>(
        &self,
        cx: &Eval<'_>,
        x: Array,
        change: impl Fn(&mut [T]) -> R + Sync + Send,
    ) -> Result<(Array, Vec<R>), OpError> {
        if x.is_empty() {
            return Ok((x, Vec::new()));
        }
        let n = self.shape[self.axis..].iter().product();
        cx.reserve::<T>(x.len())?;
        let mut data = x.into_vec::<T>()?;
        let results = each_row(&mut data, n, |(_, data)| change(data));
        Ok((Array::new(&self.shape[..], data)?, results))
    }

    /// One number for each row.
    fn statistics(
        &self,
        cx: &Eval<'_>,
        moments: &[Moments],
        number: impl Fn(&Moments) -> f64,
    ) -> Result<Array, OpError> {
        let mut shape = self.shape.clone();
        shape[self.axis..].fill(1);
        let mut data = cx.zeros::<f64>(&shape)?;
        // A row without elements has no mean.
        data.fill(f64::NAN);
        data.iter_mut().zip(moments).for_each(|(to, moments)| *to = number(moments));
        let stash = stash_type(&cx.call)?;
        if cx.computed(stash) == DType::F64 {
            return Array::new(shape, data);
        }
        narrow(&Array::new(shape, data.into_iter().map(|x| x as f32).collect::<Vec<f32>>())?, stash)
    }
}

/// `f` of each element and the one of `by` that is broadcast to it.
fn stretched<T: Float>(cx: &Eval<'_>, x: Array, by: &Array, f: fn(T, T) -> T) -> Result<Array, OpError> {
    if broadcast(&[x.shape(), by.shape()])? != x.shape() {
        return invalid(format!("a parameter of shape {:?} for the shape {:?}", by.shape(), x.shape()));
    }
    zip(&x, by, cx.memory(), |x: &T, y: &T| f(*x, *y))
}
