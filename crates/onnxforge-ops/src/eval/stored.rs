//! Values in files of their own, as the ONNX test suites store them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Value;
use crate::array::Array;
use crate::value::Key;
use onnxforge_ir::Type;
use onnxforge_ir::io::external::ExternalFiles;
use onnxforge_ir::io::tensor::from_proto;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{MapProto, OptionalProto, SequenceProto, TensorProto};
use onnxforge_proto::wire::{self, Message};

/// The value of this type in the bytes of a file (`TensorProto`, `SequenceProto`, `OptionalProto` or `MapProto`).
pub fn read(bytes: Vec<u8>, ty: &Type) -> Result<Value, String> {
    let blob = Blob::from(bytes);
    match ty {
        Type::Sequence(_) => sequence(decode::<SequenceProto>(&blob)?),
        Type::Optional(_) => optional(decode::<OptionalProto>(&blob)?),
        Type::Map(..) => map(decode::<MapProto>(&blob)?),
        _ => tensor(decode::<TensorProto>(&blob)?),
    }
}

fn decode<M: Message>(blob: &Blob) -> Result<M, String> {
    wire::decode(blob).map_err(|error| error.to_string())
}

fn tensor(proto: TensorProto) -> Result<Value, String> {
    let tensor = from_proto(proto, &mut ExternalFiles::default()).map_err(|error| error.to_string())?;
    Ok(Array::from_tensor(&tensor).map_err(|error| error.to_string())?.into())
}

fn sequence(proto: SequenceProto) -> Result<Value, String> {
    let mut values = Vec::new();
    for part in proto.tensor_values {
        values.push(tensor(part)?);
    }
    for part in proto.sequence_values {
        values.push(sequence(part)?);
    }
    for part in proto.map_values {
        values.push(map(part)?);
    }
    for part in proto.optional_values {
        values.push(optional(part)?);
    }
    Ok(Value::Sequence(Arc::new(values)))
}

fn optional(proto: OptionalProto) -> Result<Value, String> {
    let value = if let Some(part) = proto.tensor_value {
        Some(tensor(*part)?)
    } else if let Some(part) = proto.sequence_value {
        Some(sequence(*part)?)
    } else if let Some(part) = proto.map_value {
        Some(map(*part)?)
    } else {
        proto.optional_value.map(|part| optional(*part)).transpose()?
    };
    Ok(Value::Optional(value.map(Box::new)))
}

fn map(proto: MapProto) -> Result<Value, String> {
    let keys = proto.keys.iter().map(|&key| Key::Int(key));
    let keys = keys.chain(proto.string_keys.iter().map(Key::string));
    let values = match proto.values {
        Some(values) => sequence(*values)?,
        None => Value::Sequence(Arc::default()),
    };
    let values = values.sequence().map_err(|error| error.to_string())?.to_vec();
    Ok(Value::Map(Arc::new(keys.zip(values).collect::<BTreeMap<_, _>>())))
}
