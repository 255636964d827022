//! Hashes of what values are computed from, forward from inputs and constants: equal for equal values, whatever they are called.

use std::collections::HashMap;
use std::hash::Hash;

use super::content::{hash, sketch_attr, sketch_constant};
use onnxforge_ir::node::Node;
use onnxforge_ir::scope::ScopeKind;
use onnxforge_ir::{Attr, Def, Model, NodeId, ScopeId, ValueId};

/// The hashes of a model.
#[derive(Debug, Default)]
pub struct Hashes {
    /// Every node: the graph's, then those of functions, in topological order; what is in bodies comes before what holds them.
    pub order: Vec<NodeId>,
    nodes: HashMap<NodeId, u64>,
    values: HashMap<ValueId, u64>,
    /// What kind of place a scope is.
    places: HashMap<ScopeId, u64>,
}

/// Inputs or outputs without those at the end that are left out.
pub fn trimmed(ids: &[Option<ValueId>]) -> &[Option<ValueId>] {
    let used = ids.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    ids.get(..used).unwrap_or_default()
}

/// Attributes by name.
pub fn sorted(node: &Node) -> Vec<&Attr> {
    let mut attrs: Vec<&Attr> = node.attrs().iter().collect();
    attrs.sort_by(|a, b| a.name.cmp(&b.name));
    attrs
}

/// A step of the walk through a model.
enum Step {
    Scope(ScopeId, u64),
    Node(NodeId),
    Leave(NodeId),
}

impl Hashes {
    /// Hashes `model`; `given` are hashes of values that are known beforehand, at least those of the graph's inputs.
    pub fn of(model: &Model, given: HashMap<ValueId, u64>) -> Self {
        let mut hashes = Self { values: given, ..Self::default() };
        let mut steps: Vec<Step> = model
            .functions()
            .iter()
            .rev()
            .map(|&scope| Step::Scope(scope, hash(|h| model.called_as(scope).hash(h))))
            .collect();
        steps.push(Step::Scope(model.main(), 0));
        while let Some(step) = steps.pop() {
            match step {
                Step::Scope(scope, place) => {
                    hashes.enter(model, scope, place);
                    let from = steps.len();
                    steps.extend(model.nodes_in(scope).map(|(id, _)| Step::Node(id)));
                    if let Some(added) = steps.get_mut(from..) {
                        added.reverse();
                    }
                }
                Step::Node(id) => {
                    let node = model.node(id);
                    steps.push(Step::Leave(id));
                    let place = hashes.place(node.scope());
                    for attr in sorted(node).into_iter().rev() {
                        for (index, &body) in attr.scopes().iter().enumerate().rev() {
                            let inner = hash(|h| (place, node.op(), &attr.name, index).hash(h));
                            steps.push(Step::Scope(body, inner));
                        }
                    }
                }
                Step::Leave(id) => hashes.leave(model, id),
            }
        }
        hashes
    }

    /// The hash of a node.
    pub fn node(&self, id: NodeId) -> u64 {
        self.nodes.get(&id).copied().unwrap_or(0)
    }

    /// The hash of a value.
    pub fn value(&self, id: ValueId) -> u64 {
        self.values.get(&id).copied().unwrap_or(0)
    }

    /// The hash of the kind of place that a scope is: the graph, a function, or the body of an operator.
    pub fn place(&self, scope: ScopeId) -> u64 {
        self.places.get(&scope).copied().unwrap_or(0)
    }

    fn enter(&mut self, model: &Model, scope: ScopeId, place: u64) {
        self.places.insert(scope, place);
        for (index, port) in model.scope(scope).inputs().iter().enumerate() {
            self.values.entry(port.value).or_insert_with(|| {
                hash(|h| {
                    (place, index, port.declared().to_string()).hash(h);
                    if let Def::Input { default: Some(constant), .. } = model.value(port.value).def() {
                        sketch_constant(constant, h);
                    }
                })
            });
        }
        for (id, constant) in model.constants_in(scope) {
            self.values.entry(id).or_insert_with(|| hash(|h| sketch_constant(constant, h)));
        }
    }

    fn leave(&mut self, model: &Model, id: NodeId) {
        let node = model.node(id);
        let own = hash(|h| {
            self.place(node.scope()).hash(h);
            node.op().hash(h);
            for attr in sorted(node) {
                attr.name.hash(h);
                sketch_attr(&attr.value, h);
                attr.scopes().iter().for_each(|&body| self.body(model, body).hash(h));
            }
            for input in trimmed(node.inputs()) {
                input.map(|input| self.value(input)).hash(h);
            }
            for output in trimmed(node.outputs()) {
                output.is_some().hash(h);
            }
        });
        self.nodes.insert(id, own);
        self.order.push(id);
        for (index, output) in node.outputs().iter().enumerate() {
            if let Some(output) = output {
                self.values.entry(*output).or_insert_with(|| hash(|h| (own, index).hash(h)));
            }
        }
    }

    /// The hash of a body, whose nodes have theirs.
    fn body(&self, model: &Model, scope: ScopeId) -> u64 {
        let entry = model.scope(scope);
        let mut nodes: Vec<u64> = model.nodes_in(scope).map(|(id, _)| self.node(id)).collect();
        nodes.sort_unstable();
        hash(|h| {
            nodes.hash(h);
            entry.inputs().len().hash(h);
            matches!(entry.kind(), ScopeKind::Function(_)).hash(h);
            for port in entry.outputs() {
                (self.value(port.value), port.declared().to_string()).hash(h);
            }
        })
    }
}
