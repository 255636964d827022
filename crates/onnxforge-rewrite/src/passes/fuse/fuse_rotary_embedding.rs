//! fuse_rotary_embedding: positions that rotate pairs of the elements of heads become RotaryEmbedding.
//!
//! **Matches** x · cos + turned(x) · sin on [batch, head, sequence, size] or [batch, sequence, head, size], where turned makes (−b, a) of
//! each pair (a, b), and cos and sin have the same for both, by construction or as constants (`turned`); pairs whose two elements
//! are computed apart, a · cos − b · sin and b · cos + a · sin, and joined (`joined`). Pairs are those of the two halves of a head, by Slice or Split and
//! Concat, or neighbours, by Slice with step 2 or as a last axis of 2, stacked again. The same for the first part of each head, with
//! the rest behind it (`partial`); heads that were split off before, which the operator does itself (`heads`). From operator set 23 on.
//! **Accuracy** `BitExact` for `heads` and `partial`; `Rounding` for the others: a runtime may fuse the product and the sum.
//! **Proof** Of pairs (a, b) both forms are (a · cos − b · sin, b · cos + a · sin), the definition of the operator.
//! **Bound** `turned` and `joined`: two products and a sum, two roundings on each way, before and after; a fused multiplication and addition saves
//! one. Turning changes signs only. No rounding is added, at the scale |a · cos| + |b · sin|.
//! **Never** where the angles of a pair may differ; pairs in another order; angles for each head; where bringing angles
//! into the operator's shape would take more nodes.

use crate::passes::pass;
use crate::passes::recognize::heads::{Source, split_heads};
use crate::passes::recognize::rotary::{Pairs, joined, part, turned, whole};
use crate::passes::recognize::rotary_angles::{Angles, angles, before_moves, is_doubled};
use crate::passes::recognize::slice_cuts::axis_size;
use crate::passes::targets::{COREML, COREML_FILE, TFLITE, TFLITE_FILE};
use crate::{At, Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Attr, DType, NodeId, Op, ValueId};

pass!(fuse_rotary_embedding {
    stage: Fuse,
    runs: Except(&[&TFLITE, &COREML, &TFLITE_FILE, &COREML_FILE]),
    rules: [TURNED, JOINED, PARTIAL, HEADS],
});

const OP: &str = "RotaryEmbedding";
const FEW: Accuracy = Accuracy::Rounding { ulps: 4.0 };

static TURNED: At = At { name: "turned", accuracy: FEW, ops: &["Add"], apply: fuse_turned };
static JOINED: At = At { name: "joined", accuracy: FEW, ops: &["Concat", "Reshape"], apply: fuse_joined };
static PARTIAL: At = At { name: "partial", accuracy: Accuracy::BitExact, ops: &["Concat"], apply: partial };
static HEADS: At = At { name: "heads", accuracy: Accuracy::BitExact, ops: &[OP], apply: heads };

/// A rotation that was recognised.
struct Rotation {
    x: ValueId,
    cos: ValueId,
    sin: ValueId,
    pairs: Pairs,
    /// Whether cos and sin have an element for each of x, or one for each pair.
    for_each: bool,
}

/// The sum of x · cos and turned(x) · sin.
fn fuse_turned(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let (a, b) = (cx.input(root, 0)?, cx.input(root, 1)?);
    let attempt = |straight, across| {
        let mut trail = Trail::new(cx, root);
        let [c, d] = trail.pair(across, "Mul")?;
        let (x, pairs, sin) = [(c, d), (d, c)]
            .into_iter()
            .find_map(|(value, sin)| turned(cx, &mut trail, value).map(|(x, pairs)| (x, pairs, sin)))?;
        let cos = factor_of(&mut trail, straight, x)?;
        Some((trail, Rotation { x, cos, sin, pairs, for_each: true }))
    };
    let (trail, rotation) = attempt(a, b).or_else(|| attempt(b, a)).ok_or(Skip::NOT_HERE)?;
    fuse(cx, root, trail, &rotation)
}

