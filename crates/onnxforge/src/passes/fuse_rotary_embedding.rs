//! fuse_rotary_embedding: positions that rotate halves of heads become RotaryEmbedding.
//!
//! **Matches** x · cos + rotated(x) · sin on [batch, head, sequence, size], where rotated puts the negated second half before the first, and
//! the halves of cos and of sin are the same by construction: functions of Concat(angle, angle) (`halves`); the same for the first
//! part of each head, with the rest behind it (`partial`); heads that were split off before, which the operator does itself (`heads`). From operator set
//! 23 on.
//! **Accuracy** `BitExact` for `heads` and `partial`; `Rounding` for `halves`: a runtime may fuse the product and the sum.
//! **Proof** Of halves x₁, x₂ the sum is (x₁ cos − x₂ sin, x₂ cos + x₁ sin), the definition of the operator.
//! **Never** where the halves of cos or sin may differ; halves in another order; angles for each head.

use super::fuse_attention::split_heads;
use super::pass;
use super::slice_cuts::{axis_size, cuts};
use crate::ir::edit::Operand;
use crate::ir::{Accuracy, Attr, DType, NodeId, ValueId};
use crate::rewrite::{At, Change, Cx, Reason, Skip, Trail};

pass!(fuse_rotary_embedding, &[&HALVES, &PARTIAL, &HEADS]);

const OP: &str = "RotaryEmbedding";

static HALVES: At =
    At { name: "halves", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["Add"], apply: halves };
static PARTIAL: At = At { name: "partial", accuracy: Accuracy::BitExact, ops: &["Concat"], apply: partial };
static HEADS: At = At { name: "heads", accuracy: Accuracy::BitExact, ops: &[OP], apply: heads };

