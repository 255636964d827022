//! fuse_pad: a Pad before Conv, ConvInteger or a pool becomes part of their own padding.
//!
//! **Matches** Pad with zeros of spatial axes only, before Conv or AveragePool that counts padding (`count_include_pad`); Pad with the lowest number before
//! MaxPool; Pad with the zero point before ConvInteger; each read by nothing else. Their own padding is explicit, none (`VALID`), or what a Conv needs
//! to keep the size (`SAME_UPPER`, `SAME_LOWER`).
//! **Accuracy** `Rounding`: the same products and sums, in an order that a kernel may choose by the padding; `ValueExact` for MaxPool,
//! `BitExact` for ConvInteger.
//! **Proof** Both put the same numbers around the same elements: Conv pads with zeros, ConvInteger with what its zero point makes zeros, MaxPool with what is below every
//! number. Padding twice adds the widths.
//! **Bound** Products with zeros are zeros, and adding zeros does not round: the sums of Conv have the same terms, those of AveragePool the same terms and the same
//! divisor, in an order that the kernel chooses. No rounding is added.
//! **Never** zeros before MaxPool, where they would count; padding that cuts off (below 0); of batch or channels; of another mode than
//! `constant`; with automatic padding of pools, or with dilations, strides of an unknown size, or rounding up (`ceil_mode`), which would see another size.

use crate::passes::pass;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, NodeId};

pass!(fuse_pad { stage: Fuse, needs: ["Pad"], rules: [CONV, INTEGER, POOL] });

static CONV: At = At {
    name: "conv",
    accuracy: Accuracy::Rounding { ulps: 2.0 },
    ops: &["Conv", "AveragePool"],
    apply: fuse,
};
static INTEGER: At = At { name: "integer", accuracy: Accuracy::BitExact, ops: &["ConvInteger"], apply: fuse };
static POOL: At = At { name: "pool", accuracy: Accuracy::ValueExact, ops: &["MaxPool"], apply: fuse };

fn fuse(cx: &Cx<'_>, window: NodeId) -> Result<Change, Skip> {
    let (node, call) = (cx.node(window), cx.call(window)?);
    let x = cx.input(window, 0)?;
    let pad = cx.producer(x, "Pad", window).ok_or(Skip::NOT_HERE)?;
    cx.read_only_by(x, window)?;
    let (widths, value) = padding(cx, pad)?;
    let rank = cx.rank(x)?;
    if widths.len() != 2 * rank || rank < 3 {
        return Err(Skip::at(Reason::UnknownShape, x));
    }
    let (before, after) = widths.split_at(rank);
    if before[..2].iter().chain(&after[..2]).any(|&width| width != 0) {
        return Err(Skip::because("it pads batch or channels"));
    }
    if widths.iter().any(|&width| width < 0) {
        return Err(Skip::because("it cuts something off"));
    }
    match &*node.op().name {
        "MaxPool" if value != f64::NEG_INFINITY || node.output(1).is_some() => {
            return Err(Skip::because("what it pads with would count"));
        }
        "Conv" | "AveragePool" if value != 0.0 => return Err(Skip::because("it pads with something else")),
        "ConvInteger" => {
            let zero = node.input(2).map_or(Ok(0.0), |point| {
                cx.uniform(point).ok_or_else(|| Skip::at(Reason::NotConstant, point))
            })?;
            if value != zero {
                return Err(Skip::because("it pads with something else"));
            }
        }
        "AveragePool" if !call.flag("count_include_pad")? => {
            return Err(Reason::Attribute("count_include_pad").into());
        }
        _ => {}
    }
    if node.op().name.ends_with("Pool") && call.since() >= 10 && call.flag("ceil_mode")? {
        return Err(Reason::Attribute("ceil_mode").into());
    }
    let own = match &*call.text_or("auto_pad", "NOTSET")? {
        "NOTSET" => call.ints_or("pads", vec![0; 2 * (rank - 2)])?,
        "VALID" => vec![0; 2 * (rank - 2)],
        "SAME_UPPER" => automatic(cx, window, rank, false)?,
        "SAME_LOWER" => automatic(cx, window, rank, true)?,
        _ => return Err(Reason::Attribute("auto_pad").into()),
    };
    let added = before[2..].iter().chain(&after[2..]);
    let pads: Vec<i64> = own.iter().zip(added).map(|(own, added)| own.saturating_add(*added)).collect();
    if pads.len() != 2 * (rank - 2) {
        return Err(Reason::Attribute("pads").into());
    }
    // A window that sees nothing but padding is not allowed.
    let kernel = call.ints_or("kernel_shape", Vec::new())?;
    let narrow = |(pad, size): (&i64, &i64)| pad < size;
    if node.op().name.ends_with("Pool") && !pads.iter().zip(kernel.iter().chain(&kernel)).all(narrow) {
        return Err(Reason::Attribute("kernel_shape").into());
    }
    let mut attrs = node.attrs().to_vec();
    attrs.retain(|attr| !matches!(&*attr.name, "pads" | "auto_pad"));
    attrs.push(("pads", pads).into());
    let mut change = cx.change(&[pad, window]);
    let mut inputs: Vec<_> = node.inputs().iter().map(|&input| input.into()).collect();
    inputs[0] = cx.input(pad, 0)?.into();
    let fused = change.call(node.op().clone(), inputs, 1, attrs);
    change.replace(cx.output(window)?, fused.output(0));
    Ok(change)
}

