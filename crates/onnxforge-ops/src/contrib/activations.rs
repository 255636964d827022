//! Activations that are operators of their own, and those that are fused into others.

use crate::array::each_float;
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::kernel::map::{map, zip};
use crate::kernel::number::{Float, Number};
use crate::{Array, Value};

/// `x · Φ(x)`, where Φ is the normal distribution.
pub fn gelu<T: Float>(x: T) -> T {
    let half = T::from_f64(0.5);
    half * x * (T::ONE + Float::erf(x * T::FRAC_1_SQRT_2()))
}

/// The approximation of [`gelu`] by a hyperbolic tangent.
fn fast_gelu<T: Float>(x: T) -> T {
    let (b, c) = (T::from_f64(0.797_884_560_802_865_4), T::from_f64(0.035_677_408_136_300_125));
    T::from_f64(0.5) * x * (T::ONE + num_traits::Float::tanh(x * (c * x * x + b)))
}

pub fn sigmoid<T: Float>(x: T) -> T {
    T::ONE / (T::ONE + num_traits::Float::exp(-x))
}

pub(super) fn eval_gelu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_float!(&x, T => one(map::<T>(x, gelu)?))
}

pub(super) fn eval_quick_gelu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let alpha = f64::from(cx.call.float_or("alpha", 1.702)?);
    let x = cx.take(0)?;
    each_float!(&x, T => one(map::<T>(x, |x| x * sigmoid(T::from_f64(alpha) * x))?))
}

pub(super) fn eval_fast_gelu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = biased(cx)?;
    each_float!(&x, T => one(map::<T>(x, fast_gelu)?))
}

pub(super) fn eval_bias_gelu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = biased(cx)?;
    each_float!(&x, T => one(map::<T>(x, gelu)?))
}

/// Input 0 plus input 1, one number for each feature, if it is given.
fn biased(cx: &mut Eval<'_>) -> Result<Array, OpError> {
    if !cx.has(1) {
        return cx.take(0);
    }
    let (x, bias) = (cx.array(0)?, cx.array(1)?);
    if bias.rank() != 1 || x.shape().last() != bias.shape().first() {
        return invalid(format!("a bias of shape {:?} for {:?}", bias.shape(), x.shape()));
    }
    each_float!(x, T => zip(x, bias, cx.memory(), |&x: &T, &bias: &T| x + bias))
}

/// `left · gelu(right)` of the halves of the features, after the bias.
pub(super) fn eval_bias_split_gelu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = biased(cx)?;
    let Some((&width, outer)) = x.shape().split_last().filter(|(width, _)| *width % 2 == 0) else {
        return invalid(format!("features of shape {:?} that do not split in half", x.shape()));
    };
    let half = width / 2;
    let mut shape = outer.to_vec();
    shape.push(half);
    each_float!(&x, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        let rows = out.chunks_mut(half.max(1)).zip(x.slice::<T>()?.chunks(width.max(1)));
        for (out, row) in rows {
            let (left, right) = row.split_at(half);
            out.iter_mut().zip(left.iter().zip(right)).for_each(|(out, (&a, &b))| *out = a * gelu(b));
        }
        one(Array::new(shape, out)?)
    })
}

/// The sum of three tensors, of which the second has one number for each feature.
pub(super) fn eval_bias_add(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let skip = cx.array(2)?.clone();
    let sum = biased(cx)?;
    if skip.shape() != sum.shape() {
        return invalid(format!("shapes {:?} and {:?}", sum.shape(), skip.shape()));
    }
    each_float!(&sum, T => one(zip(&sum, &skip, cx.memory(), |&x: &T, &skip: &T| x + skip)?))
}

/// What is done to each element after a product or a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    None,
    Relu,
    Tanh,
    Sigmoid,
    HardSwish,
    Softplus,
    Softsign,
    LeakyRelu { alpha: f32 },
    Elu { alpha: f32 },
    ThresholdedRelu { alpha: f32 },
    Clip { low: f32, high: f32 },
    HardSigmoid { alpha: f32, beta: f32 },
}

