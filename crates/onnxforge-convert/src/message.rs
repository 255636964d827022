//! Parts of the messages that readers make.

use onnxforge_ir::DType;
use onnxforge_proto::Str;
use onnxforge_proto::blob::{Blob, Payload};
use onnxforge_proto::schema::{AttributeProto, NodeProto, TensorProto};

/// Kinds of attributes, by their number in the format.
const FLOAT: i32 = 1;
const INT: i32 = 2;
const STRING: i32 = 3;
const INTS: i32 = 7;

/// An attribute of a node.
pub enum Attr<'a> {
    /// An integer.
    Int(&'static str, i64),
    /// A number.
    Float(&'static str, f32),
    /// A text.
    Text(&'static str, &'a str),
    /// Integers.
    Ints(&'static str, Vec<i64>),
}

/// A constant.
pub fn constant(name: &Str, dtype: DType, dims: Vec<i64>, data: Payload) -> TensorProto {
    TensorProto {
        dims,
        data_type: Some(dtype.code()),
        name: Some(name.clone()),
        raw_data: Some(data),
        ..TensorProto::default()
    }
}

/// A node.
pub fn node(domain: &str, op: &str, inputs: Vec<Str>, outputs: Vec<Str>, attrs: Vec<Attr<'_>>) -> NodeProto {
    NodeProto {
        input: inputs,
        output: outputs,
        op_type: Some(op.into()),
        domain: (!domain.is_empty()).then(|| domain.into()),
        attribute: attrs.into_iter().map(attribute).collect(),
        ..NodeProto::default()
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
