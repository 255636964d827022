//! Nodes of a message under construction.

use std::collections::{HashMap, HashSet};

use onnxforge_ir::DType;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{AttributeProto, NodeProto, TensorProto};

use super::values::Known;

/// Kinds of attributes, by their number in the format.
const FLOAT: i32 = 1;
const INT: i32 = 2;
const STRING: i32 = 3;
const INTS: i32 = 7;

/// An attribute of a node.
pub enum Attr<'a> {
    Int(&'static str, i64),
    Float(&'static str, f32),
    Text(&'static str, &'a str),
    Ints(&'static str, Vec<i64>),
}

/// What becomes of a program.
#[derive(Default)]
pub struct Emit {
    pub nodes: Vec<NodeProto>,
    pub initializers: Vec<TensorProto>,
    names: HashSet<Str>,
    wanted: HashMap<String, usize>,
    stored: HashSet<Str>,
}

impl Emit {
    /// A name like this that nothing has.
    pub fn fresh(&mut self, name: &str) -> Str {
        let base = if name.is_empty() { "value" } else { name };
        let count = self.wanted.entry(base.to_owned()).or_insert(0);
        let mut candidate: Str = base.into();
        while !self.names.insert(candidate.clone()) {
            candidate = format!("{base}/{count}").as_str().into();
            *count += 1;
        }
        candidate
    }

    /// The name of a value that is read.
    pub fn read(&mut self, known: &Known) -> Str {
        if let Some(data) = &known.data
            && self.stored.insert(known.name.clone())
        {
            self.initializers.push(TensorProto {
                dims: known.shape.iter().map(|size| size.unwrap_or(0)).collect(),
                data_type: Some(known.dtype().code()),
                name: Some(known.name.clone()),
                raw_data: Some(data.clone().into()),
                ..TensorProto::default()
            });
        }
        known.name.clone()
    }

    /// A new constant of integers.
    pub fn ints(&mut self, values: &[i64]) -> Str {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(DType::I64, vec![values.len() as i64], bytes)
    }

    /// A new constant of other elements.
    pub fn constant(&mut self, dtype: DType, dims: Vec<i64>, bytes: Vec<u8>) -> Str {
        let name = self.fresh("constant");
        self.initializers.push(TensorProto {
            dims,
            data_type: Some(dtype.code()),
            name: Some(name.clone()),
            raw_data: Some(Blob::from(bytes).into()),
            ..TensorProto::default()
        });
        name
    }

    /// A number of the type of another value.
    pub fn number(&mut self, dtype: DType, value: f64) -> Str {
        self.numbers(dtype, Vec::new(), &[value])
    }

    /// Numbers of the type of another value.
    pub fn numbers(&mut self, dtype: DType, dims: Vec<i64>, values: &[f64]) -> Str {
        let bytes = values.iter().flat_map(|&value| match dtype {
            DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            _ => (value as i32).to_le_bytes().to_vec(),
        });
        self.constant(dtype, dims, bytes.collect())
    }

    /// A value as integers of 64 bits, which shapes and axes have.
    pub fn wide(&mut self, known: &Known) -> Str {
        let x = self.read(known);
        self.cast(x, DType::I64)
    }

    /// A value in another element type.
    pub fn cast(&mut self, x: Str, to: DType) -> Str {
        self.call("Cast", vec![x], vec![Attr::Int("to", to.code().into())])
    }

    /// A node with one result of a new name, which is the answer.
    pub fn call(&mut self, op: &str, inputs: Vec<Str>, attrs: Vec<Attr<'_>>) -> Str {
        let name = self.fresh(op);
        self.node(op, inputs, vec![name.clone()], attrs);
        name
    }

    /// A node.
    pub fn node(&mut self, op: &str, inputs: Vec<Str>, outputs: Vec<Str>, attrs: Vec<Attr<'_>>) {
        self.nodes.push(NodeProto {
            input: inputs,
            output: outputs,
            op_type: Some(op.into()),
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
