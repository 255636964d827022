//! merge_gathers: places that are gathered piece by piece from one value are gathered at once.
//!
//! **Matches** Concat of pieces of one value along the Concat's axis, at least one of which a Gather by a constant vector takes, from the value itself or from a part that a
//! Split makes of it; other pieces may be parts of that Split (`constant`). Concat of Gathers of one value by vectors that are computed, which are joined instead (`computed`).
//! Nothing else reads the pieces.
//! **Accuracy** `BitExact`: elements are moved once instead of several times.
//! **Proof** A part of a Split begins where the sizes of the parts before it end; the places of the pieces, one after the other, are what the Concat gives.
//! **Never** pieces of other values, or along another axis; parts of unknown size; indices of several types; where no node would be saved.

use crate::passes::pass;
use crate::passes::recognize::slice_cuts::axis_size;
use crate::{At, Change, Cx, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, NodeId, Op, ValueId};

pass!(merge_gathers { stage: Cleanup, needs: ["Gather"], rules: [CONSTANT, COMPUTED] });

/// Most places that a Gather takes.
const MOST: usize = 1 << 16;

static CONSTANT: At =
    At { name: "constant", accuracy: Accuracy::BitExact, ops: &["Concat"], apply: constant };

static COMPUTED: At = At {
    name: "computed",
    accuracy: Accuracy::BitExact,
    ops: &["Concat"],
    apply: |cx, concat| {
        let y = cx.output(concat)?;
        let axis = cx.axis(concat, cx.rank(y)?)?;
        let mut gathers: Vec<NodeId> = Vec::new();
        let mut indices: Vec<ValueId> = Vec::new();
        for &part in cx.node(concat).inputs().iter().flatten() {
            let gather = cx.producer(part, "Gather", concat).ok_or(Skip::NOT_HERE)?;
            let places = cx.input(gather, 1)?;
            if cx.rank(places)? != 1 || cx.axis(gather, cx.rank(part)?)? != axis {
                return Err(Skip::NOT_HERE);
            }
            cx.read_only_by(part, concat)?;
            gathers.push(gather);
            indices.push(places);
        }
        let (&[first, _, ..], dtype) = (&*gathers, cx.dtype(indices[0])?) else { return Err(Skip::NOT_HERE) };
        let of = cx.input(first, 0)?;
        for (&gather, &places) in gathers.iter().zip(&indices) {
            if cx.input(gather, 0)? != of || cx.dtype(places)? != dtype {
                return Err(Skip::NOT_HERE);
            }
        }
        gathers.sort_unstable();
        gathers.dedup();
        if gathers.len() < 2 {
            return Err(Skip::NOT_HERE);
        }
        gathers.push(concat);
        let mut change = cx.change(&gathers);
        let places = indices.into_iter().map(Operand::from);
        let places = change.call(Op::standard("Concat"), places, 1, [("axis", 0).into()]).output(0);
        let one = change.op("Gather", [of.into(), places], [("axis", axis as i64).into()]);
        change.replace(y, one);
        Ok(change)
    },
};

/// Places of a value along an axis, and the nodes that take them.
struct Pieces {
    of: ValueId,
    places: Vec<i64>,
    gather: Option<NodeId>,
    split: Option<NodeId>,
}

fn constant(cx: &Cx<'_>, concat: NodeId) -> Result<Change, Skip> {
    let y = cx.output(concat)?;
    let axis = cx.axis(concat, cx.rank(y)?)?;
    let mut pieces: Vec<Pieces> = Vec::new();
    for &part in cx.node(concat).inputs().iter().flatten() {
        let piece = gathered(cx, concat, part, axis)?;
        if piece.gather.is_some() {
            cx.read_only_by(part, concat)?;
        }
        pieces.push(piece);
    }
    let of = pieces.first().ok_or(Skip::NOT_HERE)?.of;
    if pieces.iter().any(|piece| piece.of != of) || pieces.iter().all(|piece| piece.gather.is_none()) {
        return Err(Skip::NOT_HERE);
    }
    let places: Vec<i64> = pieces.iter().flat_map(|piece| piece.places.iter().copied()).collect();
    if places.len() > MOST {
        return Err(Skip::NOT_HERE);
    }
    let mut consumed: Vec<NodeId> = pieces.iter().filter_map(|piece| piece.gather).collect();
    consumed.sort_unstable();
    consumed.dedup();
    consumed.push(concat);
    let mut change = cx.change(&consumed);
    pieces.iter().filter_map(|piece| piece.split).for_each(|split| change.absorb(split));
    let indices = change.ints("indices", &places);
    let one = change.op("Gather", [of.into(), indices], [("axis", axis as i64).into()]);
    change.replace(y, one);
    Ok(change)
}

/// What a part of a Concat takes of the value that it comes from.
fn gathered(cx: &Cx<'_>, concat: NodeId, part: ValueId, axis: usize) -> Result<Pieces, Skip> {
    let Some(gather) = cx.producer(part, "Gather", concat) else {
        let (of, first, split) = split_part(cx, concat, part, axis)?.ok_or(Skip::NOT_HERE)?;
        let places = (first..first + axis_size(cx, part, axis)?).take(MOST + 1).collect();
        return Ok(Pieces { of, places, gather: None, split: Some(split) });
    };
    let (from, indices) = (cx.input(gather, 0)?, cx.input(gather, 1)?);
    if cx.rank(indices)? != 1 || cx.axis(gather, cx.rank(from)?)? != axis {
        return Err(Skip::NOT_HERE);
    }
    let size = axis_size(cx, from, axis)?;
    let (of, first, split) = match split_part(cx, concat, from, axis)? {
        Some((of, first, split)) => (of, first, Some(split)),
        None => (from, 0, None),
    };
    let inside = |place: i64| {
        let place = if place < 0 { place + size } else { place };
        (0..size).contains(&place).then_some(first + place).ok_or(Skip::NOT_HERE)
    };
    let places = cx.ints(indices)?.into_iter().map(inside).collect::<Result<_, _>>()?;
    Ok(Pieces { of, places, gather: Some(gather), split })
}

/// The value that a Split along the axis makes `part` of, where that begins, and the Split.
fn split_part(
    cx: &Cx<'_>,
    concat: NodeId,
    part: ValueId,
    axis: usize,
) -> Result<Option<(ValueId, i64, NodeId)>, Skip> {
    let Some(split) = cx.producer(part, "Split", concat) else { return Ok(None) };
    let of = cx.input(split, 0)?;
    if cx.axis(split, cx.rank(of)?)? != axis {
        return Err(Skip::NOT_HERE);
    }
    let mut first = 0;
    for output in cx.node(split).outputs() {
        let output = output.ok_or(Skip::NOT_HERE)?;
        if output == part {
            return Ok(Some((of, first, split)));
        }
        first += axis_size(cx, output, axis)?;
    }
    Err(Skip::NOT_HERE)
}
