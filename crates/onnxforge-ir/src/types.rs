//! Declared types, as far as computations need them. The stored message stays beside them, so nothing is lost.

use std::fmt;

use super::dtype::DType;
use onnxforge_proto::Str;
use onnxforge_proto::schema::{Dimension, TensorType, TypeProto};

/// A dimension as the file declares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeclaredDim {
    /// A number.
    Size(u64),
    /// A name, or an expression of names.
    Named(Str),
    /// Nothing is said.
    Unknown,
}

/// The declared type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A dense tensor; without a shape its rank is unknown.
    Tensor(Option<DType>, Option<Vec<DeclaredDim>>),
    /// A sparse tensor.
    Sparse(Option<DType>, Option<Vec<DeclaredDim>>),
    /// A sequence of elements of one type.
    Sequence(Box<Type>),
    /// An element or nothing.
    Optional(Box<Type>),
    /// Keys to values.
    Map(Option<DType>, Box<Type>),
    /// A type that only custom operators understand.
    Opaque {
        /// Domain of the name.
        domain: Str,
        /// Name of the type.
        name: Str,
    },
    /// Nothing is declared.
    Unknown,
}

impl From<&Dimension> for DeclaredDim {
    fn from(dim: &Dimension) -> Self {
        match (&dim.dim_value, &dim.dim_param) {
            // Some exporters write -1 for "unknown".
            (Some(size), _) => u64::try_from(*size).map_or(Self::Unknown, Self::Size),
            // Some write a question mark, several times for sizes that differ.
            (None, Some(name)) if matches!(&**name, "" | "?" | "-1" | "None") => Self::Unknown,
            (None, Some(name)) => Self::Named(name.clone()),
            _ => Self::Unknown,
        }
    }
}

fn tensor(ty: &TensorType) -> (Option<DType>, Option<Vec<DeclaredDim>>) {
    let shape = ty.shape.as_ref().map(|shape| shape.dim.iter().map(DeclaredDim::from).collect());
    (ty.elem_type.and_then(DType::from_code), shape)
}

impl From<&TypeProto> for Type {
    fn from(proto: &TypeProto) -> Self {
        let element = |ty: &Option<Box<TypeProto>>| Box::new(ty.as_deref().map_or(Self::Unknown, Self::from));
        if let Some(ty) = &proto.tensor_type {
            let (dtype, shape) = tensor(ty);
            Self::Tensor(dtype, shape)
        } else if let Some(ty) = &proto.sparse_tensor_type {
            let (dtype, shape) = tensor(ty);
            Self::Sparse(dtype, shape)
        } else if let Some(ty) = &proto.sequence_type {
            Self::Sequence(element(&ty.elem_type))
        } else if let Some(ty) = &proto.optional_type {
            Self::Optional(element(&ty.elem_type))
        } else if let Some(ty) = &proto.map_type {
            Self::Map(ty.key_type.and_then(DType::from_code), element(&ty.value_type))
        } else if let Some(ty) = &proto.opaque_type {
            Self::Opaque {
                domain: ty.domain.clone().unwrap_or_default(),
                name: ty.name.clone().unwrap_or_default(),
            }
        } else {
            Self::Unknown
        }
    }
}

impl fmt::Display for DeclaredDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "{size}"),
            Self::Named(name) => f.write_str(name),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// In the ONNX notation: `float[batch,3,224,224]`.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = |f: &mut fmt::Formatter<'_>, dtype: &Option<DType>, shape: &Option<Vec<DeclaredDim>>| {
            f.write_str(dtype.map_or("?", DType::name))?;
            let Some(shape) = shape else { return Ok(()) };
            f.write_str("[")?;
            for (i, dim) in shape.iter().enumerate() {
                if i > 0 {
                    f.write_str(",")?;
                }
                write!(f, "{dim}")?;
            }
            f.write_str("]")
        };
        match self {
            Self::Tensor(dtype, shape) => tensor(f, dtype, shape),
            Self::Sparse(dtype, shape) => {
                f.write_str("sparse_tensor(")?;
                tensor(f, dtype, shape)?;
                f.write_str(")")
            }
            Self::Sequence(element) => write!(f, "seq({element})"),
            Self::Optional(element) => write!(f, "optional({element})"),
            Self::Map(key, value) => write!(f, "map({}, {value})", key.map_or("?", DType::name)),
            Self::Opaque { domain, name } if domain.is_empty() => write!(f, "opaque({name})"),
            Self::Opaque { domain, name } => write!(f, "opaque({domain}, {name})"),
            Self::Unknown => f.write_str("?"),
        }
    }
}
