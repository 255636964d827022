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
use crate::passes::recognize::heads::{self, SWAPPED, Together, repeated, widens};
use crate::passes::recognize::masks::{self, Masking};
use crate::passes::recognize::orders::permutation;
use crate::passes::recognize::reshape_target::constant_target;
use crate::passes::recognize::selections::Selection;
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
    let (weights, v, y) = (cx.input(root, 0)?, cx.input(root, 1)?, cx.output(root)?);
    let mut trail = Trail::new(cx, root);
    let (softmax, guarded) = probabilities(cx, &mut trail, weights).ok_or(Skip::NOT_HERE)?;
    let mut scores = widened(cx, &mut trail, cx.input(softmax, 0)?);
    let masked_scores = scores;
    let mask = trail.attempt(|trail| masked(cx, trail, scores));
    if let Some((inside, _)) = mask {
        scores = inside;
    }
    let unmasked = scores;
    let mut scale = 1.0;
    let softcap = trail.attempt(|trail| capped(cx, trail, scores));
    if let Some((inside, _)) = softcap {
        scores = inside;
    }
    scores = unscaled_scores(cx, &mut trail, scores, &mut scale);
    let [q, transposed] = trail.pair(scores, "MatMul").ok_or(Skip::NOT_HERE)?;
    let q = unscaled(&mut trail, q, &mut scale);
    let transposed = unscaled(&mut trail, transposed, &mut scale);
    let (k, perm) = transposition(cx, &mut trail, transposed).ok_or(Skip::NOT_HERE)?;
    let k = unscaled(&mut trail, k, &mut scale);
    if [q, k, v].iter().any(|&value| cx.rank(value).ok() != Some(4)) {
        return Err(Skip::NOT_HERE);
    }

    // It is attention. What is left are reasons to leave it.
    let rank = cx.rank(cx.output(softmax)?)?;
    if cx.axis(softmax, rank)? != rank - 1 || cx.opset(softmax) < 13 {
        return Err(Reason::Attribute("axis").into());
    }
    let (narrow, wide) = (cx.dtype(q)?, cx.dtype(cx.output(softmax)?)?);
    let dtype = if cx.dtype(v)? == narrow { narrow } else { DType::F32 };
    if ![narrow, wide, cx.dtype(v)?].iter().all(|of| matches!(of, DType::F32 | DType::F16 | DType::BF16)) {
        return Err(Skip::at(Reason::Type, q));
    }
    let attribute = scale as f32;
    if !(attribute.is_finite() && attribute > 0.0) {
        return Err(Skip::because("the scale is not a positive number"));
    }
    // No operand is stretched, by a scale neither, unless one head of keys and values is for all queries; only then does each head of the
    // operator see what it saw.
    let (queries, values) = (cx.shape(q)?, cx.shape(v)?);
    let keys: Vec<Dim> = (0..4)
        .map(|axis| cx.shape(k).map(|shape| shape[KEYS[perm][axis]].clone()))
        .collect::<Result<_, _>>()?;
    let fits = cx.same_dim(&queries[0], &keys[0])
        && (cx.same_dim(&queries[1], &keys[1]) || keys[1].as_const() == Some(1))
        && cx.same_shape(&keys[..3], &values[..3])
        && cx.same_dim(&queries[3], &keys[3]);
    if !fits {
        return Err(Skip::at(Reason::Broadcast, k));
    }
    let kept = match mask {
        Some((_, mask)) => {
            // Scores that keep their shape have a row and a column for each that the mask has.
            let fits = cx.same_shape(cx.shape(masked_scores)?, cx.shape(unmasked)?);
            Some(masks::keep(cx, mask, [&queries[2], &keys[2]], fits, guarded)?)
        }
        None => None,
    };
    let mut change = trail.change()?;
    let k: Operand = match KEYS[perm] {
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
    if let Some((_, cap)) = softcap {
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

/// The Softmax whose result `value` is, rounded to 16 bits or not, and whether NaN becomes 0 on the way.
fn probabilities(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<(NodeId, bool)> {
    let outside = trail.attempt(|trail| unguarded(cx, trail, value));
    let rounded = outside.unwrap_or(value);
    let unrounded = trail.attempt(|trail| {
        let wide = trail.through(rounded, "Cast")?;
        widens(cx, rounded, wide).then_some(wide)
    });
    let value = unrounded.unwrap_or(rounded);
    let inside = trail.attempt(|trail| unguarded(cx, trail, value));
    let softmax = trail.step(inside.unwrap_or(value), "Softmax")?;
    Some((softmax, outside.or(inside).is_some()))
}

/// What is 0 instead of NaN in `value`.
fn unguarded(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<ValueId> {
    let select = trail.step(value, "Where")?;
    let &[Some(condition), Some(zero), Some(probability)] = cx.node(select).inputs() else { return None };
    let tested = trail.through(condition, "IsNaN")?;
    (tested == probability && cx.uniform(zero) == Some(0.0)).then_some(probability)
}

/// What `value` has in 32 bits, if that is something of 16 bits.
fn widened(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> ValueId {
    let inside = trail.attempt(|trail| {
        let narrow = trail.through(value, "Cast")?;
        widens(cx, narrow, value).then_some(narrow)
    });
    inside.unwrap_or(value)
}

/// What is masked, and by what: the operand of a sum that is no product, or a condition by which low numbers are chosen instead.
fn masked(cx: &Cx<'_>, trail: &mut Trail<'_>, scores: ValueId) -> Option<(ValueId, Masking)> {
    let is_score = |trail: &Trail<'_>, value: ValueId| {
        let mut trail = trail.clone();
        let mut scale = 1.0;
        let inside = capped(cx, &mut trail, value).map_or(value, |(inside, _)| inside);
        let product = unscaled_scores(cx, &mut trail, inside, &mut scale);
        trail.step(product, "MatMul").is_some() && cx.rank(value).ok() == Some(4)
    };
    let chosen = |trail: &Trail<'_>, condition: ValueId, [yes, no]: [ValueId; 2]| {
        let (seen, kept, low) = match (cx.uniform(yes), cx.uniform(no)) {
            (None, Some(low)) => (true, yes, low),
            (Some(low), None) => (false, no, low),
            _ => return None,
        };
        is_score(trail, kept).then_some((kept, Masking::Choice { condition, seen, low }))
    };
    let by_where = |trail: &mut Trail<'_>| {
        let node = trail.step(scores, "Where")?;
        let &[Some(condition), Some(yes), Some(no)] = cx.node(node).inputs() else { return None };
        chosen(trail, condition, [yes, no])
    };
    let by_arithmetic = |trail: &mut Trail<'_>| {
        let node = trail.step(scores, "Add")?;
        let Selection { condition, yes, no, products } = Selection::of(cx, node)?;
        let found = chosen(trail, condition, [yes, no])?;
        // What is made of the condition may serve other layers, too.
        trail.step(products[usize::from(found.0 == no)], "Mul")?;
        Some(found)
    };
    if let Some(found) = trail.attempt(by_where).or_else(|| trail.attempt(by_arithmetic)) {
        return Some(found);
    }
    let [a, b] = trail.pair(scores, "Add")?;
    match (is_score(trail, a), is_score(trail, b)) {
        (true, false) => Some((a, Masking::Sum(b))),
        (false, true) => Some((b, Masking::Sum(a))),
        _ => None,
    }
}

/// What is capped, and by which number: c · tanh(x / c).
fn capped(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, f64)> {
    trail.attempt(|trail| {
        let value = widened(cx, trail, value);
        let (bounded, cap) = trail.with_number(value, "Mul")?;
        let quotient = trail.through(bounded, "Tanh")?;
        let (inside, divisor) = trail.with_number(quotient, "Div")?;
        (cap == divisor && cap > 0.0).then_some((inside, cap))
    })
}

/// What is multiplied or divided by numbers, of which `scale` gets the product.
fn unscaled(trail: &mut Trail<'_>, mut value: ValueId, scale: &mut f64) -> ValueId {
    loop {
        if let Some((inside, factor)) = trail.with_number(value, "Mul") {
            *scale *= factor;
            value = inside;
        } else if let Some((inside, divisor)) = trail.with_number(value, "Div") {
            *scale /= divisor;
            value = inside;
        } else {
            return value;
        }
    }
}

/// The product of matrices of which `value` is a multiple, in 32 bits or as it was.
fn unscaled_scores(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId, scale: &mut f64) -> ValueId {
    let wide = unscaled(trail, value, scale);
    let narrow = widened(cx, trail, wide);
    unscaled(trail, narrow, scale)
}

/// Orders of axes that make [batch, head, size, sequence] of keys, and the order that makes [batch, head, sequence, size] instead.
const TRANSPOSED: [[usize; 4]; 2] = [[0, 1, 3, 2], [0, 2, 3, 1]];
const KEYS: [[usize; 4]; 2] = [[0, 1, 2, 3], [0, 2, 1, 3]];

/// What is transposed, and by which of [`TRANSPOSED`].
fn transposition(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, usize)> {
    let node = trail.step(value, "Transpose")?;
    let perm = permutation(cx, node).ok()?;
    let order = TRANSPOSED.iter().position(|order| perm == order)?;
    Some((cx.node(node).input(0)?, order))
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
    let apart = cx.shape(cx.output(back)?)?;
    let width = Dim::product(&apart[2..]).ok_or_else(|| Skip::at(Reason::UnknownShape, y))?;
    let together = [apart[0].clone(), apart[1].clone(), width];
    // Where they are joined to something else, a Reshape does the rest.
    let rest = match cx.same_shape(&together, cx.shape(y)?) {
        true => None,
        false => Some(
            constant_target(cx, &together, cx.shape(y)?).ok_or_else(|| Skip::at(Reason::UnknownShape, y))?,
        ),
    };
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