fn halves(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let (a, b, y) = (cx.input(root, 0)?, cx.input(root, 1)?, cx.output(root)?);
    let attempt = |straight, turned| {
        let mut trail = Trail::new(cx, root);
        let [c, d] = trail.pair(turned, "Mul")?;
        let (x, sin) = [(c, d), (d, c)].into_iter().find_map(|(swapped, sin)| {
            let found = trail.attempt(|trail| rotated(cx, trail, swapped));
            found.map(|x| (x, sin))
        })?;
        let [e, f] = trail.pair(straight, "Mul")?;
        let cos = if e == x { f } else { e };
        (e == x || f == x).then_some((trail, x, cos, sin))
    };
    let (trail, x, cos, sin) = attempt(a, b).or_else(|| attempt(b, a)).ok_or(Skip::NOT_HERE)?;
    let shape = cx.shape(x)?;
    let [batch, _, sequence, size] = shape else { return Err(Skip::NOT_HERE) };
    let size = size.as_const().ok_or(Skip::NOT_HERE)?;
    if !matches!(cx.dtype(x)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    let mut caches = Vec::new();
    for cache in [cos, sin] {
        let angles = without_heads(cx, cache, root)?;
        let [of, along, wide] = cx.shape(angles)? else { return Err(Skip::at(Reason::Broadcast, cache)) };
        let fits = cx.same_dim(along, sequence) && wide.as_const() == Some(size);
        let for_all = !cx.same_dim(of, batch);
        if !fits || for_all && of.as_const() != Some(1) {
            return Err(Skip::at(Reason::Broadcast, cache));
        }
        if !is_doubled(cx, angles, size) {
            return Err(Skip::at(Reason::Rule("its halves may differ"), angles));
        }
        caches.push((angles, for_all));
    }
    let mut change = trail.change()?;
    let mut inputs: Vec<Operand> = vec![x.into()];
    for (angles, for_all) in caches {
        let [start, end, axes] =
            [("start", 0), ("end", size / 2), ("axes", 2)].map(|(hint, number)| change.ints(hint, &[number]));
        let mut half = change.op("Slice", [angles.into(), start, end, axes], []);
        if for_all {
            // Runtimes want angles for each batch.
            let batches = change.op("Shape", [x.into()], [("start", 0).into(), ("end", 1).into()]);
            let ones = change.ints("ones", &[1, 1]);
            let shape = change.op("Concat", [batches, ones], [("axis", 0).into()]);
            half = change.op("Expand", [half, shape], []);
        }
        inputs.push(half);
    }
    let rotated = change.call(crate::ir::Op::standard(OP), inputs, 1, []);
    change.replace(y, rotated.output(0));
    Ok(change)
}

/// What is rotated: `value` is its negated second half before the first.
fn rotated(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<ValueId> {
    let concat = trail.step(value, "Concat")?;
    let &[Some(second), Some(first)] = cx.node(concat).inputs() else { return None };
    let rank = cx.rank(value).ok()?;
    if crate::ops::call::axis(cx.call(concat).ok()?.int("axis").ok()?, rank).ok()? != rank - 1 {
        return None;
    }
    let second = trail.through(second, "Neg")?;
    let (x, after) = part(cx, trail, second)?;
    let (also, before) = part(cx, trail, first)?;
    let size = axis_size(cx, x, rank - 1).ok()?;
    let whole = before == (0, size / 2) && after == (size / 2, size / 2) && size % 2 == 0;
    (x == also && whole).then_some(x)
}

/// What `value` is a part of along the last axis: where it starts, and how long it is.
fn part(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, (i64, i64))> {
    if let Some(split) = trail.step(value, "Split") {
        let x = cx.node(split).input(0)?;
        let rank = cx.rank(x).ok()?;
        let axis = crate::ops::call::axis(cx.call(split).ok()?.int("axis").ok()?, rank).ok()?;
        let mut start = 0;
        for &output in cx.node(split).outputs() {
            let size = axis_size(cx, output?, axis).ok()?;
            if output == Some(value) {
                return (axis == rank - 1).then_some((x, (start, size)));
            }
            start += size;
        }
        return None;
    }
    let slice = trail.step(value, "Slice")?;
    let x = cx.node(slice).input(0)?;
    let rank = cx.rank(x).ok()?;
    let &[cut] = &cuts(cx, slice).ok()?[..] else { return None };
    let places = cut.places(axis_size(cx, x, rank - 1).ok()?)?;
    (cut.axis == rank - 1 && places.step == 1).then_some((x, (places.first, places.count)))
}

/// Angles [batch, sequence, size] of which `value` is [batch, 1, sequence, size].
fn without_heads(cx: &Cx<'_>, value: ValueId, root: NodeId) -> Result<ValueId, Skip> {
    let none = || Skip::at(Reason::Broadcast, value);
    let node =
        ["Unsqueeze", "Reshape"].iter().find_map(|op| cx.producer(value, op, root)).ok_or_else(none)?;
    let source = cx.input(node, 0)?;
    let (from, to) = (cx.shape(source)?, cx.shape(value)?);
    let fits = from.len() == 3
        && to.len() == 4
        && to[1].as_const() == Some(1)
        && cx.same_shape(&from[..1], &to[..1])
        && cx.same_shape(&from[1..], &to[2..]);
    if fits { Ok(source) } else { Err(none()) }
}

/// Whether both halves of the last axis are the same: a function, element by element, of Concat(half, half).
fn is_doubled(cx: &Cx<'_>, mut value: ValueId, size: i64) -> bool {
    while let Some(node) = cx.model.value(value).node() {
        let inputs = cx.node(node).inputs();
        value = match (&*cx.node(node).op().name, inputs) {
            _ if !cx.node(node).op().domain.is_empty() => return false,
            ("Cos" | "Sin" | "Cast" | "Neg", &[Some(x)]) => x,
            ("Mul" | "Div", &[Some(x), Some(scale)]) if cx.uniform(scale).is_some() => x,
            ("Mul", &[Some(scale), Some(x)]) if cx.uniform(scale).is_some() => x,
            ("Concat", &[Some(a), Some(b)]) => {
                let (Ok(rank), Ok(call)) = (cx.rank(a), cx.call(node)) else { return false };
                let axis = call.int("axis").ok().and_then(|axis| crate::ops::call::axis(axis, rank).ok());
                let half = cx.shape(a).ok().and_then(|shape| shape.last()?.as_const());
                return a == b && axis == rank.checked_sub(1) && half == Some(size / 2) && size % 2 == 0;
            }
            _ => return false,
        };
    }
    false
}

/// The first part of each head rotated, and the rest behind it.
fn partial(cx: &Cx<'_>, concat: NodeId) -> Result<Change, Skip> {
    let &[Some(turned), Some(rest)] = cx.node(concat).inputs() else { return Err(Skip::NOT_HERE) };
    let y = cx.output(concat)?;
    let mut trail = Trail::new(cx, concat);
    let found = (|| {
        let rank = cx.rank(y).ok()?;
        let axis = crate::ops::call::axis(cx.call(concat).ok()?.int("axis").ok()?, rank).ok()?;
        let id = trail.step(turned, OP)?;
        let plain = cx.node(id).attrs().is_empty() && cx.node(id).inputs().len() == 3;
        let (x, before) = part(cx, &mut trail, cx.node(id).input(0)?)?;
        let (also, after) = part(cx, &mut trail, rest)?;
        let size = axis_size(cx, x, rank - 1).ok()?;
        let whole = before.0 == 0 && after == (before.1, size - before.1);
        (plain && axis == 3 && rank == 4 && x == also && whole).then_some((id, x, before.1))
    })();
    let (id, x, size) = found.ok_or(Skip::NOT_HERE)?;
    let (cos, sin) = (cx.input(id, 1)?, cx.input(id, 2)?);
    let mut change = trail.change()?;
    let attrs: [Attr; 1] = [("rotary_embedding_dim", size).into()];
    let whole = change.op(OP, [x.into(), cos.into(), sin.into()], attrs);
    change.replace(y, whole);
    Ok(change)
}

/// Rotates before the heads are split off, so that whoever joins them again finds them together.
fn heads(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let four = cx.input(id, 0)?;
    let (x, count, [split, transpose]) = split_heads(cx, four, id)?;
    cx.read_only_by(four, id)?;
    cx.read_only_by(cx.output(split)?, transpose)?;
    let y = cx.output(id)?;
    let mut change = cx.change(&[id, transpose, split]);
    let mut attrs = cx.node(id).attrs().to_vec();
    attrs.retain(|attr| &*attr.name != "num_heads");
    attrs.push(("num_heads", count).into());
    let inputs = std::iter::once(x.into()).chain(cx.node(id).inputs()[1..].iter().map(|&input| input.into()));
    let turned = change.call(cx.node(id).op().clone(), inputs, 1, attrs).output(0);
    let turned = change.remake(cx, split, [turned, cx.input(split, 1)?.into()]);
    let turned = change.remake(cx, transpose, [turned]);
    change.replace(y, turned);
    Ok(change)
}
