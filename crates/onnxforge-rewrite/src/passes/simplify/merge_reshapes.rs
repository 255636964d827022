//! merge_reshapes: a Reshape, Flatten, Squeeze or Unsqueeze of another one becomes one Reshape.
//!
//! **Matches** two nodes of the four operators in a row, the first read only by such nodes, whose result shape can be written as
//! constants, kept axes and at most one open size, seen from the source, or as what the first computes and constants behind that (`merge`); or is known and has no elements.
//! **Accuracy** `BitExact`.
//! **Proof** All four keep the elements in row-major order, so that only the last shape counts. The driver proves the shape.
//! The first target, where it is a Concat of computed sizes and constants, has other constants at its end.
//! **Never** through a `0` of the second target, which means an axis of the middle: targets are computed anew from shapes.

use crate::passes::pass;
use crate::passes::recognize::reshape_target::target_between;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, NodeId, Op, ValueId};

const FAMILY: &[&str] = &["Reshape", "Flatten", "Squeeze", "Unsqueeze"];

pass!(merge_reshapes { stage: Canonicalize, rules: [MERGE] });

pub(in crate::passes) static MERGE: At = At {
    name: "merge",
    accuracy: Accuracy::BitExact,
    ops: FAMILY,
    apply: |cx, outer| {
        let (middle, y) = (cx.input(outer, 0)?, cx.output(outer)?);
        let inner = FAMILY.iter().find_map(|op| cx.producer(middle, op, outer)).ok_or(Skip::NOT_HERE)?;
        let x = cx.input(inner, 0)?;
        let mut change = cx.change(&[outer]);
        change.absorb(inner);
        if cx.same_shape(cx.shape(x)?, cx.shape(y)?) {
            change.replace(y, x);
            return Ok(change);
        }
        // When others read the middle too, it goes only if they all can do without it.
        let in_family = |used: &Use| matches!(used, Use::Input { node, index: 0 } if FAMILY.iter().any(|op| cx.node(*node).op().is(op)));
        let entry = cx.model.value(middle);
        if entry.is_pinned() || !entry.uses().iter().all(in_family) {
            return Err(Skip::at(Reason::ReadElsewhere, middle));
        }
        // From version 14 on, a size of 0 can be written down.
        let (shape, attrs) = match empty(cx.shape(y)?).filter(|_| cx.opset(outer) >= 14) {
            Some(sizes) => (change.ints("shape", &sizes), vec![("allowzero", 1).into()]),
            None => match target_between(cx, x, y) {
                Ok(target) => (change.ints("shape", &target), Vec::new()),
                Err(skip) => (with_other_end(cx, &mut change, inner, y).ok_or(skip)?, Vec::new()),
            },
        };
        let one = change.op("Reshape", [x.into(), shape], attrs);
        change.replace(y, one);
        Ok(change)
    },
};

/// The target of the Reshape `inner`, which a Concat computes, with other numbers at its end: those of the shape of `y`.
fn with_other_end(cx: &Cx<'_>, change: &mut Change, inner: NodeId, y: ValueId) -> Option<Operand> {
    let is_plain = cx.node(inner).op().is("Reshape") && cx.node(inner).attrs().is_empty();
    let target = cx.node(inner).input(1).filter(|_| is_plain)?;
    let concat = cx.producer(target, "Concat", inner)?;
    let parts: Vec<ValueId> = cx.node(concat).inputs().iter().copied().collect::<Option<_>>()?;
    let (&end, computed) = parts.split_last()?;
    cx.model.constant(end)?;
    let sizes = |&part: &ValueId| cx.facts.tensor(part).and_then(onnxforge_ops::TensorFact::dims);
    let sizes: Vec<Dim> = computed.iter().map(sizes).collect::<Option<Vec<_>>>()?.concat();
    let (first, last) = cx.shape(y).ok()?.split_at_checked(sizes.len())?;
    let numbers: Vec<i64> = last.iter().map(Dim::as_const).collect::<Option<_>>()?;
    // Elements of the target that are the sizes themselves mean the same whatever is reshaped.
    if computed.is_empty() || !cx.same_shape(&sizes, first) || numbers.contains(&0) {
        return None;
    }
    let numbers = change.ints("sizes", &numbers);
    let parts: Vec<Operand> = computed.iter().map(|&part| part.into()).chain([numbers]).collect();
    Some(change.call(Op::standard("Concat"), parts, 1, [("axis", 0).into()]).output(0))
}

/// The sizes of a shape that is known and has no elements.
fn empty(shape: &[Dim]) -> Option<Vec<i64>> {
    let sizes: Vec<i64> = shape.iter().map(Dim::as_const).collect::<Option<_>>()?;
    sizes.contains(&0).then_some(sizes)
}
