//! tflite_conv_transpose: ConvTranspose becomes TRANSPOSE_CONV, which wants channels last and pads nothing.
//!
//! **Matches** ConvTranspose of images of two axes, of one group and without dilations, whose result is as large as its padding says. For files of TensorFlow
//! Lite.
//! **Accuracy** `Rounding`: kernels for another layout add the same products in another order.
//! **Proof** Transposes in front of the operator and behind it undo each other, and its weights are the same in another order. Padding cuts rows and columns
//! off the whole result, which a Slice does as well.
//! **Bound** Both sum the same products and the bias, in an order that the kernel chooses. None is added.
//! **Never** groups, dilations, sizes that are given in another way; other numbers than floats of 32 bits.

use super::tflite_conv::{channels_first, channels_last, in_order};
use crate::passes::pass;
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Attr, DType, NodeId};

pass!(tflite_conv_transpose {
    stage: Target,
    needs: ["ConvTranspose"],
    runs: Only(&[&TFLITE_FILE]),
    rules: [IMAGES]
});

static IMAGES: At =
    At { name: "images", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["ConvTranspose"], apply: images };

fn images(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, w, call) = (cx.input(id, 0)?, cx.input(id, 1)?, cx.call(id)?);
    if cx.rank(x)? != 4 || cx.opset(id) < 10 {
        return Err(Skip::NOT_HERE);
    }
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    if call.int("group")? != 1 {
        return Err(Reason::Attribute("group").into());
    }
    let is_plain = |name: &str, plain: i64| -> Result<bool, Skip> {
        Ok(call.opt_ints(name)?.unwrap_or_default().iter().all(|&it| it == plain))
    };
    if !is_plain("dilations", 1)? {
        return Err(Reason::Attribute("dilations").into());
    }
    let padding = call.text_or("auto_pad", "NOTSET")?;
    if !is_plain("output_padding", 0)?
        || call.opt_ints("output_shape")?.is_some()
        || padding.starts_with("SAME")
    {
        return Err(Reason::Attribute("output_padding").into());
    }
    let strides = call.opt_ints("strides")?.unwrap_or_else(|| vec![1, 1]);
    let pads = call.opt_ints("pads")?.filter(|_| padding == "NOTSET").unwrap_or_else(|| vec![0; 4]);
    let &[top, left, bottom, right] = &pads[..] else { return Err(Skip::NOT_HERE) };
    let mut change = cx.change(&[id]);
    let image = channels_last(&mut change, x, 4, [0; 4]);
    let weights = in_order(cx, &mut change, w, &[1, 2, 3, 0])?;
    let attrs: [Attr; 2] = [("auto_pad", "VALID").into(), ("strides", strides).into()];
    let inputs = [Some(image), Some(weights), cx.node(id).input(2).map(Operand::from)];
    let mut y = change.tflite("TransposeConv", inputs.into_iter().flatten(), attrs);
    if pads.iter().any(|&pad| pad != 0) {
        let end = |pad: i64| if pad == 0 { i64::MAX } else { -pad };
        let starts = change.ints("starts", &[top, left]);
        let ends = change.ints("ends", &[end(bottom), end(right)]);
        let axes = change.ints("axes", &[1, 2]);
        y = change.op("Slice", [y, starts, ends, axes], []);
    }
    let y = channels_first(&mut change, y, 4);
    change.replace(cx.output(id)?, y);
    Ok(change)
}