/// Pairs of a · cos − b · sin and b · cos + a · sin.
fn fuse_joined(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let mut trail = Trail::new(cx, root);
    let found = (|| {
        let ([first, second], pairs) = joined(cx, &mut trail, cx.output(root).ok()?)?;
        let [by_cos, by_sin] = trail.pair(first, "Sub")?;
        let sums = trail.pair(second, "Add")?;
        let (by_cos, by_sin) = (trail.pair(by_cos, "Mul")?, trail.pair(by_sin, "Mul")?);
        let either = |[a, b]: [ValueId; 2]| [(a, b), (b, a)];
        // Which factors are of x is seen where x is put together.
        either(by_cos).into_iter().find_map(|(a, cos)| {
            either(by_sin).into_iter().find_map(|(b, sin)| {
                let mut trail = trail.clone();
                let x = trail.attempt(|trail| whole(cx, trail, [a, b], pairs))?;
                let completes = |(with_cos, with_sin)| {
                    let mut trail = trail.clone();
                    let same = factor_of(&mut trail, with_cos, b)? == cos
                        && factor_of(&mut trail, with_sin, a)? == sin;
                    same.then_some(trail)
                };
                let trail = either(sums).into_iter().find_map(completes)?;
                Some((trail, Rotation { x, cos, sin, pairs, for_each: false }))
            })
        })
    })();
    let (trail, rotation) = found.ok_or(Skip::NOT_HERE)?;
    fuse(cx, root, trail, &rotation)
}

/// What `x` is multiplied by to give `value`.
fn factor_of(trail: &mut Trail<'_>, value: ValueId, x: ValueId) -> Option<ValueId> {
    match trail.pair(value, "Mul")? {
        [a, b] if a == x => Some(b),
        [a, b] if b == x => Some(a),
        _ => None,
    }
}

