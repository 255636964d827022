//! eliminate_noop_reshapes: a Reshape, Flatten, Squeeze or Unsqueeze that gives the shape its input has goes away.
//!
//! **Matches** nodes of the four operators whose input and output provably have the same shape, symbols included.
//! **Accuracy** `BitExact`.
//! **Proof** They keep the elements in row-major order; with the same shape every element keeps its place.

use crate::passes::pass;
use crate::{At, Skip};
use onnxforge_ir::Accuracy;

pass!(eliminate_noop_reshapes { stage: Canonicalize, rules: [SAME_SHAPE] });

pub(in crate::passes) static SAME_SHAPE: At = At {
    name: "same_shape",
    accuracy: Accuracy::BitExact,
    ops: &["Reshape", "Flatten", "Squeeze", "Unsqueeze"],
    apply: |cx, node| {
        let (x, y) = (cx.input(node, 0)?, cx.output(node)?);
        if cx.same_shape(cx.shape(x)?, cx.shape(y)?) { cx.forward(node, x) } else { Err(Skip::NOT_HERE) }
    },
};
