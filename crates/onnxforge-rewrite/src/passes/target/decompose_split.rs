//! decompose_split: Split becomes one Slice for each part. onnx2tf does the same, but keeps images with channels last only where the model has Slices.
//!
//! **Matches** Split along an axis of known size into parts of known sizes. For converters to TensorFlow Lite.
//! **Accuracy** `BitExact`.
//! **Proof** The parts of a Split are neighbours, from the first place of the axis to its last, and each is the Slice between its ends; the driver proves the shapes.
//! **Never** where the size of the axis or of a part is not known.

use crate::passes::pass;
use crate::passes::recognize::slice_cuts::axis_size;
use crate::passes::targets::TFLITE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, NodeId, Op};

pass!(decompose_split { stage: Target, runs: Only(&[&TFLITE]), rules: [DECOMPOSE] });

static DECOMPOSE: At =
    At { name: "decompose", accuracy: Accuracy::BitExact, ops: &["Split"], apply: decompose };

fn decompose(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let x = cx.input(id, 0)?;
    let axis = cx.axis(id, cx.rank(x)?)?;
    let whole = axis_size(cx, x, axis)?;
    let mut change = cx.change(&[id]);
    let mut first = 0;
    for (index, part) in cx.node(id).outputs().iter().enumerate() {
        let part = part.ok_or(Skip::because("a part has no name, and so no known size"))?;
        let behind = first + axis_size(cx, part, axis)?;
        let Some(part) = cx.read_output(id, index) else {
            first = behind;
            continue;
        };
        // From version 10 on the ends are inputs.
        let (mut inputs, mut attrs) = (vec![x.into()], Vec::new());
        for (input, attribute, value) in
            [("start", "starts", first), ("end", "ends", behind), ("axis", "axes", axis as i64)]
        {
            match cx.opset(id) {
                ..10 => attrs.push((attribute, vec![value]).into()),
                _ => inputs.push(change.ints(input, &[value])),
            }
        }
        let slice = change.call(Op::standard("Slice"), inputs, 1, attrs);
        change.replace(part, slice.output(0));
        first = behind;
    }
    match first == whole {
        true => Ok(change),
        false => Err(Skip::at(Reason::UnknownShape, x)),
    }
}
