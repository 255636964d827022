//! Operators that work element by element, or along one axis.

use onnxforge_ir::{DType, NodeId, ValueId};
use onnxforge_ops::Array;

use super::{Writer, activations};
use crate::tflite::graph::Setting;
use crate::tflite::schema::{self, Builtin};
use crate::view::Why;

/// Numbers that arithmetic takes.
const NUMBERS: &[DType] = &[DType::F32, DType::I32, DType::I64];
const FLOATS: &[DType] = &[DType::F32];
const TRUTHS: &[DType] = &[DType::Bool];
const EXTREMES: &[DType] = &[DType::F32, DType::I32, DType::I64, DType::I16, DType::I8, DType::U8];
/// Integers of 8 bits are compared as quantized numbers alone.
const COMPARED: &[DType] = NUMBERS;
const EQUALS: &[DType] = &[DType::F32, DType::I32, DType::I64, DType::Bool];

/// The axes that two tensors may have where one is stretched.
const MOST_AXES: usize = 6;
/// The same for operators that are rarer.
const FEW_AXES: usize = 4;

pub fn unary(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (builtin, types): (Builtin, &[DType]) = match &*w.node(id).op().name {
        "Abs" => (schema::ABS, FLOATS),
        "Ceil" => (schema::CEIL, FLOATS),
        "Cos" => (schema::COS, FLOATS),
        "Exp" => (schema::EXP, FLOATS),
        "Floor" => (schema::FLOOR, FLOATS),
        "Log" => (schema::LOG, FLOATS),
        "Neg" => (schema::NEG, NUMBERS),
        "Relu" => (schema::RELU, FLOATS),
        "Round" => (schema::ROUND, FLOATS),
        "Sigmoid" => (schema::LOGISTIC, FLOATS),
        "Sign" => (schema::SIGN, FLOATS),
        "Sin" => (schema::SIN, FLOATS),
        "Sqrt" => (schema::SQRT, FLOATS),
        "Tanh" => (schema::TANH, FLOATS),
        "HardSwish" => (schema::HARD_SWISH, FLOATS),
        _ => (schema::LOGICAL_NOT, TRUTHS),
    };
    one(w, id, builtin, types, vec![])
}

/// An operator with one input.
fn one(
    w: &mut Writer<'_>,
    id: NodeId,
    builtin: Builtin,
    types: &[DType],
    settings: Vec<(u16, Setting)>,
) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    w.takes(x, types)?;
    let (x, y) = (w.tensor(x)?, w.result(id)?);
    w.emit(builtin, 1, settings, &[x], &[y]);
    Ok(())
}

pub fn elu(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let alpha = w.call(id)?.float("alpha")?;
    w.demand(id, "alpha", alpha == 1.0)?;
    one(w, id, schema::ELU, FLOATS, vec![])
}

pub fn leaky_relu(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let alpha = w.call(id)?.float("alpha")?;
    one(w, id, schema::LEAKY_RELU, FLOATS, vec![(0, Setting::Float(alpha))])
}

pub fn gelu(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let is_tanh = w.call(id)?.text("approximate")? == "tanh";
    one(w, id, schema::GELU, FLOATS, vec![(0, Setting::Byte(is_tanh.into()))])
}

pub fn softmax(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, call) = (w.arg(id, 0)?, w.call(id)?);
    let rank = w.rank(x)?;
    let is_last = onnxforge_ops::call::axis(call.int("axis")?, rank)? + 1 == rank;
    w.demand(id, "axis", is_last)?;
    match w.node(id).op().is("Softmax") {
        true => one(w, id, schema::SOFTMAX, FLOATS, vec![(0, Setting::Float(1.0))]),
        false => one(w, id, schema::LOG_SOFTMAX, FLOATS, vec![]),
    }
}

/// Fails where two tensors stretch further than operators can.
fn stretches(w: &Writer<'_>, a: ValueId, b: ValueId, most: usize) -> Result<(), Why> {
    let (left, right) = (w.shape(a)?, w.shape(b)?);
    let axes = left.len().max(right.len());
    if axes <= most || w.same_shape(&left, &right) || left.is_empty() || right.is_empty() {
        return Ok(());
    }
    Err(format!("the operator stretches tensors of up to {most} axes, not of {axes}").into())
}

