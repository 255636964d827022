//! Running sums and products along an axis.

use crate::array::Array;
use crate::array::each_wide;
use crate::call;
use crate::error::OpError;
use crate::eval_call::{Eval, one};
use crate::kernel::number::Number;
use crate::kernel::shape::around;
use crate::value::Value;

pub fn sum(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_wide!(&x, T => one(run::<T>(cx, x, T::ZERO, Number::add)?))
}

pub fn product(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.take(0)?;
    each_wide!(&x, T => one(run::<T>(cx, x, T::ONE, Number::mul)?))
}

/// Every element joined with all before it along the axis, in place; `start` stands for none.
fn run<T: Number>(cx: &Eval<'_>, x: Array, start: T, join: fn(T, T) -> T) -> Result<Array, OpError> {
    let axis = call::axis(cx.array(1)?.to_i64()?, x.rank())?;
    let (exclusive, reverse) = (cx.call.flag("exclusive")?, cx.call.flag("reverse")?);
    let shape = x.shape().to_vec();
    cx.reserve::<T>(x.len())?;
    let mut data = x.into_vec::<T>()?;
    if !data.is_empty() {
        let (_, n, inner) = around(&shape, axis);
        let mut totals = vec![start; inner];
        for block in data.chunks_mut(n * inner) {
            totals.fill(start);
            for step in 0..n {
                let row = if reverse { n - 1 - step } else { step };
                for (x, total) in block[row * inner..][..inner].iter_mut().zip(&mut totals) {
                    let before = *total;
                    *total = join(before, *x);
                    *x = if exclusive { before } else { *total };
                }
            }
        }
    }
    Array::new(shape, data)
}
