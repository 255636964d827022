//! Nodes of a message under construction.

use std::collections::HashSet;

use onnxforge_ir::DType;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{AttributeProto, NodeProto, TensorProto};

use super::Trouble;
use super::tensors::Tensors;

/// Kinds of attributes, by their number in the format.
const FLOAT: i32 = 1;
const INT: i32 = 2;
const STRING: i32 = 3;
const INTS: i32 = 7;

/// Bytes of a list of sizes or places.
const LONGEST: usize = 2048;

/// An attribute of a node.
pub enum Attr<'a> {
    Int(&'static str, i64),
    Float(&'static str, f32),
    Text(&'static str, &'a str),
    Ints(&'static str, Vec<i64>),
}

/// What becomes of a file.
pub struct Emit {
    pub tensors: Tensors,
    pub nodes: Vec<NodeProto>,
    pub initializers: Vec<TensorProto>,
    /// Constants that are there already, and inputs.
    given: HashSet<usize>,
}

impl Emit {
    pub fn new(tensors: Tensors) -> Self {
        Self { tensors, nodes: Vec::new(), initializers: Vec::new(), given: HashSet::new() }
    }

    /// Whether a tensor is there without any operator.
    pub fn is_given(&self, index: usize) -> bool {
        self.given.contains(&index) || self.tensors.get(index).data.is_some()
    }

    /// Says that a tensor is an input.
    pub fn give(&mut self, index: usize) {
        self.given.insert(index);
    }

    /// The value of a tensor that is read.
    pub fn read(&mut self, index: usize) -> Str {
        let tensor = self.tensors.get(index).clone();
        if let Some(data) = tensor.data
            && self.given.insert(index)
        {
            let dims = tensor.signature.iter().map(|&size| size.into()).collect();
            self.initializers.push(TensorProto {
                dims,
                data_type: Some(tensor.dtype.code()),
                name: Some(tensor.name.clone()),
                raw_data: Some(data.into()),
                ..TensorProto::default()
            });
        }
        tensor.name
    }

    /// A new constant of integers.
    pub fn ints(&mut self, values: &[i64]) -> Str {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(DType::I64, vec![values.len() as i64], bytes)
    }

    /// A new constant number.
    pub fn float(&mut self, value: f32) -> Str {
        self.constant(DType::F32, Vec::new(), value.to_le_bytes().to_vec())
    }

    fn constant(&mut self, dtype: DType, dims: Vec<i64>, bytes: Vec<u8>) -> Str {
        let name = self.tensors.fresh("constant");
        self.initializers.push(TensorProto {
            dims,
            data_type: Some(dtype.code()),
            name: Some(name.clone()),
            raw_data: Some(Blob::from(bytes).into()),
            ..TensorProto::default()
        });
        name
    }

    /// The integers of a constant that is a list of sizes or places. Longer ones are data, which no operator is to be made of again and again.
    pub fn fixed(&self, index: usize) -> Option<Vec<i64>> {
        let tensor = self.tensors.get(index);
        let data = tensor.data.as_ref().filter(|data| data.len() <= LONGEST)?;
        match tensor.dtype {
            DType::I32 => Some(data.as_chunks().0.iter().map(|&it| i32::from_le_bytes(it).into()).collect()),
            DType::I64 => Some(data.as_chunks().0.iter().map(|&it| i64::from_le_bytes(it)).collect()),
            _ => None,
        }
    }

    /// The integers of a tensor that has to be a constant.
    pub fn demand(&self, index: usize) -> Result<Vec<i64>, Trouble> {
        self.fixed(index).ok_or_else(|| "a list that is computed".into())
    }

    /// A tensor as integers of 64 bits.
    pub fn wide(&mut self, index: usize) -> Str {
        if let (Some(ints), 1) = (self.fixed(index), self.tensors.get(index).signature.len()) {
            return self.ints(&ints);
        }
        let x = self.read(index);
        match self.tensors.get(index).dtype {
            DType::I64 => x,
            _ => self.call("Cast", vec![x], vec![Attr::Int("to", DType::I64.code().into())]),
        }
    }

    /// A node with one result of a new name, which is the answer.
    pub fn call(&mut self, op: &str, inputs: Vec<Str>, attrs: Vec<Attr<'_>>) -> Str {
        let name = self.tensors.fresh(op);
        self.node("", op, inputs, vec![name.clone()], attrs);
        name
    }

    /// A copy of a value under a new name.
    pub fn copy(&mut self, value: &Str) -> Str {
        let name = self.tensors.fresh(value);
        self.node("", "Identity", vec![value.clone()], vec![name.clone()], Vec::new());
        name
    }

    /// A node.
    pub fn node(
        &mut self,
        domain: &str,
        op: &str,
        inputs: Vec<Str>,
        outputs: Vec<Str>,
        attrs: Vec<Attr<'_>>,
    ) {
        self.nodes.push(NodeProto {
            input: inputs,
            output: outputs,
            op_type: Some(op.into()),
            domain: (!domain.is_empty()).then(|| domain.into()),
            attribute: attrs.into_iter().map(attribute).collect(),
            ..NodeProto::default()
        });
    }
}

fn attribute(attr: Attr<'_>) -> AttributeProto {
    let named = |name: &str, kind| AttributeProto {
        name: Some(name.into()),
        r#type: Some(kind),
        ..AttributeProto::default()
    };
    match attr {
        Attr::Int(name, value) => AttributeProto { i: Some(value), ..named(name, INT) },
        Attr::Float(name, value) => AttributeProto { f: Some(value), ..named(name, FLOAT) },
        Attr::Text(name, value) => AttributeProto { s: Some(Blob::from(value)), ..named(name, STRING) },
        Attr::Ints(name, values) => AttributeProto { ints: values, ..named(name, INTS) },
    }
}
