//! What flows along the edges of a graph while it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::array::Array;
use super::error::{OpError, invalid};
use onnxforge_proto::blob::Blob;

/// A value at run time.
#[derive(Clone, Debug)]
pub enum Value {
    /// A tensor.
    Tensor(Array),
    /// A sequence of values of one type.
    Sequence(Arc<Vec<Value>>),
    /// A value or nothing.
    Optional(Option<Box<Value>>),
    /// Keys to values.
    Map(Arc<BTreeMap<Key, Value>>),
}

/// The key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// An integer.
    Int(i64),
    /// A byte string.
    String(Vec<u8>),
}

impl Key {
    /// The key of these bytes.
    pub fn string(bytes: &Blob) -> Self {
        Self::String(bytes.to_vec())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(key) => write!(f, "{key}"),
            Self::String(key) => f.write_str(&String::from_utf8_lossy(key)),
        }
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Self::Tensor(array)
    }
}

impl Value {
    /// The tensor, which it must be.
    pub fn array(&self) -> Result<&Array, OpError> {
        match self {
            Self::Tensor(array) => Ok(array),
            _ => invalid(format!("a tensor is needed, not {}", self.form())),
        }
    }

    /// The elements of the sequence, which it must be.
    pub fn sequence(&self) -> Result<&[Value], OpError> {
        match self {
            Self::Sequence(values) => Ok(values),
            _ => invalid(format!("a sequence is needed, not {}", self.form())),
        }
    }

    /// What it is, for messages.
    pub fn form(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "a tensor",
            Self::Sequence(_) => "a sequence",
            Self::Optional(_) => "an optional",
            Self::Map(_) => "a map",
        }
    }

    /// Bytes that it takes in memory.
    pub fn byte_len(&self) -> u64 {
        match self {
            Self::Tensor(array) => array.byte_len(),
            Self::Sequence(values) => values.iter().map(Self::byte_len).sum(),
            Self::Optional(value) => value.as_ref().map_or(0, |value| value.byte_len()),
            Self::Map(map) => map.values().map(|value| value.byte_len() + 16).sum(),
        }
    }
}
