//! Operators that work element by element.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, NodeId};

use super::{Var, Writer};
use crate::coreml::schema::Elem;
use crate::view::Why;

pub const FLOATS: &[DType] = &[DType::F32, DType::F16];
pub const NUMBERS: &[DType] = &[DType::F32, DType::F16, DType::I32, DType::I64];
/// Integers of fewer bits, which would not wrap around here, and truth values.
pub const ANY: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::I32,
    DType::I64,
    DType::Bool,
    DType::I16,
    DType::U16,
    DType::I8,
    DType::U8,
];
const ORDERED: &[DType] =
    &[DType::F32, DType::F16, DType::I32, DType::I64, DType::I16, DType::U16, DType::I8, DType::U8];

type Done = Result<(), Why>;

pub fn unary(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (kind, types) = match &*w.node(id).op().name {
        "Abs" => ("abs", NUMBERS),
        "Acos" => ("acos", FLOATS),
        "Asin" => ("asin", FLOATS),
        "Atan" => ("atan", FLOATS),
        "Atanh" => ("atanh", FLOATS),
        "Ceil" => ("ceil", FLOATS),
        "Cos" => ("cos", FLOATS),
        "Cosh" => ("cosh", FLOATS),
        "Erf" => ("erf", FLOATS),
        "Exp" => ("exp", FLOATS),
        "Floor" => ("floor", FLOATS),
        "Relu" => ("relu", FLOATS),
        "Round" => ("round", FLOATS),
        "Sigmoid" => ("sigmoid", FLOATS),
        "Sign" => ("sign", NUMBERS),
        "Sin" => ("sin", FLOATS),
        "Sinh" => ("sinh", FLOATS),
        "Softplus" => ("softplus", FLOATS),
        "Softsign" => ("softsign", FLOATS),
        "Sqrt" => ("sqrt", FLOATS),
        "Tan" => ("tan", FLOATS),
        "Tanh" => ("tanh", FLOATS),
        _ => ("logical_not", &[DType::Bool][..]),
    };
    one(w, id, kind, types, &[])
}

