//! eliminate_softmax_before_argmax: the place of the largest probability is the place of the largest number.
//!
//! **Matches** ArgMax of Softmax or LogSoftmax along the same axis (`softmax`); ArgMax of Exp of such a Softmax or LogSoftmax (`exp`).
//! **Accuracy** `Rounding`: the answer is the one that the function would give without rounding. Where rounding makes the largest numbers equal, it chose
//! among them by their order, and now the larger one is chosen.
//! **Proof** Along its axis, Softmax divides e^x by one number, and LogSoftmax subtracts one: both grow with x, and so does Exp. Equal numbers stay equal, so that the
//! first or last of them is the same one. The largest probability is at least 1 / n, and its logarithm at least −log n: neither it nor Exp of it vanishes or
//! overflows. What is −∞ has probability 0 and is not the largest. Where a number is NaN or +∞, or all are −∞, every probability is NaN, of which the
//! standard calls none the largest.
//! **Bound** The operands of ArgMax lose their roundings, and nothing is rounded any more: every comparison is at least as exact as before.
//! **Never** another axis; before operator set 13, where the axes from `axis` on are one, any but the last axis; Exp of anything else, which overflows beyond 88 and
//! vanishes below −103; Log and Sqrt, which are not defined everywhere, and Sigmoid, which is 1 beyond 17; ArgMin, for probabilities vanish; numbers of
//! 16 bits, among which rounding makes many equal.

use crate::passes::pass;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, DType, NodeId, ValueId};

pass!(eliminate_softmax_before_argmax { stage: Canonicalize, needs: ["ArgMax"], rules: [SOFTMAX, EXP] });

const FEW: Accuracy = Accuracy::Rounding { ulps: 4.0 };

static SOFTMAX: At = At {
    name: "softmax",
    accuracy: FEW,
    ops: &["ArgMax"],
    apply: |cx, argmax| {
        let p = cx.input(argmax, 0)?;
        let softmax = softmax(cx, argmax, p)?;
        skip(cx, argmax, softmax)
    },
};

static EXP: At = At {
    name: "exp",
    accuracy: FEW,
    ops: &["ArgMax"],
    apply: |cx, argmax| {
        let exp = cx.producer(cx.input(argmax, 0)?, "Exp", argmax).ok_or(Skip::NOT_HERE)?;
        softmax(cx, argmax, cx.input(exp, 0)?)?;
        skip(cx, argmax, exp)
    },
};

/// The Softmax or LogSoftmax along the axis of `argmax` that computes `value`.
fn softmax(cx: &Cx<'_>, argmax: NodeId, value: ValueId) -> Result<NodeId, Skip> {
    let producer = |op| cx.producer(value, op, argmax);
    let softmax = producer("Softmax").or_else(|| producer("LogSoftmax")).ok_or(Skip::NOT_HERE)?;
    let rank = cx.rank(value)?;
    let axis = cx.axis(softmax, rank)?;
    if cx.axis(argmax, rank)? != axis {
        return Err(Reason::Attribute("axis").into());
    }
    if cx.call(softmax)?.since() < 13 && axis + 1 != rank {
        return Err(Skip::because("it runs along several axes"));
    }
    match cx.dtype(value)? {
        DType::F32 | DType::F64 => Ok(softmax),
        _ => Err(Skip::at(Reason::Type, value)),
    }
}

/// ArgMax of what `function` reads instead of what it gives.
fn skip(cx: &Cx<'_>, argmax: NodeId, function: NodeId) -> Result<Change, Skip> {
    let mut change = cx.change(&[argmax]);
    change.absorb(function);
    let place = change.remake(cx, argmax, [cx.input(function, 0)?.into()]);
    change.replace(cx.output(argmax)?, place);
    Ok(change)
}
