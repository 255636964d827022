//! fuse_scale_into_weights: a constant factor after a product with constant weights becomes part of the weights.
//!
//! **Matches** Mul or Div by one number, of a MatMul with constant second operand, whose result went at most through an Add of a constant,
//! through operators that only move elements and, as first operand, through other products, each read by nothing else.
//! **Accuracy** `Rounding`: the weights are rounded once more instead of the products; powers of two that stay in range round
//! nothing.
//! **Proof** (x·W + b)·s = x·(W·s) + b·s, (q·k)·s = (q·s)·k, and moving elements commutes with multiplying each of them.
//! **Bound** Before, n roundings for the product, one for a summand, those of other products on the way, and one for the factor. After, one of the weights
//! instead of that (computed in 64 bits, a divisor as its inverse: 2⁻²⁸ of a rounding more), and one of the summand, which has fewer behind it. None is
//! added, at the same scale |s| · (Σ|x·w| + |b|).
//! **Never** a factor that is 0, very small, very large or no number; weights that would leave the normal range of their type; where the product has other readers; a factor above 1 through another product.

use crate::passes::pass;
use crate::passes::recognize::MOVES;
use crate::passes::recognize::constant_math::{self, RANGE};
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, NodeId, Tensor, ValueId};

pass!(fuse_scale_into_weights { stage: Cleanup, rules: [FUSE] });

static FUSE: At =
    At { name: "fuse", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["Mul", "Div"], apply: fuse };

fn fuse(cx: &Cx<'_>, product: NodeId) -> Result<Change, Skip> {
    let (a, b) = (cx.input(product, 0)?, cx.input(product, 1)?);
    let divides = cx.node(product).op().is("Div");
    let number = |value: ValueId| {
        cx.uniform(value).filter(|_| cx.constant(value).is_ok_and(|tensor| tensor.len() == 1))
    };
    let (factor, mut value) = match (number(b), number(a)) {
        (Some(factor), _) if divides => (factor.recip(), a),
        (Some(factor), _) => (factor, a),
        (None, Some(factor)) if !divides => (factor, b),
        _ => return Err(Skip::NOT_HERE),
    };
    // The way back to the product, last node first.
    let mut way: Vec<NodeId> = Vec::new();
    let mut reader = product;
    loop {
        let node = cx.model.value(value).node().ok_or(Skip::NOT_HERE)?;
        if cx.scope(node) != cx.scope(product) {
            return Err(Skip::NOT_HERE);
        }
        let op = cx.node(node).op();
        let constant_operand = cx.node(node).input(1).is_some_and(|other| cx.model.constant(other).is_some());
        let moves = MOVES.iter().any(|name| op.is(name));
        let adds = op.is("Add") && constant_operand;
        if !moves && !adds && !op.is("MatMul") {
            return Err(Skip::NOT_HERE);
        }
        cx.read_only_by(value, reader)?;
        way.push(node);
        if op.is("MatMul") && constant_operand {
            break;
        }
        // Before another product the numbers must not grow: they might leave the range of their type.
        if op.is("MatMul") && factor.abs() > 1.0 {
            return Err(Skip::because("the factor is above 1"));
        }
        reader = node;
        value = cx.input(node, 0)?;
    }
    if !RANGE.contains(&factor.abs()) {
        return Err(Skip::because("weights might leave the range of their type"));
    }
    let mut consumed: Vec<NodeId> = way.iter().rev().copied().collect();
    consumed.push(product);
    let mut change = cx.change(&consumed);
    let mut last = None;
    for &id in way.iter().rev() {
        let node = cx.node(id);
        let mut inputs: Vec<_> = node.inputs().iter().map(|&input| input.into()).collect();
        if let Some(last) = last {
            inputs[0] = last;
        }
        if let Some(constant) = node.input(1)
            && cx.model.constant(constant).is_some()
            && (node.op().is("MatMul") || node.op().is("Add"))
        {
            let scaled = scaled(cx, constant, factor)?;
            inputs[1] = change.constant(cx.model.value(constant).name().clone(), scaled);
        }
        last = Some(change.remake(cx, id, inputs));
    }
    change.replace(cx.output(product)?, last.ok_or(Skip::NOT_HERE)?);
    Ok(change)
}

fn scaled(cx: &Cx<'_>, constant: ValueId, factor: f64) -> Result<Tensor, Skip> {
    let rows = cx.constant(constant)?.shape().first().copied();
    match rows {
        Some(rows) => constant_math::scaled(cx, constant, 0, &vec![factor; rows]),
        // One number without axes.
        None => constant_math::floats(cx.constant(constant)?, &[cx.floats(constant)?[0] * factor])?
            .reshaped([])
            .map_err(|_| Skip::at(Reason::Type, constant)),
    }
}
