//! merge_reshapes: a Reshape, Flatten, Squeeze or Unsqueeze of another one becomes one Reshape.
//!
//! **Matches** two nodes of the four operators in a row, the first read only by such nodes, whose result shape can be written as
//! constants, kept axes and at most one open size, seen from the source; or is known and has no elements.
//! **Accuracy** `BitExact`.
//! **Proof** All four keep the elements in row-major order, so that only the last shape counts. The driver proves the shape.
//! **Never** through a `0` of the second target, which means an axis of the middle: targets are computed anew from shapes.

use crate::passes::pass;
use crate::passes::recognize::reshape_target::target_between;
use crate::{At, Reason, Skip};
use onnxforge_ir::Accuracy;
use onnxforge_ir::dim::Dim;
use onnxforge_ir::value::Use;

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
        let (target, attrs) = match empty(cx.shape(y)?).filter(|_| cx.opset(outer) >= 14) {
            Some(sizes) => (sizes, vec![("allowzero", 1).into()]),
            None => (target_between(cx, x, y)?, Vec::new()),
        };
        let shape = change.ints("shape", &target);
        let one = change.op("Reshape", [x.into(), shape], attrs);
        change.replace(y, one);
        Ok(change)
    },
};

/// The sizes of a shape that is known and has no elements.
fn empty(shape: &[Dim]) -> Option<Vec<i64>> {
    let sizes: Vec<i64> = shape.iter().map(Dim::as_const).collect::<Option<_>>()?;
    sizes.contains(&0).then_some(sizes)
}
