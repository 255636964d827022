//! Operators that choose elements.

use std::ops::Range;

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, NodeId, ValueId};
use onnxforge_ops::TensorFact;
use onnxforge_ops::call::axis;

use super::Writer;
use crate::tflite::graph::Setting;
use crate::tflite::schema;
use crate::view::Why;

const CHOSEN: &[DType] = &[DType::F32, DType::I32, DType::I64, DType::Bool, DType::U8, DType::I8, DType::I16];

/// The axes that places may have where they are computed and may be negative.
const MOST_AXES: usize = 4;

/// Places along an axis of `x`. The format counts from the start alone, so those that are stored are counted anew.
fn places(w: &mut Writer<'_>, id: NodeId, value: ValueId, x: ValueId, axis: usize) -> Result<i32, Why> {
    let Some(constant) = w.model.constant(value) else {
        let tensor = w.tensor(value)?;
        return from_start(w, id, tensor, value, x, axis..axis + 1);
    };
    let stored = constant.to_i64s().ok().filter(|stored| stored.iter().any(|&place| place < 0));
    let Some(stored) = stored else { return w.tensor(value) };
    let shape = w.shape(x)?;
    let size =
        shape.get(axis).and_then(Dim::as_const).ok_or("it counts from the end of an axis of unknown size")?;
    let shape: Option<Vec<i32>> =
        w.shape(value)?.iter().map(|dim| dim.as_const().and_then(|size| i32::try_from(size).ok())).collect();
    let shape = shape.ok_or("the shape of its places is not known")?;
    let from_start = stored.iter().map(|&place| if place < 0 { place + size } else { place });
    w.needed(DType::I64, &shape, from_start.flat_map(i64::to_le_bytes).collect())
}

/// Computed places along axes of `x`, each modulo the size of its axis unless none is negative.
fn from_start(
    w: &mut Writer<'_>,
    id: NodeId,
    tensor: i32,
    value: ValueId,
    x: ValueId,
    along: Range<usize>,
) -> Result<i32, Why> {
    let (shape, whole) = (w.shape(value)?, w.shape(x)?);
    let known = w.facts.tensor(value).and_then(TensorFact::dims);
    let is_plain = known.is_some_and(|all| all.iter().all(|it| it.provably_nonneg(w.facts.symbols())));
    let dtype = schema::type_of(w.type_of(tensor)).filter(|it| matches!(it, DType::I32 | DType::I64));
    let (Some(dtype), Some(sizes)) = (dtype, whole.get(along.clone())) else { return Ok(tensor) };
    // FLOOR_MOD takes no more axes; beyond, LiteRT ends a run with negative places with an error.
    if is_plain || shape.len() > MOST_AXES {
        return Ok(tensor);
    }
    let sizes: Option<Vec<i64>> = sizes.iter().map(Dim::as_const).collect();
    let sizes = match sizes {
        Some(sizes) if sizes.contains(&0) => return Ok(tensor),
        Some(sizes) => {
            let bytes = sizes.iter().flat_map(|size| match dtype {
                DType::I32 => (*size as i32).to_le_bytes().to_vec(),
                _ => size.to_le_bytes().to_vec(),
            });
            let dims = if shape.is_empty() { vec![] } else { vec![sizes.len() as i32] };
            w.needed(dtype, &dims, bytes.collect())?
        }
        None => {
            let all = w.scratch(id, dtype, &[Dim::from(whole.len() as i64)])?;
            let given = w.tensor(x)?;
            let kind = w.type_of(all);
            w.emit(schema::SHAPE, 1, vec![(0, Setting::Byte(kind))], &[given], &[all]);
            let part = w.scratch(id, dtype, &[Dim::from(along.len() as i64)])?;
            let inputs = [all, w.list(&[along.start as i64])?, w.list(&[along.len() as i64])?];
            w.emit(schema::SLICE, 1, vec![], &inputs, &[part]);
            match shape.is_empty() {
                true => {
                    let (scalar, none) = (w.scratch(id, dtype, &[])?, w.list(&[])?);
                    w.emit(schema::RESHAPE, 1, vec![], &[part, none], &[scalar]);
                    scalar
                }
                false => part,
            }
        }
    };
    let to = w.scratch(id, dtype, &shape)?;
    w.emit(schema::FLOOR_MOD, 1, vec![], &[tensor, sizes], &[to]);
    Ok(to)
}

