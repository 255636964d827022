//! eliminate_noop_transposes: a Transpose that leaves every element where it is goes away.
//!
//! **Matches** a permutation that keeps the order of all axes, axes of size 1 not counted, and gives the same shape.
//! **Accuracy** `BitExact`.
//! **Proof** The place of an element in memory depends on its indices along axes of size above 1, in their order.

use crate::passes::pass;
use crate::passes::recognize::orders::permutation;
use crate::{At, Skip};
use onnxforge_ir::Accuracy;

pass!(eliminate_noop_transposes { stage: Canonicalize, rules: [KEEPS_ORDER] });

static KEEPS_ORDER: At = At {
    name: "keeps_order",
    accuracy: Accuracy::BitExact,
    ops: &["Transpose"],
    apply: |cx, node| {
        let x = cx.input(node, 0)?;
        let shape = cx.shape(x)?;
        let perm = permutation(cx, node)?;
        let long: Vec<usize> =
            perm.iter().copied().filter(|&axis| shape[axis].as_const() != Some(1)).collect();
        if long.is_sorted() { cx.forward(node, x) } else { Err(Skip::NOT_HERE) }
    },
};
