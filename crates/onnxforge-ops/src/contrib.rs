//! Operators of ONNX Runtime: the domain com.microsoft, and one that it puts into the standard domain.
//!
//! They have no signatures here, so inference states element types itself and defaults of attributes are given where
//! attributes are read. ONNX Runtime is the reference for what they compute.

mod activations;
mod attention;
mod fused;
mod layout;
mod nbits;
mod norm;
mod products;
mod quantized;
mod rotary;

use self::attention::{grouped, multi_head, packed};
use super::def::{Category, EvalFn, InferFn, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::Eval;
use super::infer_call::{Infer, same_as_input, types_only};
use super::kernel::strided::transpose;
use super::{Array, Fact, TensorFact, Value};

/// ONNX Runtime's own domain.
pub const DOMAIN: &str = "com.microsoft";

/// An operator of the domain that computes in floats.
const fn float(name: &'static str, category: Category, infer: InferFn, eval: EvalFn) -> OpDef {
    OpDef::new(name, category, infer, eval).of(DOMAIN).widening()
}

/// An operator of the domain that is known, but not evaluated.
const fn known(name: &'static str, category: Category, infer: InferFn, reason: &'static str) -> OpDef {
    OpDef::unevaluated(name, category, infer, reason).of(DOMAIN)
}

/// The reason for operators that run whole searches.
const SEARCH: &str = "it runs a search over a model in its bodies";
/// The reason for operators that only some devices run.
const DEVICE: &str = "only some devices run it";
/// The reason for operators that are rare.
const RARE: &str = "it is rare";

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    float("Gelu", Category::Activation, same_as_input, activations::eval_gelu).elementwise(),
    float("BiasGelu", Category::Activation, same_as_input, activations::eval_bias_gelu),
    float("FastGelu", Category::Activation, same_as_input, activations::eval_fast_gelu),
    float("QuickGelu", Category::Activation, same_as_input, activations::eval_quick_gelu).elementwise(),
    float("BiasSplitGelu", Category::Activation, infer_split_gelu, activations::eval_bias_split_gelu),
    float("BiasAdd", Category::Math, same_as_input, activations::eval_bias_add),
    float("FusedMatMul", Category::Math, fused::infer_matmul, fused::eval_matmul),
    float("TransposeMatMul", Category::Math, fused::infer_matmul, fused::eval_matmul),
    float("FusedGemm", Category::NeuralLayer, fused::infer_gemm, fused::eval_gemm),
    float("FusedConv", Category::NeuralLayer, fused::infer_conv, fused::eval_conv),
    float("NhwcConv", Category::NeuralLayer, fused::infer_nhwc_conv, fused::eval_nhwc_conv),
    float("NhwcFusedConv", Category::NeuralLayer, fused::infer_nhwc_fused_conv, fused::eval_nhwc_fused_conv),
    float("NhwcMaxPool", Category::NeuralLayer, fused::infer_nhwc_max_pool, fused::eval_nhwc_max_pool),
    OpDef::new(
        "SimplifiedLayerNormalization",
        Category::NeuralLayer,
        norm::infer_simplified,
        norm::eval_simplified,
    )
    .widening(),
    float(
        "SimplifiedLayerNormalization",
        Category::NeuralLayer,
        norm::infer_simplified,
        norm::eval_simplified,
    ),
    float("SkipLayerNormalization", Category::NeuralLayer, norm::infer_skip, norm::eval_skip),
    float(
        "SkipSimplifiedLayerNormalization",
        Category::NeuralLayer,
        norm::infer_skip,
        norm::eval_skip_simplified,
    ),
    float("EmbedLayerNormalization", Category::NeuralLayer, norm::infer_embed, norm::eval_embed),
    float("GroupNorm", Category::NeuralLayer, same_as_input, norm::eval_group),
    float("Attention", Category::NeuralLayer, packed::infer, packed::eval),
    float("QAttention", Category::NeuralLayer, packed::infer_quantized, packed::eval_quantized),
    float("MultiHeadAttention", Category::NeuralLayer, multi_head::infer, multi_head::eval),
    float("GroupQueryAttention", Category::NeuralLayer, grouped::infer, grouped::eval),
    float("RotaryEmbedding", Category::NeuralLayer, same_as_input, rotary::eval),
    float("QLinearAdd", Category::Math, quantized::infer_binary, quantized::eval_add).elementwise(),
    float("QLinearMul", Category::Math, quantized::infer_binary, quantized::eval_mul).elementwise(),
    float("QLinearLeakyRelu", Category::Activation, same_as_input, quantized::eval_leaky_relu).elementwise(),
    float("QLinearSigmoid", Category::Activation, same_as_input, quantized::eval_sigmoid).elementwise(),
    float("QLinearSoftmax", Category::Activation, same_as_input, quantized::eval_softmax),
    float(
        "QLinearAveragePool",
        Category::NeuralLayer,
        quantized::infer_average_pool,
        quantized::eval_average_pool,
    ),
    float(
        "QLinearGlobalAveragePool",
        Category::NeuralLayer,
        quantized::infer_global_average_pool,
        quantized::eval_global_average_pool,
    ),
    float(
        "QLinearReduceMean",
        Category::Reduction,
        quantized::infer_reduce_mean,
        quantized::eval_reduce_mean,
    ),
    float("QLinearConcat", Category::Manipulation, quantized::infer_concat, quantized::eval_concat),
    float("QLinearWhere", Category::Manipulation, quantized::infer_where, quantized::eval_where),
    float("QGemm", Category::NeuralLayer, products::infer_gemm, products::eval_gemm),
    float("QuantizeLinear", Category::Conversion, quantized::infer_quantize, quantized::eval_quantize),
    float("DequantizeLinear", Category::Conversion, quantized::infer_dequantize, quantized::eval_dequantize),
    float("MatMulIntegerToFloat", Category::Math, products::infer_product, products::eval_integer_to_float),
    float("DynamicQuantizeMatMul", Category::Math, products::infer_dynamic_product, products::eval_dynamic),
    float(
        "MatMulInteger16",
        Category::Math,
        products::infer_matmul_integer16,
        products::eval_matmul_integer16,
    ),
    float("MatMulNBits", Category::NeuralLayer, nbits::infer, nbits::eval),
    float("Inverse", Category::Math, same_as_input, layout::eval_inverse),
    float("GridSample", Category::Manipulation, layout::infer_standard, layout::eval_standard),
    OpDef::new("Trilu", Category::Manipulation, layout::infer_standard, layout::eval_standard).of(DOMAIN),
    OpDef::new("GatherND", Category::Indexing, layout::infer_standard, layout::eval_standard)
        .of(DOMAIN)
        .layout_only(),
    OpDef::new("Pad", Category::Manipulation, layout::infer_pad, layout::eval_pad).of(DOMAIN),
    OpDef::new("ExpandDims", Category::Shape, layout::infer_expand_dims, layout::eval_expand_dims)
        .of(DOMAIN)
        .layout_only(),
    known("SkipGroupNorm", Category::NeuralLayer, same_as_input, DEVICE),
    known("BiasDropout", Category::NeuralLayer, same_as_input, "it is for training").random(),
    known("BiasSoftmax", Category::Activation, same_as_input, DEVICE),
    known("DynamicQuantizeLSTM", Category::NeuralLayer, first_type, RARE),
    known("ConvTransposeWithDynamicPads", Category::NeuralLayer, first_type, RARE),
    known("CropAndResize", Category::Manipulation, first_type, RARE),
    known("Unique", Category::Manipulation, first_type, RARE),
    known("NGramRepeatBlock", Category::Manipulation, types_only, RARE),
    known("MurmurHash3", Category::Math, types_only, RARE),
    known("WordConvEmbedding", Category::NeuralLayer, types_only, RARE),
    known("AttnLSTM", Category::NeuralLayer, first_type, RARE),
    known("DecoderAttention", Category::NeuralLayer, first_type, DEVICE),
    known("DecoderMaskedMultiHeadAttention", Category::NeuralLayer, first_type, DEVICE),
    known("DecoderMaskedSelfAttention", Category::NeuralLayer, first_type, DEVICE),
    known("LongformerAttention", Category::NeuralLayer, first_type, DEVICE),
    known("PackedAttention", Category::NeuralLayer, first_type, DEVICE),
    known("PackedMultiHeadAttention", Category::NeuralLayer, first_type, DEVICE),
    known("PagedAttention", Category::NeuralLayer, first_type, DEVICE),
    known("SparseAttention", Category::NeuralLayer, first_type, RARE),
    known("MoE", Category::NeuralLayer, same_as_input, RARE),
    known("QMoE", Category::NeuralLayer, same_as_input, RARE),
    known("MatMulBnb4", Category::NeuralLayer, first_type, RARE),
    known("MatMulFpQ4", Category::NeuralLayer, first_type, RARE),
    known("GatherBlockQuantized", Category::Indexing, types_only, RARE),
    known("BeamSearch", Category::ControlFlow, types_only, SEARCH),
    known("GreedySearch", Category::ControlFlow, types_only, SEARCH),
    known("Sampling", Category::ControlFlow, types_only, SEARCH).random(),
    known("WhisperBeamSearch", Category::ControlFlow, types_only, SEARCH),
    known("Tokenizer", Category::Manipulation, types_only, RARE),
    known("EPContext", Category::Uncategorised, types_only, "it holds a program for a device"),
];

