//! Normalizations of elements that lie side by side: layers, instances and groups of channels.

use super::Moments;
use crate::array::{Array, each_float};
use crate::call;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::{Infer, same_as_input};
use crate::kernel::convert::to_float;
use crate::kernel::fold::Fold;
use crate::kernel::map::zip;
use crate::kernel::number::{Float, Number};
use crate::kernel::parallel::each_piece;
use crate::kernel::shape::broadcast;
use crate::kernel::widen::narrow;
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;
use onnxforge_ir::tensor::element_count;

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
        each_piece(&mut data, n, n, &|row, data| {
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
    let axis = cx.rank(0).map(|rank| cx.axis_attr("axis", rank)).transpose()?;
    for output in 1..cx.call.output_count() {
        cx.set_dtype(output, stash_type(&cx.call)?);
        if let (Some(shape), Some(axis)) = (cx.shape(0), axis) {
            let mut shape = shape.to_vec();
            shape[axis..].fill(Dim::ONE);
            cx.set_shape(output, shape);
        }
    }
    Ok(())
}

pub fn layer(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    let rows = Rows::of(cx, &x)?;
    let epsilon = f64::from(cx.call.float("epsilon")?);
    let (y, moments) = each_float!(&x, T => {
        let moments = Moments::of_rows(x.slice::<T>()?, rows.len());
        let y = rows.each(cx, x, |row, data: &mut [T]| {
            moments[row].center(data, (moments[row].variance + epsilon).sqrt());
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
    let normalized = each_float!(&x, T => rows.each(cx, x, |_, data: &mut [T]| {
        let squares = Fold::new(0.0, |sum: f64, x: T| sum + x.to_f64().powi(2), |a, b| a + b).slice(data);
        let root = (squares / data.len() as f64 + epsilon).sqrt();
        data.iter_mut().for_each(|x| *x = T::from_f64(x.to_f64() / root));
    }))?;
    // The result has the type of the scale.
    let scale = cx.array(1)?;
    each_float!(scale, V => {
        one(stretched::<V>(cx, to_float::<V>(&normalized)?, scale, Number::mul)?)
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

    /// Elements of a row; 1 for none.
    fn len(&self) -> usize {
        element_count(&self.shape[self.axis..]).unwrap_or(0).max(1)
    }

    /// Changes each row, which comes with its number.
    fn each<T: Float>(
        &self,
        cx: &Eval<'_>,
        x: Array,
        change: impl Fn(usize, &mut [T]) + Sync,
    ) -> Result<Array, OpError> {
        cx.reserve::<T>(x.len())?;
        let mut data = x.into_vec::<T>()?;
        each_piece(&mut data, self.len(), self.len(), &change);
        Array::new(&self.shape[..], data)
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
