//! When each value of a scope is used for the last time.

use std::collections::{BTreeSet, HashMap};

use onnxforge_ir::value::{Def, Use};
use onnxforge_ir::{Model, NodeId, ScopeId, ValueId};

/// The order in which a scope's nodes run, and what each of them uses last.
pub struct Plan {
    /// The nodes in order, each with the values of this scope that nothing after it reads.
    pub steps: Vec<(NodeId, BTreeSet<ValueId>)>,
}

impl Plan {
    /// The plan of one scope. A value that an inner scope reads is read by the node that holds the inner scope.
    pub fn new(model: &Model, scope: ScopeId) -> Self {
        let places: HashMap<NodeId, usize> =
            model.nodes_in(scope).enumerate().map(|(place, (id, _))| (id, place)).collect();
        let mut steps: Vec<(NodeId, BTreeSet<ValueId>)> =
            model.nodes_in(scope).map(|(id, _)| (id, BTreeSet::new())).collect();
        let own = model.nodes_in(scope).flat_map(|(_, node)| node.outputs().iter().flatten().copied());
        let inputs = model.scope(scope).inputs().iter().map(|port| port.value);
        for id in own.chain(inputs) {
            if let Some(place) = last_use(model, scope, id, &places)
                && let Some((_, last)) = steps.get_mut(place)
            {
                last.insert(id);
            }
        }
        Self { steps }
    }
}

/// The place of the last node that reads the value, its own node when nobody does; `None` when it outlives the scope.
fn last_use(model: &Model, scope: ScopeId, id: ValueId, places: &HashMap<NodeId, usize>) -> Option<usize> {
    let value = model.value(id);
    let mut last = match value.def() {
        Def::Node { node, .. } => places.get(node).copied()?,
        _ => 0,
    };
    for used in value.uses() {
        let place = match *used {
            Use::Output { scope: of, .. } if of == scope => return None,
            Use::Output { scope: of, .. } => holder(model, scope, of)?,
            Use::Input { node, .. } => match model.node(node).scope() {
                within if within == scope => node,
                within => holder(model, scope, within)?,
            },
        };
        last = last.max(places.get(&place).copied()?);
    }
    Some(last)
}

/// The node of `scope` that holds `inner`, however deep.
fn holder(model: &Model, scope: ScopeId, inner: ScopeId) -> Option<NodeId> {
    let mut current = inner;
    loop {
        let entered = model.scope(current);
        let (node, parent) = (entered.holder()?, entered.parent()?);
        if parent == scope {
            return Some(node);
        }
        current = parent;
    }
}
