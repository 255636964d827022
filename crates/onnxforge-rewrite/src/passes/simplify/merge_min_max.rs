//! merge_min_max: a Min of Mins, or a Max of Maxes, becomes one of all operands.
//!
//! **Matches** Min whose operands are computed by Min, each read by nothing else; Max of Max. What holds a value between numbers is `simplify_clips`' business, which
//! looks first. From operator set 8 on, where operands broadcast.
//! **Accuracy** `ValueExact`: the operators choose among numbers, and which of −0 and +0 they choose is left open.
//! **Proof** The least of several numbers is the least of one of them and the least of the others, in any order and however often; what is not a number they hand on either way. Broadcasting
//! is associative.
//! **Trust** The result has the shape that all operands have together, in one step as in two.
//! **Never** a Max of Min, or a Min of Max; operands that something else reads; for targets whose operator has two operands.

use std::collections::HashSet;

use crate::passes::pass;
use crate::passes::targets::{COREML, COREML_FILE, TFLITE, TFLITE_FILE};
use crate::{At, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Trust, ValueId};

pass!(merge_min_max {
    stage: Cleanup,
    needs: ["Min", "Max"],
    runs: Except(&[&TFLITE, &COREML, &TFLITE_FILE, &COREML_FILE]),
    trusts: [Regrouped],
    rules: [MERGE],
});

static MERGE: At = At {
    name: "merge",
    accuracy: Accuracy::ValueExact,
    ops: &["Min", "Max"],
    apply: |cx, outer| {
        let op = &*cx.node(outer).op().name;
        if cx.call(outer)?.since() < 8 {
            return Err(Skip::NOT_HERE);
        }
        let mut operands: Vec<ValueId> = Vec::new();
        let mut consumed = vec![outer];
        let mut nearest = Skip::NOT_HERE;
        for &value in cx.node(outer).inputs().iter().flatten() {
            match cx.producer(value, op, outer).map(|inner| (inner, cx.read_only_by(value, outer))) {
                Some((inner, Ok(()))) => {
                    operands.extend(cx.node(inner).inputs().iter().flatten());
                    if !consumed.contains(&inner) {
                        consumed.push(inner);
                    }
                }
                found => {
                    operands.push(value);
                    nearest = found.and_then(|(_, readable)| readable.err()).unwrap_or(nearest);
                }
            }
        }
        if consumed.len() == 1 {
            return Err(nearest);
        }
        let mut seen = HashSet::new();
        operands.retain(|&operand| seen.insert(operand));
        let mut change = cx.change(&consumed);
        let one = change.remake(cx, outer, operands.into_iter().map(Operand::from));
        change.replace(cx.output(outer)?, one);
        change.trust(Trust::Regrouped);
        Ok(change)
    },
};
