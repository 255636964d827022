//! Attention 24: a mask may be shorter than the keys.

use super::adapter::{Adapted, Old};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Attr, ValueId};

/// A mask whose last axis has size 1 is for all keys before and for the first alone after. Where it may have that size and there may be more
/// keys, it is expanded to all of them: those of the past and those of the call.
pub fn mask(old: &Old<'_>) -> Adapted {
    let Some(mask) = old.node().input(3) else { return Ok(None) };
    let keys: Vec<ValueId> = [Some(old.input(1)?), old.node().input(4)].into_iter().flatten().collect();
    if is_whole(old, mask, &keys) {
        return Ok(None);
    }
    let mut change = old.change();
    // The axis of the sequence is the last but one, whether there is one for heads or not.
    let range = || [Attr::from(("start", -2)), Attr::from(("end", -1))];
    let counts: Vec<_> = keys.iter().map(|&keys| change.op("Shape", [keys.into()], range())).collect();
    let count = match counts[..] {
        [own, past] => change.op("Add", [past, own], []),
        _ => counts[0],
    };
    let mut inputs = old.inputs();
    inputs[3] = change.op("Expand", [mask.into(), count], []);
    old.becomes(change, inputs, old.attrs_without(&[]))
}

/// Whether the mask provably says something of each key.
fn is_whole(old: &Old<'_>, mask: ValueId, keys: &[ValueId]) -> bool {
    let shape = |value: ValueId| old.cx.facts.shape(value);
    let Some(last) = shape(mask).and_then(<[Dim]>::last) else { return false };
    // Any other size than 1 must be the number of keys.
    if last.as_const().is_some_and(|size| size != 1) {
        return true;
    }
    let counts = keys.iter().map(|&keys| shape(keys).and_then(|shape| shape.iter().rev().nth(1)));
    let count = counts.collect::<Option<Vec<_>>>().and_then(Dim::sum);
    count.is_some_and(|count| last.provably_equal(&count, old.cx.symbols()))
}
