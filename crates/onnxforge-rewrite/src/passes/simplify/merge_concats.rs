//! merge_concats: a Concat takes over the parts of Concats that only it reads, has no parts that are nothing, and is not made for one of its parts, nor of all parts of a Split.
//!
//! **Matches** Concats along the same axis, the inner one read by nothing else (`merge`); parts whose size along the axis is 0 (`empty`);
//! neighbouring constants in a Concat of vectors of 64-bit integers, as shapes are made (`constants`); a Slice, or a Gather by a vector, that
//! takes neighbouring places of one part of a Concat along its axis, all of them also by way of operators that work on each element (`part`); all parts of a Split in
//! their order (`whole`).
//! **Accuracy** `BitExact`.
//! **Proof** Putting parts one after the other is associative, and a part of size 0 adds nothing. A part lies where the sizes of the parts before it end.
//! **Trust** The sizes of the parts along the axis add up to the same in one step as in two, and the other axes are those of every part
//! (`merge`, `whole`).
//! **Never** along another axis; another one that is read several times where that makes more than 64 parts; where the size of a part is not known to be 0, or sizes before a part are not known; places of several parts; a
//! Concat that something else needs as well, unless one part is taken as it is; constants that a caller may override.

use crate::passes::pass;
use crate::passes::recognize::function_of_elements;
use crate::passes::recognize::slice_cuts::{axis_size, piece};
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, DType, NodeId, Trust, ValueId};
use onnxforge_ops::call;

pass!(merge_concats {
    stage: Canonicalize,
    trusts: [Regrouped],
    rules: [MERGE, EMPTY, CONSTANTS, WHOLE, PART]
});

/// The longest vector that neighbouring constants become.
const LONGEST: usize = 1024;
/// The most parts of a Concat that reads another one several times: each such merge may double them.
const MOST_REPEATED: usize = 64;

static MERGE: At = At {
    name: "merge",
    accuracy: Accuracy::BitExact,
    ops: &["Concat"],
    apply: |cx, outer| {
        let along = axis(cx, outer)?;
        let mut parts: Vec<Operand> = Vec::new();
        let mut consumed = vec![outer];
        let mut nearest = Skip::NOT_HERE;
        for &part in cx.node(outer).inputs() {
            let part = part.ok_or(Skip::NOT_HERE)?;
            match inner(cx, part, along, outer) {
                Ok(node) => {
                    parts.extend(cx.node(node).inputs().iter().map(|&part| Operand::from(part)));
                    let is_repeated = consumed.contains(&node);
                    if is_repeated && parts.len() > MOST_REPEATED {
                        return Err(Skip::because("it would have too many parts"));
                    }
                    if !is_repeated {
                        consumed.push(node);
                    }
                }
                Err(skip) => {
                    parts.push(part.into());
                    nearest = if skip.reason.is_some() { skip } else { nearest };
                }
            }
        }
        if consumed.len() == 1 {
            return Err(nearest);
        }
        let mut change = cx.change(&consumed);
        concat(cx, &mut change, outer, parts)?;
        change.trust(Trust::Regrouped);
        Ok(change)
    },
};

/// The Concat along the same axis that computes a part and that only `outer` reads.
fn inner(cx: &Cx<'_>, part: ValueId, along: usize, outer: NodeId) -> Result<NodeId, Skip> {
    let node = cx.producer(part, "Concat", outer).ok_or(Skip::NOT_HERE)?;
    if axis(cx, node)? != along {
        return Err(Reason::Attribute("axis").into());
    }
    cx.read_only_by(part, outer)?;
    Ok(node)
}

static EMPTY: At = At {
    name: "empty",
    accuracy: Accuracy::BitExact,
    ops: &["Concat"],
    apply: |cx, id| {
        let along = axis(cx, id)?;
        let is_empty = |part: &Option<ValueId>| {
            let shape = part.and_then(|part| cx.shape(part).ok());
            shape.and_then(|shape| shape.get(along)?.as_const()) == Some(0)
        };
        let parts: Vec<Option<ValueId>> =
            cx.node(id).inputs().iter().copied().filter(|part| !is_empty(part)).collect();
        if parts.len() == cx.node(id).inputs().len() || parts.is_empty() {
            return Err(Skip::NOT_HERE);
        }
        if let &[Some(only)] = &*parts {
            return cx.forward(id, only);
        }
        let mut change = cx.change(&[id]);
        concat(cx, &mut change, id, parts.into_iter().map(Operand::from).collect())?;
        Ok(change)
    },
};

