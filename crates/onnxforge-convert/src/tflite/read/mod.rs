//! Files to messages: every operator becomes one node, or a few.
//!
//! Nothing in a file is believed: every offset, index and size is checked, and what is made of a file is no larger than the file.

mod elements;
mod emit;
mod layers;
mod operator;
mod places;
pub(super) mod ports;
mod tensors;

use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{
    Dimension, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorShapeProto,
    TensorType, TypeProto, ValueInfoProto,
};

use self::emit::Emit;
use self::operator::Operator;
use self::tensors::{Tensor, Tensors};
use super::flatbuffer::view::{Damage, File, Table};
use super::schema::{self, IDENTIFIER};

/// The standard operators that nodes call.
const OPSET: i64 = 21;
/// The version of the format of messages that has them.
const IR_VERSION: i64 = 10;

/// Why a file is no model that can be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It contradicts its format.
    #[error("it is a TensorFlow Lite model that is damaged: {0}")]
    Damage(#[from] Damage),
    /// It has something that has no counterpart here.
    #[error("it is a TensorFlow Lite model with {what} at operator {at}, which is not read")]
    Operator {
        /// What.
        what: String,
        /// Which operator it is.
        at: usize,
    },
    /// The same beside the operators.
    #[error("it is a TensorFlow Lite model with {0}, which is not read")]
    Other(String),
}

/// What an operator cannot be read for.
enum Trouble {
    Damage(Damage),
    Unread(String),
}

impl From<Damage> for Trouble {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl From<String> for Trouble {
    fn from(what: String) -> Self {
        Self::Unread(what)
    }
}

impl From<&str> for Trouble {
    fn from(what: &str) -> Self {
        Self::Unread(what.to_owned())
    }
}

/// The message that the bytes of a file stand for.
pub fn read(bytes: &Blob) -> Result<ModelProto, ReadError> {
    if bytes.get(4..8) != Some(IDENTIFIER) {
        return Err(Damage { at: 4, what: "the file identifier is missing" }.into());
    }
    let file = File::new(bytes);
    let root = file.root()?;
    let graphs = root.tables(2)?;
    let [graph] = &graphs[..] else {
        return Err(ReadError::Other(format!("{} graphs", graphs.len())));
    };
    let codes = codes(&root)?;
    let buffers = root.tables(4)?;
    let signature = root.tables(7)?.into_iter().next();
    let tensors = Tensors::of(graph, &buffers, signature.as_ref(), bytes)?;
    let mut emit = Emit::new(tensors);
    for (at, table) in graph.tables(3)?.iter().enumerate() {
        let found = Operator::of(table, &codes, emit.tensors.len()).map_err(Trouble::from);
        let read = found.and_then(|operator| operator::read(&mut emit, &operator?));
        read.map_err(|trouble| match trouble {
            Trouble::Damage(damage) => ReadError::Damage(damage),
            Trouble::Unread(what) => ReadError::Operator { what, at },
        })?;
    }
    let (inputs, outputs) = (ports(graph, 1, &mut emit)?, ports(graph, 2, &mut emit)?);
    let description = root.text(3)?.map(|text| Str::from(text.as_str()));
    let graph = GraphProto {
        node: emit.nodes,
        name: Some("main".into()),
        initializer: emit.initializers,
        input: inputs,
        output: outputs,
        ..GraphProto::default()
    };
    let import = |domain: &str, version| OperatorSetIdProto {
        domain: Some(domain.into()),
        version: Some(version),
        ..OperatorSetIdProto::default()
    };
    Ok(ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: description,
        graph: Some(Box::new(graph)),
        opset_import: vec![import("", OPSET), import(onnxforge_ops::tflite::DOMAIN, 1)],
        metadata_props: Vec::<StringStringEntryProto>::new(),
        ..ModelProto::default()
    })
}

/// The operators that calls refer to; `None` where nothing is known of one.
fn codes(root: &Table<'_>) -> Result<Vec<Option<schema::Builtin>>, Damage> {
    let code = |table: &Table<'_>| -> Result<Option<schema::Builtin>, Damage> {
        let code = i32::from(table.byte(0)? as i8).max(table.int(3, 0)?);
        Ok(schema::builtin(code).copied())
    };
    root.tables(1)?.iter().map(code).collect()
}

/// The declarations of inputs or outputs.
fn ports(graph: &Table<'_>, number: u16, emit: &mut Emit) -> Result<Vec<ValueInfoProto>, ReadError> {
    let mut ports: Vec<ValueInfoProto> = Vec::new();
    for index in graph.ints(number)?.unwrap_or_default() {
        let index = usize::try_from(index).ok().filter(|&index| index < emit.tensors.len());
        let index = index.ok_or_else(|| graph.wrong("an input or output that is no tensor"))?;
        let (tensor, is_output) = (emit.tensors.get(index).clone(), number == 2);
        let is_twice = ports.iter().any(|port| port.name.as_ref() == Some(&tensor.name));
        let name = match is_output && (is_twice || emit.is_given(index)) {
            // A constant, an input or another output under a name of its own.
            true => {
                let value = emit.stored(index);
                emit.copy(&value)
            }
            false => tensor.name.clone(),
        };
        if is_twice && !is_output {
            return Err(graph.wrong("a tensor is an input twice").into());
        }
        ports.push(ValueInfoProto {
            name: Some(name),
            r#type: Some(Box::new(declared(&tensor))),
            ..ValueInfoProto::default()
        });
        if !is_output {
            emit.give(index);
        }
    }
    Ok(ports)
}

fn declared(tensor: &Tensor) -> TypeProto {
    let dim =
        |&size: &i32| Dimension { dim_value: (size >= 0).then_some(size.into()), ..Dimension::default() };
    let shape = TensorShapeProto { dim: tensor.signature.iter().map(dim).collect(), ..Default::default() };
    let tensor = TensorType {
        elem_type: Some(tensor.dtype.code()),
        shape: Some(Box::new(shape)),
        ..TensorType::default()
    };
    TypeProto { tensor_type: Some(Box::new(tensor)), ..TypeProto::default() }
}
