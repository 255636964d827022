//! What is known of every value of a model before it runs: element type, shape with symbolic dimensions, and the elements
//! of small integer tensors.
//!
//! Facts are proofs: see [`crate::ops::fact`]. A declared shape that contradicts them is reported as a [`Conflict`] and
//! otherwise not believed, except for values about which nothing follows (results of custom operators).

mod walk;

use std::collections::HashMap;

use crate::ir::dim::{Dim, Symbols};
use crate::ir::id::Id;
use crate::ir::types::DeclaredDim;
use crate::ir::{Model, NodeId, Type, ValueId};
use crate::ops::{Fact, OpError, TensorFact, Value};
use crate::proto::Str;

/// What is known of a model.
#[derive(Debug)]
pub struct Inference {
    facts: Vec<Fact>,
    symbols: Symbols,
    conflicts: Vec<Conflict>,
}

/// A contradiction in the model.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The node at which it was found.
    pub node: NodeId,
    /// What contradicts what.
    pub kind: ConflictKind,
}

/// What contradicts what.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConflictKind {
    /// The call contradicts the operator's definition: it will fail when the model runs.
    #[error("{0}")]
    Call(OpError),
    /// The declared type of a result is not the one that follows.
    #[error("{name} is declared as {declared}, and {inferred} follows")]
    Declared {
        /// The value.
        value: ValueId,
        /// Its name.
        name: Str,
        /// The declaration.
        declared: Type,
        /// What follows.
        inferred: String,
    },
}

impl Inference {
    /// Everything that follows about the values of `model`.
    pub fn of(model: &Model) -> Self {
        Self::given(model, &HashMap::new())
    }

    /// The same, when some inputs of the graph are known beforehand, by name.
    pub fn given(model: &Model, inputs: &HashMap<Str, Value>) -> Self {
        walk::walk(model, inputs)
    }

    /// What is known of a value.
    pub fn fact(&self, id: ValueId) -> &Fact {
        static UNKNOWN: Fact = Fact::Unknown;
        self.facts.get(id.index()).unwrap_or(&UNKNOWN)
    }

    /// What is known of a value that is a tensor.
    pub fn tensor(&self, id: ValueId) -> Option<&TensorFact> {
        self.fact(id).tensor()
    }

    /// The shape of a value, if its rank is known.
    pub fn shape(&self, id: ValueId) -> Option<&[Dim]> {
        self.tensor(id)?.shape.as_deref()
    }

    /// The symbols that the facts are about.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Contradictions, in the order of the nodes.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }
}

/// What a declaration says, taken at its word.
fn declared_fact(declared: &Type, symbols: &mut Symbols) -> Fact {
    match declared {
        Type::Tensor(dtype, shape) => {
            let dim = |dim: &DeclaredDim, symbols: &mut Symbols| match dim {
                DeclaredDim::Size(size) => {
                    i64::try_from(*size).map_or_else(|_| Dim::from(symbols.fresh()), Dim::from)
                }
                DeclaredDim::Named(name) => Dim::from_param(name, symbols),
                DeclaredDim::Unknown => Dim::from(symbols.fresh()),
            };
            let shape = shape.as_ref().map(|shape| shape.iter().map(|d| dim(d, symbols)).collect());
            TensorFact { dtype: *dtype, shape, value: None }.into()
        }
        Type::Sequence(element) => {
            Fact::Sequence { element: Box::new(declared_element(element, symbols)), items: None }
        }
        Type::Optional(element) => {
            Fact::Optional { element: Box::new(declared_element(element, symbols)), present: None }
        }
        Type::Map(..) => Fact::Map,
        Type::Sparse(..) | Type::Opaque { .. } | Type::Unknown => Fact::Unknown,
    }
}

/// What a declaration says about the elements of a sequence. They may differ in shape, so that a name in it stands for
/// nothing in particular.
fn declared_element(declared: &Type, symbols: &mut Symbols) -> Fact {
    match declared_fact(declared, symbols) {
        Fact::Tensor(fact) => TensorFact { dtype: fact.dtype, shape: None, value: None }.into(),
        other => other,
    }
}
