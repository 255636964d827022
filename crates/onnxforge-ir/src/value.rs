//! Values: what flows along the edges of a graph.

use std::sync::Arc;

use super::id::{NodeId, OriginId, ScopeId, ValueId};
use super::node::SparseTensor;
use super::tensor::Tensor;
use super::types::Type;
use onnxforge_proto::Str;
use onnxforge_proto::schema::ValueInfoProto;

/// A constant that belongs to a scope.
#[derive(Clone, Debug)]
pub enum Constant {
    /// Every element is stored.
    Dense(Tensor),
    /// Only some elements are stored.
    Sparse(Arc<SparseTensor>),
}

impl Constant {
    /// The dense tensor, when it is one.
    pub fn dense(&self) -> Option<&Tensor> {
        match self {
            Self::Dense(tensor) => Some(tensor),
            Self::Sparse(_) => None,
        }
    }

    /// Stored bytes.
    pub fn byte_len(&self) -> u64 {
        match self {
            Self::Dense(tensor) => tensor.byte_len(),
            Self::Sparse(sparse) => sparse.values.byte_len().saturating_add(sparse.indices.byte_len()),
        }
    }
}

/// What defines a value.
#[derive(Clone, Debug)]
pub enum Def {
    /// An input of its scope; the constant is a default that a caller may override, so it is not a constant.
    Input {
        /// The scope.
        scope: ScopeId,
        /// What holds when the caller gives nothing.
        default: Option<Constant>,
    },
    /// Output `index` of `node`.
    Node {
        /// The node.
        node: NodeId,
        /// Which of its outputs.
        index: u32,
    },
    /// A constant of its scope.
    Constant {
        /// The scope.
        scope: ScopeId,
        /// The constant.
        constant: Constant,
        /// The nodes that were folded into it; `None` for a constant of the file.
        origin: Option<OriginId>,
    },
    /// Nothing any more: an edit removed it.
    Removed,
}

/// What reads a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Use {
    /// Input `index` of a node, which may stand in an inner scope.
    Input {
        /// The node.
        node: NodeId,
        /// Which of its inputs.
        index: u32,
    },
    /// Output `index` of a scope.
    Output {
        /// The scope.
        scope: ScopeId,
        /// Which of its outputs.
        index: u32,
    },
}

/// A value. Its id and name stay when a rewrite gives it another definition.
#[derive(Clone, Debug)]
pub struct Value {
    pub(super) name: Str,
    pub(super) def: Def,
    pub(super) uses: Vec<Use>,
    pub(super) pinned: bool,
    pub(super) info: Option<Box<ValueInfoProto>>,
}

impl Value {
    pub(super) fn new(name: Str, def: Def) -> Self {
        Self { name, def, uses: Vec::new(), pinned: false, info: None }
    }

    /// Whether something refers to it by name: a quantization annotation, training information or a sharding.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Its name, unique where it is visible.
    pub fn name(&self) -> &Str {
        &self.name
    }

    /// What defines it.
    pub fn def(&self) -> &Def {
        &self.def
    }

    /// The node that computes it.
    pub fn node(&self) -> Option<NodeId> {
        match self.def {
            Def::Node { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The constant that it always is. A default that callers may override does not count.
    pub fn constant(&self) -> Option<&Constant> {
        match &self.def {
            Def::Constant { constant, .. } => Some(constant),
            _ => None,
        }
    }

    /// Everything that reads it.
    pub fn uses(&self) -> &[Use] {
        &self.uses
    }

    /// Whether it is an output of a scope, or named by something else than a node.
    pub fn is_exposed(&self) -> bool {
        self.pinned || self.uses.iter().any(|used| matches!(used, Use::Output { .. }))
    }

    /// Whether it is still part of the model.
    pub fn is_live(&self) -> bool {
        !matches!(self.def, Def::Removed)
    }

    /// What `value_info` says of it. The declarations of inputs and outputs are kept with their scope.
    pub fn info(&self) -> Option<&ValueInfoProto> {
        self.info.as_deref()
    }
}

/// An input or output of a scope and what is declared of it.
#[derive(Clone, Debug)]
pub struct Port {
    /// The value.
    pub value: ValueId,
    /// The declaration, as stored.
    pub info: Box<ValueInfoProto>,
}

impl Port {
    /// The declared type.
    pub fn declared(&self) -> Type {
        self.info.r#type.as_deref().map_or(Type::Unknown, Type::from)
    }
}
