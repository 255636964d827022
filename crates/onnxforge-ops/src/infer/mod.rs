//! What is known of every value of a model before it runs: element type, shape with symbolic dimensions, and the elements
//! of small integer tensors.
//!
//! Facts are proofs: see [`crate::fact`]. A declared shape that contradicts them is reported as a [`Conflict`] and
//! otherwise not believed, except for values about which nothing follows (results of custom operators).

pub(crate) mod declare;
mod demand;
pub(crate) mod growth;
mod walk;

use std::collections::HashMap;

use crate::{Array, Fact, OpError, TensorFact, Value};
use onnxforge_ir::dim::{Dim, Symbols};
use onnxforge_ir::id::Id;
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::{Model, NodeId, Tensor, Type, ValueId};
use onnxforge_proto::Str;
use onnxforge_proto::clock::Instant;

/// Constants with more elements than this are known by type and shape only.
const MAX_CONSTANT: usize = 4096;

/// What is assumed of the inputs of the graph.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is known beforehand, by name.
    pub given: HashMap<Str, Given>,
    /// Any symbolic dimension may be 0. Without this, dimensions of inputs are at least 1, except along axes on which an
    /// input, or what it becomes by moving elements, is concatenated to something: a cache may start empty. Shapes that are computed for a Reshape often cannot
    /// be told without the assumption, because a 0 there means something else.
    pub may_be_empty: bool,
    /// One name on several dimensions of inputs need not be one size, and a size that the graph demands of one is a requirement, for whoever solves these.
    /// Without this, names are taken at their word, and dimensions of which the graph demands a size have it.
    pub names_apart: bool,
    /// When inference has to have ended; nothing is known of what was not reached.
    pub deadline: Option<Instant>,
}

/// What is known of an input beforehand.
#[derive(Clone, Debug)]
pub enum Given {
    /// It is this.
    Value(Value),
    /// It has the element types, shapes and lengths of this.
    TypeOf(Value),
    /// It is a tensor of the declared element type and this shape.
    Shape(Vec<usize>),
}

/// What is known of a model.
#[derive(Clone, Debug)]
pub struct Inference {
    facts: Vec<Fact>,
    symbols: Symbols,
    /// How many symbols, the first ones of the table, stand for dimensions of the graph's inputs.
    input_symbols: usize,
    conflicts: Vec<Conflict>,
    complete: bool,
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
        Self::with(model, &Options::default())
    }

    /// The same, under other assumptions.
    pub fn with(model: &Model, options: &Options) -> Self {
        walk::walk(model, options)
    }

    /// What is known of a value. It holds in every run: for a value in the body of a loop in every turn, and for a value in
    /// a local function in every call, whatever is handed to it. Symbols of such values stand for the numbers in the turn
    /// or call at hand.
    pub fn fact(&self, id: ValueId) -> &Fact {
        static UNKNOWN: Fact = Fact::Unknown;
        self.facts.get(id.index()).unwrap_or(&UNKNOWN)
    }

    /// Takes note of a fact about a value. What is known already stays, unless this says more.
    pub fn learn(&mut self, id: ValueId, fact: Fact) {
        if self.facts.len() <= id.index() {
            self.facts.resize(id.index() + 1, Fact::Unknown);
        }
        learn(&mut self.facts[id.index()], fact);
    }

    /// Finds out what follows about the results of new nodes, which come in their order, and about what is in their bodies.
    pub fn extend(&mut self, model: &Model, nodes: &[NodeId]) {
        walk::extend(self, model, nodes);
    }

    /// Takes note of the constant that a value is, if it is one.
    pub fn learn_constant(&mut self, model: &Model, id: ValueId) {
        if let Some(tensor) = model.constant(id)
            && self.tensor(id).is_none_or(|fact| fact.value.is_none())
        {
            self.learn(id, constant_fact(tensor));
        }
    }

    /// What is known of a value that is a tensor.
    pub fn tensor(&self, id: ValueId) -> Option<&TensorFact> {
        self.fact(id).tensor()
    }

    /// The shape of a value, if its rank is known.
    pub fn shape(&self, id: ValueId) -> Option<&[Dim]> {
        self.tensor(id)?.shape.as_deref()
    }

    /// Whether every dimension of the value is a number or an expression of the dimensions of the graph's inputs.
    pub fn is_expressed(&self, id: ValueId) -> bool {
        let of_inputs =
            |dim: &Dim| dim.symbols().iter().all(|symbol| (symbol.id() as usize) < self.input_symbols);
        fn all(fact: &Fact, of_inputs: &dyn Fn(&Dim) -> bool) -> bool {
            match fact {
                Fact::Tensor(fact) => fact.shape.as_ref().is_some_and(|shape| shape.iter().all(of_inputs)),
                Fact::Sequence { items: Some(items), .. } => items.iter().all(|item| all(item, of_inputs)),
                Fact::Optional { element, present: Some(true) } => all(element, of_inputs),
                Fact::Optional { present: Some(false), .. } => true,
                _ => false,
            }
        }
        all(self.fact(id), &of_inputs)
    }

    /// The symbols that the facts are about.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// The same, to make new symbols.
    pub fn symbols_mut(&mut self) -> &mut Symbols {
        &mut self.symbols
    }

    /// Whether everything was looked at. Bodies and functions that would have to be walked too often, as functions that call
    /// each other twice in a long chain, and what is left when time is up, are passed over: nothing is known of their
    /// values.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Contradictions, in the order of the nodes.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }
}

/// Adds a fact to what is known. What is known stays, unless the fact says more.
fn learn(known: &mut Fact, fact: Fact) {
    match (&mut *known, fact) {
        (Fact::Tensor(known), Fact::Tensor(fact)) => {
            known.dtype = known.dtype.or(fact.dtype);
            if known.value.is_none() || fact.array().is_some() {
                known.value = fact.value.or(known.value.take());
            }
            if known.shape.is_none() {
                known.shape = fact.shape;
            }
        }
        (Fact::Unknown, fact) => *known = fact,
        _ => {}
    }
}

/// What is known of a constant: everything, when it is small.
pub fn constant_fact(tensor: &Tensor) -> Fact {
    if tensor.len() <= MAX_CONSTANT
        && let Ok(array) = Array::from_tensor(tensor)
    {
        return TensorFact::constant(array).into();
    }
    let shape = tensor.shape().iter().map(|&dim| (dim as i64).into()).collect();
    TensorFact::new(tensor.dtype(), shape).into()
}

/// A tensor of this shape, and of the element type that is declared.
fn shaped_fact(declared: &Type, shape: &[usize]) -> Fact {
    let dtype = match declared {
        Type::Tensor(dtype, _) => *dtype,
        _ => None,
    };
    let shape = shape.iter().map(|&size| Dim::from(i64::try_from(size).unwrap_or(i64::MAX))).collect();
    TensorFact { dtype, shape: Some(shape), value: None }.into()
}

/// A declaration with every name of a dimension left out.
fn without_names(declared: Type) -> Type {
    match declared {
        Type::Tensor(dtype, Some(dims)) => {
            let unnamed = |dim: DeclaredDim| match dim {
                DeclaredDim::Named(_) => DeclaredDim::Unknown,
                other => other,
            };
            Type::Tensor(dtype, Some(dims.into_iter().map(unnamed).collect()))
        }
        other => other,
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
