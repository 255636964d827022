//! tflite_softmax: Softmax and LogSoftmax along another axis than the last stand between Transposes.
//!
//! **Matches** Softmax and LogSoftmax of the axis that is not the last one. For files of TensorFlow Lite, whose operators know the last axis alone.
//! **Accuracy** `Rounding`: kernels may add in another order where the axis is another one.
//! **Proof** The same numbers are summed, at other places, and go back to where they were.
//! **Bound** Exponentials, one sum of n of them and one division, before and after. None is added; the 4 ulps leave room for exponentials that other code
//! computes.
//! **Never** along the last axis.

use crate::passes::pass;
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Skip};
use onnxforge_ir::Accuracy;

pass!(tflite_softmax {
    stage: Target,
    needs: ["Softmax", "LogSoftmax"],
    runs: Only(&[&TFLITE_FILE]),
    rules: [LAST]
});

static LAST: At = At {
    name: "last",
    accuracy: Accuracy::Rounding { ulps: 4.0 },
    ops: &["Softmax", "LogSoftmax"],
    apply: |cx, id| {
        let x = cx.input(id, 0)?;
        let rank = cx.rank(x)?;
        let axis = cx.axis(id, rank)?;
        if axis + 1 == rank || cx.call(id)?.since() < 13 {
            return Err(Skip::NOT_HERE);
        }
        // Swapping two axes is undone by swapping them again.
        let mut order: Vec<i64> = (0..rank as i64).collect();
        order.swap(axis, rank - 1);
        let mut change = cx.change(&[id]);
        let moved = change.op("Transpose", [x.into()], [("perm", order.clone()).into()]);
        let name = cx.node(id).op().name.clone();
        let y = change.op(&name, [moved], [("axis", -1).into()]);
        let back = change.op("Transpose", [y], [("perm", order).into()]);
        change.replace(cx.output(id)?, back);
        Ok(change)
    },
};
