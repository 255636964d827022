//! Scopes: the main graph, the bodies of nodes, and functions.

use super::id::{NodeId, ScopeId, ValueId};
use super::value::Port;
use onnxforge_proto::Str;
use onnxforge_proto::schema::{FunctionProto, GraphProto, ValueInfoProto};

/// What a scope is. The message holds whatever the IR does not model; the lists that it does model are empty there.
#[derive(Clone, Debug)]
pub enum ScopeKind {
    /// The graph of the model.
    Main(Box<GraphProto>),
    /// The body of a node; what is visible around the node is visible in it.
    Body {
        /// The node that holds it.
        node: NodeId,
        /// The rest of the graph.
        rest: Box<GraphProto>,
    },
    /// A local function; nothing outside is visible in it.
    Function(Box<FunctionProto>),
}

/// An entry of a scope's `value_info`.
#[derive(Clone, Debug)]
pub enum Listed {
    /// What the value itself keeps.
    Value(ValueId),
    /// A declaration of a name that no value of the scope has, or that is declared elsewhere too.
    Stray(Box<ValueInfoProto>),
}

/// A graph, a body or a function.
#[derive(Clone, Debug)]
pub struct Scope {
    pub(super) kind: ScopeKind,
    pub(super) parent: Option<ScopeId>,
    pub(super) inputs: Vec<Port>,
    pub(super) outputs: Vec<Port>,
    /// Constants and defaults of inputs in file order; entries whose value has changed its nature are passed over.
    pub(super) constants: Vec<ValueId>,
    pub(super) listed: Vec<Listed>,
    pub(super) first: Option<NodeId>,
    pub(super) last: Option<NodeId>,
    pub(super) node_count: usize,
    pub(super) live: bool,
}

impl Scope {
    pub(super) fn new(kind: ScopeKind, parent: Option<ScopeId>) -> Self {
        Self {
            kind,
            parent,
            inputs: Vec::new(),
            outputs: Vec::new(),
            constants: Vec::new(),
            listed: Vec::new(),
            first: None,
            last: None,
            node_count: 0,
            live: true,
        }
    }

    /// What it is.
    pub fn kind(&self) -> &ScopeKind {
        &self.kind
    }

    /// The scope around it; functions and the main graph have none.
    pub fn parent(&self) -> Option<ScopeId> {
        self.parent
    }

    /// The node that holds it, for a body.
    pub fn holder(&self) -> Option<NodeId> {
        match self.kind {
            ScopeKind::Body { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(&self) -> Option<&Str> {
        match &self.kind {
            ScopeKind::Main(rest) | ScopeKind::Body { rest, .. } => rest.name.as_ref(),
            ScopeKind::Function(rest) => rest.name.as_ref(),
        }
    }

    /// What it takes.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// What it gives.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// Entries of `value_info` in file order.
    pub fn listed(&self) -> &[Listed] {
        &self.listed
    }

    /// Number of nodes, those in bodies not counted.
    pub fn node_count(&self) -> usize {
        self.node_count
    }

    /// Whether it is still part of the model.
    pub fn is_live(&self) -> bool {
        self.live
    }
}
