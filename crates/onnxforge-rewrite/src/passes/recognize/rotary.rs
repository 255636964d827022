//! How rotations of pairs are decomposed.

use crate::passes::recognize::slice_cuts::{axis_size, cuts};
use crate::{Cx, Trail};
use onnxforge_ir::ValueId;

/// Which elements of the last axis are a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// One of the first half, and the one at the same place of the second.
    Halves,
    /// Neighbours, at an even place and the odd one behind it.
    Neighbours,
}

/// What is turned by a right angle, and how its elements are paired: `value` has each pair (a, b) as (−b, a).
pub fn turned(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, Pairs)> {
    trail.attempt(|trail| {
        let ([negated, first], pairs) = joined(cx, trail, value)?;
        let second = trail.through(negated, "Neg")?;
        let x = whole(cx, trail, [first, second], pairs)?;
        Some((x, pairs))
    })
}

/// The first and the second elements of the pairs that `value` consists of.
pub fn joined(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<([ValueId; 2], Pairs)> {
    let halves = trail.attempt(|trail| concatenated(cx, trail, value));
    if let Some(parts) = halves {
        return Some((parts, Pairs::Halves));
    }
    let neighbours = trail.attempt(|trail| stacked(cx, trail, value));
    neighbours.map(|parts| (parts, Pairs::Neighbours))
}

/// What these are the first and the second elements of.
pub fn whole(cx: &Cx<'_>, trail: &mut Trail<'_>, parts: [ValueId; 2], pairs: Pairs) -> Option<ValueId> {
    let [first, second] = parts;
    match pairs {
        Pairs::Halves => {
            let (x, before) = part(cx, trail, first)?;
            let (also, after) = part(cx, trail, second)?;
            let size = axis_size(cx, x, cx.rank(x).ok()?.checked_sub(1)?).ok()?;
            let halves = before == (0, size / 2) && after == (size / 2, size / 2) && size % 2 == 0;
            (x == also && halves).then_some(x)
        }
        Pairs::Neighbours => {
            let (x, even) = every_other(cx, trail, first)?;
            let (also, odd) = every_other(cx, trail, second)?;
            (x == also && (even, odd) == (0, 1)).then_some(x)
        }
    }
}

/// Two values one behind the other along the last axis.
fn concatenated(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<[ValueId; 2]> {
    let concat = trail.step(value, "Concat")?;
    let &[Some(first), Some(second)] = cx.node(concat).inputs() else { return None };
    let rank = cx.rank(value).ok()?;
    (cx.axis(concat, rank).ok()? == rank - 1).then_some([first, second])
}

/// Two values whose elements alternate along the last axis: stacked behind it, and flattened.
fn stacked(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<[ValueId; 2]> {
    let pairs = trail.through(value, "Reshape")?;
    let parts = concatenated(cx, trail, pairs)?;
    is_flattened(cx, pairs, value)?;
    let shape = cx.shape(pairs).ok()?;
    let mut sources = parts;
    for (source, part) in sources.iter_mut().zip(parts) {
        *source = trail.through(part, "Unsqueeze").or_else(|| trail.through(part, "Reshape"))?;
        let one = cx.shape(part).ok()?.last()?.as_const();
        let rows = &shape[..shape.len() - 1];
        if one != Some(1) || !cx.same_shape(cx.shape(*source).ok()?, rows) {
            return None;
        }
    }
    Some(sources)
}

/// Whether `value` has the pairs along the last axis of `pairs` one after the other.
fn is_flattened(cx: &Cx<'_>, pairs: ValueId, value: ValueId) -> Option<()> {
    let [rows @ .., count, two] = cx.shape(pairs).ok()? else { return None };
    let [also @ .., size] = cx.shape(value).ok()? else { return None };
    let fits = two.as_const() == Some(2) && Some(size.as_const()?) == count.as_const()?.checked_mul(2);
    (fits && cx.same_shape(rows, also)).then_some(())
}

/// What `value` is every other element of along the last axis, and whether it starts with the first or the second: 0 or 1.
fn every_other(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, i64)> {
    if let Some(slice) = trail.step(value, "Slice") {
        let x = cx.node(slice).input(0)?;
        let last = cx.rank(x).ok()?.checked_sub(1)?;
        let size = axis_size(cx, x, last).ok()?;
        let &[cut] = &cuts(cx, slice).ok()?[..] else { return None };
        let places = cut.places(size)?;
        let fits = cut.axis == last && places.step == 2 && size % 2 == 0 && places.count == size / 2;
        return (fits && places.first < 2).then_some((x, places.first));
    }
    let (pairs, place) = if let Some(gather) = trail.step(value, "Gather") {
        let pairs = cx.node(gather).input(0)?;
        let index = cx.node(gather).input(1)?;
        let rank = cx.rank(pairs).ok()?;
        let place = *cx.ints(index).ok()?.first()?;
        (cx.axis(gather, rank).ok()? == rank - 1 && cx.rank(index).ok()? == 0).then_some((pairs, place))?
    } else {
        let single = trail.through(value, "Squeeze").or_else(|| trail.through(value, "Reshape"))?;
        let (pairs, (place, count)) = part(cx, trail, single)?;
        let rows = cx.shape(pairs).ok()?.split_last()?.1;
        (count == 1 && cx.same_shape(cx.shape(value).ok()?, rows)).then_some((pairs, place))?
    };
    let x = trail.through(pairs, "Reshape")?;
    is_flattened(cx, pairs, x)?;
    Some((x, if place < 0 { place + 2 } else { place }))
}

/// What `value` is a part of along the last axis: where it starts, and how long it is.
pub fn part(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, (i64, i64))> {
    if let Some(split) = trail.step(value, "Split") {
        let x = cx.node(split).input(0)?;
        let rank = cx.rank(x).ok()?;
        let axis = cx.axis(split, rank).ok()?;
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
    let places = cut.places(axis_size(cx, x, rank.checked_sub(1)?).ok()?)?;
    (cut.axis == rank - 1 && places.step == 1).then_some((x, (places.first, places.count)))
}
