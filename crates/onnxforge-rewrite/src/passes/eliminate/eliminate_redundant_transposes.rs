//! eliminate_redundant_transposes: a Transpose of a Transpose becomes one, or none.
//!
//! **Matches** a Transpose whose input another Transpose computes. The inner one stays where others read it.
//! **Accuracy** `BitExact`.
//! **Proof** Axis i of the result is axis q[i] of the middle, which is axis p[q[i]] of the source; the composition that keeps
//! every axis is the source itself.

use crate::passes::pass;
use crate::passes::recognize::orders::permutation;
use crate::{At, Skip};
use onnxforge_ir::Accuracy;

pass!(eliminate_redundant_transposes { stage: Canonicalize, rules: [COMPOSE] });

pub(in crate::passes) static COMPOSE: At = At {
    name: "compose",
    accuracy: Accuracy::BitExact,
    ops: &["Transpose"],
    apply: |cx, outer| {
        let inner = cx.producer(cx.input(outer, 0)?, "Transpose", outer).ok_or(Skip::NOT_HERE)?;
        let (x, first, second) = (cx.input(inner, 0)?, permutation(cx, inner)?, permutation(cx, outer)?);
        let composed: Vec<usize> = second.iter().map(|&axis| first[axis]).collect();
        let mut change = cx.change(&[outer]);
        change.absorb(inner);
        if composed.is_sorted() {
            change.replace(cx.output(outer)?, x);
        } else {
            let perm: Vec<i64> = composed.iter().map(|&axis| axis as i64).collect();
            let one = change.op("Transpose", [x.into()], [("perm", perm).into()]);
            change.replace(cx.output(outer)?, one);
        }
        Ok(change)
    },
};
