//! Operators that move elements.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, NodeId, ValueId};
use onnxforge_ops::Array;
use onnxforge_ops::call::axis;

use super::{Writer, quantized};
use crate::tflite::graph::Setting;
use crate::tflite::schema;
use crate::view::Why;

const MOVED: &[DType] = &[DType::F32, DType::I32, DType::I64, DType::Bool, DType::U8, DType::I8, DType::I16];
const PADDED: &[DType] = &[DType::F32, DType::I32, DType::I64, DType::U8, DType::I8];

/// The axes that a tensor may have for operators that move elements.
const MOST_AXES: usize = 6;
/// The same for cuts.
const MOST_CUT: usize = 5;

fn limit(w: &Writer<'_>, value: ValueId, most: usize) -> Result<usize, Why> {
    match w.rank(value)? {
        rank if rank <= most => Ok(rank),
        rank => Err(format!("the operator takes tensors of up to {most} axes, not of {rank}").into()),
    }
}

pub fn transpose(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    w.takes(x, MOVED)?;
    let rank = limit(w, x, MOST_AXES)?;
    let perm = w.call(id)?.opt_ints("perm")?.unwrap_or_else(|| (0..rank as i64).rev().collect());
    let inputs = [w.tensor(x)?, w.list(&perm)?];
    let y = w.result(id)?;
    let version = if rank > 5 {
        6
    } else if rank > 4 {
        4
    } else {
        1
    };
    w.emit(schema::TRANSPOSE, version, vec![], &inputs, &[y]);
    Ok(())
}

pub fn concat(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let inputs: Vec<ValueId> = w.node(id).inputs().iter().flatten().copied().collect();
    let x = w.arg(id, 0)?;
    w.takes(x, MOVED)?;
    let axis = axis(w.call(id)?.int("axis")?, w.rank(x)?)?;
    let inputs = inputs.into_iter().map(|value| w.tensor(value)).collect::<Result<Vec<_>, _>>()?;
    let y = w.result(id)?;
    w.emit(schema::CONCATENATION, 1, vec![(0, Setting::Int(axis as i32))], &inputs, &[y]);
    Ok(())
}

pub fn split(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    w.takes(x, &[DType::F32, DType::I32, DType::I64, DType::U8, DType::I8, DType::I16])?;
    let axis = axis(w.call(id)?.int("axis")?, w.rank(x)?)?;
    let along = w.shape(x)?.get(axis).cloned();
    let count = w.node(id).outputs().len();
    let mut outputs = Vec::with_capacity(count);
    let mut sizes = Vec::with_capacity(count);
    for index in 0..count {
        let output = w.node(id).output(index);
        let output = output.ok_or("one of its results has no name")?;
        sizes.push(w.shape(output)?.get(axis).and_then(Dim::as_const));
        outputs.push(w.tensor(output)?);
    }
    let axis = w.int(axis as i64)?;
    let x = w.tensor(x)?;
    let settings = vec![(0, Setting::Int(count as i32))];
    let known: Option<Vec<i64>> = sizes.iter().copied().collect();
    match known {
        Some(sizes) if sizes.iter().any(|size| Some(size) != sizes.first()) || w.type_of(x) == 4 => {
            let sizes = w.list(&sizes)?;
            w.emit(schema::SPLIT_V, 1, settings, &[x, sizes, axis], &outputs);
        }
        Some(_) => w.emit(schema::SPLIT, 1, settings, &[axis, x], &outputs),
        // All parts are of one size that is not known.
        None if w.node(id).input(1).is_none() && is_multiple(along.as_ref(), count) => {
            w.emit(schema::SPLIT, 1, settings, &[axis, x], &outputs);
        }
        None => return Err("the sizes of its results are not known".into()),
    }
    Ok(())
}

/// Whether a size is provably a whole number of so many parts.
fn is_multiple(size: Option<&Dim>, parts: usize) -> bool {
    size.and_then(Dim::as_const).is_some_and(|size| size % parts as i64 == 0)
}

pub fn pad(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, call) = (w.arg(id, 0)?, w.call(id)?);
    let dtype = w.takes(x, PADDED)?;
    let rank = limit(w, x, MOST_CUT)?;
    let all = w.padding(id, rank)?;
    let bytes = super::narrow(all.as_flattened())?.iter().flat_map(|pad| pad.to_le_bytes()).collect();
    let list = w.needed(DType::I32, &[rank as i32, 2], bytes)?;
    let (from, y) = (w.tensor(x)?, w.result(id)?);
    match &*call.text("mode")? {
        "constant" => {
            let value = w.node(id).input(2);
            let constant = value.and_then(|value| w.model.constant(value));
            let is_least = w.in_integers && quantized::least_is_zero(w, x);
            let is_zero = value.is_none()
                || is_least
                || constant.and_then(|it| Array::from_tensor(it).ok()?.to_f64().ok()) == Some(0.0);
            match value.filter(|_| !is_zero) {
                None => w.emit(schema::PAD, 1, vec![], &[from, list], &[y]),
                Some(value) => {
                    let value = if w.in_integers { quantized::least(w, id)? } else { w.tensor(value)? };
                    w.emit(schema::PADV2, 1, vec![], &[from, list, value], &[y]);
                }
            }
        }
        "reflect" if matches!(dtype, DType::F32 | DType::I32 | DType::I64) => {
            // The format turns around once, and does not count the elements at the ends.
            let shape = w.shape(x)?;
            let reaches = |(size, pads): (&Dim, &[i64; 2])| {
                pads == &[0, 0] || size.as_const().is_some_and(|size| pads.iter().all(|pad| *pad < size))
            };
            if !shape.iter().zip(&all).all(reaches) {
                let why = Why::from("it reflects more than is known to be there");
                return Err(why.hinting("--set-dim"));
            }
            w.emit(schema::MIRROR_PAD, 1, vec![(0, Setting::Byte(0))], &[from, list], &[y]);
        }
        mode => return Err(format!("the operator has no mode {mode}").into()),
    }
    Ok(())
}

