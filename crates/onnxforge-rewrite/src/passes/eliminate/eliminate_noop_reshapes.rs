//! eliminate_noop_reshapes: a Reshape, Flatten, Squeeze or Unsqueeze that gives the shape its input has goes away.
//!
//! **Matches** nodes of the four operators whose input and output provably have the same shape, symbols included (`same_shape`); two of them that lead to the shape that there
//! was before, with an operator that works on each element between them, which the second alone reads (`around`).
//! **Accuracy** `BitExact`.
//! **Proof** They keep the elements in row-major order; with the same shape every element keeps its place, and what is done to each does not depend on it.
//! **Never** around operators of several operands.

use crate::passes::pass;
use crate::passes::recognize::function_of_elements;
use crate::{At, Skip};
use onnxforge_ir::Accuracy;

pass!(eliminate_noop_reshapes { stage: Canonicalize, rules: [SAME_SHAPE, AROUND] });

const RESHAPERS: &[&str] = &["Reshape", "Flatten", "Squeeze", "Unsqueeze"];

pub(in crate::passes) static SAME_SHAPE: At = At {
    name: "same_shape",
    accuracy: Accuracy::BitExact,
    ops: RESHAPERS,
    apply: |cx, node| {
        let (x, y) = (cx.input(node, 0)?, cx.output(node)?);
        if cx.same_shape(cx.shape(x)?, cx.shape(y)?) { cx.forward(node, x) } else { Err(Skip::NOT_HERE) }
    },
};

static AROUND: At = At {
    name: "around",
    accuracy: Accuracy::BitExact,
    ops: RESHAPERS,
    apply: |cx, outer| {
        let (middle, y) = (cx.input(outer, 0)?, cx.output(outer)?);
        let function = function_of_elements(cx, middle, outer).ok_or(Skip::NOT_HERE)?;
        let reshaped = cx.input(function, 0)?;
        let inner = RESHAPERS.iter().find_map(|op| cx.producer(reshaped, op, outer)).ok_or(Skip::NOT_HERE)?;
        let x = cx.input(inner, 0)?;
        if !cx.same_shape(cx.shape(x)?, cx.shape(y)?) {
            return Err(Skip::NOT_HERE);
        }
        cx.read_only_by(middle, outer)?;
        let mut change = cx.change(&[function, outer]);
        change.absorb(inner);
        let one = change.remake(cx, function, [x.into()]);
        change.replace(y, one);
        Ok(change)
    },
};