impl Activation {
    /// The one that `activation` names, with parameters in the list `activation_params`.
    pub fn listed(call: &Call<'_>) -> Result<Self, OpError> {
        let name = call.text_or("activation", "")?;
        let params = call.floats_or("activation_params", Vec::new())?;
        match (name.as_str(), &params[..]) {
            ("", _) => Ok(Self::None),
            ("Relu", _) => Ok(Self::Relu),
            ("Tanh", _) => Ok(Self::Tanh),
            ("Sigmoid", _) => Ok(Self::Sigmoid),
            ("HardSwish", _) => Ok(Self::HardSwish),
            ("LeakyRelu", &[alpha]) => Ok(Self::LeakyRelu { alpha }),
            ("Clip", &[low, high]) => Ok(Self::Clip { low, high }),
            ("HardSigmoid", &[alpha, beta]) => Ok(Self::HardSigmoid { alpha, beta }),
            _ => unsupported(format!("the activation {name} with {} parameters", params.len())),
        }
    }

    /// The one that `activation` names, with parameters in `activation_alpha` and `activation_beta`.
    pub fn named(call: &Call<'_>) -> Result<Self, OpError> {
        let name = call.text_or("activation", "")?;
        let alpha = |default: f32| call.float_or("activation_alpha", default);
        Ok(match name.as_str() {
            "" => Self::None,
            "Relu" => Self::Relu,
            "Tanh" => Self::Tanh,
            "Sigmoid" => Self::Sigmoid,
            "Softplus" => Self::Softplus,
            "Softsign" => Self::Softsign,
            "LeakyRelu" => Self::LeakyRelu { alpha: alpha(0.01)? },
            "Elu" => Self::Elu { alpha: alpha(1.0)? },
            "ThresholdedRelu" => Self::ThresholdedRelu { alpha: alpha(1.0)? },
            "HardSigmoid" => {
                Self::HardSigmoid { alpha: alpha(0.2)?, beta: call.float_or("activation_beta", 0.5)? }
            }
            _ => return unsupported(format!("the activation {name}")),
        })
    }

    /// The activation of every element.
    pub fn apply(self, x: Array) -> Result<Array, OpError> {
        if self == Self::None {
            return Ok(x);
        }
        each_float!(&x, T => map::<T>(x, |x| self.of(x)))
    }

    fn of<T: Float>(self, x: T) -> T {
        use num_traits::Float;
        let number = |value: f32| T::from_f64(value.into());
        let clamp = |x: T, low: T, high: T| Float::min(Float::max(x, low), high);
        match self {
            Self::None => x,
            Self::Relu => Float::max(x, T::ZERO),
            Self::Tanh => Float::tanh(x),
            Self::Sigmoid => sigmoid(x),
            Self::HardSwish => x * clamp(x / T::from_f64(6.0) + T::from_f64(0.5), T::ZERO, T::ONE),
            Self::Softplus => Float::max(x, T::ZERO) + Float::ln_1p(Float::exp(-Number::abs(x))),
            Self::Softsign => x / (T::ONE + Number::abs(x)),
            Self::LeakyRelu { alpha } => {
                if x >= T::ZERO {
                    x
                } else {
                    number(alpha) * x
                }
            }
            Self::Elu { alpha } => {
                if x >= T::ZERO {
                    x
                } else {
                    number(alpha) * Float::exp_m1(x)
                }
            }
            Self::ThresholdedRelu { alpha } => {
                if x > number(alpha) {
                    x
                } else {
                    T::ZERO
                }
            }
            Self::Clip { low, high } => clamp(x, number(low), number(high)),
            Self::HardSigmoid { alpha, beta } => clamp(number(alpha) * x + number(beta), T::ZERO, T::ONE),
        }
    }
}
