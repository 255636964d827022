//! Operators about shapes.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, NodeId, ValueId};
use onnxforge_ops::call::axes;

use super::Writer;
use crate::tflite::graph::Setting;
use crate::tflite::schema;
use crate::view::Why;

pub fn reshape(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let target = reshape_target(w, id)?;
    let x = w.arg(id, 0)?;
    let (x, y) = (w.tensor(x)?, w.result(id)?);
    w.emit(schema::RESHAPE, 1, vec![], &[x, target], &[y]);
    Ok(())
}

/// The shape that a tensor is to get: numbers where they are known, one of which may follow from the others, else what is computed.
fn reshape_target(w: &mut Writer<'_>, id: NodeId) -> Result<i32, Why> {
    let y = w.out(id, 0)?;
    let (from, to) = (w.shape(w.arg(id, 0)?)?, w.shape(y)?);
    if let Some(target) = plain_target(&to) {
        return w.list(&target);
    }
    // Sizes that the operand has, too, come from there.
    let mut open = 0;
    let mut places = Vec::new();
    for size in &to {
        let at = from.iter().position(|other| w.same(other, size));
        let place = match (size.as_const(), at) {
            (Some(size), _) => Part::Known(size),
            (None, Some(axis)) => Part::Axis(axis),
            (None, None) => {
                open += 1;
                Part::Known(-1)
            }
        };
        places.push(place);
    }
    // A size that follows from the others does so only where none of them is 0.
    let is_empty = |size: &Dim| !size.provably_different(&Dim::ZERO, w.facts.symbols());
    if open > 1 || open == 1 && to.iter().filter(|size| size.as_const().is_some()).any(is_empty) {
        return match w.node(id).input(1) {
            // A 0 in a target that nothing is known of would mean the size that is there.
            Some(target) if w.call(id)?.flag("allowzero")? || w.is_expressed(target) => {
                w.narrowed(id, target)
            }
            _ => Err("more than one size of its result is not known".into()),
        };
    }
    let x = w.arg(id, 0)?;
    shape_of_parts(w, id, x, &places)
}

/// A target of numbers alone; at most one follows from the others.
fn plain_target(shape: &[Dim]) -> Option<Vec<i64>> {
    let sizes: Vec<Option<i64>> = shape.iter().map(Dim::as_const).collect();
    let open = sizes.iter().filter(|size| size.is_none()).count();
    (open == 0 || open == 1 && !sizes.contains(&Some(0)))
        .then(|| sizes.into_iter().map(|size| size.unwrap_or(-1)).collect())
}

/// A size: a number, or that of an axis of a tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Known(i64),
    Axis(usize),
}

/// A shape of numbers and of sizes of a tensor.
fn shape_of_parts(w: &mut Writer<'_>, id: NodeId, x: ValueId, parts: &[Part]) -> Result<i32, Why> {
    let rank = w.rank(x)?;
    let whole = w.scratch(id, DType::I32, &[Dim::from(rank as i64)])?;
    let x = w.tensor(x)?;
    w.emit(schema::SHAPE, 1, vec![(0, Setting::Byte(2))], &[x], &[whole]);
    let mut pieces = Vec::new();
    let mut rest = parts;
    while let Some(first) = rest.first() {
        let run = match first {
            Part::Known(_) => rest.iter().take_while(|part| matches!(part, Part::Known(_))).count(),
            Part::Axis(axis) => {
                let follows = |(place, part): &(usize, &Part)| **part == Part::Axis(axis + place);
                rest.iter().enumerate().take_while(follows).count()
            }
        };
        let (now, later) = rest.split_at(run);
        rest = later;
        pieces.push(match first {
            Part::Known(_) => {
                let known = |part: &Part| if let Part::Known(size) = part { *size } else { -1 };
                w.list(&now.iter().map(known).collect::<Vec<_>>())?
            }
            Part::Axis(axis) => {
                let to = w.scratch(id, DType::I32, &[Dim::from(run as i64)])?;
                let inputs = [whole, w.list(&[*axis as i64])?, w.list(&[run as i64])?];
                w.emit(schema::SLICE, 1, vec![], &inputs, &[to]);
                to
            }
        });
    }
    if let [piece] = pieces[..] {
        return Ok(piece);
    }
    let all = w.scratch(id, DType::I32, &[Dim::from(parts.len() as i64)])?;
    w.emit(schema::CONCATENATION, 1, vec![(0, Setting::Int(0))], &pieces, &[all]);
    Ok(all)
}

pub fn squeeze(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    let y = w.out(id, 0)?;
    if plain_target(&w.shape(y)?).is_some() {
        return reshape(w, id);
    }
    let rank = w.rank(x)?;
    let given = match w.node(id).input(1) {
        Some(_) => axes(&w.fixed_ints(id, 1)?, rank)?,
        None => return Err("which axes it removes is not known".into()),
    };
    let settings = vec![(0, Setting::Ints(given.iter().map(|&axis| axis as i32).collect()))];
    let (x, y) = (w.tensor(x)?, w.tensor(y)?);
    w.emit(schema::SQUEEZE, 1, settings, &[x], &[y]);
    Ok(())
}

pub fn unsqueeze(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    let y = w.out(id, 0)?;
    let whole = w.shape(y)?;
    if plain_target(&whole).is_some() {
        return reshape(w, id);
    }
    let mut given = axes(&w.fixed_ints(id, 1)?, whole.len())?;
    given.sort_unstable();
    let (dtype, mut shape) = (w.dtype(x)?, w.shape(x)?);
    let mut at = w.tensor(x)?;
    for (index, &axis) in given.iter().enumerate() {
        shape.insert(axis.min(shape.len()), Dim::ONE);
        let to = if index + 1 == given.len() { w.tensor(y)? } else { w.scratch(id, dtype, &shape)? };
        let axis = w.int(axis as i64)?;
        w.emit(schema::EXPAND_DIMS, 1, vec![], &[at, axis], &[to]);
        at = to;
    }
    Ok(())
}

