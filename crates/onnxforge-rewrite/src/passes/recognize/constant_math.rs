//! Arithmetic with constants that passes share.

use crate::{Budget, Cx, Reason, Skip};
use onnxforge_ir::{DType, NodeId, ScopeId, Tensor, ValueId};
use onnxforge_ops::apply::{self, Settings};
use onnxforge_ops::call::Call;
use onnxforge_ops::error::{invalid, unsupported};
use onnxforge_ops::eval_call::{Memory, RunScope};
use onnxforge_ops::kernel::convert::{Rounding, convert};
use onnxforge_ops::{Array, OpError, Value};
use onnxforge_proto::clock::Instant;

/// Factors that leave weights of a usual size far from where numbers overflow or lose places.
pub const RANGE: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// Integers up to here are exact as 64-bit floats.
const EXACT: f64 = (1u64 << 53) as f64;

/// What a call makes of constants, within the budget.
pub fn evaluate(call: Call<'_>, inputs: &[Option<Tensor>], budget: &Budget) -> Result<Vec<Tensor>, OpError> {
    let array = |tensor: &Option<Tensor>| match tensor {
        Some(tensor) => Ok(Some(Value::from(Array::from_tensor(tensor)?))),
        None => Ok(None),
    };
    let inputs = inputs.iter().map(array).collect::<Result<Vec<_>, OpError>>()?;
    let (memory, until) = (Memory::new(budget.result), Until(Instant::now() + budget.time));
    let settings = Settings { memory: &memory, scopes: &until, wide: false, seed: 0 };
    let values = apply::evaluate(call, inputs, settings)?;
    values.iter().map(|value| Ok(value.array()?.to_tensor()?)).collect()
}

/// For calls without bodies that must end in time.
struct Until(Instant);

impl RunScope for Until {
    fn scope(&self, _: ScopeId, _: Vec<Value>) -> Result<Vec<Value>, OpError> {
        invalid("a call without bodies asked for one")
    }

    fn check_time(&self) -> Result<(), OpError> {
        if Instant::now() > self.0 { unsupported("taking so long") } else { Ok(()) }
    }
}

/// What a standard operator without attributes makes of two constants, at the operator set that holds at `near`.
pub fn combine(cx: &Cx<'_>, near: NodeId, op: &str, a: &Tensor, b: &Tensor) -> Result<Tensor, Skip> {
    let call = cx.call(near)?.standard(op, cx.opset(near))?;
    let results = evaluate(call, &[Some(a.clone()), Some(b.clone())], cx.budget)?;
    results.into_iter().next().ok_or(Skip::NOT_HERE)
}

/// The finite number that a constant of one element is, without loss.
pub fn number(cx: &Cx<'_>, value: ValueId) -> Result<f64, Skip> {
    if cx.constant(value)?.len() != 1 {
        return Err(Skip::at(Reason::Broadcast, value));
    }
    let number = *cx.floats(value)?.first().ok_or(Skip::NOT_HERE)?;
    let is_float = cx.constant(value)?.dtype().kind() == onnxforge_ir::dtype::Kind::Float;
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

/// A number as a type has it, rounded to the nearest.
pub fn nearest(dtype: DType, number: f64) -> Result<f64, Skip> {
    let array = convert(&Array::scalar(number), dtype, Rounding::default(), &Memory::new(u64::MAX))?;
    array.to_f64s()?.first().copied().ok_or(Skip::NOT_HERE)
}

/// Whether every number of a constant of floats is 0 or in the normal range of the type, where rounding to it is relative.
pub fn is_normal(tensor: &Tensor, dtype: DType) -> bool {
    let (smallest, largest) = match dtype {
        DType::F16 => (2f64.powi(-14), 65504.0),
        DType::BF16 => (f64::from(f32::MIN_POSITIVE), 255.0 * 2f64.powi(120)),
        DType::F32 => (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
        _ => (f64::MIN_POSITIVE, f64::MAX),
    };
    let normal = |number: f64| (smallest..=largest).contains(&number.abs());
    let numbers = Array::from_tensor(tensor).and_then(|array| array.to_f64s());
    numbers.is_ok_and(|all| all.into_iter().all(|number| number == 0.0 || normal(number)))
}

/// A constant in another element type, rounded.
pub fn cast(tensor: &Tensor, dtype: DType) -> Result<Tensor, Skip> {
    let array = convert(&Array::from_tensor(tensor)?, dtype, Rounding::default(), &Memory::new(u64::MAX))?;
    Ok(array.to_tensor().map_err(OpError::from)?)
}

/// A constant with every slice along `axis` multiplied by its factor, none of which may leave the normal range of the type.
pub fn scaled(cx: &Cx<'_>, value: ValueId, axis: usize, factors: &[f64]) -> Result<Tensor, Skip> {
    scaled_constant(cx.constant(value)?, value, axis, factors)
}

/// The same of a constant that holds the elements of `value`.
pub fn scaled_constant(
    constant: &Tensor,
    value: ValueId,
    axis: usize,
    factors: &[f64],
) -> Result<Tensor, Skip> {
    let scaled = constant.scaled(axis, factors).map_err(|_| Skip::at(Reason::Type, value))?;
    match constant.scales_well(axis, factors) {
        Ok(true) => Ok(scaled),
        _ => Err(Skip::at(Reason::Rule("weights would leave the range of their type"), value)),
    }
}

/// A vector of the element type of `like`.
pub fn floats(like: &Tensor, numbers: &[f64]) -> Result<Tensor, Skip> {
    let array = Array::new([numbers.len()], numbers.to_vec())?;
    let rounded = convert(&array, like.dtype(), Rounding::default(), &Memory::new(u64::MAX))?;
    if !rounded
        .to_f64s()?
        .iter()
        .zip(numbers)
        .all(|(rounded, number)| rounded.is_finite() || !number.is_finite())
    {
        return Err(Skip::because("weights would leave the range of their type"));
    }
    Ok(rounded.to_tensor().map_err(OpError::from)?)
}
