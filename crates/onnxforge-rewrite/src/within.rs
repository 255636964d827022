//! Changes in a part of a model, which leave every other node as it is.

use std::collections::{HashMap, HashSet};

use super::skip::{Reason, Skip};
use onnxforge_ir::edit::{Operand, Rewrite};
use onnxforge_ir::{Model, NodeId, ScopeId, ValueId};

/// Nodes of the file that changes may be about. What was made of them belongs to them; what was made of others, too, does not.
#[derive(Clone, Debug, Default)]
pub struct Within {
    nodes: HashSet<NodeId>,
}

impl FromIterator<NodeId> for Within {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        Self { nodes: nodes.into_iter().collect() }
    }
}

impl Within {
    /// Whether a node is one of these, or was made of these alone.
    pub fn has(&self, model: &Model, node: NodeId) -> bool {
        let sources = model.origins().sources(model.node(node).origin());
        !sources.is_empty() && sources.iter().all(|source| self.nodes.contains(source))
    }

    /// Fails where a change would be seen at a node outside: it goes, reads a value by another name, or gives it.
    pub fn allows(&self, model: &Model, rewrite: &Rewrite) -> Result<(), Skip> {
        let outside = |id: NodeId| !self.has(model, id);
        let gone: HashSet<NodeId> = rewrite.consumed().iter().copied().collect();
        let moved = rewrite.moved_bodies();
        let inner = rewrite.consumed().iter().flat_map(|&id| {
            let bodies = model.node(id).bodies().filter(|body| !moved.contains(body));
            bodies.flat_map(|body| nodes_of(model, body)).collect::<Vec<_>>()
        });
        let touched = rewrite.consumed().iter().copied().chain(inner).chain(rewrite.substituting());
        if touched.into_iter().any(outside) {
            return Err(Reason::Outside.into());
        }
        let mut becomes: HashMap<Operand, usize> = HashMap::new();
        for (_, by) in rewrite.redefinitions() {
            *becomes.entry(by).or_default() += 1;
        }
        // Who reads or makes a value whose name changes must be inside.
        let is_seen = |value: ValueId| {
            let entry = model.value(value);
            let readers = entry.uses().iter().filter_map(|used| model.reader(used));
            readers.chain(entry.node()).any(|node| !gone.contains(&node) && outside(node))
        };
        for (value, by) in rewrite.redefinitions() {
            let renames = match by {
                // Its readers read the other one by that one's name, unless it keeps its own, which the other one then takes.
                Operand::Value(to) => is_seen(value) || model.value(value).is_exposed() && is_seen(to),
                _ => becomes.get(&by).is_some_and(|&count| count > 1) && is_seen(value),
            };
            if renames {
                return Err(Skip::at(Reason::Outside, value));
            }
        }
        // What neither removes a node nor gives a value another definition is about no node of the part.
        let is_about_nodes = !gone.is_empty() || rewrite.redefinitions().next().is_some();
        if is_about_nodes { Ok(()) } else { Err(Reason::Outside.into()) }
    }

    /// Fails where a function has a node outside.
    pub fn has_functions(&self, model: &Model, functions: &[ScopeId]) -> Result<(), Skip> {
        let mut inner = functions.iter().flat_map(|&function| nodes_of(model, function));
        if inner.all(|id| self.has(model, id)) { Ok(()) } else { Err(Reason::Outside.into()) }
    }
}

/// Every node of a scope and of the bodies in it.
fn nodes_of(model: &Model, scope: ScopeId) -> Vec<NodeId> {
    let own: Vec<NodeId> = model.nodes_in(scope).map(|(id, _)| id).collect();
    own.iter().flat_map(|&id| model.nodes_inside(id)).chain(own.iter().copied()).collect()
}
