//! tflite_conv: Conv becomes CONV_2D or DEPTHWISE_CONV_2D, which want channels last.
//!
//! **Matches** Conv on images of two axes and on sequences, whose channels and window are known, with weights of any origin. For files of TensorFlow Lite.
//! **Accuracy** `Rounding`: kernels for another layout add the same products in another order.
//! **Proof** Transposes in front of the operator and behind it undo each other, and its weights are the same in another order. The format pads
//! so that every step of the window finds a place (SAME), or not at all: where sizes prove that the padding of the Conv is that, it is said so, otherwise a
//! Pad stands in front. A sequence is an image of height 1, over which a window of height 1 slides.
//! **Bound** Both sum the same n products and the bias, in an order that the kernel chooses: n + 1 roundings on the way of a term before and after. None is added.
//! **Never** more axes; other numbers than floats of 32 bits; padding that is put in front by half and more.

use crate::passes::pass;
use crate::passes::recognize::windows::{Window, flattened};
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Attr, DType, NodeId, ValueId};

pass!(tflite_conv { stage: Target, needs: ["Conv"], runs: Only(&[&TFLITE_FILE]), rules: [LAYER] });

static LAYER: At =
    At { name: "layer", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["Conv"], apply: layer };

fn layer(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, w) = (cx.input(id, 0)?, cx.input(id, 1)?);
    let ([_, channels, axes @ ..], [maps, of_group, kernel @ ..]) = (cx.shape(x)?, cx.shape(w)?) else {
        return Err(Skip::NOT_HERE);
    };
    if !(1..=2).contains(&axes.len()) || kernel.len() != axes.len() || cx.opset(id) < 13 {
        return Err(Skip::NOT_HERE);
    }
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    let kernel: Option<Vec<i64>> = kernel.iter().map(Dim::as_const).collect();
    let kernel = kernel.and_then(|kernel| flattened(&kernel));
    let numbers = [channels, maps, of_group].map(Dim::as_const);
    let ([Some(channels), Some(maps), Some(of_group)], Some(kernel)) = (numbers, kernel) else {
        return Err(Skip::at(Reason::UnknownShape, w));
    };
    let group = cx.call(id)?.int("group")?;
    let window = Window::of(cx, id, kernel)?;
    let rank = axes.len() + 2;
    let mut change = cx.change(&[id]);
    let image = channels_last(&mut change, x, rank, window.pads);
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
    let y = channels_first(&mut change, y, rank);
    change.replace(cx.output(id)?, y);
    Ok(change)
}

/// An image (N, C, height, width) with its channels last, and with padding of zeros. A sequence (N, C, width) becomes an image of height 1.
pub(super) fn channels_last(change: &mut Change, image: ValueId, rank: usize, pads: [i64; 4]) -> Operand {
    let moved = match rank {
        3 => {
            let moved = change.op("Transpose", [image.into()], [("perm", vec![0, 2, 1]).into()]);
            let height = change.ints("axes", &[1]);
            change.op("Unsqueeze", [moved, height], [])
        }
        _ => change.op("Transpose", [image.into()], [("perm", vec![0, 2, 3, 1]).into()]),
    };
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
pub(super) fn channels_first(change: &mut Change, image: Operand, rank: usize) -> Operand {
    if rank == 4 {
        return change.op("Transpose", [image], [("perm", vec![0, 3, 1, 2]).into()]);
    }
    let height = change.ints("axes", &[1]);
    let sequence = change.op("Squeeze", [image, height], []);
    change.op("Transpose", [sequence], [("perm", vec![0, 2, 1]).into()])
}

/// Weights of four axes with these in another order: once and for all, where they are a constant. Those of a sequence get a height of 1.
pub(super) fn in_order(
    cx: &Cx<'_>,
    change: &mut Change,
    weights: ValueId,
    order: &[usize],
) -> Result<Operand, Skip> {
    let is_sequence = cx.rank(weights)? == 3 && order.len() == 4;
    if let Ok(tensor) = cx.constant(weights) {
        let shape = match tensor.shape() {
            &[maps, channels, width] if is_sequence => vec![maps, channels, 1, width],
            shape => shape.to_vec(),
        };
        let moved = tensor.reshaped(shape).and_then(|tensor| tensor.transposed(order));
        let moved = moved.map_err(|_| Skip::at(Reason::Type, weights))?;
        return Ok(change.constant(cx.model.value(weights).name().clone(), moved));
    }
    let mut whole: Operand = weights.into();
    if is_sequence {
        let height = change.ints("axes", &[2]);
        whole = change.op("Unsqueeze", [whole, height], []);
    }
    let order: Vec<i64> = order.iter().map(|&axis| axis as i64).collect();
    Ok(change.op("Transpose", [whole], [("perm", order).into()]))
}
