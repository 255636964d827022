//! eliminate_noop_transposes: a Transpose that leaves every element where it is goes away.
//!
//! **Matches** a permutation that keeps the order of all axes, axes of size 1 not counted, and gives the same shape.
//! **Accuracy** `BitExact`.
//! **Proof** The place of an element in memory depends on its indices along axes of size above 1, in their order.

use super::pass;
use crate::ir::{Accuracy, NodeId};
use crate::rewrite::{At, Cx, Skip};

pass!(eliminate_noop_transposes, &[&KEEPS_ORDER]);

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

/// The order of axes that a Transpose gives; by default the reverse.
pub(super) fn permutation(cx: &Cx<'_>, node: NodeId) -> Result<Vec<usize>, Skip> {
    let call = cx.call(node)?;
    let rank = cx.rank(cx.input(node, 0)?)?;
    let perm = match call.opt_ints("perm")? {
        Some(perm) => crate::ops::call::axes(&perm, rank)?,
        None => (0..rank).rev().collect(),
    };
    if perm.len() == rank { Ok(perm) } else { Err(Skip::NOT_HERE) }
}
