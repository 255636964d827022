//! Operators that move elements.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, NodeId};
use onnxforge_ops::call::axis;

use super::arithmetic::{ANY, FLOATS, copy};
use super::{Var, Writer};
use crate::coreml::schema::Elem;
use crate::view::Why;

type Done = Result<(), Why>;

pub fn transpose(w: &mut Writer<'_>, id: NodeId) -> Done {
    let value = w.arg(id, 0)?;
    w.takes(value, ANY)?;
    let rank = w.rank(value)? as i64;
    if rank == 0 {
        return copy(w, id);
    }
    let perm = w.call(id)?.opt_ints("perm")?.unwrap_or_else(|| (0..rank).rev().collect());
    let perm = w.list(&perm)?;
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    w.emit("transpose", &[("x", (&x).into()), ("perm", (&perm).into())], &[&y]);
    Ok(())
}

pub fn concat(w: &mut Writer<'_>, id: NodeId) -> Done {
    let first = w.arg(id, 0)?;
    w.takes(first, ANY)?;
    let along = axis(w.call(id)?.int("axis")?, w.rank(first)?)?;
    let inputs: Vec<_> = w.node(id).inputs().iter().flatten().copied().collect();
    if inputs.len() == 1 {
        return copy(w, id);
    }
    let values = inputs.into_iter().map(|value| w.read(value)).collect::<Result<Vec<Var>, _>>()?;
    let (axis, apart) = (w.int(along as i64)?, w.flag(false));
    let y = w.result(id, 0)?;
    let inputs = [("values", (&values).into()), ("axis", (&axis).into()), ("interleave", (&apart).into())];
    w.emit("concat", &inputs, &[&y]);
    Ok(())
}

pub fn split(w: &mut Writer<'_>, id: NodeId) -> Done {
    let value = w.arg(id, 0)?;
    w.takes(value, ANY)?;
    let along = axis(w.call(id)?.int("axis")?, w.rank(value)?)?;
    let count = w.node(id).outputs().len();
    if count == 1 {
        return copy(w, id);
    }
    let whole = w.shape(value)?.get(along).and_then(Dim::as_const);
    let given = match w.node(id).input(1) {
        Some(_) => w.fixed_ints(id, 1)?,
        None => match whole {
            Some(size) => {
                let part = (size + count as i64 - 1) / count as i64;
                (0..count as i64).map(|at| part.min(size - at * part)).collect()
            }
            None => return Err("the sizes of its results are not known".into()),
        },
    };
    if given.len() != count || given.iter().any(|&size| size < 1) {
        return Err("there are no tensors without elements".into());
    }
    let (sizes, axis) = (w.list(&given)?, w.int(along as i64)?);
    let x = w.input(id, 0)?;
    let mut outputs = Vec::with_capacity(count);
    for (index, &size) in given.iter().enumerate() {
        outputs.push(match w.node(id).output(index) {
            Some(_) => w.result(id, index)?,
            None => {
                let mut shape = x.shape.clone();
                shape[along] = Dim::from(size);
                w.scratch(id, x.elem, shape)
            }
        });
    }
    let outputs: Vec<&Var> = outputs.iter().collect();
    let inputs = [("x", (&x).into()), ("split_sizes", (&sizes).into()), ("axis", (&axis).into())];
    w.emit("split", &inputs, &outputs);
    Ok(())
}

