//! Attention, as exporters decompose it: softmax(q · kᵀ) · v.

use super::heads::widens;
use super::masks::Masking;
use super::orders::permutation;
use super::selections::Selection;
use crate::{Cx, Reason, Skip, Trail};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{NodeId, ValueId};

/// softmax(scale · q · kᵀ + mask) · v of four axes.
pub struct Decomposed<'a> {
    /// The nodes that compute it.
    pub trail: Trail<'a>,
    /// The queries, [batch, head, sequence, size].
    pub q: ValueId,
    /// The keys.
    pub k: ValueId,
    /// The order of their axes that is that of the queries.
    pub keys: [usize; 4],
    /// The values.
    pub v: ValueId,
    /// What the scores are multiplied by.
    pub scale: f64,
    /// The bound of the scores.
    pub softcap: Option<f64>,
    /// What masks them.
    pub mask: Option<Masking>,
    /// The scores behind the mask.
    pub masked: ValueId,
    /// The scores before the mask.
    pub unmasked: ValueId,
    /// The Softmax, along the last axis.
    pub softmax: NodeId,
    /// NaN becomes 0 behind it.
    pub guarded: bool,
}

impl<'a> Decomposed<'a> {
    /// What the call `product` of MatMul computes; the trail has come there.
    pub fn of(cx: &Cx<'a>, mut trail: Trail<'a>, product: NodeId) -> Result<Self, Skip> {
        let (weights, v) = (cx.input(product, 0)?, cx.input(product, 1)?);
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
        Ok(Self {
            trail,
            q,
            k,
            keys: KEYS[perm],
            v,
            scale,
            softcap: softcap.map(|(_, cap)| cap),
            mask: mask.map(|(_, mask)| mask),
            masked: masked_scores,
            unmasked,
            softmax,
            guarded,
        })
    }

    /// The numbers of rows and columns of the scores. No operand is stretched, by a scale neither, unless one head of keys and values is for all queries;
    /// only then does each head of the operator see what it saw.
    pub fn scores(&self, cx: &Cx<'_>) -> Result<[Dim; 2], Skip> {
        let (queries, values, stored) = (cx.shape(self.q)?, cx.shape(self.v)?, cx.shape(self.k)?);
        let keys = self.keys.map(|axis| stored[axis].clone());
        let fits = cx.same_dim(&queries[0], &keys[0])
            && (cx.same_dim(&queries[1], &keys[1]) || keys[1].as_const() == Some(1))
            && cx.same_shape(&keys[..3], &values[..3])
            && cx.same_dim(&queries[3], &keys[3]);
        match fits {
            true => Ok([queries[2].clone(), keys[2].clone()]),
            false => Err(Skip::at(Reason::Broadcast, self.k)),
        }
    }
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
