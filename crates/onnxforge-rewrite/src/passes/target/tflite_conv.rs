//! tflite_conv: Conv becomes CONV_2D or DEPTHWISE_CONV_2D, which want channels last.
//!
//! **Matches** Conv on images of two axes whose channels are known (`images`), with weights of any origin; and on sequences, which become images of height 1
//! (`sequences`). For files of TensorFlow Lite.
//! **Accuracy** `Rounding`: kernels for another layout add the same products in another order.
//! **Proof** Transposes in front of the operator and behind it undo each other, and its weights are the same in another order. The format pads
//! so that every step of the window finds a place (SAME), or not at all: where sizes prove that the padding of the Conv is that, it is said so, otherwise a
//! Pad stands in front. A sequence is an image of height 1, over which a window of height 1 slides.
//! **Bound** Both sum the same n products and the bias, in an order that the kernel chooses: n + 1 roundings on the way of a term before and after. None is added.
//! **Never** more axes; other numbers than floats of 32 bits; padding that is put in front by half and more.

use crate::passes::pass;
use crate::passes::recognize::windows::Window;
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Attr, AttrValue, DType, NodeId, ValueId};

pass!(tflite_conv {
    stage: Target,
    needs: ["Conv"],
    runs: Only(&[&TFLITE_FILE]),
    rules: [IMAGES, SEQUENCES]
});

static IMAGES: At =
    At { name: "images", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["Conv"], apply: images };
static SEQUENCES: At =
    At { name: "sequences", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["Conv"], apply: sequences };

fn images(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, w) = (cx.input(id, 0)?, cx.input(id, 1)?);
    let [_, channels, _, _] = cx.shape(x)? else { return Err(Skip::NOT_HERE) };
    let [maps, of_group, height, width] = cx.shape(w)? else { return Err(Skip::NOT_HERE) };
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    let numbers = [channels, maps, of_group, height, width].map(onnxforge_ir::dim::Dim::as_const);
    let [Some(channels), Some(maps), Some(of_group), Some(height), Some(width)] = numbers else {
        return Err(Skip::at(Reason::UnknownShape, w));
    };
    let group = cx.call(id)?.int("group")?;
    let window = Window::of(cx, id, [height, width])?;
    let mut change = cx.change(&[id]);
    let image = channels_last(&mut change, x, window.pads);
    let is_depthwise = group == channels && of_group == 1 && channels > 1 && maps >= channels;
    let (name, order) = match is_depthwise {
        true => ("DepthwiseConv2D", [1, 2, 3, 0]),
        false => ("Conv2D", [0, 2, 3, 1]),
    };
    let weights = in_order(cx, &mut change, w, &order)?;
    let attrs: [Attr; 4] = [
        ("auto_pad", window.auto_pad()).into(),
        ("dilations", window.dilations.to_vec()).into(),
        ("group", group).into(),
        ("strides", window.strides.to_vec()).into(),
    ];
    let bias: Operand = cx.node(id).input(2).into();
    let inputs = [image, weights, bias].into_iter().filter(|&operand| operand != Operand::Absent);
    let y = change.tflite(name, inputs, attrs);
    let y = channels_first(&mut change, y);
    change.replace(cx.output(id)?, y);
    Ok(change)
}

fn sequences(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, w) = (cx.input(id, 0)?, cx.input(id, 1)?);
    if cx.rank(x)? != 3 || cx.opset(id) < 13 {
        return Err(Skip::NOT_HERE);
    }
    let mut change = cx.change(&[id]);
    let axes = change.ints("axes", &[2]);
    let image = change.op("Unsqueeze", [x.into(), axes], []);
    let weights = change.op("Unsqueeze", [w.into(), axes], []);
    let attrs: Vec<Attr> = cx.node(id).attrs().iter().map(|attr| flattened(attr)).collect();
    let inputs = [image, weights].into_iter().chain(cx.node(id).input(2).map(Into::into));
    let inputs: Vec<Operand> = inputs.collect();
    let y = change.call(onnxforge_ir::Op::standard("Conv"), inputs, 1, attrs).output(0);
    let y = change.op("Squeeze", [y, axes], []);
    change.replace(cx.output(id)?, y);
    Ok(change)
}

/// An attribute of a window along one axis, for one of height 1.
fn flattened(attr: &Attr) -> Attr {
    let value = match (&*attr.name, &attr.value) {
        ("pads", AttrValue::Ints(pads)) if pads.len() == 2 => AttrValue::Ints(vec![0, pads[0], 0, pads[1]]),
        ("strides" | "dilations" | "kernel_shape", AttrValue::Ints(sizes)) if sizes.len() == 1 => {
            AttrValue::Ints(vec![1, sizes[0]])
        }
        (_, value) => value.clone(),
    };
    Attr::new(attr.name.clone(), value)
}

/// An image (N, C, height, width) with its channels last, and with padding of zeros.
pub(super) fn channels_last(change: &mut Change, image: ValueId, pads: [i64; 4]) -> Operand {
    let moved = change.op("Transpose", [image.into()], [("perm", vec![0, 2, 3, 1]).into()]);
    let [top, left, bottom, right] = pads;
    match pads {
        [0, 0, 0, 0] => moved,
        _ => {
            let pads = change.ints("pads", &[0, top, left, 0, 0, bottom, right, 0]);
            change.op("Pad", [moved, pads], [])
        }
    }
}

/// And back.
pub(super) fn channels_first(change: &mut Change, image: Operand) -> Operand {
    change.op("Transpose", [image], [("perm", vec![0, 3, 1, 2]).into()])
}

/// Weights with their axes in another order: once and for all, where they are a constant.
pub(super) fn in_order(
    cx: &Cx<'_>,
    change: &mut Change,
    weights: ValueId,
    order: &[usize],
) -> Result<Operand, Skip> {
    if let Ok(tensor) = cx.constant(weights) {
        let moved = tensor.transposed(order).map_err(|_| Skip::at(Reason::Type, weights))?;
        return Ok(change.constant(cx.model.value(weights).name().clone(), moved));
    }
    let order: Vec<i64> = order.iter().map(|&axis| axis as i64).collect();
    Ok(change.op("Transpose", [weights.into()], [("perm", order).into()]))
}