static CONSTANTS: At = At {
    name: "constants",
    accuracy: Accuracy::BitExact,
    ops: &["Concat"],
    apply: |cx, id| {
        let mut change = cx.change(&[id]);
        let mut parts: Vec<Operand> = Vec::new();
        let mut joined = false;
        let numbers = |part: &Option<ValueId>| {
            let tensor = part.and_then(|part| cx.model.constant(part))?;
            let fits = tensor.dtype() == DType::I64 && tensor.shape().len() == 1 && tensor.len() <= LONGEST;
            fits.then(|| tensor.to_i64s().ok()).flatten()
        };
        let inputs = cx.node(id).inputs();
        let mut at = 0;
        while let Some(&part) = inputs.get(at) {
            let run: Vec<Vec<i64>> = inputs[at..].iter().map_while(numbers).collect();
            at += run.len().max(1);
            if run.len() < 2 {
                parts.push(part.into());
                continue;
            }
            let run = run.concat();
            if run.len() > LONGEST {
                return Err(Skip::NOT_HERE);
            }
            joined = true;
            parts.push(change.ints("shape", &run));
        }
        // A Concat of constants alone is a constant, which is somebody else's business.
        if !joined || parts.len() < 2 {
            return Err(Skip::NOT_HERE);
        }
        concat(cx, &mut change, id, parts)?;
        Ok(change)
    },
};

static WHOLE: At = At {
    name: "whole",
    accuracy: Accuracy::BitExact,
    ops: &["Concat"],
    apply: |cx, id| {
        let first = cx.input(id, 0)?;
        let split = cx.producer(first, "Split", id).ok_or(Skip::NOT_HERE)?;
        let x = cx.input(split, 0)?;
        if cx.node(split).outputs() != cx.node(id).inputs() {
            return Err(Skip::NOT_HERE);
        }
        if cx.axis(split, cx.rank(x)?)? != axis(cx, id)? {
            return Err(Reason::Attribute("axis").into());
        }
        let mut change = cx.forward(id, x)?;
        change.absorb(split);
        change.trust(Trust::Regrouped);
        Ok(change)
    },
};

static PART: At = At { name: "part", accuracy: Accuracy::BitExact, ops: &["Slice", "Gather"], apply: part };

/// A piece of one part of a Concat, which may be seen through a function of each element.
fn part(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let whole = cx.input(id, 0)?;
    // From the cut to the Concat.
    let (mut functions, mut joined) = (Vec::new(), whole);
    while let Some(function) = function_of_elements(cx, joined, id) {
        functions.push(function);
        joined = cx.input(function, 0)?;
    }
    let concat = cx.producer(joined, "Concat", id).ok_or(Skip::NOT_HERE)?;
    let (along, taken) = piece(cx, id, whole)?;
    if along != axis(cx, concat)? || taken.count == 0 {
        return Err(Skip::NOT_HERE);
    }
    let mut end = 0;
    for &part in cx.node(concat).inputs().iter().flatten() {
        let size = axis_size(cx, part, along)?;
        let first = taken.first - end;
        if first < 0 || first + taken.count > size {
            end += size;
            continue;
        }
        let is_all = taken.count == size;
        let mut change = match (is_all, functions.is_empty()) {
            (true, true) => cx.forward(id, part)?,
            (true, false) => {
                let readers = std::iter::once(&id).chain(&functions);
                for (&function, &reader) in functions.iter().zip(readers) {
                    cx.read_only_by(cx.output(function)?, reader)?;
                }
                let mut change = cx.change(&[&*functions, &[id]].concat());
                let mut of_part: Operand = part.into();
                for &function in functions.iter().rev() {
                    of_part = change.remake(cx, function, [of_part]);
                }
                change.replace(cx.output(id)?, of_part);
                change
            }
            (false, true) => {
                cx.read_only_by(whole, id)?;
                recut(cx, id, part, along, first, taken.count)?
            }
            (false, false) => return Err(Skip::NOT_HERE),
        };
        change.absorb(concat);
        return Ok(change);
    }
    Err(Skip::because("it takes places of several parts"))
}

/// The places of `part` that `id`, a Slice or Gather, takes by way of a Concat.
fn recut(
    cx: &Cx<'_>,
    id: NodeId,
    part: ValueId,
    along: usize,
    first: i64,
    count: i64,
) -> Result<Change, Skip> {
    let mut change = cx.change(&[id]);
    let taken = if cx.node(id).op().is("Gather") {
        let indices = change.ints("indices", &(first..first + count).collect::<Vec<i64>>());
        change.remake(cx, id, [part.into(), indices])
    } else if cx.opset(id) >= 10 {
        let [start, end, axes] = [("starts", first), ("ends", first + count), ("axes", along as i64)]
            .map(|(hint, number)| change.ints(hint, &[number]));
        change.remake(cx, id, [part.into(), start, end, axes])
    } else {
        return Err(Skip::NOT_HERE);
    };
    change.replace(cx.output(id)?, taken);
    Ok(change)
}

/// The axis of a Concat.
fn axis(cx: &Cx<'_>, id: NodeId) -> Result<usize, Skip> {
    let call = cx.call(id)?;
    let axis = if call.since() < 4 { call.int_or("axis", 1)? } else { call.int("axis")? };
    match usize::try_from(axis) {
        Ok(axis) => Ok(axis),
        Err(_) => Ok(call::axis(axis, cx.rank(cx.output(id)?)?)?),
    }
}

/// Lets a Concat of the parts take the place of `old`.
fn concat(cx: &Cx<'_>, change: &mut Change, old: NodeId, parts: Vec<Operand>) -> Result<(), Skip> {
    let one = change.remake(cx, old, parts);
    change.replace(cx.output(old)?, one);
    Ok(())
}
