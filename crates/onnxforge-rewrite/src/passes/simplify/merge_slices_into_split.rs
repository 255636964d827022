//! merge_slices_into_split: Slices that together are a whole axis become one Split.
//!
//! **Matches** all Slices (forward, by one axis, step 1) and Gathers (of neighbouring places in a vector) of one value along one axis of
//! known size, with constant arguments, when they take every place of the axis exactly once, in at least two parts. Equal Slices count once.
//! **Accuracy** `BitExact`.
//! **Proof** Split cuts an axis into neighbouring parts of given sizes, which is what the Slices take; the driver proves the shapes.
//! **Never** with gaps or overlaps; a Gather of one place without an axis, which would need a Squeeze; vectors that hold
//! shapes, which are followed by their elements.

use crate::passes::pass;
use crate::passes::recognize::slice_cuts::{Places, axis_size, piece};
use crate::passes::targets::TFLITE;
use crate::{At, Change, Cx, Skip};
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, NodeId, Op, ValueId};

pass!(merge_slices_into_split { stage: Cleanup, runs: Except(&[&TFLITE]), rules: [SPLIT] });

static SPLIT: At =
    At { name: "split", accuracy: Accuracy::BitExact, ops: &["Slice", "Gather"], apply: split };

fn split(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let x = cx.input(root, 0)?;
    if cx.model.value(x).uses().len() < 2 || cx.model.constant(x).is_some() || cx.fact(x)?.dims().is_some() {
        return Err(Skip::NOT_HERE);
    }
    let (axis, _) = piece(cx, root, x)?;
    let mut pieces: Vec<(Places, ValueId)> = Vec::new();
    let mut consumed: Vec<NodeId> = Vec::new();
    for used in cx.model.value(x).uses() {
        let Use::Input { node, .. } = *used else { continue };
        let beside = cx.scope(node) == cx.scope(root) && !consumed.contains(&node);
        let takes = beside && (cx.node(node).op().is("Slice") || cx.node(node).op().is("Gather"));
        if let Some((along, places)) = takes.then(|| piece(cx, node, x).ok()).flatten()
            && along == axis
        {
            pieces.push((places, cx.output(node)?));
            consumed.push(node);
        }
    }
    let mut places: Vec<Places> = pieces.iter().map(|&(places, _)| places).collect();
    places.sort_unstable();
    places.dedup();
    let mut end = 0;
    for part in &places {
        if part.first != end || part.count == 0 {
            return Err(Skip::NOT_HERE);
        }
        end += part.count;
    }
    if places.len() < 2 || end != axis_size(cx, x, axis)? {
        return Err(Skip::NOT_HERE);
    }
    let sizes: Vec<i64> = places.iter().map(|part| part.count).collect();
    let mut change = cx.change(&consumed);
    let mut attrs = vec![("axis", axis as i64).into()];
    let mut inputs = vec![x.into()];
    // From version 13 on the sizes are an input.
    match cx.opset(root) {
        ..2 => return Err(Skip::NOT_HERE),
        2..13 => attrs.push(("split", sizes.clone()).into()),
        _ => inputs.push(change.ints("split", &sizes)),
    }
    let parts = change.call(Op::standard("Split"), inputs, sizes.len(), attrs);
    for (part, value) in pieces {
        let at = places.iter().position(|&other| other == part).ok_or(Skip::NOT_HERE)?;
        change.replace(value, parts.output(at));
    }
    Ok(change)
}
