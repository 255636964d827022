//! Functions of one number.

use crate::array::{Array, Buffer, Code, each_float, each_integer, each_number, unsupported_type};
use crate::error::OpError;
use crate::eval_call::{Eval, one};
use crate::kernel::map::{map, map_in_vectors, map_to};
use crate::kernel::number::{Float, Number};
use crate::kernel::transcendental::Transcendental;
use crate::value::Value;
use onnxforge_ir::dtype::Kind;

/// A function of one real number, whatever its type.
pub trait Function {
    fn of<T: Number>(x: T) -> T;
}

/// Applies `F` to every element of input 0.
pub fn apply<F: Function>(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    match x.dtype().kind() {
        Kind::Float => each_float!(&x, T => one(map::<T>(x, F::of)?)),
        // One loop per type for all functions.
        _ => each_integer!(&x, T => one(map::<T>(x, F::of as fn(T) -> T)?)),
    }
}

/// Applies a function of 64-bit floats to every element of input 0; 32-bit floats are widened and rounded back.
pub fn in_64_bits(cx: &mut Eval<'_>, f: fn(f64) -> f64) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_number!(&x, T => one(map::<T>(x, |x| T::from_f64(f(x.to_f64())))?))
}

/// Applies a function to every element of input 0, given for 32 and for 64 bits.
pub fn in_own_bits(
    cx: &mut Eval<'_>,
    narrow: impl Fn(f32) -> f32 + Sync,
    wide: impl Fn(f64) -> f64 + Sync,
) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    match x.buffer() {
        Buffer::F32(_) => one(map_in_vectors(x, narrow)?),
        Buffer::F64(_) => one(map(x, wide)?),
        _ => Err(unsupported_type(&x)),
    }
}

pub struct Abs;
impl Function for Abs {
    fn of<T: Number>(x: T) -> T {
        x.abs()
    }
}

pub struct Neg;
impl Function for Neg {
    fn of<T: Number>(x: T) -> T {
        x.neg()
    }
}

/// -1, 0 or 1; what is not a number stays what it is.
pub struct Sign;
impl Function for Sign {
    fn of<T: Number>(x: T) -> T {
        if x > T::ZERO {
            T::ONE
        } else if x < T::ZERO {
            T::ONE.neg()
        } else if x == T::ZERO {
            T::ZERO
        } else {
            x
        }
    }
}

pub struct Relu;
impl Function for Relu {
    fn of<T: Number>(x: T) -> T {
        if x < T::ZERO { T::ZERO } else { x }
    }
}

pub fn exp(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    in_own_bits(cx, f32::fast_exp, f64::fast_exp)
}

pub fn tanh(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    in_own_bits(cx, f32::fast_tanh, f64::fast_tanh)
}

pub fn sigmoid(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    in_own_bits(cx, f32::fast_sigmoid, f64::fast_sigmoid)
}

/// Opset 9 allows integers, of which the result is truncated.
pub fn erf(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    match cx.array(0)?.dtype().kind() {
        Kind::Float => in_own_bits(cx, f32::fast_erf, f64::fast_erf),
        _ => in_64_bits(cx, Float::erf),
    }
}

/// Input 0 element by element as truth values; `test` sees floats of every width as 64-bit floats.
fn tested(cx: &Eval<'_>, test: impl Fn(f64) -> bool + Sync) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let dtype = x.dtype();
    let small = |code: &Code| dtype.small_float(code.0).is_some_and(|x| test(x.into()));
    let tested: Result<Array, OpError> = match x.buffer() {
        Buffer::Code(_) if dtype.kind() == Kind::Float => map_to(x, small),
        _ => each_float!(x, T => map_to(x, |x: &T| test(x.to_f64()))),
    };
    one(tested?)
}

pub fn is_nan(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    tested(cx, f64::is_nan)
}

pub fn is_inf(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (negative, positive) = (cx.call.flag("detect_negative")?, cx.call.flag("detect_positive")?);
    tested(cx, |x| (negative && x == f64::NEG_INFINITY) || (positive && x == f64::INFINITY))
}
