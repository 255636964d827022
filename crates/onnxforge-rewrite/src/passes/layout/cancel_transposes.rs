//! cancel_transposes: operators work in another order of axes where that takes fewer Transposes.
//!
//! **Matches** operators that treat axes alike or name them, around at least one Transpose: elementwise ones, reductions, ArgMax, ArgMin, TopK, Softmax and its
//! like, pools of the whole image, which become reductions, Concat, Split, Slice, Pad, Gather along one axis, Tile, Expand, Resize, Squeeze, Unsqueeze, Reshape that splits axes or merges neighbours,
//! QuantizeLinear, DequantizeLinear, LayerNormalization, RMSNormalization and MatMul, whose last axes stay. From a Transpose on, each that can gets the order
//! that its neighbours would then have; a minimum cut finds those for which fewer Transposes are left, which must be fewer than before (`meet`).
//! Constants are transposed once and for all.
//! **Accuracy** `BitExact`; reductions of several axes to extremes `ValueExact`; with sums of floats `Rounding`, as kernels may add in another order where the
//! axes are others.
//! **Proof** Such an operator gives the same numbers, at other places: f(T x, T c) = T f(x, c), with the axes that it names moved alike and operands that are
//! broadcast still in line. A Transpose stands wherever an order that is read is not the one that is given; composed orders that keep every axis need
//! none.
//! **Bound** Each operator sums the terms that it summed, in an order that its kernel chooses: n − 1 roundings on the way of a term before and after. A pool
//! of the whole image and ReduceMean are both one such sum and one division. No rounding is added; the 4 ulps leave room for exponentials of Softmax that
//! other code computes along another axis.
//! **Never** where as many Transposes are left; a Softmax along the last axis that would run along another one, interpolation along other axes than the
//! last: runtimes transpose there themselves; a Transpose of the last two axes in front of a product of computed matrices, which belongs to it.

use std::collections::HashSet;

use crate::passes::layout::rebuilt::rebuilt;
use crate::passes::layout::region::Layouts;
use crate::passes::pass;
use crate::{Skip, Skipped, Workbench};
use onnxforge_ir::{Accuracy, ScopeId};

const RULE: &str = "meet";
const ACCURACY: Accuracy = Accuracy::Rounding { ulps: 4.0 };

pass!(cancel_transposes { stage: Layout, accuracy: ACCURACY, run });

fn run(bench: &mut Workbench<'_>, skipped: &mut Vec<Skipped>) -> usize {
    let mut edits = 0;
    let scopes: Vec<ScopeId> = bench.model.scopes().map(|(id, _)| id).collect();
    for scope in scopes {
        let mut tried = HashSet::new();
        // Whether something changed since the first region that is in `tried`.
        let mut changed = false;
        while !bench.is_spent() {
            let layouts = Layouts::new(bench.cx(PASS.author(), RULE, ACCURACY), scope);
            let Some((node, region)) = layouts.better(&mut tried) else {
                if !std::mem::take(&mut changed) {
                    break;
                }
                tried.clear();
                continue;
            };
            match rebuilt(&layouts, &region).and_then(|change| bench.commit(change)) {
                Ok(()) => {
                    edits += 1;
                    changed = true;
                }
                Err(Skip { reason: Some(reason), culprit }) => {
                    skipped.push(Skipped { rule: RULE, node, reason, culprit });
                }
                Err(Skip { reason: None, .. }) => {}
            }
        }
    }
    edits
}
