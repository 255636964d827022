//! Operators that choose elements.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, NodeId, ValueId};
use onnxforge_ops::call::axis;

use super::arithmetic::ANY;
use super::{Var, Writer};
use crate::coreml::schema::Elem;
use crate::view::Why;

type Done = Result<(), Why>;
const INDICES: &[DType] = &[DType::I32, DType::I64];

/// Places along an axis. Those that are stored are counted from the start.
fn places(w: &mut Writer<'_>, value: ValueId, size: Option<&Dim>) -> Result<Var, Why> {
    w.takes(value, INDICES)?;
    let stored = w.model.constant(value).and_then(|constant| constant.to_i64s().ok());
    let Some(stored) = stored.filter(|stored| stored.iter().any(|&place| place < 0)) else {
        return w.read(value);
    };
    let size = size.and_then(Dim::as_const).ok_or("it counts from the end of an axis of unknown size")?;
    let sizes = w.sizes(value)?;
    let from_start: Vec<i64> =
        stored.iter().map(|&place| if place < 0 { place + size } else { place }).collect();
    let bytes = super::constants::narrow(&from_start)?.iter().flat_map(|place| place.to_le_bytes()).collect();
    Ok(w.needed(Elem::I32, &sizes, bytes))
}

/// Operators that choose take no truth values.
fn chosen(w: &mut Writer<'_>, id: NodeId) -> Result<(Var, Option<Var>), Why> {
    w.takes(w.arg(id, 0)?, ANY)?;
    let x = w.input(id, 0)?;
    let y = w.result(id, 0)?;
    if x.elem != Elem::Bool {
        return Ok((x, None));
    }
    let wide = w.cast(&x, Elem::I32);
    Ok((wide, Some(w.scratch(id, Elem::I32, y.shape))))
}

fn settle(
    w: &mut Writer<'_>,
    id: NodeId,
    kind: &'static str,
    inputs: &[(&'static str, super::Arg<'_>)],
    to: Option<Var>,
) -> Done {
    let y = w.known.get(&w.out(id, 0)?).cloned().ok_or("its result is not known")?;
    match to {
        Some(to) => {
            w.emit(kind, inputs, &[&to]);
            let dtype = w.text(Elem::Bool.name());
            w.emit("cast", &[("x", (&to).into()), ("dtype", (&dtype).into())], &[&y]);
        }
        None => w.emit(kind, inputs, &[&y]),
    }
    Ok(())
}

pub fn gather(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, indices) = (w.arg(id, 0)?, w.arg(id, 1)?);
    let shape = w.shape(value)?;
    let along = axis(w.call(id)?.int("axis")?, shape.len())?;
    let (places, axis) = (places(w, indices, shape.get(along))?, w.int(along as i64)?);
    let (x, to) = chosen(w, id)?;
    settle(
        w,
        id,
        "gather",
        &[("x", (&x).into()), ("indices", (&places).into()), ("axis", (&axis).into())],
        to,
    )
}

pub fn gather_elements(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, indices) = (w.arg(id, 0)?, w.arg(id, 1)?);
    let shape = w.shape(value)?;
    let along = axis(w.call(id)?.int("axis")?, shape.len())?;
    // The operator wants sizes of other axes to be equal.
    let sizes = w.shape(indices)?;
    let same = |at: usize| at == along || w.same(&shape[at], &sizes[at]);
    if !(0..shape.len()).all(same) {
        return Err("it takes a part of an axis".into());
    }
    let (places, axis) = (places(w, indices, shape.get(along))?, w.int(along as i64)?);
    let (x, to) = chosen(w, id)?;
    let inputs = [("x", (&x).into()), ("indices", (&places).into()), ("axis", (&axis).into())];
    settle(w, id, "gather_along_axis", &inputs, to)
}

pub fn gather_nd(w: &mut Writer<'_>, id: NodeId) -> Done {
    let indices = w.arg(id, 1)?;
    let batch = w.call(id)?.int("batch_dims")?;
    if !w.since(16) {
        w.demand(id, "batch_dims", batch == 0)?;
    }
    w.takes(indices, INDICES)?;
    let stored = w.model.constant(indices).and_then(|constant| constant.to_i64s().ok());
    if stored.is_some_and(|stored| stored.iter().any(|&place| place < 0)) {
        return Err("it counts from the end of an axis".into());
    }
    let places = w.read(indices)?;
    let batch = w.int(batch)?;
    let is_new = w.since(16);
    let (x, to) = chosen(w, id)?;
    let mut inputs = vec![("x", (&x).into()), ("indices", (&places).into())];
    if is_new {
        inputs.push(("batch_dims", (&batch).into()));
    }
    settle(w, id, "gather_nd", &inputs, to)
}