pub fn tile(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, repeats) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(x, &[DType::F32, DType::I32, DType::I64, DType::Bool, DType::U8, DType::I8])?;
    let inputs = [w.tensor(x)?, w.narrowed(id, repeats)?];
    let y = w.result(id)?;
    w.emit(schema::TILE, 1, vec![], &inputs, &[y]);
    Ok(())
}

/// What a Slice takes of an axis.
#[derive(Clone, Copy)]
struct Cut {
    begin: Option<i64>,
    end: Option<i64>,
    step: i64,
}

pub fn slice(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    w.takes(x, MOVED)?;
    let (rank, shape) = (limit(w, x, MOST_CUT)?, w.shape(x)?);
    let (named, steps) = w.cut_axes(id, rank)?;
    let list = |w: &Writer<'_>, index: usize| w.node(id).input(index).and_then(|value| w.ints(value));
    let (starts, ends) = (list(w, 1), list(w, 2));
    let mut cuts = vec![Cut { begin: None, end: None, step: 1 }; rank];
    for (place, &axis) in named.iter().enumerate() {
        let step = steps.get(place).copied().unwrap_or(1);
        let fits = |list: &Option<Vec<i64>>| list.as_ref().and_then(|list| list.get(place)).copied();
        // What no 32 bits hold lies behind every end, as the largest number that they hold does.
        let inside = |value: i64| value.clamp(-i64::from(i32::MAX), i32::MAX.into());
        let mut begin = fits(&starts).map(inside);
        // Backwards from before the first element is from the first one here, and from nowhere in the format.
        if let (true, Some(from)) = (step < 0, begin.filter(|&from| from < -1)) {
            let size = shape.get(axis).and_then(Dim::as_const);
            begin = Some(from.max(-size.ok_or("it goes backwards along an axis of unknown size")?));
        }
        cuts[axis] = Cut { begin, end: fits(&ends).map(inside), step };
    }
    let is_computed = [&starts, &ends].map(Option::is_none);
    let begin = ends_of(w, id, 1, is_computed[0], &named, &cuts, |cut| cut.begin)?;
    let end = ends_of(w, id, 2, is_computed[1], &named, &cuts, |cut| cut.end)?;
    let mask = |open: &dyn Fn(usize, &Cut) -> bool| {
        let bits = cuts.iter().enumerate().filter(|(axis, cut)| open(*axis, cut));
        bits.fold(0, |mask, (axis, _)| mask | 1 << axis)
    };
    let begin_mask = mask(&|axis, cut| cut.begin.is_none() && !(is_computed[0] && named.contains(&axis)));
    let end_mask = mask(&|axis, cut| cut.end.is_none() && !(is_computed[1] && named.contains(&axis)));
    let steps: Vec<i64> = cuts.iter().map(|cut| cut.step).collect();
    let inputs = [w.tensor(x)?, begin, end, w.list(&steps)?];
    let y = w.result(id)?;
    let settings = vec![(0, Setting::Int(begin_mask)), (1, Setting::Int(end_mask))];
    let version = if rank > 4 { 4 } else { 1 };
    w.emit(schema::STRIDED_SLICE, version, settings, &inputs, &[y]);
    Ok(())
}

/// Where cuts begin or end, one for each axis.
fn ends_of(
    w: &mut Writer<'_>,
    id: NodeId,
    index: usize,
    is_computed: bool,
    named: &[usize],
    cuts: &[Cut],
    of: impl Fn(&Cut) -> Option<i64>,
) -> Result<i32, Why> {
    if !is_computed {
        let all: Vec<i64> = cuts.iter().map(|cut| of(cut).unwrap_or(0)).collect();
        return w.list(&all);
    }
    let value = w.arg(id, index)?;
    let given = w.narrowed(id, value)?;
    if !named.is_sorted_by(|a, b| a + 1 == *b) {
        return Err("its ends are computed, and its axes do not follow each other".into());
    }
    let (first, last) = (named.first().copied().unwrap_or(0), named.last().copied().unwrap_or(0));
    let mut parts = Vec::new();
    if first > 0 {
        parts.push(w.list(&vec![0; first])?);
    }
    parts.push(given);
    if last + 1 < cuts.len() {
        parts.push(w.list(&vec![0; cuts.len() - last - 1])?);
    }
    if parts.len() == 1 {
        return Ok(given);
    }
    let all = w.scratch(id, DType::I32, &[Dim::from(cuts.len() as i64)])?;
    w.emit(schema::CONCATENATION, 1, vec![(0, Setting::Int(0))], &parts, &[all]);
    Ok(all)
}