fn fuse(cx: &Cx<'_>, root: NodeId, trail: Trail<'_>, rotation: &Rotation) -> Result<Change, Skip> {
    let &Rotation { x, cos, sin, pairs, for_each } = rotation;
    let shape = cx.shape(x)?;
    let &[_, _, _, size] = &shape else { return Err(Skip::NOT_HERE) };
    let size = size.as_const().ok_or(Skip::NOT_HERE)?;
    let y = cx.output(root)?;
    if !matches!(cx.dtype(x)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    let width = if for_each { size } else { size / 2 };
    let caches = |heads| -> Result<[Angles; 2], Skip> {
        Ok([angles(cx, cos, root, shape, heads, width)?, angles(cx, sin, root, shape, heads, width)?])
    };
    let (heads, caches) = match caches(1) {
        Ok(caches) => (1, caches),
        Err(why) => (2, caches(2).map_err(|_| why)?),
    };
    for angles in &caches {
        if for_each && !is_doubled(cx, angles.source, size, pairs) {
            return Err(Skip::at(Reason::Rule("its halves may differ"), angles.source));
        }
    }
    let for_all = caches.iter().any(|angles| angles.for_all);
    // An Unsqueeze that put heads into angles goes with the last rotation that reads it.
    let per_cache = |angles: &Angles| {
        usize::from(for_each) + usize::from(angles.for_all) + 2 * usize::from(angles.squeeze.is_some())
    };
    let around = 2 * usize::from(for_all) + 2 * usize::from(heads == 2);
    if 1 + around + caches.iter().map(per_cache).sum::<usize>() > trail.count() + caches.len() {
        return Err(Reason::MoreNodes.into());
    }
    let mut change = trail.change()?;
    // Runtimes want angles for each batch.
    let batches = for_all.then(|| {
        let whole = before_moves(cx, x, root);
        let batches = change.op("Shape", [whole.into()], [("start", 0).into(), ("end", 1).into()]);
        let ones = change.ints("ones", &[1, 1]);
        change.op("Concat", [batches, ones], [("axis", 0).into()])
    });
    let mut inputs: Vec<Operand> = vec![x.into()];
    for Angles { source, squeeze, for_all, .. } in caches {
        let mut angles: Operand = source.into();
        if let Some(axis) = squeeze {
            let axes = change.ints("axes", &[axis]);
            angles = change.op("Squeeze", [angles, axes], []);
        }
        if for_each {
            let (end, step) = if pairs == Pairs::Halves { (size / 2, 1) } else { (size, 2) };
            let [start, end, axes, steps] = [("start", 0), ("end", end), ("axes", 2), ("steps", step)]
                .map(|(hint, number)| change.ints(hint, &[number]));
            angles = change.op("Slice", [angles, start, end, axes, steps], []);
        }
        if let Some(batches) = batches.filter(|_| for_all) {
            angles = change.op("Expand", [angles, batches], []);
        }
        inputs.push(angles);
    }
    let mut attrs: Vec<Attr> = Vec::new();
    if pairs == Pairs::Neighbours {
        attrs.push(("interleaved", 1).into());
    }
    let rotated = if heads == 2 {
        let count = shape[2].as_const().ok_or_else(|| Skip::at(Reason::UnknownShape, x))?;
        together(&mut change, inputs, attrs, [count, size])
    } else {
        change.call(Op::standard(OP), inputs, 1, attrs).output(0)
    };
    change.replace(y, rotated);
    Ok(change)
}

/// The operator on [batch, sequence, head, size]: it takes heads behind the sequence as one axis.
fn together(change: &mut Change, mut inputs: Vec<Operand>, mut attrs: Vec<Attr>, sizes: [i64; 2]) -> Operand {
    let [heads, size] = sizes;
    let flat = change.ints("shape", &[0, 0, heads * size]);
    inputs[0] = change.op("Reshape", [inputs[0], flat], []);
    attrs.push(("num_heads", heads).into());
    let rotated = change.call(Op::standard(OP), inputs, 1, attrs).output(0);
    let apart = change.ints("shape", &[0, 0, heads, size]);
    change.op("Reshape", [rotated, apart], [])
}

/// The first part of each head rotated, and the rest behind it.
fn partial(cx: &Cx<'_>, concat: NodeId) -> Result<Change, Skip> {
    let &[Some(rotated), Some(rest)] = cx.node(concat).inputs() else { return Err(Skip::NOT_HERE) };
    let y = cx.output(concat)?;
    let mut trail = Trail::new(cx, concat);
    let found = (|| {
        let rank = cx.rank(y).ok()?;
        let axis = cx.axis(concat, rank).ok()?;
        // Heads behind the sequence are rotated together.
        let (turned, is_flat) = match trail.through(rotated, "Reshape") {
            Some(flat) => (flat, true),
            None => (rotated, false),
        };
        let id = trail.step(turned, OP)?;
        let mut first = cx.node(id).input(0)?;
        if is_flat {
            let together = cx.shape(first).ok()?;
            first = trail.through(first, "Reshape")?;
            let apart = cx.shape(first).ok()?;
            let same = together.len() == 3
                && apart.len() == 4
                && cx.same_shape(&together[..2], &apart[..2])
                && cx.same_shape(apart, cx.shape(rotated).ok()?);
            same.then_some(())?;
        }
        let attrs = cx.node(id).attrs();
        let plain = attrs.iter().all(|attr| matches!(&*attr.name, "interleaved" | "num_heads"));
        let (x, before) = part(cx, &mut trail, first)?;
        let (also, after) = part(cx, &mut trail, rest)?;
        let size = axis_size(cx, x, rank - 1).ok()?;
        let heads = cx.shape(x).ok()?.get(2)?.as_const();
        let counted = !is_flat || heads.is_some() && cx.call(id).ok()?.int("num_heads").ok() == heads;
        let whole = before.0 == 0 && after == (before.1, size - before.1);
        let fits = plain && counted && cx.node(id).inputs().len() == 3;
        (fits && axis == 3 && rank == 4 && x == also && whole).then_some((
            id,
            x,
            before.1,
            is_flat.then_some([heads.unwrap_or(0), size]),
        ))
    })();
    let (id, x, size, flat) = found.ok_or(Skip::NOT_HERE)?;
    let inputs: Vec<Operand> = vec![x.into(), cx.input(id, 1)?.into(), cx.input(id, 2)?.into()];
    let mut attrs = cx.node(id).attrs().to_vec();
    attrs.push(("rotary_embedding_dim", size).into());
    let mut change = trail.change()?;
    let whole = match flat {
        Some(sizes) => {
            attrs.retain(|attr| &*attr.name != "num_heads");
            together(&mut change, inputs, attrs, sizes)
        }
        None => change.call(Op::standard(OP), inputs, 1, attrs).output(0),
    };
    change.replace(y, whole);
    Ok(change)
}

/// Rotates before the heads are split off, so that whoever joins them again finds them together.
fn heads(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let four = cx.input(id, 0)?;
    let (Source::Value(x), count, [split, transpose]) = split_heads(cx, four, id)? else {
        return Err(Skip::NOT_HERE);
    };
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
