//! The application of a checked edit, which cannot fail.

use super::plan::Plan;
use super::{NewNode, ORDER_STEP, Operand, Rewrite};
use crate::ir::id::{NodeId, OriginId, ScopeId, ValueId};
use crate::ir::model::Model;
use crate::ir::node::{Node, NodeNotes, Op};
use crate::ir::origin::Origin;
use crate::ir::scope::ScopeKind;
use crate::ir::value::{Def, Use, Value};

impl Model {
    /// Makes the new nodes, in their order, after the plan's anchor.
    pub(super) fn insert(
        &mut self,
        rewrite: &Rewrite,
        plan: &Plan,
        parents: &[OriginId],
        constants: &[ValueId],
        results: &mut [Vec<Option<ValueId>>],
    ) -> Vec<NodeId> {
        let mut after = plan.after;
        let mut produced = Vec::new();
        // New values first, so that nodes may refer to each other in any order.
        for (staged, outputs) in rewrite.nodes.iter().zip(results.iter_mut()) {
            let base = outputs.iter().flatten().next().map(|&value| self.values[value].name.clone());
            for output in outputs.iter_mut().filter(|output| output.is_none()) {
                let hint = base.as_deref().unwrap_or(&staged.op.name);
                let name = self.names.fresh(&format!("{hint}_{}", rewrite.rule));
                *output =
                    Some(self.values.push(Value { name, def: Def::Removed, uses: Vec::new(), info: None }));
            }
        }
        for (staged, outputs) in rewrite.nodes.iter().zip(results.iter()) {
            let origin =
                self.origins.intern(Origin::Derived { rule: rewrite.rule.clone(), parents: parents.into() });
            // The node that used to define one of the results lends its name and metadata.
            let model = outputs.iter().flatten().find_map(|&value| self.values[value].node());
            let heir = model.or(rewrite.consumed.last().copied());
            let inputs: Vec<Option<ValueId>> = staged
                .inputs
                .iter()
                .map(|&operand| match operand {
                    Operand::Value(value) => Some(value),
                    Operand::Output(NewNode(node), index) => results[node][index],
                    Operand::Constant(index) => constants.get(index).copied(),
                    Operand::Absent => None,
                })
                .collect();
            let node = Node {
                op: staged.op.clone(),
                scope: plan.scope,
                name: model.and_then(|node| self.nodes[node].name.clone()),
                inputs,
                outputs: outputs.clone(),
                attrs: staged.attrs.clone(),
                metadata: heir.map(|node| self.nodes[node].metadata.clone()).unwrap_or_default(),
                notes: heir.and_then(|node| inherited_notes(&self.nodes[node], &staged.op)),
                origin,
                previous: None,
                next: None,
                order: 0,
                live: true,
            };
            let id = self.nodes.push(node);
            for attr in &staged.attrs {
                for &body in attr.scopes() {
                    if let ScopeKind::Body { node, .. } = &mut self.scopes[body].kind {
                        *node = id;
                    }
                }
            }
            for (index, value) in self.nodes[id].inputs.iter().enumerate() {
                if let Some(value) = value {
                    self.values[*value].uses.push(Use::Input { node: id, index: index as u32 });
                }
            }
            for (index, value) in outputs.iter().enumerate() {
                if let Some(value) = value {
                    self.values[*value].def = Def::Node { node: id, index: index as u32 };
                }
            }
            self.link(id, plan.scope, after);
            after = Some(id);
            produced.push(id);
        }
        produced
    }

    /// Puts a node into the order of its scope, right after `after`.
    fn link(&mut self, id: NodeId, scope: ScopeId, after: Option<NodeId>) {
        let next = match after {
            Some(after) => self.nodes[after].next.replace(id),
            None => self.scopes[scope].first.replace(id),
        };
        match next {
            Some(next) => self.nodes[next].previous = Some(id),
            None => self.scopes[scope].last = Some(id),
        }
        let low = after.map_or(0, |after| self.nodes[after].order);
        let high = next.map_or(low + 2 * ORDER_STEP, |next| self.nodes[next].order);
        self.nodes[id].previous = after;
        self.nodes[id].next = next;
        self.nodes[id].order = low + (high - low) / 2;
        self.scopes[scope].node_count += 1;
        if self.nodes[id].order == low {
            let mut at = self.scopes[scope].first;
            let mut order = 0;
            while let Some(node) = at {
                order += ORDER_STEP;
                self.nodes[node].order = order;
                at = self.nodes[node].next;
            }
        }
    }

    /// Takes a node out of its scope and forgets what it read. Its record stays, for reports.
    pub(super) fn detach(&mut self, id: NodeId) {
        for index in 0..self.nodes[id].inputs.len() {
            if let Some(value) = self.nodes[id].inputs[index] {
                let gone = Use::Input { node: id, index: index as u32 };
                self.values[value].uses.retain(|&used| used != gone);
            }
        }
        let node = &mut self.nodes[id];
        node.live = false;
        let (scope, previous, next) = (node.scope, node.previous.take(), node.next.take());
        match previous {
            Some(previous) => self.nodes[previous].next = next,
            None => self.scopes[scope].first = next,
        }
        match next {
            Some(next) => self.nodes[next].previous = previous,
            None => self.scopes[scope].last = previous,
        }
        self.scopes[scope].node_count -= 1;
    }

    /// Removes a body whose nodes are already detached.
    pub(super) fn remove_scope(&mut self, id: ScopeId) {
        self.scopes[id].live = false;
        for port in self.scopes[id].outputs.clone() {
            self.values[port.value]
                .uses
                .retain(|used| !matches!(used, Use::Output { scope, .. } if *scope == id));
        }
        for port in self.scopes[id].inputs.clone() {
            self.values[port.value].def = Def::Removed;
        }
        for value in std::mem::take(&mut self.scopes[id].constants) {
            self.values[value].def = Def::Removed;
        }
    }

    /// Lets everything that read `value` read `target`, and removes `value`.
    pub(super) fn forward(&mut self, value: ValueId, target: ValueId) {
        self.values[value].def = Def::Removed;
        self.move_uses(value, target);
    }

    /// Lets what defined `target` define `value`, which then stands for both, and removes `target`.
    pub(super) fn take_over(&mut self, value: ValueId, target: ValueId) {
        let def = std::mem::replace(&mut self.values[target].def, Def::Removed);
        match &def {
            Def::Node { node, index } => self.nodes[*node].outputs[*index as usize] = Some(value),
            Def::Constant { scope, .. } if !matches!(self.values[value].def, Def::Constant { .. }) => {
                let scope = *scope;
                self.scopes[scope].constants.push(value);
            }
            _ => {}
        }
        self.values[value].def = def;
        self.move_uses(target, value);
    }

    fn move_uses(&mut self, from: ValueId, to: ValueId) {
        for used in std::mem::take(&mut self.values[from].uses) {
            match used {
                Use::Input { node, index } => self.nodes[node].inputs[index as usize] = Some(to),
                Use::Output { scope, index } => self.scopes[scope].outputs[index as usize].value = to,
                Use::Pinned => {}
            }
            self.values[to].uses.push(used);
        }
    }
}

/// What a new node keeps of the notes of the node that it replaces: all of them when it calls the same operator.
fn inherited_notes(from: &Node, op: &Op) -> Option<Box<NodeNotes>> {
    let notes = from.notes.as_deref()?;
    if from.op == *op {
        return Some(Box::new(notes.clone()));
    }
    let doc_string = notes.doc_string.clone();
    doc_string.is_some().then(|| Box::new(NodeNotes { doc_string, ..NodeNotes::default() }))
}