pub fn shape(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, call) = (w.arg(id, 0)?, w.call(id)?);
    let rank = w.rank(x)? as i64;
    let inside = |end: i64| if end < 0 { end + rank } else { end }.clamp(0, rank);
    let start = inside(call.int("start")?);
    let end = call.opt_int("end")?.map_or(rank, inside).max(start);
    let (from, y) = (w.tensor(x)?, w.result(id)?);
    let settings = vec![(0, Setting::Byte(4))];
    if (start, end) == (0, rank) {
        w.emit(schema::SHAPE, 1, settings, &[from], &[y]);
        return Ok(());
    }
    let whole = w.scratch(id, DType::I64, &[Dim::from(rank)])?;
    w.emit(schema::SHAPE, 1, settings, &[from], &[whole]);
    let inputs = [whole, w.list(&[start])?, w.list(&[end - start])?];
    w.emit(schema::SLICE, 1, vec![], &inputs, &[y]);
    Ok(())
}

pub fn size(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    let whole = w.scratch(id, DType::I64, &[Dim::from(w.rank(x)? as i64)])?;
    let x = w.tensor(x)?;
    w.emit(schema::SHAPE, 1, vec![(0, Setting::Byte(4))], &[x], &[whole]);
    let inputs = [whole, w.list(&[0])?];
    let y = w.result(id)?;
    w.emit(schema::REDUCE_PROD, 1, vec![(0, Setting::Byte(0))], &inputs, &[y]);
    Ok(())
}

const SPREAD: &[DType] = &[DType::F32, DType::I32, DType::I64, DType::Bool, DType::U8, DType::I8, DType::I16];

pub fn expand(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, target) = (w.arg(id, 0)?, w.arg(id, 1)?);
    let y = w.out(id, 0)?;
    let dtype = w.takes(x, SPREAD)?;
    let whole = w.shape(y)?;
    let sizes: Option<Vec<i64>> = whole.iter().map(Dim::as_const).collect();
    let wanted = w.facts.tensor(target).and_then(onnxforge_ops::TensorFact::dims);
    let from = w.tensor(x)?;
    let is_whole = wanted.is_some_and(|wanted| w.same_shape(&wanted, &whole));
    let shape = match sizes {
        Some(sizes) => w.list(&sizes)?,
        None if is_whole => w.narrowed(id, target)?,
        // The operand may be larger than the target asks for, so both are stretched to each other.
        None => {
            let (builtin, neutral) = match dtype {
                DType::F32 => (schema::MUL, 1.0f32.to_le_bytes().to_vec()),
                DType::I32 => (schema::MUL, 1i32.to_le_bytes().to_vec()),
                DType::I64 => (schema::MUL, 1i64.to_le_bytes().to_vec()),
                DType::Bool => (schema::LOGICAL_AND, vec![1]),
                _ => return Err("whether it stretches its operand alone is not known".into()),
            };
            let target_shape = w.narrowed(id, target)?;
            let neutral = w.needed(dtype, &[], neutral)?;
            let length = w.shape(target)?.first().and_then(Dim::as_const).ok_or("its axes are not known")?;
            let unknown: Vec<Dim> = whole.iter().rev().take(length as usize).rev().cloned().collect();
            let filled = w.scratch(id, dtype, &unknown)?;
            w.emit(schema::FILL, 1, vec![], &[target_shape, neutral], &[filled]);
            let y = w.tensor(y)?;
            w.emit(builtin, 1, vec![], &[from, filled], &[y]);
            return Ok(());
        }
    };
    let y = w.tensor(y)?;
    w.emit(schema::BROADCAST_TO, 2, vec![], &[from, shape], &[y]);
    Ok(())
}

pub fn constant_of_shape(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let target = w.arg(id, 0)?;
    let value = match w.node(id).attr("value") {
        Some(onnxforge_ir::AttrValue::Tensor(value)) => value.clone(),
        _ => {
            onnxforge_ir::Tensor::from_f32s(vec![1], &[0.0]).map_err(|error| Why::from(error.to_string()))?
        }
    };
    let y = w.out(id, 0)?;
    w.takes(y, &[DType::F32, DType::I32, DType::I64, DType::Bool, DType::I8, DType::I16])?;
    let bytes = value.bytes().map_err(|error| Why::from(error.to_string()))?.into_owned();
    let value = w.needed(value.dtype(), &[], bytes)?;
    let inputs = [w.narrowed(id, target)?, value];
    let y = w.tensor(y)?;
    w.emit(schema::FILL, 1, vec![], &inputs, &[y]);
    Ok(())
}

pub fn range(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let given = [w.arg(id, 0)?, w.arg(id, 1)?, w.arg(id, 2)?];
    let dtype = w.takes(given[0], &[DType::F32, DType::I32, DType::I64])?;
    for value in given {
        if w.rank(value)? != 0 {
            return Err("its ends are no scalars".into());
        }
    }
    let inputs = [w.tensor(given[0])?, w.tensor(given[1])?, w.tensor(given[2])?];
    let y = w.result(id)?;
    w.emit(schema::RANGE, if dtype == DType::I64 { 2 } else { 1 }, vec![], &inputs, &[y]);
    Ok(())
}
