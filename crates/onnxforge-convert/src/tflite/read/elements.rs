//! Operators that work element by element, or along one axis.

use onnxforge_ir::DType;

use super::Trouble;
use super::emit::Emit;
use super::operator::Operator;
use crate::message::Attr;

type Done = Result<(), Trouble>;

/// Operators that are the standard's under another name.
pub fn plain(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let name = match operator.builtin.name {
        "ABS" => "Abs",
        "CEIL" => "Ceil",
        "COS" => "Cos",
        "EXP" => "Exp",
        "FLOOR" => "Floor",
        "LOG" => "Log",
        "NEG" => "Neg",
        "RELU" => "Relu",
        "ROUND" => "Round",
        "LOGISTIC" => "Sigmoid",
        "SIGN" => "Sign",
        "SIN" => "Sin",
        "SQRT" => "Sqrt",
        "TANH" => "Tanh",
        "HARD_SWISH" => "HardSwish",
        "LOGICAL_NOT" => "Not",
        "ELU" => "Elu",
        "PRELU" => "PRelu",
        "MAXIMUM" => "Max",
        "MINIMUM" => "Min",
        "POW" => "Pow",
        "LOGICAL_AND" => "And",
        "LOGICAL_OR" => "Or",
        "EQUAL" => "Equal",
        "LESS" => "Less",
        "LESS_EQUAL" => "LessOrEqual",
        "GREATER" => "Greater",
        "GREATER_EQUAL" => "GreaterOrEqual",
        "SELECT_V2" => "Where",
        _ => "Range",
    };
    let inputs = operator.inputs()?.into_iter().map(|input| emit.read(input)).collect();
    let y = emit.result(operator)?;
    emit.node("", name, inputs, vec![y], vec![]);
    Ok(())
}

pub fn arithmetic(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let name = match operator.builtin.name {
        "ADD" => "Add",
        "SUB" => "Sub",
        "MUL" => "Mul",
        _ => "Div",
    };
    let inputs = vec![emit.read(operator.input(0)?), emit.read(operator.input(1)?)];
    let activation = operator.byte(0)?;
    emit.activated(operator, ("", name), inputs, vec![], activation)
}

pub fn clip(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let bounds = match operator.builtin.name {
        "RELU6" => (0.0, 6.0),
        "RELU_N1_TO_1" => (-1.0, 1.0),
        _ => (0.0, 1.0),
    };
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    emit.clip(x, bounds, y);
    Ok(())
}

pub fn composed(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    match operator.builtin.name {
        "RSQRT" => {
            let root = emit.call("Sqrt", vec![x], vec![]);
            emit.node("", "Reciprocal", vec![root], vec![y], vec![]);
        }
        "SQUARE" => emit.node("", "Mul", vec![x.clone(), x], vec![y], vec![]),
        name => {
            let other = emit.read(operator.input(1)?);
            if name == "NOT_EQUAL" {
                let equal = emit.call("Equal", vec![x, other], vec![]);
                emit.node("", "Not", vec![equal], vec![y], vec![]);
            } else {
                let apart = emit.call("Sub", vec![x, other], vec![]);
                emit.node("", "Mul", vec![apart.clone(), apart], vec![y], vec![]);
            }
        }
    }
    Ok(())
}

pub fn modulo(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    if !matches!(emit.tensors.get(operator.input(0)?).dtype, DType::I32 | DType::I64) {
        return Err("FLOOR_MOD of floats".into());
    }
    let inputs = vec![emit.read(operator.input(0)?), emit.read(operator.input(1)?)];
    let y = emit.result(operator)?;
    emit.node("", "Mod", inputs, vec![y], vec![]);
    Ok(())
}

pub fn with_settings(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let (mut x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    let (name, attr) = match operator.builtin.name {
        "LEAKY_RELU" => ("LeakyRelu", Attr::Float("alpha", operator.float(0)?)),
        "GELU" => {
            let kind = if operator.flag(0)? { "tanh" } else { "none" };
            ("Gelu", Attr::Text("approximate", kind))
        }
        "SOFTMAX" => {
            let beta = operator.float(0)?;
            if beta != 1.0 {
                let beta = emit.float(beta);
                x = emit.call("Mul", vec![x, beta], vec![]);
            }
            ("Softmax", Attr::Int("axis", -1))
        }
        _ => ("LogSoftmax", Attr::Int("axis", -1)),
    };
    emit.node("", name, vec![x], vec![y], vec![attr]);
    Ok(())
}

/// QUANTIZE: the numbers of one tensor, which become the integers of another.
pub fn quantize(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    emit.node("", "Identity", vec![x], vec![y], vec![]);
    Ok(())
}

pub fn cast(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    if operator.builtin.name == "CAST" {
        let ends = [operator.input(0)?, operator.output(0)?];
        if ends.into_iter().any(|tensor| emit.tensors.get(tensor).quantization.is_some()) {
            return Err("CAST of quantized tensors".into());
        }
    }
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    let to = emit.tensors.get(operator.output(0)?).dtype;
    emit.node("", "Cast", vec![x], vec![y], vec![Attr::Int("to", to.code().into())]);
    Ok(())
}

pub fn cumsum(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let axis = emit.demand(operator.input(1)?)?;
    let inputs = vec![emit.read(operator.input(0)?), emit.ints(&axis)];
    let y = emit.result(operator)?;
    let attrs = vec![
        Attr::Int("exclusive", operator.flag(0)?.into()),
        Attr::Int("reverse", operator.flag(1)?.into()),
    ];
    emit.node("", "CumSum", inputs, vec![y], attrs);
    Ok(())
}
