//! tflite_pool: MaxPool and AveragePool become MAX_POOL_2D and AVERAGE_POOL_2D, which want channels last.
//!
//! **Matches** pools of images of two axes and of sequences, without dilations, whose padding the format can say, or which can be padded before: MaxPool with what is less
//! than any number, AveragePool with zeros where it counts them. A pool that rounds its size up is one that rounds down where sizes prove it,
//! or is padded as much more. For files of TensorFlow Lite.
//! **Accuracy** `Rounding`: kernels for another layout may add in another order.
//! **Proof** Transposes in front of the operator and behind it undo each other. Padding that the format knows is not counted in a mean, as by
//! the operator; what is less than any number is no maximum of a window that has a number.
//! **Bound** A mean sums the same n numbers and divides once, before and after. None is added.
//! **Never** indices of maxima that something reads; dilations; other numbers than floats of 32 bits; means that count only a part of their padding.

use super::tflite_conv::{channels_first, channels_last};
use crate::passes::pass;
use crate::passes::recognize::windows::{Window, flattened};
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Accuracy, Attr, DType, NodeId};
use onnxforge_ops::Array;

pass!(tflite_pool {
    stage: Target,
    needs: ["MaxPool", "AveragePool"],
    runs: Only(&[&TFLITE_FILE]),
    rules: [POOL]
});

static POOL: At = At {
    name: "pool",
    accuracy: Accuracy::Rounding { ulps: 4.0 },
    ops: &["MaxPool", "AveragePool"],
    apply: pool,
};

fn pool(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, call) = (cx.input(id, 0)?, cx.call(id)?);
    let is_max = cx.node(id).op().is("MaxPool");
    let kernel = flattened(&call.ints("kernel_shape")?).ok_or(Skip::NOT_HERE)?;
    let rank = cx.rank(x)?;
    if cx.opset(id) < 13 {
        return Err(Skip::NOT_HERE);
    }
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    if cx.read_output(id, 1).is_some() {
        return Err(Skip::because("something reads where the maxima are"));
    }
    let mut window = Window::of(cx, id, kernel)?;
    if window.dilations != [1, 1] {
        return Err(Reason::Attribute("dilations").into());
    }
    if call.flag("ceil_mode")? && !window.same {
        round_up(cx, id, kernel, &mut window)?;
    }
    let counts = is_max || call.flag("count_include_pad")?;
    if window.pads != [0; 4] && !counts || window.same && !is_max && call.flag("count_include_pad")? {
        return Err(Reason::Attribute("count_include_pad").into());
    }
    let mut change = cx.change(&[id]);
    let mut image = channels_last(&mut change, x, rank, if is_max { [0; 4] } else { window.pads });
    if is_max && window.pads != [0; 4] {
        let [top, left, bottom, right] = window.pads;
        let pads = change.ints("pads", &[0, top, left, 0, 0, bottom, right, 0]);
        let least = Array::scalar(f32::NEG_INFINITY).to_tensor().map_err(onnxforge_ops::OpError::from)?;
        let least = change.constant("least", least);
        image = change.op("Pad", [image, pads, least], []);
    }
    let attrs: [Attr; 3] = [
        ("auto_pad", window.auto_pad()).into(),
        ("kernel_shape", kernel.to_vec()).into(),
        ("strides", window.strides.to_vec()).into(),
    ];
    let name = if is_max { "MaxPool2D" } else { "AveragePool2D" };
    let y = change.tflite(name, [image], attrs);
    let y = channels_first(&mut change, y, rank);
    change.replace(cx.output(id)?, y);
    Ok(change)
}

/// Padding behind, so that rounding down gives as many places as rounding up did.
fn round_up(cx: &Cx<'_>, id: NodeId, kernel: [i64; 2], window: &mut Window) -> Result<(), Skip> {
    let (x, y) = (cx.input(id, 0)?, cx.output(id)?);
    let (from, to) = (cx.shape(x)?, cx.shape(y)?);
    let sizes = |shape: &[Dim]| {
        let sizes: Option<Vec<i64>> = shape.get(2..)?.iter().map(Dim::as_const).collect();
        flattened(&sizes?)
    };
    let (Some(from), Some(to)) = (sizes(from), sizes(to)) else {
        return Err(Skip::at(Reason::UnknownShape, x));
    };
    for axis in 0..2 {
        let padded = from[axis] + window.pads[axis] + window.pads[axis + 2];
        let wanted = (to[axis] - 1) * window.strides[axis] + kernel[axis];
        window.pads[axis + 2] += (wanted - padded).max(0);
    }
    // How much of such padding a mean counts, the operator says in its own way.
    if !cx.node(id).op().is("MaxPool") && window.pads != [0; 4] {
        return Err(Reason::Attribute("ceil_mode").into());
    }
    Ok(())
}
