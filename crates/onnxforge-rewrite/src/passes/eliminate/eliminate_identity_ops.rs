//! eliminate_identity_ops: nodes that hand their input on go away.
//!
//! **Matches** Identity; Dropout outside training; Concat, Split, Sum, Max, Min and Mean of one thing; Pad by nothing; Tile by
//! ones; Slice that takes everything; a Reduce over axes of size 1; a pool of one element; Clip of integers without bounds.
//! **Accuracy** `BitExact`: no element is computed; `ValueExact` for Reduce, where a sum that starts at +0 loses the sign of −0, and for pools, where
//! runtimes have ways of their own with NaN and −∞.
//! **Proof** Each of these is defined as its input in this case: there is one part to join or cut, one operand to add or to choose from, a mean of it
//! divided by 1; nothing to pad, repeat, leave out or hold. A reduction over axes of size 1 has one term, and so has a window of one
//! element: x, 0 + x or 1 · x, which is x for NaN, infinities and denormals too. The driver proves that the shape is the same, but for what is trusted.
//! **Trust** Identity, and Dropout outside training, hand on their input, of whatever shape and kind it is (`identity`, `dropout`).
//! **Never** a Dropout whose mask is read or that may be in training mode; a Slice that steps backwards; a Clip of floats, which without bounds still
//! makes the largest number of an infinity.

use crate::passes::pass;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::{Accuracy, NodeId, Trust};

pass!(eliminate_identity_ops {
    stage: Canonicalize,
    trusts: [Forwarded],
    rules: [IDENTITY, DROPOUT, SINGLE, PAD, TILE, SLICE, REDUCE, POOL, CLIP],
});

static IDENTITY: At = At {
    name: "identity",
    accuracy: Accuracy::BitExact,
    ops: &["Identity"],
    apply: |cx, node| {
        let mut change = cx.forward(node, cx.input(node, 0)?)?;
        change.trust(Trust::Forwarded);
        Ok(change)
    },
};

static DROPOUT: At = At { name: "dropout", accuracy: Accuracy::BitExact, ops: &["Dropout"], apply: dropout };

fn dropout(cx: &Cx<'_>, node: NodeId) -> Result<Change, Skip> {
    let call = cx.call(node)?;
    let trains = match call.since() {
        ..7 => !call.flag("is_test")?,
        7..12 => false,
        _ => match cx.node(node).input(2) {
            None => false,
            Some(mode) => cx.ints(mode)?.iter().any(|&mode| mode != 0),
        },
    };
    if trains {
        return Err(Reason::Training.into());
    }
    if let Some(mask) = cx.node(node).output(1)
        && (!cx.model.value(mask).uses().is_empty() || cx.model.value(mask).is_pinned())
    {
        return Err(Skip::at(Reason::ReadElsewhere, mask));
    }
    let mut change = cx.forward(node, cx.input(node, 0)?)?;
    change.trust(Trust::Forwarded);
    Ok(change)
}

static SINGLE: At = At {
    name: "one_input",
    accuracy: Accuracy::BitExact,
    ops: &["Concat", "Split", "Sum", "Max", "Min", "Mean"],
    apply: |cx, id| {
        let node = cx.node(id);
        let parts = if node.op().is("Split") { node.outputs().len() } else { node.inputs().len() };
        if parts != 1 {
            return Err(Skip::NOT_HERE);
        }
        cx.forward(id, cx.input(id, 0)?)
    },
};

static PAD: At = At {
    name: "pad",
    accuracy: Accuracy::BitExact,
    ops: &["Pad"],
    apply: |cx, node| {
        let call = cx.call(node)?;
        let pads = match call.since() {
            1 => call.ints("paddings")?,
            2 => call.ints("pads")?,
            _ => cx.ints(cx.input(node, 1)?)?,
        };
        if pads.iter().any(|&pad| pad != 0) {
            return Err(Skip::NOT_HERE);
        }
        cx.forward(node, cx.input(node, 0)?)
    },
};

static TILE: At = At {
    name: "tile",
    accuracy: Accuracy::BitExact,
    ops: &["Tile"],
    apply: |cx, node| {
        if cx.call(node)?.since() < 6 || cx.ints(cx.input(node, 1)?)?.iter().any(|&times| times != 1) {
            return Err(Skip::NOT_HERE);
        }
        cx.forward(node, cx.input(node, 0)?)
    },
};

static SLICE: At = At {
    name: "slice",
    accuracy: Accuracy::BitExact,
    ops: &["Slice"],
    apply: |cx, node| {
        // With steps of 1 a slice as long as its axis is the axis.
        if let Some(steps) = cx.node(node).input(4)
            && cx.ints(steps)?.iter().any(|&step| step != 1)
        {
            return Err(Skip::NOT_HERE);
        }
        same_shape(cx, node)?;
        cx.forward(node, cx.input(node, 0)?)
    },
};

static REDUCE: At = At {
    name: "reduce",
    accuracy: Accuracy::ValueExact,
    ops: &["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"],
    apply: |cx, node| {
        // A reduction that keeps the shape has only axes of size 1, or none.
        let call = cx.call(node)?;
        if !call.flag("keepdims")? {
            return Err(Skip::NOT_HERE);
        }
        same_shape(cx, node)?;
        cx.forward(node, cx.input(node, 0)?)
    },
};

static POOL: At = At {
    name: "pool",
    accuracy: Accuracy::ValueExact,
    ops: &["MaxPool", "AveragePool"],
    apply: |cx, id| {
        let (node, call) = (cx.node(id), cx.call(id)?);
        let ones =
            |name: &str| Ok::<_, Skip>(call.opt_ints(name)?.is_none_or(|all| all.iter().all(|&n| n == 1)));
        let zeros =
            |name: &str| Ok::<_, Skip>(call.opt_ints(name)?.is_none_or(|all| all.iter().all(|&n| n == 0)));
        let one =
            call.ints("kernel_shape")?.iter().all(|&size| size == 1) && ones("strides")? && zeros("pads")?;
        if !one || node.output(1).is_some() {
            return Err(Skip::NOT_HERE);
        }
        cx.forward(id, cx.input(id, 0)?)
    },
};

static CLIP: At = At {
    name: "clip",
    accuracy: Accuracy::BitExact,
    ops: &["Clip"],
    apply: |cx, id| {
        let (node, call) = (cx.node(id), cx.call(id)?);
        let bounded = if call.since() < 11 {
            call.opt_float("min")?.is_some() || call.opt_float("max")?.is_some()
        } else {
            node.input(1).is_some() || node.input(2).is_some()
        };
        let x = cx.input(id, 0)?;
        if bounded {
            return Err(Skip::NOT_HERE);
        }
        if !matches!(cx.dtype(x)?.kind(), Kind::Signed | Kind::Unsigned) {
            return Err(Skip::because("it turns infinities into the largest number"));
        }
        cx.forward(id, x)
    },
};

/// Whether the first output provably has the shape of the first input.
fn same_shape(cx: &Cx<'_>, node: NodeId) -> Result<(), Skip> {
    let (from, to) = (cx.shape(cx.input(node, 0)?)?, cx.shape(cx.output(node)?)?);
    if cx.same_shape(from, to) { Ok(()) } else { Err(Skip::NOT_HERE) }
}
