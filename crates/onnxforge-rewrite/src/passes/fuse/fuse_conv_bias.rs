//! fuse_conv_bias: a constant that is added after Conv, ConvTranspose or Gemm becomes part of their bias.
//!
//! **Matches** Add or Sub of a constant that is one number or runs along the channels, after a Conv, ConvTranspose or Gemm that nothing
//! else reads and whose bias, if it has one, is constant.
//! **Accuracy** `Rounding`: the two summands are added in another order.
//! **Proof** The bias is added to each element of its channel, as the constant is; addition is associative up to rounding.
//! **Bound** For n products: before, n roundings, one for the old bias b and one for the constant c, n + 2, or n + 1 without b. After, one of b + c, which
//! is no rounding without b, and n + 1 at most, in whatever order the bias is added. None is added, and |b + c| ≤ |b| + |c|.
//! **Never** a constant that varies along another axis, such as the width, however long that is; biases that cancel in all channels.

use crate::passes::pass;
use crate::passes::recognize::channels::{along_channels, channels, linear_and_constant};
use crate::passes::recognize::constant_math::floats;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, NodeId};

pass!(fuse_conv_bias { stage: Fuse, rules: [FUSE] });

static FUSE: At =
    At { name: "fuse", accuracy: Accuracy::Rounding { ulps: 2.0 }, ops: &["Add", "Sub"], apply: fuse };

fn fuse(cx: &Cx<'_>, sum: NodeId) -> Result<Change, Skip> {
    let (linear, constant) = linear_and_constant(cx, sum, cx.node(sum).op().is("Add"))?;
    let node = cx.node(linear);
    let y = cx.output(linear)?;
    cx.read_only_by(y, sum)?;
    let call = cx.call(linear)?;
    if node.op().is("Gemm") && (call.float("beta")? != 1.0 || node.input(2).is_none() && call.since() < 11) {
        return Err(Reason::Attribute("beta").into());
    }
    let weights = cx.constant(cx.input(linear, 1)?)?;
    let channels = channels(cx, linear)?;
    let sign = if cx.node(sum).op().is("Sub") { -1.0 } else { 1.0 };
    let mut bias: Vec<f64> =
        along_channels(cx, y, constant, channels)?.iter().map(|number| number * sign).collect();
    if let Some(old) = node.input(2) {
        let old_numbers = cx.floats(old)?;
        if old_numbers.len() != channels || !matches!(*cx.constant(old)?.shape(), [_] | [1, _]) {
            return Err(Skip::at(Reason::Broadcast, old));
        }
        // What cancels here would have been rounded at the size of the summands. Where other channels are as large as they, that does not show.
        let largest =
            |numbers: &[f64]| numbers.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()));
        let before = largest(&bias).max(largest(&old_numbers));
        bias.iter_mut().zip(&old_numbers).for_each(|(bias, old)| *bias += old);
        if 4.0 * largest(&bias) < before {
            return Err(Skip::because("the two biases cancel"));
        }
    }
    let bias = floats(weights, &bias)?;
    let mut change = cx.change(&[linear, sum]);
    let b = change.constant(cx.model.value(constant).name().clone(), bias);
    let inputs = [cx.input(linear, 0)?.into(), cx.input(linear, 1)?.into(), b];
    let fused = change.remake(cx, linear, inputs);
    change.replace(cx.output(sum)?, fused);
    Ok(change)
}
