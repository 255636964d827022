//! ort_skip_layer_norm: a sum and its normalization become one SkipLayerNormalization, or SkipSimplifiedLayerNormalization, of ONNX Runtime.
//!
//! **Matches** LayerNormalization or RMSNormalization along the last axis of the sum of two tensors of one shape, of which one may be the sum of a
//! tensor and a constant bias of the features. What else reads the sum reads it from the operator. On
//! request only: on CPUs ONNX Runtime's kernel for it is many times slower than those for the sum and the normalization.
//! **Accuracy** `Rounding`: three summands are added in another order.
//! **Proof** This is the definition of the operator, whose fourth output is the sum.
//! **Bound** Three summands in any order are two roundings on the longest way, two summands one; the normalization is the same formula of the sum. None
//! is added, at the scale |x| + |skip| + |bias| of the sum, and (|t| + mean |t|) / √(V + ε) behind it for its magnitudes t.
//! **Never** sums that stretch an operand; scales and biases that are stretched; along more axes than the last; tensors of other ranks than 2 and 3, or numbers of 64 bits; statistics that something reads.

use crate::passes::pass;
use crate::passes::recognize::channels::features;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, DType, NodeId, ValueId};

pass!(ort_skip_layer_norm { stage: Target, runs: OnRequest, rules: [FUSE] });

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Rounding { ulps: 8.0 },
    ops: &["LayerNormalization", "RMSNormalization"],
    apply: fuse,
};

fn fuse(cx: &Cx<'_>, norm: NodeId) -> Result<Change, Skip> {
    let (total, scale) = (cx.input(norm, 0)?, cx.input(norm, 1)?);
    let sum = cx.producer(total, "Add", norm).ok_or(Skip::NOT_HERE)?;
    let (a, b) = (cx.input(sum, 0)?, cx.input(sum, 1)?);
    let shape = cx.shape(total)?;
    if !cx.same_shape(cx.shape(a)?, cx.shape(b)?) {
        return Err(Skip::at(Reason::Broadcast, b));
    }
    if !matches!(shape.len(), 2 | 3) {
        return Err(Skip::because("it has not 2 or 3 axes"));
    }
    let call = cx.call(norm)?;
    let last = cx.axis(norm, shape.len())? + 1 == shape.len();
    if !last {
        return Err(Reason::Attribute("axis").into());
    }
    // The standard stretches both, ONNX Runtime's operator does not.
    let features = shape.last().map_or(&[][..], std::slice::from_ref);
    for parameter in [Some(scale), cx.node(norm).input(2)].into_iter().flatten() {
        if !cx.same_shape(cx.shape(parameter)?, features) {
            return Err(Skip::at(
                Reason::Rule("the scale or the bias is no vector of the features"),
                parameter,
            ));
        }
    }
    if !matches!(cx.dtype(total)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, total));
    }
    if cx.read_output(norm, 1).is_some() || cx.read_output(norm, 2).is_some() {
        return Err(Skip::because("something reads its statistics"));
    }
    let mut consumed = vec![norm, sum];
    let biased = [(a, b), (b, a)].into_iter().find_map(|(x, skip)| {
        let (inner, x, bias) = with_bias(cx, x, sum)?;
        Some((inner, x, skip, bias))
    });
    let (x, skip, bias): (ValueId, ValueId, Operand) = match biased {
        Some((inner, x, skip, bias)) => {
            consumed.push(inner);
            (x, skip, bias.into())
        }
        None => (a, b, Operand::Absent),
    };
    let centered = cx.node(norm).op().is("LayerNormalization");
    let (name, mut inputs) = match centered {
        true => (
            "SkipLayerNormalization",
            vec![x.into(), skip.into(), scale.into(), cx.node(norm).input(2).into(), bias],
        ),
        false => ("SkipSimplifiedLayerNormalization", vec![x.into(), skip.into(), scale.into(), bias]),
    };
    while inputs.last() == Some(&Operand::Absent) {
        inputs.pop();
    }
    let is_read = cx.read_only_by(total, norm).is_err();
    let mut change = cx.change(&consumed);
    let epsilon = ("epsilon", call.float("epsilon")?).into();
    let fused = change.contrib(name, inputs, if is_read { 4 } else { 1 }, [epsilon]);
    if is_read {
        change.leave_out(fused, 1);
        change.leave_out(fused, 2);
        change.replace(total, fused.output(3));
    }
    change.replace(cx.output(norm)?, fused.output(0));
    Ok(change)
}

/// The sum of a tensor and a constant vector of its features that `value` is, which only `reader` reads, and both operands.
fn with_bias(cx: &Cx<'_>, value: ValueId, reader: NodeId) -> Option<(NodeId, ValueId, ValueId)> {
    let inner = cx.producer(value, "Add", reader)?;
    cx.read_only_by(value, reader).ok()?;
    let (x, bias) = features(cx, inner)?;
    Some((inner, x, bias))
}