/// How what is written is joined with what is there.
fn mode(w: &Writer<'_>, id: NodeId) -> Result<&'static str, Why> {
    Ok(match &*w.call(id)?.text_or("reduction", "none")? {
        "none" => "update",
        "add" => "add",
        "mul" => "mul",
        "max" => "max",
        _ => "min",
    })
}

pub fn scatter_elements(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, indices) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(value, &[DType::F32, DType::F16, DType::I32, DType::I64])?;
    let (shape, sizes) = (w.shape(value)?, w.shape(indices)?);
    let along = axis(w.call(id)?.int("axis")?, shape.len())?;
    let same = |at: usize| at == along || w.same(&shape[at], &sizes[at]);
    if !(0..shape.len()).all(same) {
        return Err("it writes a part of an axis".into());
    }
    let (places, axis, mode) = (places(w, indices, shape.get(along))?, w.int(along as i64)?, mode(w, id)?);
    let mode = w.text(mode);
    let (x, updates) = (w.input(id, 0)?, w.input(id, 2)?);
    let y = w.result(id, 0)?;
    let inputs = [
        ("data", (&x).into()),
        ("indices", (&places).into()),
        ("updates", (&updates).into()),
        ("axis", (&axis).into()),
        ("mode", (&mode).into()),
    ];
    w.emit("scatter_along_axis", &inputs, &[&y]);
    Ok(())
}

pub fn scatter_nd(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, indices) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(value, &[DType::F32, DType::F16, DType::I32, DType::I64])?;
    let stored = w.model.constant(indices).and_then(|constant| constant.to_i64s().ok());
    if stored.is_some_and(|stored| stored.iter().any(|&place| place < 0)) {
        return Err("it counts from the end of an axis".into());
    }
    let mode = mode(w, id)?;
    let mode = w.text(mode);
    let (x, places, updates) = (w.input(id, 0)?, w.input(id, 1)?, w.input(id, 2)?);
    let y = w.result(id, 0)?;
    let inputs = [
        ("data", (&x).into()),
        ("indices", (&places).into()),
        ("updates", (&updates).into()),
        ("mode", (&mode).into()),
    ];
    w.emit("scatter_nd", &inputs, &[&y]);
    Ok(())
}

/// Condition and choices get the shape of the result: the Neural Engine stretches none of them.
pub fn choose(w: &mut Writer<'_>, id: NodeId) -> Done {
    w.takes(w.arg(id, 1)?, ANY)?;
    let values = [w.arg(id, 0)?, w.arg(id, 1)?, w.arg(id, 2)?];
    let mut inputs = [w.read(values[0])?, w.read(values[1])?, w.read(values[2])?];
    let y = w.result(id, 0)?;
    let is_whole = inputs.each_ref().map(|var| w.same_shape(&var.shape, &y.shape));
    if is_whole.contains(&false) {
        let known: Option<Vec<i64>> = y.shape.iter().map(Dim::as_const).collect();
        let whole = is_whole.iter().position(|&whole| whole);
        let sizes = match (known, whole) {
            (Some(known), _) => w.list(&known)?,
            (None, Some(whole)) => super::shapes::shape_of(w, id, &inputs[whole]),
            (None, None) => {
                return Err(Why::from("no choice has the shape of the result").hinting("--set-dim"));
            }
        };
        for index in (0..3).filter(|&index| !is_whole[index]) {
            inputs[index] = stretched(w, id, values[index], &inputs[index], &y.shape, &sizes);
        }
    }
    let [condition, a, b] = &inputs;
    w.emit("select", &[("cond", condition.into()), ("a", a.into()), ("b", b.into())], &[&y]);
    Ok(())
}

/// A value in this shape.
fn stretched(w: &mut Writer<'_>, id: NodeId, value: ValueId, var: &Var, shape: &[Dim], sizes: &Var) -> Var {
    let number = w.number(value).filter(|_| var.elem != Elem::Bool);
    let fill = match var.elem {
        Elem::Bool => w.flag(true),
        elem => w.number_like(number.unwrap_or(1.0), elem),
    };
    let inputs = [("shape", sizes.into()), ("value", (&fill).into())];
    let filled = w.step(id, "fill", &inputs, var.elem, shape.to_vec());
    if number.is_some() {
        return filled;
    }
    let kind = if var.elem == Elem::Bool { "logical_and" } else { "mul" };
    w.step(id, kind, &[("x", var.into()), ("y", (&filled).into())], var.elem, shape.to_vec())
}