pub fn gather(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, indices) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(x, CHOSEN)?;
    let axis = axis(w.call(id)?.int("axis")?, w.rank(x)?)?;
    let inputs = [w.tensor(x)?, places(w, id, indices, x, axis)?];
    let y = w.result(id)?;
    w.emit(schema::GATHER, 1, vec![(0, Setting::Int(axis as i32))], &inputs, &[y]);
    Ok(())
}

pub fn gather_nd(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, indices) = (w.arg(id, 0)?, w.arg(id, 1)?);
    let batch = w.call(id)?.int("batch_dims")?;
    w.demand(id, "batch_dims", batch == 0)?;
    w.takes(x, CHOSEN)?;
    if is_negative(w, indices) {
        return Err("it counts from the end of an axis".into());
    }
    let mut at = w.tensor(indices)?;
    if w.model.constant(indices).is_none()
        && let Some(count) = w.shape(indices)?.last().and_then(Dim::as_const)
    {
        at = from_start(w, id, at, indices, x, 0..usize::try_from(count).unwrap_or(0))?;
    }
    let inputs = [w.tensor(x)?, at];
    let y = w.result(id)?;
    w.emit(schema::GATHER_ND, 1, vec![], &inputs, &[y]);
    Ok(())
}

pub fn gather_elements(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, indices) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(x, CHOSEN)?;
    w.takes(indices, &[DType::I32, DType::I64])?;
    let mut sizes = w.shape(indices)?;
    let rank = sizes.len();
    let axis = axis(w.call(id)?.int("axis")?, rank)?;
    if is_negative(w, indices) {
        return Err("it counts from the end of an axis".into());
    }
    // Every index becomes a whole place: along the other axes it is where the index stands.
    let own = w.scratch(id, DType::I32, &[Dim::from(rank as i64)])?;
    let from = w.tensor(indices)?;
    w.emit(schema::SHAPE, 1, vec![(0, Setting::Byte(2))], &[from], &[own]);
    let column = w.scratch(id, DType::I32, &[Dim::from(rank as i64 + 1)])?;
    let one = w.list(&[1])?;
    w.emit(schema::CONCATENATION, 1, vec![(0, Setting::Int(0))], &[own, one], &[column]);
    sizes.push(Dim::ONE);
    let mut parts = Vec::with_capacity(rank);
    for along in 0..rank {
        let to = w.scratch(id, DType::I32, &sizes)?;
        if along == axis {
            let mut narrow = w.narrowed_tensor(id, indices)?;
            if w.model.constant(indices).is_none() {
                narrow = from_start(w, id, narrow, indices, x, axis..axis + 1)?;
            }
            w.emit(schema::RESHAPE, 1, vec![], &[narrow, column], &[to]);
        } else {
            let counted = count_along(w, id, own, along, rank + 1, sizes.get(along))?;
            w.emit(schema::BROADCAST_TO, 2, vec![], &[counted, column], &[to]);
        }
        parts.push(to);
    }
    let mut whole = sizes;
    whole.pop();
    whole.push(Dim::from(rank as i64));
    let all = w.scratch(id, DType::I32, &whole)?;
    w.emit(schema::CONCATENATION, 1, vec![(0, Setting::Int(rank as i32))], &parts, &[all]);
    let (x, y) = (w.tensor(x)?, w.result(id)?);
    w.emit(schema::GATHER_ND, 1, vec![], &[x, all], &[y]);
    Ok(())
}

