//! The way that a rule takes from its root to the values that it starts from.

use super::change::Change;
use super::cx::Cx;
use super::skip::{Reason, Skip};
use onnxforge_ir::value::Use;
use onnxforge_ir::{NodeId, ValueId};

/// The nodes that a rule has recognised so far, the root first. A step that finds something else leaves the trail as it was.
#[derive(Clone)]
pub struct Trail<'a> {
    cx: Cx<'a>,
    nodes: Vec<NodeId>,
}

impl<'a> Trail<'a> {
    /// A trail that starts at `root`.
    pub fn new(cx: &Cx<'a>, root: NodeId) -> Self {
        Self { cx: *cx, nodes: vec![root] }
    }

    fn root(&self) -> NodeId {
        self.nodes[0]
    }

    /// The node that computes `value`, when it calls the standard operator `op` beside the root.
    pub fn step(&mut self, value: ValueId, op: &str) -> Option<NodeId> {
        let node = self.cx.producer(value, op, self.root())?;
        self.cx.call(node).ok()?;
        if !self.nodes.contains(&node) {
            self.nodes.push(node);
        }
        Some(node)
    }

    /// The first operand of the call of `op` that computes `value`.
    pub fn through(&mut self, value: ValueId, op: &str) -> Option<ValueId> {
        let node = self.step(value, op)?;
        self.cx.node(node).input(0)
    }

    /// The operands of the call of `op`, of two operands, that computes `value`.
    pub fn pair(&mut self, value: ValueId, op: &str) -> Option<[ValueId; 2]> {
        let node = self.step(value, op)?;
        match *self.cx.node(node).inputs() {
            [Some(a), Some(b)] => Some([a, b]),
            _ => None,
        }
    }

    /// The operand and the number of a call of `op` that computes `value`; either may come first where that is the same.
    pub fn with_number(&mut self, value: ValueId, op: &str) -> Option<(ValueId, f64)> {
        let before = self.nodes.len();
        let [a, b] = self.pair(value, op)?;
        let commutes = onnxforge_ops::find("", op).is_some_and(|def| def.commutative);
        let found = match (self.cx.uniform(a), self.cx.uniform(b)) {
            (None, Some(number)) => Some((a, number)),
            (Some(number), None) if commutes => Some((b, number)),
            _ => None,
        };
        if found.is_none() {
            self.nodes.truncate(before);
        }
        found
    }

    /// What `find` finds, or the trail as it was.
    pub fn attempt<T>(&mut self, find: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.nodes.len();
        let found = find(self);
        if found.is_none() {
            self.nodes.truncate(before);
        }
        found
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// A change that consumes the nodes of the trail. Fails where something else reads what is between them.
    pub fn change(self) -> Result<Change, Skip> {
        closed(&self.cx, &self.nodes, self.root())?;
        Ok(self.cx.change(&self.nodes))
    }
}

/// Fails unless only `nodes` read what they compute, except for the results of `root`. A value that the change itself still reads is the
/// edit's business, which refuses to consume its node.
fn closed(cx: &Cx<'_>, nodes: &[NodeId], root: NodeId) -> Result<(), Skip> {
    for &node in nodes.iter().filter(|&&node| node != root) {
        for &value in cx.node(node).outputs().iter().flatten() {
            let inside = |used: &Use| matches!(used, Use::Input { node, .. } if nodes.contains(node));
            let entry = cx.model.value(value);
            if entry.is_pinned() || !entry.uses().iter().all(inside) {
                return Err(Skip::at(Reason::ReadElsewhere, value));
            }
        }
    }
    Ok(())
}
