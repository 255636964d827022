//! Operators about shapes.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{AttrValue, DType, NodeId, ValueId};
use onnxforge_ops::call::axes;

use super::arithmetic::{ANY, copy};
use super::moves::joined;
use super::{Var, Writer};
use crate::coreml::schema::Elem;
use crate::view::Why;

type Done = Result<(), Why>;

pub fn reshape(w: &mut Writer<'_>, id: NodeId) -> Done {
    let value = w.arg(id, 0)?;
    w.takes(value, ANY)?;
    let (from, to) = (w.shape(value)?, w.shape(w.out(id, 0)?)?);
    if to.is_empty() && from.is_empty() {
        return copy(w, id);
    }
    if to.is_empty() {
        let (x, axes) = (w.input(id, 0)?, w.list(&(0..from.len() as i64).collect::<Vec<_>>())?);
        let y = w.result(id, 0)?;
        w.emit("squeeze", &[("x", (&x).into()), ("axes", (&axes).into())], &[&y]);
        return Ok(());
    }
    if from.is_empty() {
        let (x, axes) = (w.input(id, 0)?, w.list(&(0..to.len() as i64).collect::<Vec<_>>())?);
        let y = w.result(id, 0)?;
        w.emit("expand_dims", &[("x", (&x).into()), ("axes", (&axes).into())], &[&y]);
        return Ok(());
    }
    let shape = target(w, id, &from, &to)?;
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    w.emit("reshape", &[("x", (&x).into()), ("shape", (&shape).into())], &[&y]);
    Ok(())
}

/// The shape that a tensor is to get: numbers where they are known, one of which may follow from the others, sizes of the operand, else what is computed.
fn target(w: &mut Writer<'_>, id: NodeId, from: &[Dim], to: &[Dim]) -> Result<Var, Why> {
    let mut open = 0;
    let mut places: Vec<Result<i64, usize>> = Vec::new();
    for (axis, size) in to.iter().enumerate() {
        let rest = to[axis + 1..].iter().any(|size| size.as_const().is_none());
        let at = from.iter().position(|other| w.same(other, size));
        places.push(match (size.as_const(), at) {
            (Some(size), _) => Ok(size),
            // The last size that is not known follows from the others.
            (None, _) if open == 0 && !rest => {
                open += 1;
                Ok(-1)
            }
            (None, Some(at)) => Err(at),
            (None, None) => {
                open += 1;
                Ok(-1)
            }
        });
    }
    if open > 1 {
        return match w.node(id).input(1) {
            Some(target) if w.model.constant(target).is_none() => {
                computed_target(w, id, target, from.len(), to.len())
            }
            _ => Err("more than one size of its result is not known".into()),
        };
    }
    if let Some(known) = places.iter().map(|place| place.ok()).collect::<Option<Vec<i64>>>() {
        return w.list(&known);
    }
    let x = w.input(id, 0)?;
    let whole = shape_of(w, id, &x);
    let mut parts = Vec::new();
    let mut rest = &places[..];
    while let Some(first) = rest.first() {
        let run = match first {
            Ok(_) => rest.iter().take_while(|place| place.is_ok()).count(),
            Err(axis) => rest.iter().enumerate().take_while(|(at, place)| **place == Err(axis + at)).count(),
        };
        let (now, later) = rest.split_at(run);
        rest = later;
        parts.push(match first {
            Ok(_) => w.list(&now.iter().map(|place| place.unwrap_or(-1)).collect::<Vec<_>>())?,
            Err(axis) => part_of(w, id, &whole, *axis as i64, run as i64)?,
        });
    }
    match &parts[..] {
        [part] => Ok(part.clone()),
        _ => joined(w, id, &parts, to.len()),
    }
}