/// An operation with one operand and these numbers beside it, of the type of that.
pub fn one(
    w: &mut Writer<'_>,
    id: NodeId,
    kind: &'static str,
    types: &[DType],
    numbers: &[(&'static str, f64)],
) -> Done {
    w.takes(w.arg(id, 0)?, types)?;
    let x = w.input(id, 0)?;
    let y = w.result(id, 0)?;
    with_numbers(w, kind, &x, numbers, &y);
    Ok(())
}

fn with_numbers(w: &mut Writer<'_>, kind: &'static str, x: &Var, numbers: &[(&'static str, f64)], y: &Var) {
    let values: Vec<(&'static str, Var)> =
        numbers.iter().map(|&(name, value)| (name, w.number_like(value, x.elem))).collect();
    let mut inputs = vec![("x", x.into())];
    inputs.extend(values.iter().map(|(name, value)| (*name, value.into())));
    w.emit(kind, &inputs, &[y]);
}

/// Operators whose attributes are numbers.
pub fn with_settings(w: &mut Writer<'_>, id: NodeId) -> Done {
    let call = w.call(id)?;
    let of = |name: &str| call.float(name).map(f64::from);
    match &*w.node(id).op().name {
        "Elu" => one(w, id, "elu", FLOATS, &[("alpha", of("alpha")?)]),
        "LeakyRelu" => one(w, id, "leaky_relu", FLOATS, &[("alpha", of("alpha")?)]),
        "HardSigmoid" => {
            one(w, id, "sigmoid_hard", FLOATS, &[("alpha", of("alpha")?), ("beta", of("beta")?)])
        }
        // What is added to the operand would be 1e-45.
        _ => one(w, id, "log", FLOATS, &[("epsilon", 0.0)]),
    }
}

/// Operators that are a few operations on one operand.
pub fn composed(w: &mut Writer<'_>, id: NodeId) -> Done {
    w.takes(w.arg(id, 0)?, if w.node(id).op().is("Neg") { NUMBERS } else { FLOATS })?;
    let (x, call) = (w.input(id, 0)?, w.call(id)?);
    let y = w.result(id, 0)?;
    let (elem, shape) = (y.elem, y.shape.clone());
    let number = |w: &mut Writer<'_>, value: f64| w.number_like(value, elem);
    match &*w.node(id).op().name {
        "Neg" => {
            let minus = number(w, -1.0);
            w.emit("mul", &[("x", (&x).into()), ("y", (&minus).into())], &[&y]);
        }
        "Reciprocal" => {
            let unit = number(w, 1.0);
            w.emit("real_div", &[("x", (&unit).into()), ("y", (&x).into())], &[&y]);
        }
        "HardSwish" => {
            let gate = w.scratch(id, elem, shape);
            with_numbers(w, "sigmoid_hard", &x, &[("alpha", 1.0 / 6.0), ("beta", 0.5)], &gate);
            w.emit("mul", &[("x", (&x).into()), ("y", (&gate).into())], &[&y]);
        }
        "Swish" => {
            let alpha = f64::from(call.float("alpha")?);
            if alpha == 1.0 {
                w.emit("silu", &[("x", (&x).into())], &[&y]);
                return Ok(());
            }
            let alpha = number(w, alpha);
            let scaled =
                w.step(id, "mul", &[("x", (&x).into()), ("y", (&alpha).into())], elem, shape.clone());
            let gate = w.step(id, "sigmoid", &[("x", (&scaled).into())], elem, shape);
            w.emit("mul", &[("x", (&x).into()), ("y", (&gate).into())], &[&y]);
        }
        "Mish" => {
            let soft = w.step(id, "softplus", &[("x", (&x).into())], elem, shape.clone());
            let gate = w.step(id, "tanh", &[("x", (&soft).into())], elem, shape);
            w.emit("mul", &[("x", (&x).into()), ("y", (&gate).into())], &[&y]);
        }
        "Selu" => {
            let (alpha, gamma) = (f64::from(call.float("alpha")?), f64::from(call.float("gamma")?));
            let bent = w.scratch(id, elem, shape);
            with_numbers(w, "elu", &x, &[("alpha", alpha)], &bent);
            let gamma = number(w, gamma);
            w.emit("mul", &[("x", (&bent).into()), ("y", (&gamma).into())], &[&y]);
        }
        "Celu" => {
            let alpha = f64::from(call.float("alpha")?);
            let wide = number(w, alpha);
            let scaled =
                w.step(id, "real_div", &[("x", (&x).into()), ("y", (&wide).into())], elem, shape.clone());
            let bent = w.scratch(id, elem, shape);
            with_numbers(w, "elu", &scaled, &[("alpha", 1.0)], &bent);
            w.emit("mul", &[("x", (&bent).into()), ("y", (&wide).into())], &[&y]);
        }
        "ThresholdedRelu" => {
            let alpha = number(w, f64::from(call.float("alpha")?));
            let over =
                w.step(id, "greater", &[("x", (&x).into()), ("y", (&alpha).into())], Elem::Bool, shape);
            let zero = number(w, 0.0);
            w.emit("select", &[("cond", (&over).into()), ("a", (&x).into()), ("b", (&zero).into())], &[&y]);
        }
        "Asinh" | "Acosh" => {
            // log(|x| + √(x² + 1)) with the sign of x, and log(x + √(x² − 1)).
            let is_odd = w.node(id).op().is("Asinh");
            let unit = number(w, if is_odd { 1.0 } else { -1.0 });
            let size = match is_odd {
                true => w.step(id, "abs", &[("x", (&x).into())], elem, shape.clone()),
                false => x.clone(),
            };
            let square = w.step(id, "square", &[("x", (&x).into())], elem, shape.clone());
            let sum =
                w.step(id, "add", &[("x", (&square).into()), ("y", (&unit).into())], elem, shape.clone());
            let root = w.step(id, "sqrt", &[("x", (&sum).into())], elem, shape.clone());
            let whole =
                w.step(id, "add", &[("x", (&size).into()), ("y", (&root).into())], elem, shape.clone());
            if is_odd {
                let log = w.scratch(id, elem, shape.clone());
                with_numbers(w, "log", &whole, &[("epsilon", 0.0)], &log);
                let sign = w.step(id, "sign", &[("x", (&x).into())], elem, shape);
                w.emit("mul", &[("x", (&sign).into()), ("y", (&log).into())], &[&y]);
            } else {
                with_numbers(w, "log", &whole, &[("epsilon", 0.0)], &y);
            }
        }
        "IsNaN" => w.emit("not_equal", &[("x", (&x).into()), ("y", (&x).into())], &[&y]),
        "IsInf" => {
            let (up, down) = (call.flag("detect_positive")?, call.flag("detect_negative")?);
            let limit = w.number_like(if up { f64::INFINITY } else { f64::NEG_INFINITY }, x.elem);
            if !up && !down {
                return Err("it finds nothing".into());
            }
            let found = match up && down {
                true => w.step(id, "abs", &[("x", (&x).into())], x.elem, shape),
                false => x,
            };
            w.emit("equal", &[("x", (&found).into()), ("y", (&limit).into())], &[&y]);
        }
        _ => return Err("there is no such operator".into()),
    }
    Ok(())
}

pub fn gelu(w: &mut Writer<'_>, id: NodeId) -> Done {
    w.takes(w.arg(id, 0)?, FLOATS)?;
    let is_tanh = w.call(id)?.text("approximate")? == "tanh";
    let mode = w.text(if is_tanh { "TANH_APPROXIMATION" } else { "EXACT" });
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    w.emit("gelu", &[("x", (&x).into()), ("mode", (&mode).into())], &[&y]);
    Ok(())
}

pub fn binary(w: &mut Writer<'_>, id: NodeId) -> Done {
    let name = &*w.node(id).op().name;
    let dtype = w.dtype(w.arg(id, 0)?)?;
    let is_bool = dtype == DType::Bool;
    let (kind, types) = match name {
        "Add" => ("add", NUMBERS),
        "Sub" => ("sub", NUMBERS),
        "Mul" => ("mul", NUMBERS),
        "Div" if FLOATS.contains(&dtype) => ("real_div", FLOATS),
        "Div" => return quotient(w, id),
        "And" => ("logical_and", &[DType::Bool][..]),
        "Or" => ("logical_or", &[DType::Bool][..]),
        "Xor" => ("logical_xor", &[DType::Bool][..]),
        "Equal" if is_bool => {
            let (a, b, y) = (w.input(id, 0)?, w.input(id, 1)?, w.result(id, 0)?);
            let apart = w.step(
                id,
                "logical_xor",
                &[("x", (&a).into()), ("y", (&b).into())],
                Elem::Bool,
                y.shape.clone(),
            );
            w.emit("logical_not", &[("x", (&apart).into())], &[&y]);
            return Ok(());
        }
        "Equal" => ("equal", ORDERED),
        "Less" => ("less", ORDERED),
        "LessOrEqual" => ("less_equal", ORDERED),
        "Greater" => ("greater", ORDERED),
        "GreaterOrEqual" => ("greater_equal", ORDERED),
        _ => {
            let fmod = w.call(id)?.flag("fmod")?;
            w.demand(id, "fmod", !fmod)?;
            ("mod", &[DType::I32, DType::I64][..])
        }
    };
    w.takes(w.arg(id, 0)?, types)?;
    let (a, b, y) = (w.input(id, 0)?, w.input(id, 1)?, w.result(id, 0)?);
    w.emit(kind, &[("x", (&a).into()), ("y", (&b).into())], &[&y]);
    Ok(())
}

/// Integers are divided towards 0, where the format divides downwards.
fn quotient(w: &mut Writer<'_>, id: NodeId) -> Done {
    w.takes(w.arg(id, 0)?, &[DType::I32, DType::I64])?;
    let (a, b, y) = (w.input(id, 0)?, w.input(id, 1)?, w.result(id, 0)?);
    let value = |index| w.arg(id, index).ok();
    let is_positive = |value: Option<onnxforge_ir::ValueId>| {
        let dims = value.and_then(|value| w.facts.tensor(value)?.dims());
        dims.is_some_and(|dims| dims.iter().all(|dim| dim.provably_nonneg(w.facts.symbols())))
    };
    if is_positive(value(0)) && is_positive(value(1)) {
        w.emit("floor_div", &[("x", (&a).into()), ("y", (&b).into())], &[&y]);
        return Ok(());
    }
    let part = |w: &mut Writer<'_>, kind: &'static str, x: &Var| {
        w.step(id, kind, &[("x", x.into())], Elem::I32, x.shape.clone())
    };
    let (signs, sizes) =
        ([part(w, "sign", &a), part(w, "sign", &b)], [part(w, "abs", &a), part(w, "abs", &b)]);
    let pair = |w: &mut Writer<'_>, kind: &'static str, [x, z]: &[Var; 2]| {
        w.step(id, kind, &[("x", x.into()), ("y", z.into())], Elem::I32, y.shape.clone())
    };
    let (sign, size) = (pair(w, "mul", &signs), pair(w, "floor_div", &sizes));
    w.emit("mul", &[("x", (&sign).into()), ("y", (&size).into())], &[&y]);
    Ok(())
}

pub fn pow(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (base, exponent) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(base, FLOATS)?;
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    let plain = w.rank(exponent)? <= w.rank(base)?;
    match w.number(exponent).filter(|_| plain) {
        Some(2.0) => w.emit("square", &[("x", (&x).into())], &[&y]),
        Some(0.5) => w.emit("sqrt", &[("x", (&x).into())], &[&y]),
        Some(number) => {
            let exponent = w.number_like(number, x.elem);
            w.emit("pow", &[("x", (&x).into()), ("y", (&exponent).into())], &[&y]);
        }
        None => {
            w.takes(exponent, NUMBERS)?;
            let given = w.input(id, 1)?;
            let exponent = w.cast(&given, x.elem);
            w.emit("pow", &[("x", (&x).into()), ("y", (&exponent).into())], &[&y]);
        }
    }
    Ok(())
}

/// Operators of any number of inputs: two at a time.
pub fn variadic(w: &mut Writer<'_>, id: NodeId) -> Done {
    let name = &*w.node(id).op().name;
    let (kind, types) = match name {
        "Max" => ("maximum", ORDERED),
        "Min" => ("minimum", ORDERED),
        "Sum" => ("add", NUMBERS),
        _ => ("add", FLOATS),
    };
    w.takes(w.arg(id, 0)?, types)?;
    let count = w.node(id).inputs().len();
    let mut sum = w.input(id, 0)?;
    let is_mean = name == "Mean";
    if count == 1 {
        return copy(w, id);
    }
    for index in 1..count {
        let next = w.input(id, index)?;
        let is_last = index + 1 == count && !is_mean;
        let shape = broadcast(w, &sum.shape, &next.shape)?;
        let to = if is_last { w.result(id, 0)? } else { w.scratch(id, sum.elem, shape) };
        w.emit(kind, &[("x", (&sum).into()), ("y", (&next).into())], &[&to]);
        sum = to;
    }
    if is_mean {
        let share = w.number_like(count as f64, sum.elem);
        let y = w.result(id, 0)?;
        w.emit("real_div", &[("x", (&sum).into()), ("y", (&share).into())], &[&y]);
    }
    Ok(())
}

/// The shape of what two tensors give.
pub fn broadcast(w: &Writer<'_>, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, Why> {
    let rank = a.len().max(b.len());
    let at = |shape: &[Dim], axis: usize| {
        (axis + shape.len()).checked_sub(rank).and_then(|axis| shape.get(axis).cloned()).unwrap_or(Dim::ONE)
    };
    let size = |axis: usize| {
        let (a, b) = (at(a, axis), at(b, axis));
        match (a.as_const(), b.as_const()) {
            (Some(1), _) => Ok(b),
            (_, Some(1)) => Ok(a),
            (Some(_), None) => Ok(a),
            (None, Some(_)) => Ok(b),
            _ if w.same(&a, &b) => Ok(a),
            _ => Err(Why::from("which of two sizes is stretched is not known")),
        }
    };
    (0..rank).map(size).collect()
}

pub fn prelu(w: &mut Writer<'_>, id: NodeId) -> Done {
    w.takes(w.arg(id, 0)?, FLOATS)?;
    let (x, slope, y) = (w.input(id, 0)?, w.input(id, 1)?, w.result(id, 0)?);
    let zero = w.number_like(0.0, x.elem);
    let shape = || y.shape.clone();
    // One slope for each channel is what the operator has; others are decomposed.
    let up = w.step(id, "relu", &[("x", (&x).into())], x.elem, shape());
    let down = w.step(id, "minimum", &[("x", (&x).into()), ("y", (&zero).into())], x.elem, shape());
    let bent = w.step(id, "mul", &[("x", (&down).into()), ("y", (&slope).into())], x.elem, shape());
    w.emit("add", &[("x", (&up).into()), ("y", (&bent).into())], &[&y]);
    Ok(())
}

pub fn clip(w: &mut Writer<'_>, id: NodeId) -> Done {
    let dtype = w.takes(w.arg(id, 0)?, ORDERED)?;
    let bounds = [1, 2].map(|index| w.node(id).input(index));
    let known: Vec<Option<f64>> =
        bounds.iter().map(|bound| bound.and_then(|bound| w.number(bound))).collect();
    let is_known = bounds.iter().zip(&known).all(|(bound, known)| bound.is_none() || known.is_some());
    let (low, high) = (known[0], known[1]);
    let x = w.input(id, 0)?;
    if FLOATS.contains(&dtype) && is_known {
        match (low.filter(|&low| low != f64::NEG_INFINITY), high.filter(|&high| high != f64::INFINITY)) {
            (None, None) => return copy(w, id),
            (Some(0.0), None) => return one(w, id, "relu", FLOATS, &[]),
            (Some(0.0), Some(6.0)) => return one(w, id, "relu6", FLOATS, &[]),
            (Some(low), Some(high)) if low <= high => {
                return one(w, id, "clip", FLOATS, &[("alpha", low), ("beta", high)]);
            }
            _ => {}
        }
    }
    let mut at = x;
    let present: Vec<usize> = (0..2).filter(|&index| bounds[index].is_some()).collect();
    if present.is_empty() {
        return copy(w, id);
    }
    for &index in &present {
        let bound = w.input(id, index + 1)?;
        let is_last = Some(&index) == present.last();
        let to = match is_last {
            true => w.result(id, 0)?,
            false => w.scratch(id, at.elem, at.shape.clone()),
        };
        let kind = if index == 0 { "maximum" } else { "minimum" };
        w.emit(kind, &[("x", (&at).into()), ("y", (&bound).into())], &[&to]);
        at = to;
    }
    Ok(())
}

pub fn cast(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (from, to) = (w.takes(w.arg(id, 0)?, ANY)?, w.takes(w.out(id, 0)?, ANY)?);
    let is_wide =
        |dtype: DType| matches!(dtype, DType::I32 | DType::I64 | DType::Bool) || FLOATS.contains(&dtype);
    let fits = is_wide(to) || from == to || from == DType::Bool;
    if !fits {
        return Err(format!("there are no tensors of {}, whose numbers would wrap around", to.name()).into());
    }
    let elem = w.elem(to)?;
    let x = w.input(id, 0)?;
    if x.elem == elem {
        return copy(w, id);
    }
    let y = w.result(id, 0)?;
    // What is no number is true, too.
    if to == DType::Bool {
        let zero = w.number_like(0.0, x.elem);
        w.emit("not_equal", &[("x", (&x).into()), ("y", (&zero).into())], &[&y]);
        return Ok(());
    }
    let dtype = w.text(elem.name());
    w.emit("cast", &[("x", (&x).into()), ("dtype", (&dtype).into())], &[&y]);
    Ok(())
}

pub fn copy(w: &mut Writer<'_>, id: NodeId) -> Done {
    w.takes(w.arg(id, 0)?, ANY)?;
    if w.node(id).outputs().iter().skip(1).flatten().any(|&value| !w.model.value(value).uses().is_empty()) {
        return Err("something reads its mask".into());
    }
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    w.emit("identity", &[("x", (&x).into())], &[&y]);
    Ok(())
}

pub fn cumsum(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, NUMBERS)?;
    let axis = w.fixed_ints(id, 1)?;
    let axis = onnxforge_ops::call::axis(axis.first().copied().ok_or("no axis")?, w.rank(value)?)?;
    let (x, y, axis) = (w.input(id, 0)?, w.result(id, 0)?, w.int(axis as i64)?);
    let (exclusive, reverse) = (w.flag(call.flag("exclusive")?), w.flag(call.flag("reverse")?));
    let inputs = [
        ("x", (&x).into()),
        ("axis", (&axis).into()),
        ("exclusive", (&exclusive).into()),
        ("reverse", (&reverse).into()),
    ];
    w.emit("cumsum", &inputs, &[&y]);
    Ok(())
}
