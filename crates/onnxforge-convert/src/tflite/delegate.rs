//! What a delegate takes of a graph.

use std::collections::BTreeMap;

use onnxforge_ir::DType;

use super::graph::{Graph, Operator};
use super::schema::{self, Builtin};
use crate::artifact::Delegate;

/// Operators that XNNPACK takes, where types and shapes allow it.
const XNNPACK: &[Builtin] = &[
    schema::ABS,
    schema::ADD,
    schema::AVERAGE_POOL_2D,
    schema::BATCH_MATMUL,
    schema::CEIL,
    schema::CONCATENATION,
    schema::CONV_2D,
    schema::COS,
    schema::DEPTH_TO_SPACE,
    schema::DEPTHWISE_CONV_2D,
    schema::DEQUANTIZE,
    schema::DIV,
    schema::ELU,
    schema::EXP,
    schema::EXPAND_DIMS,
    schema::FLOOR,
    schema::FULLY_CONNECTED,
    schema::GELU,
    schema::HARD_SWISH,
    schema::LEAKY_RELU,
    schema::LOG,
    schema::LOGISTIC,
    schema::MAX_POOL_2D,
    schema::MAXIMUM,
    schema::MEAN,
    schema::MINIMUM,
    schema::MUL,
    schema::NEG,
    schema::PAD,
    schema::PRELU,
    schema::QUANTIZE,
    schema::REDUCE_MAX,
    schema::REDUCE_MIN,
    schema::RELU,
    schema::RELU6,
    schema::RELU_N1_TO_1,
    schema::RESHAPE,
    schema::RESIZE_BILINEAR,
    schema::ROUND,
    schema::RSQRT,
    schema::SIGN,
    schema::SIN,
    schema::SLICE,
    schema::SOFTMAX,
    schema::SPACE_TO_DEPTH,
    schema::SPLIT,
    schema::SQRT,
    schema::SQUARE,
    schema::SQUARED_DIFFERENCE,
    schema::SQUEEZE,
    schema::STRIDED_SLICE,
    schema::SUB,
    schema::SUM,
    schema::TANH,
    schema::TRANSPOSE,
    schema::TRANSPOSE_CONV,
];

/// What XNNPACK takes: its operators on floats of 32 bits and quantized integers of 8 bits.
pub fn xnnpack(graph: &Graph) -> Delegate {
    let takes: Vec<bool> = graph.operators.iter().map(|operator| takes(graph, operator)).collect();
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for (operator, _) in graph.operators.iter().zip(&takes).filter(|(_, takes)| !**takes) {
        *left.entry(operator.builtin.name.to_owned()).or_default() += 1;
    }
    Delegate {
        name: "XNNPACK",
        taken: takes.iter().filter(|takes| **takes).count(),
        left,
        partitions: takes.chunk_by(|a, b| a == b).filter(|run| run[0]).count(),
    }
}

fn takes(graph: &Graph, operator: &Operator) -> bool {
    let tensor = |index: &i32| usize::try_from(*index).ok().and_then(|index| graph.tensors.get(index));
    let fits = operator.outputs.iter().filter_map(tensor).all(|tensor| match schema::type_of(tensor.dtype) {
        Some(DType::F32) => true,
        Some(DType::I8) => tensor.quantization.is_some(),
        _ => false,
    });
    fits && XNNPACK.contains(&operator.builtin)
}
