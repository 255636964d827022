//! fuse_attention: softmax(q · kᵀ) · v, decomposed, becomes Attention.
//!
//! **Matches** MatMul of a Softmax along the last axis with four-dimensional values, where the Softmax is of MatMul(q, kᵀ), scaled on either side
//! or behind it, capped by tanh, and masked by a sum, or by a condition that takes low numbers instead of scores, also where
//! that is decomposed as Cast(c) · s + Cast(Not(c)) · low, where one head of keys and values may be for all queries (`core`); keys and values that repeat heads by Unsqueeze, Expand and Reshape
//! (`groups`); keys and values that are appended to a cache, where the longer cache is read, too (`cache`); heads that are split off by Reshape and Transpose, perhaps normalized or rotated, and joined again, which the operator does itself (`heads`), heads of
//! products of rows (Reshape, Gemm, Reshape) too. From operator
//! set 23 on. Where(IsNaN(p), 0, p) behind the Softmax, by which exporters let rows without any key be 0, is what the operator does. A Softmax in 32 bits
//! between products of float16 or bfloat16, with or without its scale, cap and mask, is one with `softmax_precision`; where only one of the products has 16 bits,
//! the operator computes in 32, between Casts.
//! **Accuracy** `Rounding`: the same operations; scales are multiplied in another order, and kernels may sum in another one where heads lie elsewhere.
//! Scores must be numbers: where NaN comes in, the exporter's guard makes 0 of it and the operator does not.
//! **Proof** This is the definition of the operator. A boolean mask is the sum with 0 and −∞ that Where spells out. Runtimes take the lowest
//! number for −∞ as well; where a mask has it, a number a little higher takes its place, to which scores below 10³⁰ add nothing either. In float16, where the lowest number is
//! −65504 and scores do not vanish beside it, it hides keys while scores are below 32000, and changes nothing where it is added to a whole row: a
//! condition hides them, except in such rows. Other low numbers that are added to a whole row take places from scores of 16 bits, and nothing else: the
//! highest number of each row of such a mask is subtracted from it, which Softmax does not see.
//! Numbers of −10⁹ and lower that a condition takes instead of scores hide keys as the lowest number does, while scores are between −10⁸ and 10³⁰; rows that are all hidden are the mean
//! of all values in both cases.
//! **Bound** `core`: before, the scores have at least one rounding of their scale, unless that is 1. The operator multiplies q and k by √scale: one rounding of the
//! attribute, one of the root, which counts twice, and two products. That is 5 instead of 1, 2 ulps at the scale of the scores; what Softmax
//! makes of them is part of the scale of the result. Where scale, cap and mask were applied in 32 bits to scores of 16, the operator rounds them to 16: up to 10 roundings of the
//! scores (those 5, the product, three of the cap, the sum with the mask) instead of 1, 4.5 ulps, and probabilities are rounded to 16 where they were. Computing in 32
//! bits what was in 16 takes none. Sums, exponentials and quotients are as many as before. `groups`, `cache` and `heads` add none: the same
//! sums run over operands that lie elsewhere, in an order that the kernel chooses.
//! **Never** where a row of the mask may hide all keys, unless the exporter's guard is there: Softmax gives NaN there, or the mean of the values, and the operator 0;
//! a cache that nothing else reads when it is longer; masks before the scale, or multiplied; masks of 32 bits on scores of 16, other than 0 and −∞ behind the guard; scales behind the Softmax; scores that something else reads.

use crate::passes::pass;
use crate::passes::recognize::heads::{self, SWAPPED, Together, repeated};
use crate::passes::recognize::masks;
use crate::passes::recognize::orders::permutation;
use crate::passes::recognize::reshape_target::behind_joined_heads;
use crate::passes::recognize::scores::Decomposed;
use crate::passes::targets::{COREML, COREML_FILE, TFLITE, TFLITE_FILE};
use crate::{At, Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Attr, DType, NodeId, ValueId};

pass!(fuse_attention {
    stage: Fuse,
    needs: ["Softmax", "Attention"],
    runs: Except(&[&TFLITE, &COREML, &TFLITE_FILE, &COREML_FILE]),
    rules: [CORE, GROUPS, CACHE, HEADS],
});

/// The same sums over operands that lie elsewhere.
const MOVED: Accuracy = Accuracy::Rounding { ulps: 2.0 };

static CORE: At =
    At { name: "core", accuracy: Accuracy::Rounding { ulps: 16.0 }, ops: &["MatMul"], apply: core };
static GROUPS: At = At { name: "groups", accuracy: MOVED, ops: &["Attention"], apply: groups };
static CACHE: At = At { name: "cache", accuracy: MOVED, ops: &["Attention"], apply: cache };
static HEADS: At = At { name: "heads", accuracy: MOVED, ops: &["Reshape"], apply: joined_heads };