/// Output 0 has the element type of input 0.
fn first_type(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    Ok(())
}

/// The features are halved.
fn infer_split_gelu(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    if let Some([outer @ .., width]) = cx.shape(0) {
        let half = attention::divided(cx, width, 2);
        let mut shape = outer.to_vec();
        shape.push(half);
        cx.set_shape(0, shape);
    }
    Ok(())
}

/// The tensor that an operator gave as its first output.
fn single(outputs: Vec<Value>) -> Result<Array, OpError> {
    match outputs.into_iter().next() {
        Some(Value::Tensor(array)) => Ok(array),
        _ => invalid("an operator that gave no tensor"),
    }
}

/// What is known of the first of several values, if it is a tensor.
fn first_tensor(facts: &[Fact]) -> Option<&TensorFact> {
    facts.first().and_then(Fact::tensor)
}

/// An image with its channels moved from the end to the second place.
fn channels_first(cx: &Eval<'_>, x: &Array) -> Result<Array, OpError> {
    let mut perm: Vec<usize> = (0..x.rank()).collect();
    match perm.get_mut(1..) {
        Some(places) if places.len() > 1 => places.rotate_right(1),
        _ => return invalid(format!("an image of shape {:?}", x.shape())),
    }
    transpose(x, &perm, cx.memory())
}

/// An image with its channels moved from the second place to the end.
fn channels_last(cx: &Eval<'_>, x: &Array) -> Result<Array, OpError> {
    let mut perm: Vec<usize> = (0..x.rank()).collect();
    match perm.get_mut(1..) {
        Some(places) if places.len() > 1 => places.rotate_left(1),
        _ => return invalid(format!("an image of shape {:?}", x.shape())),
    }
    transpose(x, &perm, cx.memory())
}