pub fn binary(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let name = &*w.node(id).op().name;
    let (builtin, types, most): (Builtin, &[DType], usize) = match name {
        "Add" => (schema::ADD, NUMBERS, MOST_AXES),
        "Sub" => (schema::SUB, NUMBERS, MOST_AXES),
        "Mul" => (schema::MUL, NUMBERS, MOST_AXES),
        "Div" => (schema::DIV, &[DType::F32, DType::I32], MOST_AXES),
        "And" => (schema::LOGICAL_AND, TRUTHS, FEW_AXES),
        "Or" => (schema::LOGICAL_OR, TRUTHS, FEW_AXES),
        "Xor" => (schema::NOT_EQUAL, TRUTHS, FEW_AXES),
        "Equal" => (schema::EQUAL, EQUALS, FEW_AXES),
        "Less" => (schema::LESS, COMPARED, FEW_AXES),
        "LessOrEqual" => (schema::LESS_EQUAL, COMPARED, FEW_AXES),
        "Greater" => (schema::GREATER, COMPARED, FEW_AXES),
        _ => (schema::GREATER_EQUAL, COMPARED, FEW_AXES),
    };
    let (a, b) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(a, types)?;
    stretches(w, a, b, most)?;
    let inputs = [w.tensor(a)?, w.tensor(b)?];
    let y = w.result(id)?;
    let settings = if activations::applies(builtin) { vec![(0, w.activation(id))] } else { vec![] };
    w.emit(builtin, 1, settings, &inputs, &[y]);
    Ok(())
}

pub fn modulo(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (a, b) = (w.arg(id, 0)?, w.arg(id, 1)?);
    let fmod = w.call(id)?.flag("fmod")?;
    w.demand(id, "fmod", !fmod)?;
    w.takes(a, &[DType::I32, DType::I64])?;
    stretches(w, a, b, FEW_AXES)?;
    let inputs = [w.tensor(a)?, w.tensor(b)?];
    let y = w.result(id)?;
    w.emit(schema::FLOOR_MOD, 1, vec![], &inputs, &[y]);
    Ok(())
}

pub fn pow(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (a, b) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(a, &[DType::F32, DType::I32])?;
    let (base, y) = (w.tensor(a)?, w.result(id)?);
    let exponent = w.model.constant(b).filter(|constant| constant.len() == 1 && constant.shape().len() <= 1);
    let exponent = exponent.and_then(|constant| Array::from_tensor(constant).ok()?.to_f64().ok());
    let is_float = w.dtype(a)? == DType::F32;
    // A scalar exponent may have an axis where the base has none.
    let same_axes = w.rank(b)? <= w.rank(a)?;
    match exponent.filter(|_| is_float && same_axes) {
        Some(2.0) => w.emit(schema::MUL, 1, vec![], &[base, base], &[y]),
        Some(0.5) => w.emit(schema::SQRT, 1, vec![], &[base], &[y]),
        Some(exponent) => {
            let exponent = w.float(exponent as f32)?;
            w.emit(schema::POW, 1, vec![], &[base, exponent], &[y]);
        }
        None => {
            if w.dtype(a)? != w.dtype(b)? {
                return Err("base and exponent have different element types".into());
            }
            stretches(w, a, b, FEW_AXES)?;
            let exponent = w.tensor(b)?;
            w.emit(schema::POW, 1, vec![], &[base, exponent], &[y]);
        }
    }
    Ok(())
}

/// Operators of any number of inputs: two at a time.
pub fn variadic(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (builtin, types): (Builtin, &[DType]) = match &*w.node(id).op().name {
        "Max" => (schema::MAXIMUM, EXTREMES),
        "Min" => (schema::MINIMUM, EXTREMES),
        _ => (schema::ADD, NUMBERS),
    };
    let inputs: Vec<ValueId> = w.node(id).inputs().iter().flatten().copied().collect();
    let y = w.out(id, 0)?;
    let [first, rest @ ..] = &inputs[..] else { return Err("it has no inputs".into()) };
    let dtype = w.takes(*first, types)?;
    if rest.is_empty() {
        return copy(w, id);
    }
    let whole = w.shape(y)?;
    let mut sum = w.tensor(*first)?;
    for (index, &next) in rest.iter().enumerate() {
        stretches(w, y, next, FEW_AXES)?;
        stretches(w, y, *first, FEW_AXES)?;
        let is_last = index + 1 == rest.len();
        // What two inputs give may be smaller than the result.
        if !is_last && !w.same_shape(&w.shape(*first)?, &whole) {
            return Err("more than two inputs of different shapes".into());
        }
        let to = if is_last { w.tensor(y)? } else { w.scratch(id, dtype, &whole)? };
        let next = w.tensor(next)?;
        w.emit(builtin, 1, vec![], &[sum, next], &[to]);
        sum = to;
    }
    Ok(())
}