/// 0, 1, 2 … along one of so many axes, as many as a shape says.
fn count_along(
    w: &mut Writer<'_>,
    id: NodeId,
    shape: i32,
    along: usize,
    rank: usize,
    size: Option<&Dim>,
) -> Result<i32, Why> {
    let size = size.cloned().ok_or("an axis is missing")?;
    let (part, end) = (w.scratch(id, DType::I32, &[Dim::ONE])?, w.scratch(id, DType::I32, &[])?);
    let inputs = [shape, w.list(&[along as i64])?, w.list(&[1])?];
    w.emit(schema::SLICE, 1, vec![], &inputs, &[part]);
    let scalar = w.list(&[])?;
    w.emit(schema::RESHAPE, 1, vec![], &[part, scalar], &[end]);
    let counted = w.scratch(id, DType::I32, std::slice::from_ref(&size))?;
    let inputs = [w.int(0)?, end, w.int(1)?];
    w.emit(schema::RANGE, 1, vec![], &inputs, &[counted]);
    let mut dims = vec![Dim::ONE; rank];
    dims[along] = size;
    let target: Vec<i64> = (0..rank).map(|axis| if axis == along { -1 } else { 1 }).collect();
    let (target, to) = (w.list(&target)?, w.scratch(id, DType::I32, &dims)?);
    w.emit(schema::RESHAPE, 1, vec![], &[counted, target], &[to]);
    Ok(to)
}

/// Whether places that are stored are counted from the end.
fn is_negative(w: &Writer<'_>, value: ValueId) -> bool {
    let stored = w.model.constant(value).and_then(|constant| constant.to_i64s().ok());
    stored.is_some_and(|stored| stored.iter().any(|&place| place < 0))
}

pub fn choose(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (condition, a, b) = (w.arg(id, 0)?, w.arg(id, 1)?, w.arg(id, 2)?);
    w.takes(a, CHOSEN)?;
    let inputs = [w.tensor(condition)?, w.tensor(a)?, w.tensor(b)?];
    let y = w.result(id)?;
    w.emit(schema::SELECT_V2, 1, vec![], &inputs, &[y]);
    Ok(())
}

pub fn arg_extreme(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(x, &[DType::F32, DType::I32, DType::U8, DType::I8])?;
    let last = call.flag("select_last_index")?;
    w.demand(id, "select_last_index", !last)?;
    let mut shape = w.shape(x)?;
    let axis = axis(call.int("axis")?, shape.len())?;
    let is_max = w.node(id).op().is("ArgMax");
    let builtin = if is_max { schema::ARG_MAX } else { schema::ARG_MIN };
    let keeps = call.flag("keepdims")?;
    let y = w.result(id)?;
    shape.remove(axis);
    let to = if keeps { w.scratch(id, DType::I64, &shape)? } else { y };
    let along = w.int(axis as i64)?;
    let x = w.tensor(x)?;
    w.emit(builtin, 1, vec![(0, Setting::Byte(4))], &[x, along], &[to]);
    if keeps {
        w.emit(schema::EXPAND_DIMS, 1, vec![], &[to, along], &[y]);
    }
    Ok(())
}

pub fn top_k(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, k, call) = (w.arg(id, 0)?, w.arg(id, 1)?, w.call(id)?);
    w.takes(x, &[DType::F32, DType::I32, DType::I64, DType::I8, DType::U8])?;
    let rank = w.rank(x)?;
    let is_last = axis(call.int("axis")?, rank)? + 1 == rank;
    w.demand(id, "axis", is_last)?;
    let largest = call.flag("largest")?;
    w.demand(id, "largest", largest)?;
    let values = w.node(id).output(0).or(w.node(id).output(1)).ok_or("nothing reads its results")?;
    let (dtype, shape) = (w.dtype(x)?, w.shape(values)?);
    let count = w.narrowed(id, k)?;
    // A list of one number is no number.
    let count = match w.rank(k)? {
        0 => count,
        _ => {
            let (scalar, none) = (w.scratch(id, DType::I32, &[])?, w.list(&[])?);
            w.emit(schema::RESHAPE, 1, vec![], &[count, none], &[scalar]);
            scalar
        }
    };
    let best = match w.node(id).output(0) {
        Some(output) => w.tensor(output)?,
        None => w.scratch(id, dtype, &shape)?,
    };
    let at = w.scratch(id, DType::I32, &shape)?;
    let x = w.tensor(x)?;
    w.emit(schema::TOPK_V2, 1, vec![], &[x, count], &[best, at]);
    if let Some(output) = w.node(id).output(1) {
        let wide = w.tensor(output)?;
        w.cast(at, wide);
    }
    Ok(())
}