/// A target that is computed. A 0 in it stands for the size that is there, which the format knows only where no axis is added or removed.
fn computed_target(
    w: &mut Writer<'_>,
    id: NodeId,
    target: ValueId,
    from: usize,
    to: usize,
) -> Result<Var, Why> {
    let given = w.read(target)?;
    let is_plain = w.facts.tensor(target).is_some_and(|fact| fact.dims().is_some());
    if is_plain || from == to && !w.call(id)?.flag("allowzero")? {
        return Ok(given);
    }
    if w.call(id)?.flag("allowzero")? {
        return Err("a size of 0 may be asked for".into());
    }
    let x = w.input(id, 0)?;
    let mut sizes = shape_of(w, id, &x);
    if from > to {
        sizes = part_of(w, id, &sizes, 0, to as i64)?;
    } else {
        let rest = w.list(&vec![1; to - from])?;
        sizes = joined(w, id, &[sizes, rest], to)?;
    }
    let zero = w.int(0)?;
    let shape = || vec![Dim::from(to as i64)];
    let kept = w.step(id, "equal", &[("x", (&given).into()), ("y", (&zero).into())], Elem::Bool, shape());
    let inputs = [("cond", (&kept).into()), ("a", (&sizes).into()), ("b", (&given).into())];
    Ok(w.step(id, "select", &inputs, Elem::I32, shape()))
}

/// The shape of a value.
pub fn shape_of(w: &mut Writer<'_>, id: NodeId, x: &Var) -> Var {
    w.step(id, "shape", &[("x", x.into())], Elem::I32, vec![Dim::from(x.shape.len() as i64)])
}

/// So many elements of a list.
fn part_of(w: &mut Writer<'_>, id: NodeId, list: &Var, first: i64, count: i64) -> Result<Var, Why> {
    let (begin, size) = (w.list(&[first])?, w.list(&[count])?);
    let inputs = [("x", list.into()), ("begin", (&begin).into()), ("size", (&size).into())];
    Ok(w.step(id, "slice_by_size", &inputs, Elem::I32, vec![Dim::from(count)]))
}

pub fn squeeze(w: &mut Writer<'_>, id: NodeId) -> Done {
    let value = w.arg(id, 0)?;
    w.takes(value, ANY)?;
    let shape = w.shape(value)?;
    let given = match w.node(id).input(1) {
        Some(_) => axes(&w.fixed_ints(id, 1)?, shape.len())?,
        None if shape.iter().all(|size| size.as_const().is_some()) => {
            shape.iter().enumerate().filter(|(_, size)| **size == Dim::ONE).map(|(axis, _)| axis).collect()
        }
        None => return Err("which axes it removes is not known".into()),
    };
    along(w, id, "squeeze", given)
}

pub fn unsqueeze(w: &mut Writer<'_>, id: NodeId) -> Done {
    w.takes(w.arg(id, 0)?, ANY)?;
    let rank = w.rank(w.out(id, 0)?)?;
    let given = axes(&w.fixed_ints(id, 1)?, rank)?;
    along(w, id, "expand_dims", given)
}

fn along(w: &mut Writer<'_>, id: NodeId, kind: &'static str, mut axes: Vec<usize>) -> Done {
    if axes.is_empty() {
        return copy(w, id);
    }
    axes.sort_unstable();
    let axes = w.list(&axes.into_iter().map(|axis| axis as i64).collect::<Vec<_>>())?;
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    w.emit(kind, &[("x", (&x).into()), ("axes", (&axes).into())], &[&y]);
    Ok(())
}

pub fn shape(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    let rank = w.rank(value)? as i64;
    if rank == 0 {
        return Err("a scalar has no sizes".into());
    }
    let inside = |end: i64| if end < 0 { end + rank } else { end }.clamp(0, rank);
    let start = inside(call.int("start")?);
    let end = call.opt_int("end")?.map_or(rank, inside).max(start);
    if start == end {
        return Err("there are no tensors without elements".into());
    }
    let x = w.input(id, 0)?;
    if (start, end) == (0, rank) {
        let y = w.result(id, 0)?;
        w.emit("shape", &[("x", (&x).into())], &[&y]);
        return Ok(());
    }
    let whole = shape_of(w, id, &x);
    let (begin, size) = (w.list(&[start])?, w.list(&[end - start])?);
    let y = w.result(id, 0)?;
    w.emit(
        "slice_by_size",
        &[("x", (&whole).into()), ("begin", (&begin).into()), ("size", (&size).into())],
        &[&y],
    );
    Ok(())
}

pub fn size(w: &mut Writer<'_>, id: NodeId) -> Done {
    let x = w.input(id, 0)?;
    if x.shape.is_empty() {
        return Err("a scalar has no sizes".into());
    }
    let whole = shape_of(w, id, &x);
    let (axes, keep) = (w.list(&[0])?, w.flag(false));
    let y = w.result(id, 0)?;
    let inputs = [("x", (&whole).into()), ("axes", (&axes).into()), ("keep_dims", (&keep).into())];
    w.emit("reduce_prod", &inputs, &[&y]);
    Ok(())
}

