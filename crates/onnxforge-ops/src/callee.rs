//! What a node calls: a local function of the model, an operator of the table, or nothing that is known here.

use std::collections::{HashMap, HashSet};

use super::apply;
use super::call::{Bindings, Call};
use super::signature::latest_opset;
use onnxforge_ir::node::normal_domain;
use onnxforge_ir::scope::ScopeKind;
use onnxforge_ir::{AttrValue, Model, NodeId, Op, ScopeId, ValueId};

/// Deepest nesting of function calls: valid models never call a function from itself.
pub const MAX_CALLS: usize = 64;

/// What a node calls.
pub enum Callee<'a> {
    /// A local function; it wins over an operator of the same name.
    Function(ScopeId),
    /// An operator of the table, in the version that holds where the node stands.
    Operator(Call<'a>),
    /// Nothing that is known here.
    Unknown,
}

/// The local functions of a model by what a node has to call.
#[derive(Clone, Debug)]
pub struct Functions(HashMap<Op, ScopeId>);

impl Functions {
    /// The functions of `model`.
    pub fn of(model: &Model) -> Self {
        let op = |&scope: &ScopeId| model.called_as(scope).map(|op| (op, scope));
        Self(model.functions().iter().filter_map(op).collect())
    }

    /// The function that a node with this operator calls.
    pub fn get(&self, op: &Op) -> Option<ScopeId> {
        self.0.get(op).copied()
    }

    /// What a node of the same model calls. `bindings` is what references to attributes stand for where the node stands;
    /// without it they stay references.
    pub fn callee<'a>(&self, model: &'a Model, id: NodeId, bindings: Option<&'a Bindings>) -> Callee<'a> {
        let node = model.node(id);
        if let Some(function) = self.get(node.op()) {
            return Callee::Function(function);
        }
        let opset = model.opset(node.scope(), &node.op().domain);
        apply::call(node, opset, bindings).map_or(Callee::Unknown, Callee::Operator)
    }
}

/// What a call of a function binds its attributes to: the caller's attributes over the function's defaults. `outer` is what
/// the caller's own references stand for.
pub fn bindings(model: &Model, id: NodeId, function: ScopeId, outer: Option<&Bindings>) -> Bindings {
    let mut bindings = Bindings::new();
    if let ScopeKind::Function(rest) = model.scope(function).kind() {
        for default in &rest.attribute_proto {
            if let Some(attr) = onnxforge_ir::io::plain_attribute(default) {
                bindings.insert(attr.name, attr.value);
            }
        }
    }
    for attr in model.node(id).attrs() {
        let value = match &attr.value {
            AttrValue::Reference { name, .. } => outer.and_then(|outer| outer.get(name)).cloned(),
            value => Some(value.clone()),
        };
        if let Some(value) = value {
            bindings.insert(attr.name.clone(), value);
        }
    }
    bindings
}

/// An import of an operator set that is newer than the table: its operators are taken to mean what they mean in the newest
/// version that is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "opset {version} of {} is newer than {latest}, the newest one known here; operators are taken as of that",
    if domain.is_empty() { "ai.onnx" } else { domain }
)]
pub struct NewerOpset {
    /// The domain; empty for ai.onnx.
    pub domain: String,
    /// The version that is imported.
    pub version: i64,
    /// The newest version that the table knows.
    pub latest: i64,
}

/// The imports of the model and its functions that are newer than the table, each domain and version once.
pub fn newer_opsets(model: &Model) -> Vec<NewerOpset> {
    let mut found: Vec<NewerOpset> = Vec::new();
    for scope in std::iter::once(model.main()).chain(model.functions().iter().copied()) {
        for import in model.opset_imports(scope) {
            let domain = normal_domain(import.domain.as_deref().unwrap_or_default());
            let (Some(version), Some(latest)) = (import.version, latest_opset(domain)) else { continue };
            let newer = NewerOpset { domain: domain.to_owned(), version, latest };
            if version > latest && !found.contains(&newer) {
                found.push(newer);
            }
        }
    }
    found
}

/// The nodes that compute from constants alone, by operators that are known and draw no random numbers.
pub fn constant_nodes(model: &Model) -> HashSet<NodeId> {
    let (mut constant, functions) = (HashSet::new(), Functions::of(model));
    for (id, node) in model.nodes() {
        let is_known = functions.get(node.op()).is_none()
            && super::find(&node.op().domain, &node.op().name).is_some_and(|def| !def.random);
        let is_fixed = |value: &ValueId| {
            let by = model.value(*value).node();
            model.constant(*value).is_some() || by.is_some_and(|by| constant.contains(&by))
        };
        if is_known && node.bodies().next().is_none() && node.inputs().iter().flatten().all(is_fixed) {
            constant.insert(id);
        }
    }
    constant
}
