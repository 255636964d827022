//! Normalizations: elements are shifted and scaled by what is typical of their neighbours.
//!
//! Means and variances are computed in 64 bits, whatever the type of the elements.

mod batch;
mod row;

use super::array::{Array, each_float};
use super::call;
use super::def::{Category, EvalFn, InferFn, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::{Eval, one};
use super::infer_call::{Infer, same_as_input};
use super::kernel::fold::Fold;
use super::kernel::line::each_line;
use super::kernel::number::{Float, Number};
use super::kernel::parallel::each_piece;
use super::kernel::shape::around;
use super::kernel::strided::transpose;
use super::value::Value;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    normalization("BatchNormalization", batch::infer, batch::eval),
    normalization("InstanceNormalization", same_as_input, row::instance),
    normalization("GroupNormalization", same_as_input, row::group),
    normalization("LayerNormalization", row::infer_layer, row::layer),
    normalization("RMSNormalization", row::infer_rms, row::rms),
    normalization("MeanVarianceNormalization", same_as_input, mean_variance),
    normalization("LpNormalization", infer_lp, lp),
    normalization("LRN", same_as_input, local_response),
];

const fn normalization(name: &'static str, infer: InferFn, eval: EvalFn) -> OpDef {
    OpDef::new(name, Category::NeuralLayer, infer, eval).widening()
}

/// What is typical of a group of elements.
#[derive(Clone, Copy, Default)]
struct Moments {
    mean: f64,
    variance: f64,
}

impl Moments {
    /// Of a group that has elements.
    fn of<T: Float>(data: &[T]) -> Self {
        let count = data.len() as f64;
        let mean = Fold::new(0.0, |sum: f64, x: T| sum + x.to_f64(), |a, b| a + b).slice(data) / count;
        let square = |sum: f64, x: T| sum + (x.to_f64() - mean).powi(2);
        Self { mean, variance: Fold::new(0.0, square, |a, b| a + b).slice(data) / count }
    }

    /// Of each row of `n` elements.
    fn of_rows<T: Float>(data: &[T], n: usize) -> Vec<Self> {
        let mut moments = vec![Self::default(); data.len() / n];
        each_piece(&mut moments, 1, n, &|row, moments| moments.fill(Self::of(&data[row * n..][..n])));
        moments
    }

    /// Moves the elements to a mean of 0 and divides them by `deviation`.
    fn center<T: Float>(&self, data: &mut [T], deviation: f64) {
        let factor = 1.0 / deviation;
        data.iter_mut().for_each(|x| *x = T::from_f64((x.to_f64() - self.mean) * factor));
    }
}

fn mean_variance(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    const EPSILON: f64 = 1e-9;
    let x = cx.take(0)?;
    let axes = call::axes(&cx.call.ints("axes")?, x.rank())?;
    if x.is_empty() {
        return one(x);
    }
    let kept = (0..x.rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
    let moves = !order.is_sorted();
    let x = if moves { transpose(&x, &order, cx.memory())? } else { x };
    let n: usize = x.shape()[x.rank() - axes.len()..].iter().product();
    let count = x.len() / n;
    let y = each_float!(&x, T => each_line(x, [count, n, 1], cx.memory(), |line: &mut [T]| {
        let moments = Moments::of(line);
        moments.center(line, moments.variance.sqrt() + EPSILON);
    }))?;
    one(if moves { transpose(&y, &back, cx.memory())? } else { y })
}

fn infer_lp(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let Some(rank) = cx.rank(0) {
        cx.axis_attr("axis", rank)?;
    }
    same_as_input(cx)
}

fn lp(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    let axis = call::axis(cx.call.int("axis")?, x.rank())?;
    let p = cx.call.int("p")?;
    if !matches!(p, 1 | 2) {
        return invalid(format!("the norm of order {p}; it is 1 or 2"));
    }
    if x.is_empty() {
        return one(x);
    }
    let (outer, n, inner) = around(x.shape(), axis);
    each_float!(&x, T => one(each_line(x, [outer, n, inner], cx.memory(), |line: &mut [T]| {
        let size = |x: T| if p == 1 { Number::abs(x).to_f64() } else { x.to_f64().powi(2) };
        let sum = Fold::new(0.0, |sum: f64, x: T| sum + size(x), |a, b| a + b).slice(line);
        let norm = if p == 1 { sum } else { sum.sqrt() };
        line.iter_mut().for_each(|x| *x = if norm == 0.0 { T::ZERO } else { T::from_f64(x.to_f64() / norm) });
    })?))
}

fn local_response(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let [_, channels, ..] = *x.shape() else {
        return invalid(format!("channels are needed, not the shape {:?}", x.shape()));
    };
    let size = match usize::try_from(cx.call.int("size")?) {
        Ok(size) if size > 0 => size,
        _ => return invalid("a window of less than one channel"),
    };
    if x.is_empty() {
        return one(x.clone());
    }
    let window = Window { before: (size - 1) / 2, after: size / 2, channels };
    let alpha = f64::from(cx.call.float("alpha")?) / size as f64;
    let (beta, bias) = (cx.call.float("beta")?, cx.call.float("bias")?);
    let (_, _, inner) = around(x.shape(), 1);
    each_float!(x, T => {
        let (alpha, beta, bias) = (T::from_f64(alpha), T::from_f64(beta.into()), T::from_f64(bias.into()));
        let data = x.slice::<T>()?;
        let mut out = cx.zeros::<T>(x.shape())?;
        each_piece(&mut out, inner, inner, &|index, out| {
            window.sum_squares(data, index, out);
            for (out, &x) in out.iter_mut().zip(&data[index * inner..]) {
                *out = x / (bias + alpha * *out).powf(beta);
            }
        });
        one(Array::new(x.shape(), out)?)
    })
}

/// The channels that count together with one.
struct Window {
    before: usize,
    after: usize,
    channels: usize,
}

impl Window {
    /// The sum of squares over the channels around the one at `index`, element by element. Channels lie one after the
    /// other in `data`, image after image.
    fn sum_squares<T: Float>(&self, data: &[T], index: usize, out: &mut [T]) {
        let (image, channel) = (index / self.channels, index % self.channels);
        let first = channel.saturating_sub(self.before);
        let last = channel.saturating_add(self.after).min(self.channels - 1);
        let inner = out.len();
        out.fill(T::ZERO);
        for channel in first..=last {
            let at = (image * self.channels + channel) * inner;
            out.iter_mut().zip(&data[at..]).for_each(|(sum, &x)| *sum += x * x);
        }
    }
}