fn core(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let y = cx.output(root)?;
    let found = Decomposed::of(cx, Trail::new(cx, root), root)?;
    let Decomposed { q, k, v, .. } = found;
    let probabilities = cx.output(found.softmax)?;
    let (narrow, wide) = (cx.dtype(q)?, cx.dtype(probabilities)?);
    let dtype = if cx.dtype(v)? == narrow { narrow } else { DType::F32 };
    if ![narrow, wide, cx.dtype(v)?].iter().all(|of| matches!(of, DType::F32 | DType::F16 | DType::BF16)) {
        return Err(Skip::at(Reason::Type, q));
    }
    let attribute = found.scale as f32;
    if !(attribute.is_finite() && attribute > 0.0) {
        return Err(Skip::because("the scale is not a positive number"));
    }
    let [queries, keys] = found.scores(cx)?;
    let kept = match found.mask {
        Some(mask) => {
            // Scores that keep their shape have a row and a column for each that the mask has.
            let fits = cx.same_shape(cx.shape(found.masked)?, cx.shape(found.unmasked)?);
            Some(masks::keep(cx, mask, [&queries, &keys], fits, found.guarded)?)
        }
        None => None,
    };
    let mut change = found.trail.change()?;
    let k: Operand = match found.keys {
        [0, 1, 2, 3] => k.into(),
        axes => change.op("Transpose", [k.into()], [("perm", axes.map(|axis| axis as i64).to_vec()).into()]),
    };
    let as_wide = |change: &mut Change, operand: Operand, from: DType| match from == dtype {
        true => operand,
        false => change.op("Cast", [operand], [("to", i64::from(dtype.code())).into()]),
    };
    let queries = as_wide(&mut change, q.into(), narrow);
    let keys = as_wide(&mut change, k, narrow);
    let mut inputs = vec![queries, keys, as_wide(&mut change, v.into(), cx.dtype(v)?)];
    if let Some(mask) = kept {
        inputs.push(mask.operand(&mut change, [q, v], dtype)?);
    }
    let mut attrs: Vec<Attr> = vec![("scale", attribute).into()];
    if let Some(cap) = found.softcap {
        attrs.push(("softcap", cap as f32).into());
    }
    if wide != dtype {
        attrs.push(("softmax_precision", i64::from(wide.code())).into());
    }
    let attention = change.call(onnxforge_ir::Op::standard("Attention"), inputs, 1, attrs);
    let mut result = attention.output(0);
    if cx.dtype(y)? != dtype {
        result = change.op("Cast", [result], [("to", i64::from(cx.dtype(y)?.code())).into()]);
    }
    change.replace(y, result);
    Ok(change)
}

/// Keys and values of groups of heads: what Unsqueeze, Expand and Reshape repeat is read as it was.
fn groups(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let node = cx.node(id);
    let q = cx.shape(cx.input(id, 0)?)?;
    let (key, value) = (Operands::of(cx, id, 1)?, Operands::of(cx, id, 2)?);
    let (k, key_nodes) = repeated(cx, key.moved, id).ok_or(Skip::NOT_HERE)?;
    let (v, value_nodes) = repeated(cx, value.moved, id).ok_or(Skip::NOT_HERE)?;
    let (keys, values) = (cx.shape(k)?, cx.shape(v)?);
    let heads = |shape: &[Dim]| shape.get(1).and_then(Dim::as_const).filter(|&heads| heads > 0);
    let (Some(all), Some(of_keys), Some(of_values)) = (heads(q), heads(keys), heads(values)) else {
        return Err(Skip::at(Reason::UnknownShape, k));
    };
    if of_keys != of_values || all % of_keys != 0 {
        return Err(Skip::at(Reason::Broadcast, k));
    }
    let mut change = cx.change(&[id]);
    key_nodes.iter().chain(&value_nodes).for_each(|&node| change.absorb(node));
    let mut inputs: Vec<Operand> = node.inputs().iter().map(|&input| input.into()).collect();
    (inputs[1], inputs[2]) = (key.again(&mut change, k), value.again(&mut change, v));
    change.recall(cx, id, inputs);
    Ok(change)
}

/// Queries, keys or values of an Attention, which may be cast to 32 bits behind what moves them.
struct Operands {
    /// What is moved.
    moved: ValueId,
    cast: Option<NodeId>,
}

impl Operands {
    fn of(cx: &Cx<'_>, attention: NodeId, index: usize) -> Result<Self, Skip> {
        let value = cx.input(attention, index)?;
        Ok(match heads::widened(cx, value, attention) {
            Some((moved, cast)) => Self { moved, cast: Some(cast) },
            None => Self { moved: value, cast: None },
        })
    }

    /// The same of another value.
    fn again(&self, change: &mut Change, value: impl Into<Operand>) -> Operand {
        let Some(cast) = self.cast else { return value.into() };
        change.absorb(cast);
        change.op("Cast", [value.into()], [("to", i64::from(DType::F32.code())).into()])
    }
}

