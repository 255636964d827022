//! How the axes of a Reshape belong together.

use super::spelling::Axes;
use crate::Cx;
use onnxforge_ir::dim::Dim;

/// The axes of a Reshape that splits axes and merges neighbours.
pub fn reshaped(cx: &Cx<'_>, from: &[Dim], to: &[Dim]) -> Option<(Axes, Axes)> {
    let (mut input, mut output) = (Axes::default(), Axes::default());
    let (mut from, mut to) = (from, to);
    let mut letters = 0..;
    let is_one = |shape: &[Dim]| shape.first().is_some_and(|dim| dim.as_const() == Some(1));
    let equal = |dim: &Dim, parts: &[Dim]| Dim::product(parts).is_some_and(|whole| cx.same_dim(dim, &whole));
    while !from.is_empty() || !to.is_empty() {
        // An axis of size 1 that is on one side only may be anywhere.
        match (is_one(from), is_one(to)) {
            (true, false) => {
                input.letters.push(vec![letters.next()?]);
                from = &from[1..];
                continue;
            }
            (false, true) => {
                output.letters.push(vec![letters.next()?]);
                to = &to[1..];
                continue;
            }
            _ => {}
        }
        let most = from.len().max(to.len());
        let (first, second) = (from.first()?, to.first()?);
        let (merged, split) = (1..=most).find_map(|count| match () {
            () if to.get(..count).is_some_and(|parts| equal(first, parts)) => Some((1, count)),
            () if from.get(..count).is_some_and(|parts| equal(second, parts)) => Some((count, 1)),
            () => None,
        })?;
        let group: Vec<usize> = letters.by_ref().take(merged.max(split)).collect();
        let parts = || group.iter().map(|&letter| vec![letter]);
        if merged > 1 {
            input.letters.extend(parts());
        } else {
            input.letters.push(group.clone());
        }
        if split > 1 {
            output.letters.extend(parts());
        } else {
            output.letters.push(group.clone());
        }
        (from, to) = (&from[merged..], &to[split..]);
    }
    Some((input, output))
}
