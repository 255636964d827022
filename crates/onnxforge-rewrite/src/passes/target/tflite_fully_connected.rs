//! tflite_fully_connected: products with a matrix of weights become FULLY_CONNECTED, which has a bias and wants the weights transposed.
//!
//! **Matches** MatMul of two or more axes with a constant matrix, or one that is dequantized (`product`); Gemm (`gemm`); Add of such a product, which nothing else reads, and a constant vector along the last axis (`bias`). For files of TensorFlow Lite.
//! **Accuracy** `Rounding`: kernels for another layout add the same products in another order.
//! **Proof** The operator is x · wᵀ + b, row by row, for any number of axes before the last. What Gemm adds in another shape than that of a vector
//! along the last axis an Add adds, and factors of Gemm are Muls.
//! **Bound** All forms sum the same n products, and the bias with one rounding more, wherever in the sum it is added: n + 1. Factors of Gemm take a rounding each, before and
//! after. None is added.
//! **Never** vectors; other numbers than floats of 32 bits.

use super::tflite_conv::in_order;
use crate::passes::pass;
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, DType, NodeId, Tensor, ValueId};
use onnxforge_ops::{Array, OpError};

pass!(tflite_fully_connected {
    stage: Target,
    needs: ["MatMul", "Gemm"],
    runs: Only(&[&TFLITE_FILE]),
    rules: [PRODUCT, GEMM, BIAS],
});

const ACCURACY: Accuracy = Accuracy::Rounding { ulps: 4.0 };
const FULLY_CONNECTED: &str = "FullyConnected";

static PRODUCT: At = At { name: "product", accuracy: ACCURACY, ops: &["MatMul"], apply: product };
static GEMM: At = At { name: "gemm", accuracy: ACCURACY, ops: &["Gemm"], apply: gemm };
static BIAS: At = At { name: "bias", accuracy: ACCURACY, ops: &["Add"], apply: bias };

/// The constant that a value is dequantized of.
fn dequantized<'m>(cx: &Cx<'m>, value: ValueId) -> Option<&'m Tensor> {
    let node = cx.model.value(value).node().filter(|&node| cx.node(node).op().is("DequantizeLinear"))?;
    cx.model.constant(cx.node(node).input(0)?)
}

fn product(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, w) = (cx.input(id, 0)?, cx.input(id, 1)?);
    let weights = cx.model.constant(w).or_else(|| dequantized(cx, w)).ok_or(Skip::NOT_HERE)?;
    if weights.shape().len() != 2 || cx.rank(x)? < 2 {
        return Err(Skip::NOT_HERE);
    }
    if cx.dtype(w)? != DType::F32 {
        return Err(Skip::at(Reason::Type, w));
    }
    let mut change = cx.change(&[id]);
    let weights = in_order(cx, &mut change, w, &[1, 0])?;
    let y = change.tflite(FULLY_CONNECTED, [x.into(), weights], []);
    change.replace(cx.output(id)?, y);
    Ok(change)
}

fn gemm(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, w, call) = (cx.input(id, 0)?, cx.input(id, 1)?, cx.call(id)?);
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    let (alpha, beta) = (call.float("alpha")?, call.float("beta")?);
    let third = cx.node(id).input(2);
    let mut change = cx.change(&[id]);
    let x = match call.flag("transA")? {
        true => change.op("Transpose", [x.into()], [("perm", vec![1, 0]).into()]),
        false => x.into(),
    };
    let weights = match call.flag("transB")? {
        true => w.into(),
        false => in_order(cx, &mut change, w, &[1, 0])?,
    };
    let plain = third.filter(|_| alpha == 1.0 && beta == 1.0);
    let vector = plain.and_then(|third| as_vector(cx, &mut change, third, cx.output(id).ok()?));
    let inputs = [Some(x), Some(weights), vector].into_iter().flatten();
    let mut y = change.tflite(FULLY_CONNECTED, inputs, []);
    if alpha != 1.0 {
        let alpha = change.constant("alpha", Array::scalar(alpha).to_tensor().map_err(OpError::from)?);
        y = change.op("Mul", [y, alpha], []);
    }
    if let Some(third) = third.filter(|_| vector.is_none()) {
        let mut third: Operand = third.into();
        if beta != 1.0 {
            let beta = change.constant("beta", Array::scalar(beta).to_tensor().map_err(OpError::from)?);
            third = change.op("Mul", [third, beta], []);
        }
        y = change.op("Add", [y, third], []);
    }
    change.replace(cx.output(id)?, y);
    Ok(change)
}

fn bias(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (a, b) = (cx.input(id, 0)?, cx.input(id, 1)?);
    let connected = |value: ValueId| {
        let node = cx.model.value(value).node()?;
        let is_one =
            cx.node(node).op().is("onnxforge.tflite.FullyConnected") && cx.scope(node) == cx.scope(id);
        (is_one && cx.node(node).input(2).is_none()).then_some(node)
    };
    let (product, value, vector) = match (connected(a), connected(b)) {
        (Some(product), None) => (product, a, b),
        (None, Some(product)) => (product, b, a),
        _ => return Err(Skip::NOT_HERE),
    };
    let mut change = cx.change(&[product, id]);
    let vector = as_vector(cx, &mut change, vector, value).ok_or(Skip::NOT_HERE)?;
    cx.read_only_by(value, id)?;
    let inputs = [cx.input(product, 0)?.into(), cx.input(product, 1)?.into(), vector];
    let y = change.tflite(FULLY_CONNECTED, inputs, []);
    change.replace(cx.output(id)?, y);
    Ok(change)
}

/// A constant, or what is dequantized of one, as a vector along the last axis of `beside`, if it is one there and nothing else.
fn as_vector(cx: &Cx<'_>, change: &mut Change, value: ValueId, beside: ValueId) -> Option<Operand> {
    let shape = cx.facts.shape(beside)?;
    let maps = usize::try_from(shape.last()?.as_const()?).ok()?;
    if let Some(stored) = dequantized(cx, value) {
        return (stored.shape() == [maps]).then_some(value.into());
    }
    let constant = cx.model.constant(value)?;
    let [outer @ .., last] = constant.shape() else { return None };
    if *last != maps || outer.iter().any(|&size| size != 1) || outer.len() >= shape.len() {
        return None;
    }
    if outer.is_empty() {
        return Some(value.into());
    }
    Some(change.constant(cx.model.value(value).name().clone(), constant.reshaped(vec![maps]).ok()?))
}
