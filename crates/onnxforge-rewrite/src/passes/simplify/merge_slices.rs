//! merge_slices: a Slice of a Slice becomes one.
//!
//! **Matches** two Slices with constant arguments in a row, the first read by nothing else. Axes that only one of them cuts keep their
//! bounds. On an axis that both cut, both go forward, and either its size is a number, or both steps are 1 and no bound is negative.
//! **Accuracy** `BitExact`: elements are moved once instead of twice.
//! **Proof** Bounds of other axes do not matter to an axis. The places a, a+s, … of which every t-th is taken from the k-th on are
//! a+k·s, a+k·s+s·t, …; x[a:b][c:d] is x[a+c : min(b, a+d)] for any size, as what lies beyond the end counts for neither.
//! **Trust** Where no axis is cut twice, each is cut once with the bounds that it was cut with, whatever its size and however many axes there
//! are.
//! **Never** through bounds that are computed, or that count from the end of an axis of unknown size; backwards on a common axis.

use crate::passes::pass;
use crate::passes::recognize::slice_cuts::{Cut, Places, axis_size, cuts};
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, NodeId, Op, Trust, ValueId};

pass!(merge_slices { stage: Canonicalize, trusts: [Regrouped], rules: [MERGE] });

static MERGE: At = At { name: "merge", accuracy: Accuracy::BitExact, ops: &["Slice"], apply: merge };

fn merge(cx: &Cx<'_>, outer: NodeId) -> Result<Change, Skip> {
    let middle = cx.input(outer, 0)?;
    let inner = cx.producer(middle, "Slice", outer).ok_or(Skip::NOT_HERE)?;
    let (x, y) = (cx.input(inner, 0)?, cx.output(outer)?);
    let mut all = cuts(cx, inner)?;
    let mut is_disjoint = true;
    for cut in cuts(cx, outer)? {
        match all.iter_mut().find(|first| first.axis == cut.axis) {
            Some(first) => {
                is_disjoint = false;
                *first = one_after_the_other(cx, x, *first, cut)?;
            }
            None => all.push(cut),
        }
    }
    cx.read_only_by(middle, outer)?;
    all.sort_by_key(|cut| cut.axis);
    let list = |part: fn(&Cut) -> i64| all.iter().map(part).collect::<Vec<i64>>();
    let (starts, ends) = (list(|cut| cut.start), list(|cut| cut.end));
    let (axes, steps) = (list(|cut| cut.axis as i64), list(|cut| cut.step));
    let mut change = cx.change(&[inner, outer]);
    let mut inputs: Vec<Operand> = vec![x.into()];
    let mut attrs = Vec::new();
    if cx.opset(outer) < 10 {
        attrs.extend([("starts", starts), ("ends", ends), ("axes", axes)].map(Into::into));
    } else {
        inputs.extend(
            [("starts", starts), ("ends", ends), ("axes", axes)].map(|(name, list)| change.ints(name, &list)),
        );
        if steps.iter().any(|&step| step != 1) {
            inputs.push(change.ints("steps", &steps));
        }
    }
    let one = change.call(Op::standard("Slice"), inputs, 1, attrs);
    change.replace(y, one.output(0));
    if is_disjoint {
        change.trust(Trust::Regrouped);
    }
    Ok(change)
}

/// What two cuts of an axis of `x` take together.
fn one_after_the_other(cx: &Cx<'_>, x: ValueId, first: Cut, second: Cut) -> Result<Cut, Skip> {
    let plain = |cut: Cut| cut.step == 1 && cut.start >= 0 && cut.end >= 0;
    if plain(first) && plain(second) {
        let end = first.end.min(first.start.saturating_add(second.end));
        return Ok(Cut { start: first.start.saturating_add(second.start), end, ..first });
    }
    let backwards = || Skip::because("it steps backwards on an axis that is cut before");
    let outer_places = first.places(axis_size(cx, x, first.axis)?).ok_or_else(backwards)?;
    let inner_places = second.places(outer_places.count).ok_or_else(backwards)?;
    let cut = joined(outer_places, inner_places).ok_or(Reason::Rule("its bounds are too large"))?;
    Ok(Cut { axis: first.axis, ..cut })
}

/// The places of an axis that are the places `second` among the places `first`.
fn joined(first: Places, second: Places) -> Option<Cut> {
    if second.count == 0 {
        return Some(Cut { axis: 0, start: 0, end: 0, step: 1 });
    }
    let start = first.first.checked_add(second.first.checked_mul(first.step)?)?;
    if second.count == 1 {
        return Some(Cut { axis: 0, start, end: start + 1, step: 1 });
    }
    let step = first.step.checked_mul(second.step)?;
    let end = start.checked_add(step.checked_mul(second.count - 1)?)?.checked_add(1)?;
    Some(Cut { axis: 0, start, end, step })
}
