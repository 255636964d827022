//! Operators that hand elements on: Identity, Where and Dropout outside of training.

use super::operands::select;
use crate::array::{Array, each_elem, each_float};
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::fact::Fact;
use crate::infer_call::{Infer, same_as_input};
use crate::kernel::widen::{narrow, widen};
use crate::value::Value;

/// Output 0 is input 0, of any kind.
pub fn infer_identity(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if !matches!(cx.fact(0), Fact::Unknown) {
        cx.set(0, cx.fact(0).clone());
    }
    Ok(())
}

pub fn identity(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    match cx.take_value(0) {
        Some(value) => Ok(vec![value]),
        None => invalid("input 0 is missing"),
    }
}

pub fn choose(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (condition, a, b) = (cx.array(0)?, cx.array(1)?, cx.array(2)?);
    if a.dtype() != b.dtype() {
        return invalid(format!("the branches are {} and {}", a.dtype(), b.dtype()));
    }
    each_elem!(a, T => one(select::<T>(condition, a, b, cx)?))
}

/// Both outputs have the shape of input 0. Outside of training the first is input 0.
pub fn infer_dropout(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let trains = match cx.call.since() {
        ..7 => !cx.call.flag("is_test")?,
        7..12 => false,
        _ => cx.has(2) && cx.ints(2) != Some(vec![0]),
    };
    let infer = if trains { same_as_input } else { infer_identity };
    infer(cx)?;
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(1, shape.to_vec());
    }
    Ok(())
}

pub fn dropout(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let since = cx.call.since();
    let (trains, ratio) = match since {
        ..7 => (!cx.call.flag("is_test")?, cx.call.float("ratio")?.into()),
        7..12 => (false, 0.0),
        _ => {
            let trains = cx.opt_array(2)?.map(Array::to_i64).transpose()?.is_some_and(|mode| mode != 0);
            (trains, cx.opt_array(1)?.map(Array::to_f64).transpose()?.unwrap_or(0.5))
        }
    };
    if trains && ratio != 0.0 {
        return unsupported("dropout in training");
    }
    let x = cx.take(0)?;
    // Before opset 7 there is no mask outside of training.
    if !cx.call.wants(1) || (since < 7 && !trains) {
        return one(x);
    }
    let mask = if since < 10 { ones_like(&x, cx)? } else { trues(&x, cx)? };
    Ok(vec![x.into(), mask.into()])
}

fn trues(x: &Array, cx: &Eval<'_>) -> Result<Array, OpError> {
    cx.reserve::<bool>(x.len())?;
    Array::new(x.shape(), vec![true; x.len()])
}

fn ones_like(x: &Array, cx: &Eval<'_>) -> Result<Array, OpError> {
    cx.reserve::<f64>(x.len())?;
    let wide = widen(x)?;
    let ones: Result<Array, OpError> =
        each_float!(&wide, T => Array::new(x.shape(), vec![1.0 as T; x.len()]));
    narrow(&ones?, x.dtype())
}
