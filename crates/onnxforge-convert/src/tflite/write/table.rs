//! Which function writes which operator.

use super::{Writer, arithmetic, layers, layout, quantized, select, shapes};
use crate::view::Why;
use onnxforge_ir::NodeId;

/// Writes a node.
pub type Lower = fn(&mut Writer<'_>, NodeId) -> Result<(), Why>;

/// What writes nodes of an operator, by its name with its domain.
pub fn find(name: &str) -> Option<Lower> {
    Some(match name {
        "Abs" | "Ceil" | "Cos" | "Exp" | "Floor" | "Log" | "Neg" | "Relu" | "Round" | "Sigmoid" | "Sign"
        | "Sin" | "Sqrt" | "Tanh" | "HardSwish" | "Not" => arithmetic::unary,
        "Elu" => arithmetic::elu,
        "LeakyRelu" => arithmetic::leaky_relu,
        "PRelu" => arithmetic::prelu,
        "Gelu" => arithmetic::gelu,
        "Softmax" | "LogSoftmax" => arithmetic::softmax,
        "Clip" => arithmetic::clip,
        "Add" | "Sub" | "Mul" | "Div" | "And" | "Or" | "Xor" | "Equal" | "Less" | "LessOrEqual"
        | "Greater" | "GreaterOrEqual" => arithmetic::binary,
        "Mod" => arithmetic::modulo,
        "Pow" => arithmetic::pow,
        "Max" | "Min" | "Sum" => arithmetic::variadic,
        "IsNaN" => arithmetic::is_nan,
        "Cast" => arithmetic::cast,
        "Identity" | "Dropout" => arithmetic::copy,
        "CumSum" => arithmetic::cumsum,
        "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" | "ReduceProd" => layers::reduce,
        "GlobalAveragePool" | "GlobalMaxPool" => layers::global_pool,
        "MatMul" => layers::matmul,
        "onnxforge.tflite.Conv2D" => layers::conv,
        "onnxforge.tflite.DepthwiseConv2D" => layers::depthwise_conv,
        "onnxforge.tflite.MaxPool2D" | "onnxforge.tflite.AveragePool2D" => layers::pool,
        "onnxforge.tflite.TransposeConv" => layers::transpose_conv,
        "onnxforge.tflite.FullyConnected" => layers::fully_connected,
        "onnxforge.tflite.Resize2D" => layers::resize,
        "Transpose" => layout::transpose,
        "Concat" => layout::concat,
        "Split" => layout::split,
        "Pad" => layout::pad,
        "Tile" => layout::tile,
        "Slice" => layout::slice,
        "Reshape" | "Flatten" => shapes::reshape,
        "Squeeze" => shapes::squeeze,
        "Unsqueeze" => shapes::unsqueeze,
        "Shape" => shapes::shape,
        "Size" => shapes::size,
        "Expand" => shapes::expand,
        "ConstantOfShape" => shapes::constant_of_shape,
        "Range" => shapes::range,
        "Gather" => select::gather,
        "GatherND" => select::gather_nd,
        "GatherElements" => select::gather_elements,
        "Where" => select::choose,
        "ArgMax" | "ArgMin" => select::arg_extreme,
        "TopK" => select::top_k,
        "QuantizeLinear" => quantized::quantize,
        "DequantizeLinear" => quantized::dequantize,
        _ => return None,
    })
}