pub fn slice(w: &mut Writer<'_>, id: NodeId) -> Done {
    let value = w.arg(id, 0)?;
    w.takes(value, ANY)?;
    let shape = w.shape(value)?;
    let rank = shape.len();
    let (named, steps) = w.cut_axes(id, rank)?;
    let mut stride = vec![1; rank];
    let mut begins = vec![Some(0); rank];
    let mut ends = vec![Some(0); rank];
    let mut masks = [vec![true; rank], vec![true; rank]];
    let known = [1, 2].map(|index| w.node(id).input(index).and_then(|value| w.ints(value)));
    for (place, &axis) in named.iter().enumerate() {
        let step = steps.get(place).copied().unwrap_or(1);
        stride[axis] = step;
        let size = shape.get(axis).and_then(Dim::as_const);
        for (list, (at, mask)) in known.iter().zip([&mut begins, &mut ends].into_iter().zip(&mut masks)) {
            at[axis] = list.as_ref().and_then(|list| list.get(place)).copied();
            mask[axis] = false;
            if let Some(number) = at[axis] {
                // Beyond the ends there is nothing.
                let is_end = std::ptr::eq(list, &known[1]);
                let (place, open) = inside(number, size, step, is_end)?;
                at[axis] = Some(place);
                mask[axis] = open;
            }
        }
    }
    let x = w.input(id, 0)?;
    let begin = ends_of(w, id, 1, known[0].is_none(), &named, &begins)?;
    let end = ends_of(w, id, 2, known[1].is_none(), &named, &ends)?;
    let stride = w.list(&stride)?;
    let [begin_mask, end_mask] = [w.flags(&masks[0]), w.flags(&masks[1])];
    let y = w.result(id, 0)?;
    let inputs = [
        ("x", (&x).into()),
        ("begin", (&begin).into()),
        ("end", (&end).into()),
        ("stride", (&stride).into()),
        ("begin_mask", (&begin_mask).into()),
        ("end_mask", (&end_mask).into()),
    ];
    w.emit("slice_by_index", &inputs, &[&y]);
    Ok(())
}

/// An end of a cut as the format takes it, and whether that is where the axis ends.
fn inside(number: i64, size: Option<i64>, step: i64, is_end: bool) -> Result<(i64, bool), Why> {
    let Some(size) = size else {
        let is_open = match (is_end, step > 0) {
            (true, true) => number >= i64::from(i32::MAX),
            (true, false) => number <= i64::from(i32::MIN),
            (false, true) => number <= i64::from(i32::MIN),
            (false, false) => number >= i64::from(i32::MAX),
        };
        let number = number.clamp(-i64::from(i32::MAX), i64::from(i32::MAX));
        return Ok((if is_open { 0 } else { number }, is_open));
    };
    let at = if number < 0 { number.saturating_add(size) } else { number };
    Ok(match (is_end, step > 0) {
        (false, true) => (at.clamp(0, size), at <= 0),
        (false, false) => (at.clamp(-1, size - 1), at >= size - 1),
        (true, true) => (at.clamp(0, size), at >= size),
        (true, false) if at < 0 => (0, true),
        (true, false) => (at.min(size - 1), false),
    })
}

/// Where cuts begin or end, one for each axis.
fn ends_of(
    w: &mut Writer<'_>,
    id: NodeId,
    index: usize,
    is_computed: bool,
    named: &[usize],
    ends: &[Option<i64>],
) -> Result<Var, Why> {
    if !is_computed {
        let all: Vec<i64> = ends.iter().map(|end| end.unwrap_or(0)).collect();
        return w.list(&all);
    }
    let given = w.input(id, index)?;
    let ordered = named.is_sorted_by(|a, b| a + 1 == *b);
    if !ordered {
        return Err("its ends are computed, and its axes do not follow each other".into());
    }
    let (first, last) = (named.first().copied().unwrap_or(0), named.last().copied().unwrap_or(0));
    let mut parts = Vec::new();
    if first > 0 {
        parts.push(w.list(&vec![0; first])?);
    }
    parts.push(given.clone());
    if last + 1 < ends.len() {
        parts.push(w.list(&vec![0; ends.len() - last - 1])?);
    }
    if parts.len() == 1 {
        return Ok(given);
    }
    joined(w, id, &parts, ends.len())
}