/// Keys and values that follow those of a cache: the operator appends them, and gives the longer cache.
fn cache(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let node = cx.node(id);
    let (keys, values) = (cx.input(id, 1)?, cx.input(id, 2)?);
    let (Some(joined_keys), Some(joined_values)) =
        (cx.producer(keys, "Concat", id), cx.producer(values, "Concat", id))
    else {
        return Err(Skip::NOT_HERE);
    };
    let (past_keys, new_keys) = appended(cx, joined_keys)?;
    let (past_values, new_values) = appended(cx, joined_values)?;
    if node.inputs().len() > 4 || node.outputs().len() > 1 {
        return Err(Skip::NOT_HERE);
    }
    // The past moves the place of queries that see earlier keys only.
    if cx.call(id)?.flag("is_causal")? {
        return Err(Reason::Attribute("is_causal").into());
    }
    // Runtimes write the longer cache in any case: it should be of use.
    for grown in [keys, values] {
        if cx.read_only_by(grown, id).is_ok() {
            return Err(Skip::at(Reason::Rule("nothing else reads the longer cache"), grown));
        }
    }
    let mask = node.input(3).map_or(Operand::Absent, Operand::from);
    let inputs = [cx.input(id, 0)?, new_keys, new_values].map(Operand::from);
    let past = [past_keys, past_values].map(Operand::from);
    let mut change = cx.change(&[id, joined_keys, joined_values]);
    let inputs = inputs.into_iter().chain([mask]).chain(past);
    let attention = change.call(node.op().clone(), inputs, 3, node.attrs().to_vec());
    change.inherit(attention, id);
    for (index, value) in [cx.output(id)?, keys, values].into_iter().enumerate() {
        change.replace(value, attention.output(index));
    }
    Ok(change)
}

/// What a Concat along the sequence puts behind something: that, and what follows.
fn appended(cx: &Cx<'_>, concat: NodeId) -> Result<(ValueId, ValueId), Skip> {
    let &[Some(past), Some(new)] = cx.node(concat).inputs() else { return Err(Skip::NOT_HERE) };
    match cx.rank(new)? {
        4 if cx.axis(concat, 4)? == 2 => Ok((past, new)),
        _ => Err(Skip::NOT_HERE),
    }
}

/// Attention whose heads are split off before and joined behind it: the operator takes and gives three axes.
fn joined_heads(cx: &Cx<'_>, join: NodeId) -> Result<Change, Skip> {
    let y = cx.output(join)?;
    let turned = cx.input(join, 0)?;
    let back = cx.producer(turned, "Transpose", join).ok_or(Skip::NOT_HERE)?;
    let mixed = cx.input(back, 0)?;
    let id = cx.producer(mixed, "Attention", join).ok_or(Skip::NOT_HERE)?;
    // Scores lie where they lay, as a cache does; lengths without padding come in place of a cache.
    if permutation(cx, back)? != SWAPPED || cx.node(id).output(0) != Some(mixed) {
        return Err(Skip::NOT_HERE);
    }
    cx.read_only_by(turned, join)?;
    cx.read_only_by(mixed, back)?;
    let rest = behind_joined_heads(cx, cx.output(back)?, y)?;
    let mut inputs: Vec<Operand> = cx.node(id).inputs().iter().map(|&input| input.into()).collect();
    let mut sources = Vec::new();
    for index in 0..3 {
        let operands = Operands::of(cx, id, index)?;
        sources.push((Together::of(cx, operands.moved, operands.cast.unwrap_or(id))?, operands));
    }
    let [queries, keys, values] = [0, 1, 2].map(|index| sources[index].0.heads);
    if keys != values {
        return Err(Skip::at(Reason::Broadcast, cx.input(id, 2)?));
    }
    let mut attrs = cx.node(id).attrs().to_vec();
    attrs.retain(|attr| !attr.name.ends_with("_num_heads"));
    attrs.extend([("q_num_heads", queries).into(), ("kv_num_heads", keys).into()]);
    let mut change = cx.change(&[join, back, id]);
    for (input, (together, operands)) in inputs.iter_mut().zip(&sources) {
        let source = together.operand(cx, &mut change)?;
        *input = operands.again(&mut change, source);
    }
    let outputs = cx.node(id).outputs();
    let attention = change.call(cx.node(id).op().clone(), inputs, outputs.len(), attrs);
    for (index, &output) in outputs.iter().enumerate().skip(1) {
        match output {
            Some(output) => change.replace(output, attention.output(index)),
            None => change.leave_out(attention, index),
        }
    }
    let mut joined = attention.output(0);
    if let Some(target) = rest {
        let target = change.ints("shape", &target);
        joined = change.op("Reshape", [joined, target], []);
    }
    change.replace(y, joined);
    Ok(change)
}
