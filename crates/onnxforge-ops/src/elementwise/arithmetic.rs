//! Arithmetic with two or more operands.

use num_traits::{CheckedRem, PrimInt};

use super::operands::{combine, operands};
use crate::array::{Array, Buffer, each_float, each_integer};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::kernel::convert::{Rounding, convert};
use crate::kernel::map::{map, zip};
use crate::kernel::number::{Float, Number};
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dtype::Kind;

/// A function of two real numbers of one type, whatever it is.
pub trait Function {
    fn of<T: Number>(x: T, y: T) -> T;
}

/// `F` of two arrays broadcast together.
pub fn pair<F: Function>(a: Array, b: Array, cx: &Eval<'_>) -> Result<Array, OpError> {
    match a.dtype().kind() {
        Kind::Float => each_float!(&a, T => combine::<T>(a, b, cx, F::of)),
        // One loop per type for all functions.
        _ => each_integer!(&a, T => combine::<T>(a, b, cx, F::of as fn(T, T) -> T)),
    }
}

/// Applies `F` to both operands.
pub fn apply<F: Function>(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = operands(cx)?;
    one(pair::<F>(a, b, cx)?)
}

/// Applies `F` to all operands, from the first to the last. Before opset 8 their shapes had to be equal.
pub fn fold<F: Function>(cx: &mut Eval<'_>) -> Result<Array, OpError> {
    let mut result = cx.take(0)?;
    for index in 1..cx.input_count() {
        let next = cx.take(index)?;
        if cx.call.since() < 8 && next.shape() != result.shape() {
            return invalid(format!("the shapes {:?} and {:?} differ", result.shape(), next.shape()));
        }
        result = pair::<F>(result, next, cx)?;
    }
    Ok(result)
}

/// The result of [`fold`] as the only output.
pub fn fold_all<F: Function>(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    one(fold::<F>(cx)?)
}

pub struct Add;
impl Function for Add {
    fn of<T: Number>(x: T, y: T) -> T {
        x.add(y)
    }
}

pub struct Sub;
impl Function for Sub {
    fn of<T: Number>(x: T, y: T) -> T {
        x.sub(y)
    }
}

pub struct Mul;
impl Function for Mul {
    fn of<T: Number>(x: T, y: T) -> T {
        x.mul(y)
    }
}

/// What is not a number wins.
pub struct Max;
impl Function for Max {
    fn of<T: Number>(x: T, y: T) -> T {
        if x > y || x.is_nan() { x } else { y }
    }
}

/// What is not a number wins.
pub struct Min;
impl Function for Min {
    fn of<T: Number>(x: T, y: T) -> T {
        if x < y || x.is_nan() { x } else { y }
    }
}

/// The quotient of numbers; no divisor is an integer 0.
struct Div;
impl Function for Div {
    fn of<T: Number>(x: T, y: T) -> T {
        x.div(y).unwrap_or(T::ZERO)
    }
}

/// Fails when integers are divided by 0.
fn check_divisor(a: &Array, b: &Array) -> Result<(), OpError> {
    if a.is_empty() || b.dtype().kind() == Kind::Float {
        return Ok(());
    }
    each_integer!(b, T => match b.slice::<T>()?.contains(&0) {
        true => invalid("an integer is divided by 0"),
        false => Ok(()),
    })
}

pub fn div(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = operands(cx)?;
    check_divisor(&a, &b)?;
    one(pair::<Div>(a, b, cx)?)
}

/// The remainder of a division that truncates (`fmod`) or rounds down.
pub fn modulo(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    fn truncated<T: PrimInt + CheckedRem>(x: T, y: T) -> T {
        // Only the least integer by -1 overflows.
        x.checked_rem(&y).unwrap_or_else(T::zero)
    }
    fn floored<T: PrimInt + CheckedRem>(x: T, y: T) -> T {
        let rest = truncated(x, y);
        if rest != T::zero() && (rest < T::zero()) != (y < T::zero()) { rest + y } else { rest }
    }
    fn floored_float<T: Float>(x: T, y: T) -> T {
        let rest = x % y;
        if rest == T::ZERO {
            rest.copysign(y)
        } else if (rest < T::ZERO) != (y < T::ZERO) {
            rest + y
        } else {
            rest
        }
    }
    let truncates = cx.call.flag("fmod")?;
    let (a, b) = operands(cx)?;
    check_divisor(&a, &b)?;
    match (a.dtype().kind(), truncates) {
        (Kind::Float, true) => each_float!(&a, T => one(combine::<T>(a, b, cx, |x, y| x % y)?)),
        (Kind::Float, false) => each_float!(&a, T => one(combine::<T>(a, b, cx, floored_float)?)),
        (_, true) => each_integer!(&a, T => one(combine::<T>(a, b, cx, truncated as fn(T, T) -> T)?)),
        (_, false) => each_integer!(&a, T => one(combine::<T>(a, b, cx, floored as fn(T, T) -> T)?)),
    }
}

