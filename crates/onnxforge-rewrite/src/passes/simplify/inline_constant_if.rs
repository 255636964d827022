//! inline_constant_if: an If whose condition is known becomes the nodes of the branch that is taken.
//!
//! **Matches** If whose condition is a constant, or known from shapes.
//! **Accuracy** `BitExact`.
//! **Proof** The branch that is taken is run once, where the If stands, with what is visible there; its results are those of the If.
//! **Trust** The results of an If are the results of the branch that is taken, whatever their shape.
//! **Never** a condition that a caller can override; a branch with values that something refers to by name.

use crate::passes::pass;
use crate::{At, Skip};
use onnxforge_ir::{Accuracy, Trust};

pass!(inline_constant_if { stage: Canonicalize, needs: ["If"], trusts: [Spliced], rules: [INLINE] });

static INLINE: At = At {
    name: "inline",
    accuracy: Accuracy::BitExact,
    ops: &["If"],
    apply: |cx, id| {
        let call = cx.call(id)?;
        let [condition] = *cx.ints(cx.input(id, 0)?)? else { return Err(Skip::NOT_HERE) };
        let branch = call.graph(if condition != 0 { "then_branch" } else { "else_branch" })?;
        let mut change = cx.change(&[id]);
        let wanted = |index: usize| cx.read_output(id, index).is_some();
        let results = change.splice(cx, id, branch, &[], None, &wanted)?;
        for (index, result) in results.into_iter().enumerate() {
            if let Some(output) = cx.read_output(id, index) {
                change.hand_over(cx, output, result);
            }
        }
        change.trust(Trust::Spliced);
        Ok(change)
    },
};
