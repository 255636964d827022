//! Activation functions: functions of one number with attributes.

use super::arithmetic::{Function, pair};
use super::operands::combine;
use super::unary::in_own_bits;
use crate::array::{Array, each_float};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::kernel::convert::{Rounding, convert};
use crate::kernel::map::map;
use crate::kernel::number::{Float, Number};
use crate::kernel::shape::broadcast;
use crate::kernel::transcendental::Transcendental;
use crate::value::Value;
use onnxforge_ir::DType;

/// The float attribute `name` as a number of the type that is computed in.
fn attribute<T: Number>(cx: &Eval<'_>, name: &str) -> Result<T, OpError> {
    Ok(T::from_f64(cx.call.float(name)?.into()))
}

/// `ln(1 + exp(x))` without overflow.
fn softplus<T: Float>(x: T) -> T {
    let decay = num_traits::Float::exp(-num_traits::Float::abs(x));
    let positive = if x < T::ZERO { T::ZERO } else { x };
    positive + decay.ln_1p()
}

/// `x` between 0 and 1; what is not a number stays what it is.
fn unit<T: Float>(x: T) -> T {
    if x < T::ZERO {
        T::ZERO
    } else if x > T::ONE {
        T::ONE
    } else {
        x
    }
}

pub fn leaky_relu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => {
        let alpha = attribute::<T>(cx, "alpha")?;
        one(map::<T>(x, |x| if x < 0.0 { alpha * x } else { x })?)
    })
}

pub fn elu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => {
        let alpha = attribute::<T>(cx, "alpha")?;
        one(map::<T>(x, |x| if x < 0.0 { alpha * x.exp_m1() } else { x })?)
    })
}

/// `max(0, x) + min(0, alpha·(exp(x / alpha) - 1))`.
pub fn celu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => {
        let alpha = attribute::<T>(cx, "alpha")?;
        let celu = |x: T| {
            let (rising, falling) = (x.max(0.0), (alpha * (x / alpha).exp_m1()).min(0.0));
            if x.is_nan() { x } else { rising + falling }
        };
        one(map::<T>(x, celu)?)
    })
}

pub fn selu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => {
        let (alpha, gamma) = (attribute::<T>(cx, "alpha")?, attribute::<T>(cx, "gamma")?);
        one(map::<T>(x, |x| gamma * if x <= 0.0 { alpha * x.exp_m1() } else { x })?)
    })
}

pub fn soft_plus(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    in_own_bits(cx, softplus::<f32>, softplus::<f64>)
}

pub fn soft_sign(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    in_own_bits(cx, |x| x / (1.0 + x.abs()), |x| x / (1.0 + x.abs()))
}

pub fn hard_sigmoid(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => {
        let (alpha, beta) = (attribute::<T>(cx, "alpha")?, attribute::<T>(cx, "beta")?);
        one(map::<T>(x, |x| unit(alpha * x + beta))?)
    })
}

pub fn hard_swish(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    in_own_bits(cx, |x| x * unit(x * (1.0 / 6.0) + 0.5), |x| x * unit(x * (1.0 / 6.0) + 0.5))
}

pub fn mish(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    in_own_bits(cx, |x| x * softplus(x).fast_tanh(), |x| x * softplus(x).fast_tanh())
}

/// `x / (1 + exp(-alpha·x))`.
fn swish_of<T: Transcendental>(x: T, alpha: T) -> T {
    x * (alpha * x).fast_sigmoid()
}

pub fn swish(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => {
        let alpha = attribute::<T>(cx, "alpha")?;
        one(map::<T>(x, |x| swish_of(x, alpha))?)
    })
}

/// Swish of the gate times the value; shapes are equal.
pub fn swiglu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (gate, value) = (cx.take(0)?, cx.take(1)?);
    if gate.shape() != value.shape() {
        return invalid(format!("the shapes {:?} and {:?} differ", gate.shape(), value.shape()));
    }
    each_float!(&gate, T => {
        let alpha = attribute::<T>(cx, "alpha")?;
        one(combine::<T>(gate, value, cx, |x, y| swish_of(x, alpha) * y)?)
    })
}

/// `x/2 · (1 + erf(x/√2))`, or what approximates it by the hyperbolic tangent.
pub fn gelu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    #[inline(always)]
    fn exact<T: Transcendental>(x: T) -> T {
        T::from_f64(0.5) * x * (T::ONE + (x * T::FRAC_1_SQRT_2()).fast_erf())
    }
    #[inline(always)]
    fn approximate<T: Transcendental>(x: T) -> T {
        let scale = T::from_f64((2.0 / std::f64::consts::PI).sqrt());
        let inner = scale * (x + T::from_f64(0.044715) * x * x * x);
        T::from_f64(0.5) * x * (T::ONE + inner.fast_tanh())
    }
    match &*cx.call.text("approximate")? {
        "none" => in_own_bits(cx, exact, exact),
        "tanh" => in_own_bits(cx, approximate, approximate),
        other => invalid(format!("the approximation {other}")),
    }
}

/// `x - bias` above `lambd`, `x + bias` below `-lambd` and 0 between. Results for integers are truncated.
pub fn shrink(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (lambd, bias) = (f64::from(cx.call.float("lambd")?), f64::from(cx.call.float("bias")?));
    let shrink = |x: f64| {
        if x < -lambd {
            x + bias
        } else if x > lambd {
            x - bias
        } else {
            0.0
        }
    };
    let x = cx.array(0)?;
    let cast = |array: &Array, to| convert(array, to, Rounding::default(), cx.memory());
    one(cast(&map(cast(x, DType::F64)?, shrink)?, x.dtype())?)
}

pub fn thresholded_relu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => {
        let alpha = attribute::<T>(cx, "alpha")?;
        one(map::<T>(x, |x| if x > alpha { x } else { 0.0 })?)
    })
}

/// `slope·x` below 0. The slope is broadcast to `x`; before opset 7 it is one number or one per channel.
pub fn prelu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    struct Sloped;
    impl Function for Sloped {
        fn of<T: Number>(x: T, slope: T) -> T {
            if x < T::ZERO { x.mul(slope) } else { x }
        }
    }
    let (x, slope) = (cx.take(0)?, cx.take(1)?);
    let slope = if cx.call.since() < 7 { per_channel(&slope, x.rank())? } else { slope };
    if broadcast(&[x.shape(), slope.shape()])? != x.shape() {
        return invalid(format!("the slope {:?} is not broadcast to {:?}", slope.shape(), x.shape()));
    }
    one(pair::<Sloped>(x, slope, cx)?)
}

/// One slope per channel, which is axis 1, or one for all.
fn per_channel(slope: &Array, rank: usize) -> Result<Array, OpError> {
    match slope.len() {
        1 => slope.reshaped([]),
        channels if slope.rank() == 1 && rank >= 2 => {
            let mut shape = vec![1; rank - 1];
            shape[0] = channels;
            slope.reshaped(shape)
        }
        _ => Ok(slope.clone()),
    }
}