pub fn is_nan(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    w.takes(x, FLOATS)?;
    // Only what is no number differs from itself.
    let (x, y) = (w.tensor(x)?, w.result(id)?);
    w.emit(schema::NOT_EQUAL, 1, vec![], &[x, x], &[y]);
    Ok(())
}

pub fn prelu(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, slope) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(x, FLOATS)?;
    stretches(w, x, slope, FEW_AXES)?;
    let inputs = [w.tensor(x)?, w.tensor(slope)?];
    let y = w.result(id)?;
    w.emit(schema::PRELU, 1, vec![], &inputs, &[y]);
    Ok(())
}

pub fn clip(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, y) = (w.arg(id, 0)?, w.result(id)?);
    let dtype = w.takes(x, EXTREMES)?;
    let bound = |w: &Writer<'_>, index: usize| -> Result<Option<f64>, Why> {
        let Some(value) = w.node(id).input(index) else { return Ok(None) };
        let constant = w.model.constant(value).ok_or("a bound is computed")?;
        Ok(Some(Array::from_tensor(constant)?.to_f64()?))
    };
    let from = w.tensor(x)?;
    match (bound(w, 1)?, bound(w, 2)?) {
        (Some(0.0), Some(6.0)) if dtype == DType::F32 => w.emit(schema::RELU6, 1, vec![], &[from], &[y]),
        (Some(0.0), None | Some(f64::INFINITY)) if dtype == DType::F32 => {
            w.emit(schema::RELU, 1, vec![], &[from], &[y]);
        }
        (None, None) => w.cast(from, y),
        (low, high) => {
            let shape = w.shape(x)?;
            let mut at = from;
            if low.is_some() {
                let to = if high.is_some() { w.scratch(id, dtype, &shape)? } else { y };
                let low = w.arg(id, 1)?;
                let low = w.tensor(low)?;
                w.emit(schema::MAXIMUM, 1, vec![], &[at, low], &[to]);
                at = to;
            }
            if high.is_some() {
                let high = w.arg(id, 2)?;
                let high = w.tensor(high)?;
                w.emit(schema::MINIMUM, 1, vec![], &[at, high], &[y]);
            }
        }
    }
    Ok(())
}

const CASTS: &[DType] =
    &[DType::F32, DType::I32, DType::I64, DType::Bool, DType::U8, DType::I8, DType::I16, DType::U32];

pub fn cast(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, y) = (w.arg(id, 0)?, w.out(id, 0)?);
    w.takes(x, CASTS)?;
    w.takes(y, CASTS)?;
    let (from, to) = (w.tensor(x)?, w.tensor(y)?);
    w.cast(from, to);
    Ok(())
}

/// The format has no operator that only copies; a cast to the same type is one.
pub fn copy(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    w.takes(x, CASTS)?;
    if w.node(id).outputs().iter().skip(1).flatten().next().is_some() {
        return Err("something may read its mask".into());
    }
    let (from, to) = (w.tensor(x)?, w.result(id)?);
    w.cast(from, to);
    Ok(())
}

pub fn cumsum(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(x, NUMBERS)?;
    let axis = w.fixed_ints(id, 1)?;
    let rank = w.rank(x)?;
    let axis = onnxforge_ops::call::axis(axis.first().copied().ok_or("no axis")?, rank)?;
    let flags = [call.flag("exclusive")?, call.flag("reverse")?];
    let settings = flags.iter().zip(0..).map(|(&flag, number)| (number, Setting::Byte(flag.into())));
    let inputs = [w.tensor(x)?, w.int(axis as i64)?];
    let y = w.result(id)?;
    w.emit(schema::CUMSUM, 1, settings.collect(), &inputs, &[y]);
    Ok(())
}