/// Sizes that are computed, or known.
fn sizes_of(w: &mut Writer<'_>, target: ValueId, whole: &[Dim]) -> Result<Var, Why> {
    let known: Option<Vec<i64>> = whole.iter().map(Dim::as_const).collect();
    match known {
        Some(known) => w.list(&known),
        None => w.read(target),
    }
}

pub fn expand(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, target) = (w.arg(id, 0)?, w.arg(id, 1)?);
    let dtype = w.takes(value, &[DType::F32, DType::F16, DType::I32, DType::I64, DType::Bool])?;
    let (from, whole) = (w.shape(value)?, w.shape(w.out(id, 0)?)?);
    if w.same_shape(&from, &whole) {
        return copy(w, id);
    }
    let known: Option<Vec<i64>> = whole.iter().map(Dim::as_const).collect();
    let x = w.input(id, 0)?;
    if let (Some(known), true) = (&known, from.len() == whole.len() && !from.is_empty())
        && from.iter().all(|size| size.as_const().is_some())
    {
        let times: Vec<i64> = from
            .iter()
            .zip(known)
            .map(|(size, &whole)| if *size == Dim::from(whole) { 1 } else { whole })
            .collect();
        let times = w.list(&times)?;
        let y = w.result(id, 0)?;
        w.emit("tile", &[("x", (&x).into()), ("reps", (&times).into())], &[&y]);
        return Ok(());
    }
    // The operand and a tensor of the target's shape are stretched to each other.
    let length = w.shape(target)?.first().and_then(Dim::as_const).ok_or("its axes are not known")?;
    let kept = whole.len().saturating_sub(length as usize);
    let wanted = w.facts.tensor(target).and_then(onnxforge_ops::TensorFact::dims);
    let part: Vec<Dim> = match wanted {
        Some(wanted) if wanted.len() == length as usize => wanted,
        _ => whole[kept..].to_vec(),
    };
    let sizes = sizes_of(w, target, &part)?;
    let neutral = match dtype {
        DType::Bool => w.flag(true),
        _ => w.number_like(1.0, x.elem),
    };
    let filled =
        w.step(id, "fill", &[("shape", (&sizes).into()), ("value", (&neutral).into())], x.elem, part);
    let y = w.result(id, 0)?;
    let kind = if dtype == DType::Bool { "logical_and" } else { "mul" };
    w.emit(kind, &[("x", (&x).into()), ("y", (&filled).into())], &[&y]);
    Ok(())
}

pub fn constant_of_shape(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (target, output) = (w.arg(id, 0)?, w.out(id, 0)?);
    let dtype = w.takes(output, &[DType::F32, DType::F16, DType::I32, DType::I64, DType::Bool])?;
    let value = match w.node(id).attr("value") {
        Some(AttrValue::Tensor(value)) => onnxforge_ops::Array::from_tensor(value)?.to_f64s()?[0],
        _ => 0.0,
    };
    let whole = w.shape(output)?;
    if whole.is_empty() {
        return Err("a scalar that is filled".into());
    }
    let sizes = sizes_of(w, target, &whole)?;
    let y = w.result(id, 0)?;
    let value = match dtype {
        DType::Bool => w.flag(value != 0.0),
        _ => w.number_like(value, y.elem),
    };
    w.emit("fill", &[("shape", (&sizes).into()), ("value", (&value).into())], &[&y]);
    Ok(())
}

pub fn range(w: &mut Writer<'_>, id: NodeId) -> Done {
    w.takes(w.arg(id, 0)?, &[DType::F32, DType::I32, DType::I64])?;
    let mut ends = Vec::new();
    for index in 0..3 {
        if w.rank(w.arg(id, index)?)? != 0 {
            return Err("its ends are no scalars".into());
        }
        ends.push(w.input(id, index)?);
    }
    let y = w.result(id, 0)?;
    w.emit(
        "range_1d",
        &[("end", (&ends[1]).into()), ("start", (&ends[0]).into()), ("step", (&ends[2]).into())],
        &[&y],
    );
    Ok(())
}
