//! Operators of projects that have no runtime here: what is known of the shapes that they give, so that what reads those is computed.
//!
//! QONNX's quantizers, also under the names that their domain had in FINN and Brevitas, and the deformable layers of MMCV and MMDeploy.

use super::def::{Category, InferFn, OpDef};
use super::error::OpError;
use super::infer_call::{Infer, same_as_input};
use onnxforge_ir::dim::Dim;

/// The domains of these operators.
pub const DOMAINS: [&str; 5] = [QONNX, FINN, BREVITAS, MMDEPLOY, MMCV];

const QONNX: &str = "qonnx.custom_op.general";
const FINN: &str = "finn.custom_op.general";
const BREVITAS: &str = "onnx.brevitas";
const MMDEPLOY: &str = "mmdeploy";
const MMCV: &str = "mmcv";

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    quantizer("Quant", QONNX),
    quantizer("IntQuant", QONNX),
    quantizer("FloatQuant", QONNX),
    quantizer("BipolarQuant", QONNX),
    quantizer("Trunc", QONNX),
    quantizer("Quant", FINN),
    quantizer("BipolarQuant", FINN),
    quantizer("Trunc", FINN),
    quantizer("Quant", BREVITAS),
    quantizer("BipolarQuant", BREVITAS),
    quantizer("Trunc", BREVITAS),
    layer("MMCVDeformConv2d", MMDEPLOY, |cx| infer_deformable(cx, 2)),
    layer("MMCVModulatedDeformConv2d", MMDEPLOY, |cx| infer_deformable(cx, 3)),
    layer("MMCVMultiScaleDeformableAttention", MMDEPLOY, infer_deformable_attention),
    layer("MMCVDeformConv2d", MMCV, |cx| infer_deformable(cx, 2)),
    layer("MMCVModulatedDeformConv2d", MMCV, |cx| infer_deformable(cx, 3)),
    layer("MMCVMultiScaleDeformableAttention", MMCV, infer_deformable_attention),
];

const REASON: &str = "it is an operator of another project";

/// A quantizer computes in the type of what it quantizes, whatever it rounds to.
const fn quantizer(name: &'static str, domain: &'static str) -> OpDef {
    OpDef::unevaluated(name, Category::Conversion, same_as_input, REASON).of(domain)
}

const fn layer(name: &'static str, domain: &'static str, infer: InferFn) -> OpDef {
    OpDef::unevaluated(name, Category::NeuralLayer, infer, REASON).of(domain)
}

/// A Conv whose pixels have offsets, input 1, each for itself: the result is as large as they are, with a map for each of the weights.
fn infer_deformable(cx: &mut Infer<'_>, weights: usize) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let maps = match cx.shape(weights) {
        Some([maps, ..]) => Some(maps.clone()),
        _ => None,
    };
    if let Some([batch, _, height, width]) = cx.shape(1) {
        let (batch, height, width) = (batch.clone(), height.clone(), width.clone());
        let maps = cx.or_fresh(maps);
        cx.set_shape(0, vec![batch, maps, height, width]);
    }
    Ok(())
}

/// Values are [batch, keys, heads, size], places where they are read [batch, queries, …]: the result has all heads of each query as one axis.
fn infer_deformable_attention(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let (Some([batch, _, heads, size]), Some([_, queries, ..])) = (cx.shape(0), cx.shape(3)) else {
        return Ok(());
    };
    let (batch, queries) = (batch.clone(), queries.clone());
    let width = Dim::product(&[heads.clone(), size.clone()]);
    let width = cx.or_fresh(width);
    cx.set_shape(0, vec![batch, queries, width]);
    Ok(())
}
