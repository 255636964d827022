//! unroll_all_loops: a Loop of constant length becomes the nodes of its turns, also where these are more. Only on request, for models grow.
//!
//! **Matches** what `unroll_loops` matches, up to 65,536 nodes.
//! **Accuracy** `BitExact`.
//! **Proof** That of `unroll_loops`.
//! **Trust** A Loop gives what its body gives in the last iteration, or all iterations stacked, whatever the shape.
//! **Never** a loop that its body may end; bodies that draw random numbers more than once; more nodes than that.

use crate::At;
use crate::passes::pass;
use crate::passes::simplify::unroll_loops::unrolled;
use onnxforge_ir::Accuracy;

pass!(unroll_all_loops {
    stage: Canonicalize,
    needs: ["Loop"],
    runs: OnRequest,
    trusts: [Spliced],
    rules: [UNROLL],
});

/// Most nodes that the turns of a loop become.
const MOST: usize = 1 << 16;

static UNROLL: At = At {
    name: "unroll",
    accuracy: Accuracy::BitExact,
    ops: &["Loop"],
    apply: |cx, id| unrolled(cx, id, |cost| cost.turns.max(cost.all) <= MOST),
};