/// The sum of all operands divided by their number.
pub fn mean(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let count = cx.input_count();
    let sum = fold::<Add>(cx)?;
    each_float!(&sum, T => one(map::<T>(sum, |x| x / count as T)?))
}

/// Powers have the type of the base, whatever the exponent's type is.
pub fn pow(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (base, exponent) = operands(cx)?;
    let is_float = |array: &Array| array.dtype().kind() == Kind::Float;
    match (is_float(&base), is_float(&exponent)) {
        (true, _) => each_float!(&base, T => one(float_pow::<T>(base, exponent, cx)?)),
        (false, true) => one(pow_in_64_bits(&base, &exponent, cx)?),
        (false, false) => each_integer!(&base, T => one(integer_pow::<T>(&base, &exponent, cx)?)),
    }
}

fn float_pow<T: Float>(base: Array, exponent: Array, cx: &Eval<'_>) -> Result<Array, OpError> {
    // Squares and cubes are common and need no logarithm.
    if exponent.len() == 1 && exponent.rank() <= base.rank() {
        match exponent.to_f64()? {
            2.0 => return map::<T>(base, |x| x * x),
            3.0 => return map::<T>(base, |x| <T as Number>::from_f64(Number::to_f64(x).powi(3))),
            _ => {}
        }
    }
    if exponent.dtype() == base.dtype() {
        return combine::<T>(base, exponent, cx, num_traits::Float::powf);
    }
    pow_in_64_bits(&base, &exponent, cx)
}

fn pow_in_64_bits(base: &Array, exponent: &Array, cx: &Eval<'_>) -> Result<Array, OpError> {
    let cast = |array: &Array, to| convert(array, to, Rounding::default(), cx.memory());
    let (x, y) = (cast(base, DType::F64)?, cast(exponent, DType::F64)?);
    cast(&combine::<f64>(x, y, cx, f64::powf)?, base.dtype())
}

/// Exact powers, which wrap around. A negative exponent gives the truncated reciprocal.
fn integer_pow<T: Number>(base: &Array, exponent: &Array, cx: &Eval<'_>) -> Result<Array, OpError> {
    fn power<T: Number>(x: T, exponent: i64) -> T {
        if exponent < 0 {
            // Only 1 and -1 have a reciprocal that is not between -1 and 1.
            let one = x == T::ONE || (x < T::ZERO && x == T::ONE.neg());
            return if one { power(x, exponent & 1) } else { T::ZERO };
        }
        let (mut result, mut square, mut left) = (T::ONE, x, exponent);
        while left > 0 {
            if left & 1 == 1 {
                result = result.mul(square);
            }
            square = square.mul(square);
            left >>= 1;
        }
        result
    }
    let exponents = Array::new(exponent.shape(), exponent.to_i64s()?)?;
    let has_zero = !exponents.is_empty() && base.slice::<T>()?.contains(&T::ZERO);
    if has_zero && !base.is_empty() && exponents.slice::<i64>()?.iter().any(|&y| y < 0) {
        return invalid("0 to a negative power");
    }
    zip(base, &exponents, cx.memory(), |&x: &T, &y: &i64| power(x, y))
}

/// The least and the greatest value that an attribute (before opset 11) or an input gives.
fn bounds<T: Number>(cx: &Eval<'_>) -> Result<[Option<T>; 2], OpError> {
    let from_attribute = cx.call.since() < 11;
    let bound = |index: usize, name: &str| -> Result<Option<T>, OpError> {
        if from_attribute {
            let given =
                if cx.call.since() < 6 { cx.call.opt_float(name)? } else { Some(cx.call.float(name)?) };
            return Ok(given.map(|bound| T::from_f64(bound.into())));
        }
        match cx.opt_array(index)?.map(Array::slice::<T>).transpose()? {
            None => Ok(None),
            Some([bound]) => Ok(Some(*bound)),
            Some(bounds) => invalid(format!("{} elements for a bound", bounds.len())),
        }
    };
    Ok([bound(1, "min")?, bound(2, "max")?])
}

/// `min(max, max(x, min))`, where an absent bound bounds nothing.
pub fn clip(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    fn within<T: Number>(x: Array, bounds: [Option<T>; 2]) -> Result<Array, OpError> {
        match bounds {
            [Some(low), Some(high)] => map::<T>(x, |x| Min::of(Max::of(x, low), high)),
            [Some(low), None] => map::<T>(x, |x| Max::of(x, low)),
            [None, Some(high)] => map::<T>(x, |x| Min::of(x, high)),
            [None, None] => Ok(x),
        }
    }
    let x = cx.take(0)?;
    match x.buffer() {
        Buffer::F32(_) => one(within::<f32>(x, bounds(cx)?)?),
        Buffer::F64(_) => one(within::<f64>(x, bounds(cx)?)?),
        _ => each_integer!(&x, T => one(within::<T>(x, bounds(cx)?)?)),
    }
}
