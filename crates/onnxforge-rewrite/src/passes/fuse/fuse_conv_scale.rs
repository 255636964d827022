//! fuse_conv_scale: a constant factor after Conv, ConvTranspose or Gemm, or before Conv, becomes part of their weights.
//!
//! **Matches** Mul or Div by a constant that is one number or runs along the channels, after a Conv, a ConvTranspose or a
//! Gemm with constant weights that nothing else reads (`fuse`); before a Conv that alone reads the product, with constant weights (`before`).
//! **Accuracy** `Rounding`: the weights are rounded once more instead of the products.
//! **Proof** Convolutions and products are linear in their weights for each output channel, and in those for each input channel; padding with zeros is the same before a
//! factor as after it.
//! **Bound** For n products: before, n roundings, one for a bias, one for the factor. After, one of the weight (computed in 64 bits, a divisor as its
//! inverse: 2⁻²⁸ of a rounding more), n, and one for the bias, which is rounded once too. None is added, at the same scale |s| · (Σ|w·x| + |b|). A factor before is one
//! rounding of each s·x, and one of each weight after: none is added, at the scale Σ|w·s·x| + |b|.
//! **Never** a constant that varies along another axis, such as the width, however long that is; a factor that is very small, very large or no number; factors of
//! input channels before groups; the ½ of a Gelu, by which fusions and runtimes recognise it; a summand before, which may cancel what comes in: the sums of weights that took its place would not.

use crate::passes::pass;
use crate::passes::recognize::activations::has_bracket;
use crate::passes::recognize::channels::{
    Affine, along_channels, channels, linear_and_constant, scale_weights,
};
use crate::passes::recognize::constant_math::{self, RANGE};
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, NodeId, ValueId};

pass!(fuse_conv_scale { stage: Fuse, rules: [FUSE, BEFORE] });

static FUSE: At =
    At { name: "fuse", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["Mul", "Div"], apply: fuse };

static BEFORE: At =
    At { name: "before", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["Conv"], apply: before };

fn fuse(cx: &Cx<'_>, product: NodeId) -> Result<Change, Skip> {
    let (linear, constant) = linear_and_constant(cx, product, !is_division(cx, product))?;
    let y = cx.output(linear)?;
    cx.read_only_by(y, product)?;
    let factors = factors(cx, product, y, constant, channels(cx, linear)?)?;
    let summands = vec![0.0; factors.len()];
    scale_weights(cx, linear, product, &Affine { factors, summands })
}

fn before(cx: &Cx<'_>, conv: NodeId) -> Result<Change, Skip> {
    let (scaled, weights) = (cx.input(conv, 0)?, cx.input(conv, 1)?);
    let product = cx.producer(scaled, "Mul", conv).or_else(|| cx.producer(scaled, "Div", conv));
    let product = product.ok_or(Skip::NOT_HERE)?;
    let (a, b) = (cx.input(product, 0)?, cx.input(product, 1)?);
    if cx.call(product)?.since() < 7 {
        return Err(Skip::NOT_HERE);
    }
    let is_constant = |value| cx.model.constant(value).is_some();
    let (x, constant) = match (is_constant(a), is_constant(b)) {
        (false, true) => (a, b),
        (true, false) if !is_division(cx, product) => (b, a),
        _ => return Err(Skip::NOT_HERE),
    };
    cx.read_only_by(scaled, conv)?;
    if !cx.same_shape(cx.shape(x)?, cx.shape(scaled)?) {
        return Err(Skip::because("the product may have more elements than what is scaled"));
    }
    if has_bracket(cx, x) {
        return Err(Skip::because("it may be part of a Gelu"));
    }
    let (outputs, inputs) = match *cx.constant(weights)?.shape() {
        [outputs, inputs, ..] => (outputs, inputs),
        _ => return Err(Skip::NOT_HERE),
    };
    let grouped = cx.call(conv)?.int("group")? != 1;
    let scaled_weights = match cx.uniform(constant) {
        Some(_) => {
            let factor = factors(cx, product, scaled, constant, 1)?;
            constant_math::scaled(cx, weights, 0, &vec![factor[0]; outputs])?
        }
        None if grouped => return Err(Reason::Attribute("group").into()),
        None => constant_math::scaled(cx, weights, 1, &factors(cx, product, scaled, constant, inputs)?)?,
    };
    let mut change = cx.change(&[product, conv]);
    let mut operands: Vec<Operand> = cx.node(conv).inputs().iter().map(|&input| input.into()).collect();
    operands[0] = x.into();
    operands[1] = change.constant(cx.model.value(weights).name().clone(), scaled_weights);
    let one = change.remake(cx, conv, operands);
    change.replace(cx.output(conv)?, one);
    Ok(change)
}

fn is_division(cx: &Cx<'_>, product: NodeId) -> bool {
    cx.node(product).op().is("Div")
}

/// What each of so many channels of `value` is multiplied by in `product`.
fn factors(
    cx: &Cx<'_>,
    product: NodeId,
    value: ValueId,
    constant: ValueId,
    channels: usize,
) -> Result<Vec<f64>, Skip> {
    let mut factors = along_channels(cx, value, constant, channels)?;
    if is_division(cx, product) {
        factors.iter_mut().for_each(|factor| *factor = factor.recip());
    }
    if !factors.iter().all(|factor| *factor == 0.0 || RANGE.contains(&factor.abs())) {
        return Err(Skip::because("weights might leave the range of their type"));
    }
    Ok(factors)
}