/// The padding that a Conv or ConvInteger gives itself so that its strides alone decide on the size; the odd place comes `before` or after.
fn automatic(cx: &Cx<'_>, window: NodeId, rank: usize, before: bool) -> Result<Vec<i64>, Skip> {
    let call = cx.call(window)?;
    let unknown = || Skip::from(Reason::Attribute("auto_pad"));
    if !cx.node(window).op().name.starts_with("Conv") {
        return Err(unknown());
    }
    let ones = || vec![1; rank - 2];
    let (strides, dilations) = (call.ints_or("strides", ones())?, call.ints_or("dilations", ones())?);
    let (x, weights) = (cx.shape(cx.input(window, 0)?)?, cx.shape(cx.input(window, 1)?)?);
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    let spatial = x.iter().zip(weights).skip(2).zip(strides.iter().zip(&dilations));
    for ((size, kernel), steps) in spatial {
        let kernel = kernel.as_const().ok_or_else(unknown)?;
        // With a stride of 1 every place is a centre, however many there are; runtimes differ about dilations.
        let total = match steps {
            (1, 1) => kernel - 1,
            (&stride, 1) if stride > 1 => {
                let size = size.as_const().ok_or_else(unknown)?;
                let last = (size - 1).max(0) / stride * stride;
                last.saturating_add(kernel).saturating_sub(size).max(0)
            }
            _ => return Err(unknown()),
        };
        let (less, more) = (total / 2, total - total / 2);
        begins.push(if before { more } else { less });
        ends.push(if before { less } else { more });
    }
    Ok([begins, ends].concat())
}

/// The widths of a Pad by a constant, for all axes, and the constant.
fn padding(cx: &Cx<'_>, pad: NodeId) -> Result<(Vec<i64>, f64), Skip> {
    let (node, call) = (cx.node(pad), cx.call(pad)?);
    if call.text_or("mode", "constant")? != "constant" {
        return Err(Reason::Attribute("mode").into());
    }
    if call.since() < 11 {
        return match call.since() {
            1 => Err(Skip::NOT_HERE),
            _ => Ok((call.ints("pads")?, f64::from(call.float("value")?))),
        };
    }
    let widths = cx.ints(cx.input(pad, 1)?)?;
    let value = match node.input(2) {
        Some(value) => cx.uniform(value).ok_or_else(|| Skip::at(Reason::NotConstant, value))?,
        None => 0.0,
    };
    let Some(axes) = node.input(3) else { return Ok((widths, value)) };
    let rank = cx.rank(cx.input(pad, 0)?)?;
    let axes = onnxforge_ops::call::axes(&cx.ints(axes)?, rank)?;
    if widths.len() != 2 * axes.len() {
        return Err(Skip::NOT_HERE);
    }
    let mut all = vec![0; 2 * rank];
    for (index, &axis) in axes.iter().enumerate() {
        (all[axis], all[rank + axis]) = (widths[index], widths[axes.len() + index]);
    }
    Ok((all, value))
}
