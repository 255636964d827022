//! Operations that work element by element.

use onnxforge_ir::DType;

use super::Trouble;
use super::emit::Emit;
use super::operation::Call;
use crate::coreml::schema::Elem;
use crate::message::Attr;

type Done = Result<(), Trouble>;

/// Operations that are the standard's under another name.
pub fn plain(emit: &mut Emit, call: &Call) -> Done {
    let name = match &*call.kind {
        "abs" => "Abs",
        "acos" => "Acos",
        "asin" => "Asin",
        "atan" => "Atan",
        "atanh" => "Atanh",
        "ceil" => "Ceil",
        "cos" => "Cos",
        "cosh" => "Cosh",
        "erf" => "Erf",
        "exp" => "Exp",
        "floor" => "Floor",
        "relu" => "Relu",
        "round" => "Round",
        "sigmoid" => "Sigmoid",
        "sign" => "Sign",
        "sin" => "Sin",
        "sinh" => "Sinh",
        "softplus" => "Softplus",
        "softsign" => "Softsign",
        "sqrt" => "Sqrt",
        "tan" => "Tan",
        "tanh" => "Tanh",
        "logical_not" => "Not",
        "identity" => "Identity",
        "add" => "Add",
        "sub" => "Sub",
        "mul" => "Mul",
        "real_div" => "Div",
        "maximum" => "Max",
        "minimum" => "Min",
        "pow" => "Pow",
        "logical_and" => "And",
        "logical_or" => "Or",
        "logical_xor" => "Xor",
        "equal" => "Equal",
        "less" => "Less",
        "less_equal" => "LessOrEqual",
        "greater" => "Greater",
        _ => "GreaterOrEqual",
    };
    let x = call.input("x")?;
    // Integers would be divided as floats.
    if name == "Div" && !x.elem.is_float() {
        return Err("real_div of integers".into());
    }
    let mut inputs = vec![emit.read(x)];
    if let Some(y) = call.optional("y") {
        inputs.push(emit.read(y));
    }
    emit.node(name, inputs, vec![call.result()?], vec![]);
    Ok(())
}

pub fn with_settings(emit: &mut Emit, call: &Call) -> Done {
    let x = emit.read(call.input("x")?);
    let number = |name| call.number(name, 1.0).map(|it| it as f32);
    let mode = call.text("mode", "EXACT")?;
    let (name, attrs) = match &*call.kind {
        "elu" => ("Elu", vec![Attr::Float("alpha", number("alpha")?)]),
        "leaky_relu" => ("LeakyRelu", vec![Attr::Float("alpha", number("alpha")?)]),
        "sigmoid_hard" => (
            "HardSigmoid",
            vec![Attr::Float("alpha", number("alpha")?), Attr::Float("beta", number("beta")?)],
        ),
        "softmax" => ("Softmax", vec![Attr::Int("axis", call.int("axis", -1)?)]),
        _ => {
            let kind = match &*mode {
                "EXACT" => "none",
                "TANH_APPROXIMATION" => "tanh",
                other => return Err(format!("gelu by {other}")),
            };
            ("Gelu", vec![Attr::Text("approximate", kind)])
        }
    };
    emit.node(name, vec![x], vec![call.result()?], attrs);
    Ok(())
}

pub fn composed(emit: &mut Emit, call: &Call) -> Done {
    let (x, dtype, y) = (emit.read(call.input("x")?), call.input("x")?.dtype(), call.result()?);
    let added = |emit: &mut Emit, x, least: f64| match least {
        0.0 => x,
        least => {
            let least = emit.number(dtype, least);
            emit.call("Add", vec![x, least], vec![])
        }
    };
    match &*call.kind {
        "square" => emit.node("Mul", vec![x.clone(), x], vec![y], vec![]),
        "silu" => {
            let gate = emit.call("Sigmoid", vec![x.clone()], vec![]);
            emit.node("Mul", vec![x, gate], vec![y], vec![]);
        }
        "not_equal" => {
            let other = emit.read(call.input("y")?);
            let equal = emit.call("Equal", vec![x, other], vec![]);
            emit.node("Not", vec![equal], vec![y], vec![]);
        }
        "relu6" | "clip" => {
            let (low, high) = match &*call.kind {
                "relu6" => (0.0, 6.0),
                _ => (call.number("alpha", 0.0)?, call.number("beta", 1.0)?),
            };
            let (low, high) = (emit.number(dtype, low), emit.number(dtype, high));
            emit.node("Clip", vec![x, low, high], vec![y], vec![]);
        }
        "log" => {
            let x = added(emit, x, call.number("epsilon", 1e-45)?);
            emit.node("Log", vec![x], vec![y], vec![]);
        }
        "rsqrt" => {
            let x = added(emit, x, call.number("epsilon", 1e-12)?);
            let root = emit.call("Sqrt", vec![x], vec![]);
            emit.node("Reciprocal", vec![root], vec![y], vec![]);
        }
        "inverse" => {
            let x = added(emit, x, call.number("epsilon", 1e-4)?);
            emit.node("Reciprocal", vec![x], vec![y], vec![]);
        }
        "floor_div" | "mod" => {
            let other = emit.read(call.input("y")?);
            if dtype != DType::I32 {
                return Err(format!("{} of floats", call.kind));
            }
            // (x − x mod y) / y has no rest.
            match &*call.kind {
                "mod" => emit.node("Mod", vec![x, other], vec![y], vec![]),
                _ => {
                    let rest = emit.call("Mod", vec![x.clone(), other.clone()], vec![]);
                    let whole = emit.call("Sub", vec![x, rest], vec![]);
                    emit.node("Div", vec![whole, other], vec![y], vec![]);
                }
            }
        }
        kind => return Err(kind.to_owned()),
    }
    Ok(())
}

pub fn select(emit: &mut Emit, call: &Call) -> Done {
    let inputs = ["cond", "a", "b"].map(|name| call.input(name));
    let inputs = inputs.into_iter().map(|input| Ok(emit.read(input?))).collect::<Result<_, Trouble>>()?;
    emit.node("Where", inputs, vec![call.result()?], vec![]);
    Ok(())
}

pub fn cast(emit: &mut Emit, call: &Call) -> Done {
    let name = call.text("dtype", "fp32")?;
    let to = Elem::of_name(&name).and_then(Elem::dtype).ok_or_else(|| format!("a cast to {name}"))?;
    let x = emit.read(call.input("x")?);
    emit.node("Cast", vec![x], vec![call.result()?], vec![Attr::Int("to", to.code().into())]);
    Ok(())
}

pub fn cumsum(emit: &mut Emit, call: &Call) -> Done {
    let axis = call.int("axis", 0)?;
    let inputs = vec![emit.read(call.input("x")?), emit.ints(&[axis])];
    let attrs = vec![
        Attr::Int("exclusive", call.flag("exclusive")?.into()),
        Attr::Int("reverse", call.flag("reverse")?.into()),
    ];
    emit.node("CumSum", inputs, vec![call.result()?], attrs);
    Ok(())
}
