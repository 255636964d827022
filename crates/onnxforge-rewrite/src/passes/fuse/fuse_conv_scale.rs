//! fuse_conv_scale: a constant factor after Conv, ConvTranspose or Gemm becomes part of their weights.
//!
//! **Matches** Mul or Div by a constant that is one number or runs along the channels, after a Conv, a ConvTranspose of one group or a
//! Gemm with constant weights that nothing else reads.
//! **Accuracy** `Rounding`: the weights are rounded once more instead of the products.
//! **Proof** Convolutions and products are linear in their weights for each output channel.
//! **Bound** For n products: before, n roundings, one for a bias, one for the factor. After, one of the weight (computed in 64 bits, a divisor as its
//! inverse: 2⁻²⁸ of a rounding more), n, and one for the bias, which is rounded once too. None is added, at the same scale |s| · (Σ|w·x| + |b|).
//! **Never** a constant that varies along another axis, such as the width, however long that is; a factor that is very small, very large or no number.

use crate::passes::pass;
use crate::passes::recognize::channels::{
    Affine, along_channels, channels, linear_and_constant, scale_weights,
};
use crate::passes::recognize::constant_math::RANGE;
use crate::{At, Change, Cx, Skip};
use onnxforge_ir::{Accuracy, NodeId};

pass!(fuse_conv_scale { stage: Fuse, rules: [FUSE] });

static FUSE: At =
    At { name: "fuse", accuracy: Accuracy::Rounding { ulps: 4.0 }, ops: &["Mul", "Div"], apply: fuse };

fn fuse(cx: &Cx<'_>, product: NodeId) -> Result<Change, Skip> {
    let divides = cx.node(product).op().is("Div");
    let (linear, constant) = linear_and_constant(cx, product, !divides)?;
    let y = cx.output(linear)?;
    cx.read_only_by(y, product)?;
    let mut factors = along_channels(cx, y, constant, channels(cx, linear)?)?;
    if divides {
        factors.iter_mut().for_each(|factor| *factor = factor.recip());
    }
    if !factors.iter().all(|factor| *factor == 0.0 || RANGE.contains(&factor.abs())) {
        return Err(Skip::because("weights might leave the range of their type"));
    }
    let summands = vec![0.0; factors.len()];
    scale_weights(cx, linear, product, &Affine { factors, summands })
}
