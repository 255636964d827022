//! BatchNormalization: each channel by its own mean and variance.

use super::Moments;
use crate::array::{Array, each_float};
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::Eval;
use crate::infer_call::{Infer, same_as_input};
use crate::kernel::number::{Float, Number};
use crate::kernel::parallel::each_piece;
use crate::kernel::strided::transpose;
use crate::value::Value;

/// Whether the call computes mean and variance itself.
fn trains(call: &Call<'_>) -> Result<bool, OpError> {
    if call.since() >= 14 { call.flag("training_mode") } else { Ok((1..5).any(|output| call.wants(output))) }
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    same_as_input(cx)?;
    // The other outputs are means and variances in turn, as the last inputs are.
    for output in 1..cx.call.output_count() {
        if let Some(shape) = cx.shape(if output % 2 == 1 { 3 } else { 4 }) {
            cx.set_shape(output, shape.to_vec());
        }
    }
    Ok(())
}

/// How the elements are laid out: `images × channels × inner`.
#[derive(Clone, Copy)]
struct Layout {
    images: usize,
    channels: usize,
    inner: usize,
}

impl Layout {
    /// Of a tensor that has elements. Where the operator is not spatial, each place is a channel of its own.
    fn of(x: &Array, spatial: bool) -> Self {
        let (images, channels) = match x.shape() {
            [images, channels, ..] if spatial => (*images, *channels),
            [images, rest @ ..] if !spatial => (*images, rest.iter().product()),
            _ => (x.len(), 1),
        };
        Self { images, channels, inner: x.len() / (images * channels) }
    }
}

/// What is done to a channel: `(x - shift) · factor + bias`.
#[derive(Clone, Copy)]
struct Affine<T> {
    shift: T,
    factor: T,
    bias: T,
}

pub fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    let training = trains(&cx.call)?;
    if training && cx.call.since() < 14 {
        return unsupported("training before opset 14");
    }
    if x.is_empty() {
        return if training { invalid("the mean of no elements") } else { Ok(vec![x.into()]) };
    }
    let spatial = cx.call.opt_int("spatial")?.is_none_or(|spatial| spatial != 0);
    let layout = Layout::of(&x, spatial);
    let parameter = |index: usize| {
        let array = cx.array(index)?;
        if array.len() != layout.channels {
            return invalid(format!("{} parameters for {} channels", array.len(), layout.channels));
        }
        array.to_f64s()
    };
    let (scale, bias) = (parameter(1)?, parameter(2)?);
    let mut moments: Vec<Moments> = parameter(3)?
        .into_iter()
        .zip(parameter(4)?)
        .map(|(mean, variance)| Moments { mean, variance })
        .collect();
    let mut running = Vec::new();
    if training {
        let momentum = f64::from(cx.call.float("momentum")?);
        let current = current_moments(cx, &x, layout)?;
        let mix = |old: f64, new: f64| old * momentum + new * (1.0 - momentum);
        let both = || moments.iter().zip(&current);
        let means = both().map(|(old, new)| mix(old.mean, new.mean)).collect();
        let variances = both().map(|(old, new)| mix(old.variance, new.variance)).collect();
        running = vec![typed_like(cx.array(3)?, means)?, typed_like(cx.array(4)?, variances)?];
        moments = current;
    }
    let epsilon = f64::from(cx.call.float("epsilon")?);
    let y = each_float!(&x, T => {
        let affine = moments.iter().zip(scale.iter().zip(&bias)).map(|(moments, (scale, bias))| Affine {
            shift: T::from_f64(moments.mean),
            factor: T::from_f64(scale / (moments.variance + epsilon).sqrt()),
            bias: T::from_f64(*bias),
        });
        apply::<T>(cx, x, layout, &affine.collect::<Vec<_>>())
    })?;
    Ok([y].into_iter().chain(running).map(Value::from).collect())
}

/// Mean and variance of each channel.
fn current_moments(cx: &Eval<'_>, x: &Array, layout: Layout) -> Result<Vec<Moments>, OpError> {
    let Layout { images, channels, inner } = layout;
    let x = transpose(&x.reshaped([images, channels, inner])?, &[1, 0, 2], cx.memory())?;
    each_float!(&x, T => Ok(Moments::of_rows(x.slice::<T>()?, images * inner)))
}

/// Statistics as an array of the type and shape of `like`.
fn typed_like(like: &Array, values: Vec<f64>) -> Result<Array, OpError> {
    each_float!(like, T => Array::new(like.shape(), values.into_iter().map(T::from_f64).collect::<Vec<T>>()))
}

fn apply<T: Float>(cx: &Eval<'_>, x: Array, layout: Layout, affine: &[Affine<T>]) -> Result<Array, OpError> {
    let shape = x.shape().to_vec();
    cx.reserve::<T>(x.len())?;
    let mut data = x.into_vec::<T>()?;
    each_piece(&mut data, layout.inner, layout.inner, &|index, data| {
        let Affine { shift, factor, bias } = affine[index % layout.channels];
        data.iter_mut().for_each(|x| *x = (*x - shift) * factor + bias);
    });
    Array::new(shape, data)
}
