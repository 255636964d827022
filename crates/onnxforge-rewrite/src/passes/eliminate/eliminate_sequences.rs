//! eliminate_sequences: tensors take the way that sequences took.
//!
//! **Matches** SequenceAt, SequenceLength and ConcatFromSequence of a SequenceConstruct (`at`, `length`, `concat`); SplitToSequence whose
//! parts only SequenceAt with constant positions reads, which becomes Split (`split`).
//! **Accuracy** `BitExact`.
//! **Proof** A sequence hands on the tensors that it was made of, in their order; Split cuts a tensor where SplitToSequence does.
//! **Trust** SequenceAt hands on the very tensor that the sequence was made of (`at`).
//! **Never** with positions that are computed, or beyond the sequence; where the sequence itself is read by something else.

use crate::passes::pass;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, NodeId, Op, Trust, ValueId};
use onnxforge_ops::Fact;

pass!(eliminate_sequences {
    stage: Canonicalize,
    needs: ["SequenceAt", "SequenceLength", "ConcatFromSequence"],
    trusts: [Forwarded],
    rules: [AT, LENGTH, CONCAT, SPLIT],
});

static AT: At = At {
    name: "at",
    accuracy: Accuracy::BitExact,
    ops: &["SequenceAt"],
    apply: |cx, id| {
        let made = cx.producer(cx.input(id, 0)?, "SequenceConstruct", id).ok_or(Skip::NOT_HERE)?;
        let items = cx.node(made).inputs();
        let item = items[position(cx, id, items.len())?].ok_or(Skip::NOT_HERE)?;
        let mut change = cx.forward(id, item)?;
        change.trust(Trust::Forwarded);
        Ok(change)
    },
};

static LENGTH: At = At {
    name: "length",
    accuracy: Accuracy::BitExact,
    ops: &["SequenceLength"],
    apply: |cx, id| {
        let sequence = cx.input(id, 0)?;
        let Fact::Sequence { items: Some(items), .. } = cx.facts.fact(sequence) else {
            return Err(Skip::at(Reason::UnknownShape, sequence));
        };
        let mut change = cx.change(&[id]);
        let number = onnxforge_ops::Array::scalar(items.len() as i64)
            .to_tensor()
            .map_err(onnxforge_ops::OpError::from)?;
        let length = change.constant("length", number);
        change.replace(cx.output(id)?, length);
        Ok(change)
    },
};

static CONCAT: At = At {
    name: "concat",
    accuracy: Accuracy::BitExact,
    ops: &["ConcatFromSequence"],
    apply: |cx, id| {
        let made = cx.producer(cx.input(id, 0)?, "SequenceConstruct", id).ok_or(Skip::NOT_HERE)?;
        let call = cx.call(id)?;
        if call.flag("new_axis")? {
            return Err(Reason::Attribute("new_axis").into());
        }
        let mut change = cx.change(&[id]);
        change.absorb(made);
        let inputs: Vec<_> = cx.node(made).inputs().iter().map(|&input| input.into()).collect();
        let one = change.call(Op::standard("Concat"), inputs, 1, [("axis", call.int("axis")?).into()]);
        change.replace(cx.output(id)?, one.output(0));
        Ok(change)
    },
};

static SPLIT: At =
    At { name: "split", accuracy: Accuracy::BitExact, ops: &["SplitToSequence"], apply: split };

fn split(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let call = cx.call(id)?;
    let (x, sequence) = (cx.input(id, 0)?, cx.output(id)?);
    let Fact::Sequence { items: Some(items), .. } = cx.facts.fact(sequence) else {
        return Err(Skip::at(Reason::UnknownShape, sequence));
    };
    if cx.node(id).input(1).is_none() && !call.flag("keepdims")? {
        return Err(Reason::Attribute("keepdims").into());
    }
    let axis = onnxforge_ops::call::axis(call.int("axis")?, cx.rank(x)?)?;
    let size = |item: &Fact| item.tensor()?.shape.as_ref()?.get(axis)?.as_const();
    let sizes: Option<Vec<i64>> = items.iter().map(size).collect();
    let sizes = sizes.ok_or_else(|| Skip::at(Reason::UnknownShape, sequence))?;
    let mut consumed = vec![id];
    let mut parts: Vec<(ValueId, usize)> = Vec::new();
    for used in cx.model.value(sequence).uses() {
        let Use::Input { node, .. } = *used else { return Err(Skip::at(Reason::ReadElsewhere, sequence)) };
        if !cx.node(node).op().is("SequenceAt") || cx.scope(node) != cx.scope(id) {
            return Err(Skip::at(Reason::ReadElsewhere, sequence));
        }
        parts.push((cx.output(node)?, position(cx, node, sizes.len())?));
        consumed.push(node);
    }
    if sizes.len() < 2 || parts.is_empty() {
        return Err(Skip::NOT_HERE);
    }
    let mut change = cx.change(&consumed);
    let mut attrs = vec![("axis", axis as i64).into()];
    let mut inputs = vec![x.into()];
    // From version 13 on the sizes are an input.
    if cx.opset(id) < 13 {
        attrs.push(("split", sizes.clone()).into());
    } else {
        inputs.push(change.ints("split", &sizes));
    }
    let pieces = change.call(Op::standard("Split"), inputs, sizes.len(), attrs);
    parts.into_iter().for_each(|(value, position)| change.replace(value, pieces.output(position)));
    Ok(change)
}

/// The constant position at which a SequenceAt reads a sequence of so many tensors.
fn position(cx: &Cx<'_>, id: NodeId, count: usize) -> Result<usize, Skip> {
    let index = cx.input(id, 1)?;
    let [position] = *cx.ints(index)? else { return Err(Skip::NOT_HERE) };
    onnxforge_ops::call::axis(position, count).map_err(|_| Skip::because("it reads beyond the sequence"))
}