/// Lists of integers one after the other.
pub fn joined(w: &mut Writer<'_>, id: NodeId, parts: &[Var], length: usize) -> Result<Var, Why> {
    let (axis, apart) = (w.int(0)?, w.flag(false));
    let inputs = [("values", parts.into()), ("axis", (&axis).into()), ("interleave", (&apart).into())];
    Ok(w.step(id, "concat", &inputs, Elem::I32, vec![Dim::from(length as i64)]))
}

pub fn pad(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    let rank = w.rank(value)?;
    let all = w.padding(id, rank)?;
    if all.iter().flatten().all(|&pad| pad == 0) {
        return copy(w, id);
    }
    w.takes(value, FLOATS)?;
    let mode = match &*call.text("mode")? {
        "constant" => "constant",
        "reflect" => "reflect",
        "edge" => "replicate",
        mode => return Err(format!("the operator has no mode {mode}").into()),
    };
    if mode != "constant" && all.iter().rev().skip(2).flatten().any(|&pad| pad != 0) {
        return Err(format!("mode {mode} pads the last two axes only").into());
    }
    let x = w.input(id, 0)?;
    let fill = match w.node(id).input(2) {
        Some(fill) => {
            let number = w.number(fill).ok_or("what it is padded with is computed")?;
            w.number_like(number, x.elem)
        }
        None => w.number_like(0.0, x.elem),
    };
    // Axes in front that are not padded are left out, as the modes of images want it.
    let skipped = if mode == "constant" { 0 } else { rank.saturating_sub(2) };
    let (pads, mode) = (w.list(all[skipped..].as_flattened())?, w.text(mode));
    let y = w.result(id, 0)?;
    let inputs = [
        ("x", (&x).into()),
        ("pad", (&pads).into()),
        ("mode", (&mode).into()),
        ("constant_val", (&fill).into()),
    ];
    w.emit("pad", &inputs, &[&y]);
    Ok(())
}

pub fn tile(w: &mut Writer<'_>, id: NodeId) -> Done {
    let value = w.arg(id, 0)?;
    w.takes(value, ANY)?;
    if w.rank(value)? == 0 {
        return copy(w, id);
    }
    let (x, times) = (w.input(id, 0)?, w.input(id, 1)?);
    let y = w.result(id, 0)?;
    w.emit("tile", &[("x", (&x).into()), ("reps", (&times).into())], &[&y]);
    Ok(())
}

pub fn depth_to_space(w: &mut Writer<'_>, id: NodeId) -> Done {
    let call = w.call(id)?;
    w.takes(w.arg(id, 0)?, FLOATS)?;
    let block = w.int(call.int("blocksize")?)?;
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    match &*w.node(id).op().name {
        "SpaceToDepth" => {
            w.emit("space_to_depth", &[("x", (&x).into()), ("block_size", (&block).into())], &[&y]);
        }
        _ if call.text("mode")? == "CRD" => {
            w.emit("pixel_shuffle", &[("x", (&x).into()), ("upscale_factor", (&block).into())], &[&y]);
        }
        _ => w.emit("depth_to_space", &[("x", (&x).into()), ("block_size", (&block).into())], &[&y]),
    }
    Ok(())
}

/// What lies on one side of a diagonal.
pub fn triangle(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, &[DType::F32, DType::F16, DType::I32, DType::I64, DType::Bool])?;
    let shift = match w.node(id).input(1) {
        Some(_) => w.fixed_ints(id, 1)?.first().copied().unwrap_or(0),
        None => 0,
    };
    let is_upper = call.flag("upper")?;
    // A negative count of diagonals means all of them.
    if is_upper && shift > 0 || !is_upper && shift < 0 {
        return Err("its diagonal lies outside of what it keeps".into());
    }
    let (below, above) = if is_upper { (-shift, -1) } else { (-1, shift) };
    let (below, above) = (w.int(below)?, w.int(above)?);
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    w.emit("band_part", &[("x", (&x).into()), ("lower", (&below).into()), ("upper", (&above).into())], &[&y]);
    Ok(())
}
