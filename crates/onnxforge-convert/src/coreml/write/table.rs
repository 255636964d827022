//! Which function writes which operator.

use super::{Writer, arithmetic, attention, layers, moves, normal, quant, select, shapes, spread, windows};
use crate::view::Why;
use onnxforge_ir::NodeId;

/// Writes a node.
pub type Lower = fn(&mut Writer<'_>, NodeId) -> Result<(), Why>;

/// What writes nodes of an operator, by its name with its domain.
pub fn find(name: &str) -> Option<Lower> {
    Some(match name {
        "Abs" | "Acos" | "Asin" | "Atan" | "Atanh" | "Ceil" | "Cos" | "Cosh" | "Erf" | "Exp" | "Floor"
        | "Relu" | "Round" | "Sigmoid" | "Sign" | "Sin" | "Sinh" | "Softplus" | "Softsign" | "Sqrt"
        | "Tan" | "Tanh" | "Not" => arithmetic::unary,
        "Elu" | "LeakyRelu" | "HardSigmoid" | "Log" => arithmetic::with_settings,
        "Neg" | "Reciprocal" | "HardSwish" | "Swish" | "Mish" | "Selu" | "Celu" | "ThresholdedRelu"
        | "IsNaN" | "IsInf" => arithmetic::composed,
        "Gelu" => arithmetic::gelu,
        "Add" | "Sub" | "Mul" | "Div" | "And" | "Or" | "Xor" | "Equal" | "Less" | "LessOrEqual"
        | "Greater" | "GreaterOrEqual" | "Mod" => arithmetic::binary,
        "Pow" => arithmetic::pow,
        "Max" | "Min" | "Sum" | "Mean" => arithmetic::variadic,
        "PRelu" => arithmetic::prelu,
        "Clip" => arithmetic::clip,
        "Cast" => arithmetic::cast,
        "Identity" | "Dropout" => arithmetic::copy,
        "CumSum" => arithmetic::cumsum,
        "Conv" => windows::conv,
        "ConvTranspose" => windows::conv_transpose,
        "MaxPool" | "AveragePool" => windows::pool,
        "GlobalAveragePool" | "GlobalMaxPool" => windows::global_pool,
        "MatMul" => layers::matmul,
        "Gemm" => layers::gemm,
        "Attention" => attention::attention,
        "Softmax" | "LogSoftmax" => layers::softmax,
        "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceL1" | "ReduceL2"
        | "ReduceSumSquare" | "ReduceLogSum" | "ReduceLogSumExp" => layers::reduce,
        "ArgMax" | "ArgMin" => layers::arg_extreme,
        "TopK" => layers::top_k,
        "BatchNormalization" => normal::batch,
        "InstanceNormalization" => normal::instance,
        "LayerNormalization" => normal::layer,
        "GroupNormalization" => normal::group,
        "RMSNormalization" => normal::rms,
        "LRN" => normal::local_response,
        "Resize" => spread::resize,
        "Transpose" => moves::transpose,
        "Concat" => moves::concat,
        "Split" => moves::split,
        "Slice" => moves::slice,
        "Pad" => moves::pad,
        "Tile" => moves::tile,
        "DepthToSpace" | "SpaceToDepth" => moves::depth_to_space,
        "Trilu" => moves::triangle,
        "Reshape" | "Flatten" => shapes::reshape,
        "Squeeze" => shapes::squeeze,
        "Unsqueeze" => shapes::unsqueeze,
        "Shape" => shapes::shape,
        "Size" => shapes::size,
        "Expand" => shapes::expand,
        "ConstantOfShape" => shapes::constant_of_shape,
        "Range" => shapes::range,
        "Gather" => select::gather,
        "GatherElements" => select::gather_elements,
        "GatherND" => select::gather_nd,
        "ScatterElements" => select::scatter_elements,
        "ScatterND" => select::scatter_nd,
        "Where" => select::choose,
        "QuantizeLinear" => quant::quantize,
        "DequantizeLinear" => quant::dequantize,
        _ => return None,
    })
}
