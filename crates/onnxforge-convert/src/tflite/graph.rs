//! A graph as a file holds it, before it is bytes.

use onnxforge_ir::NodeId;
use onnxforge_proto::blob::Payload;

use super::schema::Builtin;

/// How integers stand for real numbers: scale · (integer − zero point), with one scale for all or one for each place of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantization {
    /// The scales.
    pub scales: Vec<f32>,
    /// As many zero points.
    pub zeros: Vec<i64>,
    /// The axis, where there are several.
    pub axis: i32,
}

/// A tensor.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// What it is called.
    pub name: String,
    /// The number of its element type.
    pub dtype: u8,
    /// Its sizes; `None` where one is not known before it is computed.
    pub shape: Vec<Option<i32>>,
    /// Its elements, if it is a constant.
    pub data: Option<Payload>,
    /// The real numbers that its integers stand for, if they do.
    pub quantization: Option<Quantization>,
}

/// An option of an operator, at its number in the table of options.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A truth value, or one of a few.
    Byte(u8),
    /// An integer.
    Int(i32),
    /// A number.
    Float(f32),
    /// Several integers.
    Ints(Vec<i32>),
}

/// A call of an operator.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The operator.
    pub builtin: Builtin,
    /// The lowest version of it that does this.
    pub version: i32,
    /// Its options.
    pub settings: Vec<(u16, Setting)>,
    /// The tensors that it reads; -1 for none.
    pub inputs: Vec<i32>,
    /// The tensors that it gives.
    pub outputs: Vec<i32>,
    /// The node that it is made of.
    pub node: Option<NodeId>,
}

/// A tensor by the name that users call it.
#[derive(Clone, Debug)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The tensor.
    pub tensor: i32,
}

/// Everything that a file holds.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The tensors.
    pub tensors: Vec<Tensor>,
    /// The calls, in the order in which they are made.
    pub operators: Vec<Operator>,
    /// What users hand over.
    pub inputs: Vec<Named>,
    /// What they get.
    pub outputs: Vec<Named>,
    /// Texts beside the graph, by name.
    pub metadata: Vec<(String, String)>,
}
