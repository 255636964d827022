//! Arithmetic with constants that passes share.

use crate::ir::{DType, NodeId, Tensor, ValueId};
use crate::ops::apply::{self, NoBodies, Settings};
use crate::ops::eval::Memory;
use crate::ops::kernel::convert::{Rounding, convert};
use crate::ops::{Array, OpError, Value};
use crate::rewrite::{Cx, Reason, Skip};

/// Integers up to here are exact as 64-bit floats.
const EXACT: f64 = (1u64 << 53) as f64;

/// What a standard operator without attributes makes of two constants, at the operator set that holds at `near`.
pub fn combine(cx: &Cx<'_>, near: NodeId, op: &str, a: &Tensor, b: &Tensor) -> Result<Tensor, Skip> {
    let call = apply::standard_call(&cx.call(near)?, op, cx.opset(near))?;
    let inputs = [a, b].map(|tensor| Array::from_tensor(tensor).map(Value::from).map(Some));
    let inputs = inputs.into_iter().collect::<Result<Vec<_>, OpError>>()?;
    let memory = Memory::new(cx.budget.result);
    let results =
        apply::evaluate(call, inputs, Settings { memory: &memory, scopes: &NoBodies, wide: false, seed: 0 })?;
    let result = results.first().ok_or(Skip::NOT_HERE)?;
    Ok(result.array()?.to_tensor().map_err(OpError::from)?)
}

/// The finite number that a constant of one element is, without loss.
pub fn number(cx: &Cx<'_>, value: ValueId) -> Result<f64, Skip> {
    if cx.constant(value)?.len() != 1 {
        return Err(Skip::at(Reason::Broadcast, value));
    }
    let number = *cx.floats(value)?.first().ok_or(Skip::NOT_HERE)?;
    let is_float = cx.constant(value)?.dtype().kind() == crate::ir::dtype::Kind::Float;
    if number.is_finite() && (is_float || number.abs() < EXACT) {
        return Ok(number);
    }
    Err(Skip::at(Reason::Rule("it is too large a number, or none"), value))
}

/// A constant without axes, which must hold the number exactly.
pub fn scalar(dtype: DType, number: f64) -> Result<Tensor, Skip> {
    let array = convert(&Array::scalar(number), dtype, Rounding::default(), &Memory::new(u64::MAX))?;
    match *array.to_f64s()? {
        [held] if held == number => Ok(array.to_tensor().map_err(OpError::from)?),
        _ => Err(Reason::Type.into()),
    }
}
