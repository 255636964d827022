//! Comparisons, truth values and bits.

use num_traits::PrimInt;

use super::operands::{combine, operands};
use crate::array::{Elem, each_elem, each_float, each_integer, unsupported_type};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::kernel::map::{map, zip};
use crate::value::Value;
use onnxforge_ir::dtype::Kind;

/// A comparison of two elements of one type.
pub trait Comparison {
    fn of<T: PartialOrd>(x: &T, y: &T) -> bool;
}

/// Applies the comparison to both operands.
pub fn compare<C: Comparison>(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = operands(cx)?;
    match a.dtype().kind() {
        Kind::Float => each_float!(&a, T => one(zip::<T, T, bool>(&a, &b, cx.memory(), C::of)?)),
        // One loop per type for all comparisons.
        _ => each_integer!(&a, T => one(zip(&a, &b, cx.memory(), C::of as fn(&T, &T) -> bool)?)),
    }
}

pub struct Less;
impl Comparison for Less {
    fn of<T: PartialOrd>(x: &T, y: &T) -> bool {
        x < y
    }
}

pub struct LessOrEqual;
impl Comparison for LessOrEqual {
    fn of<T: PartialOrd>(x: &T, y: &T) -> bool {
        x <= y
    }
}

pub struct Greater;
impl Comparison for Greater {
    fn of<T: PartialOrd>(x: &T, y: &T) -> bool {
        x > y
    }
}

pub struct GreaterOrEqual;
impl Comparison for GreaterOrEqual {
    fn of<T: PartialOrd>(x: &T, y: &T) -> bool {
        x >= y
    }
}

/// Elements of any type but the small floats, whose codes tell zeros apart.
pub fn equal(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    fn same<T: Elem>(x: &T, y: &T) -> bool {
        x == y
    }
    let (a, b) = operands(cx)?;
    if matches!(a.buffer(), crate::array::Buffer::Code(_)) && a.dtype().kind() == Kind::Float {
        return Err(unsupported_type(&a));
    }
    each_elem!(&a, T => one(zip(&a, &b, cx.memory(), same::<T> as fn(&T, &T) -> bool)?))
}

fn logical(cx: &mut Eval<'_>, f: fn(bool, bool) -> bool) -> Result<Vec<Value>, OpError> {
    let (a, b) = operands(cx)?;
    one(combine::<bool>(a, b, cx, f)?)
}

pub fn and(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    logical(cx, |x, y| x & y)
}

pub fn or(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    logical(cx, |x, y| x | y)
}

pub fn xor(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    logical(cx, |x, y| x ^ y)
}

pub fn not(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    one(map(cx.take(0)?, |x: bool| !x)?)
}

/// A function of the bits of two integers.
pub trait Bits {
    fn of<T: PrimInt>(x: T, y: T) -> T;
}

/// Applies `B` to both operands.
pub fn bitwise<B: Bits>(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = operands(cx)?;
    each_integer!(&a, T => one(combine::<T>(a, b, cx, B::of as fn(T, T) -> T)?))
}

pub struct And;
impl Bits for And {
    fn of<T: PrimInt>(x: T, y: T) -> T {
        x & y
    }
}

pub struct Or;
impl Bits for Or {
    fn of<T: PrimInt>(x: T, y: T) -> T {
        x | y
    }
}

pub struct Xor;
impl Bits for Xor {
    fn of<T: PrimInt>(x: T, y: T) -> T {
        x ^ y
    }
}

/// Shifts by a negative number, or by as many bits as there are, leave only copies of the sign.
struct ShiftLeft;
impl Bits for ShiftLeft {
    fn of<T: PrimInt>(x: T, y: T) -> T {
        amount(x, y).map_or(T::zero(), |amount| x.unsigned_shl(amount))
    }
}

struct ShiftRight;
impl Bits for ShiftRight {
    fn of<T: PrimInt>(x: T, y: T) -> T {
        match amount(x, y) {
            Some(amount) => x >> amount as usize,
            None if x < T::zero() => !T::zero(),
            None => T::zero(),
        }
    }
}

/// How far `x` is shifted, when that is less than its width.
fn amount<T: PrimInt>(x: T, y: T) -> Option<u32> {
    let width = x.count_ones() + x.count_zeros();
    y.to_u32().filter(|&amount| amount < width)
}

pub fn shift(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    match &*cx.call.text("direction")? {
        "LEFT" => bitwise::<ShiftLeft>(cx),
        "RIGHT" => bitwise::<ShiftRight>(cx),
        other => invalid(format!("the direction {other}")),
    }
}

pub fn bitwise_not(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_integer!(&x, T => one(map::<T>(x, |x| !x)?))
}
