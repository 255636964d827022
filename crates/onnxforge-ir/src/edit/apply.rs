//! The application of a checked edit, which cannot fail.

use std::collections::{HashMap, HashSet};

use super::plan::Plan;
use super::staged::Staged;
use super::{NewNode, ORDER_STEP, Operand, Rewrite, ordered};
use crate::id::{NodeId, OriginId, ScopeId, ValueId};
use crate::model::Model;
use crate::node::{Attr, Node, NodeNotes, Op};
use crate::origin::Origin;
use crate::scope::ScopeKind;
use crate::value::{Def, Use, Value};
use onnxforge_proto::Str;

impl Model {
    /// Makes the new nodes, in their order, at the places of the plan.
    pub(super) fn insert(
        &mut self,
        rewrite: &Rewrite,
        plan: &Plan,
        constants: &[Option<ValueId>],
        results: &mut [Vec<Option<ValueId>>],
        free: &mut HashSet<Str>,
    ) -> Vec<NodeId> {
        // The last new node at each place.
        let mut last: HashMap<Option<NodeId>, NodeId> = HashMap::new();
        let mut produced = Vec::new();
        let mut lent = HashSet::new();
        // New values first, so that nodes may refer to each other in any order.
        for (staged, outputs) in rewrite.nodes.iter().zip(results.iter_mut()) {
            let base = outputs.iter().flatten().next().map(|&value| self.values[value].name.clone());
            for (index, output) in outputs.iter_mut().enumerate() {
                if output.is_some() || !staged.outputs[index] {
                    continue;
                }
                *output = match &staged.copied {
                    Some(copied) => self.copied_output(rewrite, copied, index, plan.scope, free),
                    None => {
                        let inherited = staged.like.and_then(|like| self.nodes[like].output(index));
                        let hint = match inherited {
                            Some(value) => self.values[value].name.to_string(),
                            None => {
                                format!("{}_{}", base.as_deref().unwrap_or(&staged.op.name), rewrite.rule)
                            }
                        };
                        let name = self.names.fresh(&hint);
                        Some(self.values.push(Value::new(name, Def::Removed)))
                    }
                };
            }
        }
        for ((staged, outputs), place) in rewrite.nodes.iter().zip(results.iter()).zip(&plan.places) {
            let node = match self.copied_node(rewrite, staged, plan.scope) {
                Some(copy) => copy,
                None => {
                    // The node that used to define one of the results lends its name and metadata.
                    let old = || outputs.iter().flatten().find_map(|&value| self.values[value].node());
                    let model = staged.like.or_else(old);
                    let heir = model.or(rewrite.consumed.last().copied()).map(|node| &self.nodes[node]);
                    let parents = self.parents(rewrite, plan, staged, model).into();
                    let origin = Origin::Derived { rule: rewrite.rule.clone(), parents };
                    let lender = model.filter(|&node| lent.insert(node));
                    Node {
                        name: lender.and_then(|node| self.nodes[node].name.clone()),
                        metadata: heir.map(|node| node.metadata.clone()).unwrap_or_default(),
                        notes: heir.and_then(|node| inherited_notes(node, &staged.op)),
                        origin: self.origins.intern(origin),
                        ..Node::detached(staged.op.clone(), plan.scope, &[], &[])
                    }
                }
            };
            let operand = |&operand: &Operand| match operand {
                Operand::Value(value) => Some(value),
                Operand::Output(NewNode(node), index) => results[node][index],
                Operand::Constant(index) => constants[index],
                Operand::Absent => None,
            };
            let inputs = staged.inputs.iter().map(operand).collect();
            let node = Node { inputs, outputs: outputs.clone(), attrs: staged.attrs.clone(), ..node };
            let id = self.add_node(node, last.get(place).copied().or(*place));
            for &body in staged.attrs.iter().filter(|_| staged.copied.is_none()).flat_map(Attr::scopes) {
                self.scopes[body].parent = Some(plan.scope);
                if let ScopeKind::Body { node, .. } = &mut self.scopes[body].kind {
                    *node = id;
                }
            }
            last.insert(*place, id);
            produced.push(id);
        }
        produced
    }

    /// Where a new node comes from: `primary`, whose place it takes, and then all consumed nodes that no other new one is a version of
    /// and that leave a trace. Beside nodes that are made of these, another version of a node comes from that one alone.
    fn parents(
        &self,
        rewrite: &Rewrite,
        plan: &Plan,
        staged: &Staged,
        primary: Option<NodeId>,
    ) -> Vec<OriginId> {
        let origin = |node: NodeId| self.nodes[node].origin;
        if let Some(whom) = staged.serves {
            return vec![origin(whom)];
        }
        let is_made =
            |other: &Staged| other.serves.is_none() && other.like.is_none() && other.copied.is_none();
        if let Some(like) = staged.like
            && rewrite.nodes.iter().any(is_made)
        {
            return vec![origin(like)];
        }
        let versions: HashSet<NodeId> = rewrite.nodes.iter().filter_map(|other| other.like).collect();
        let mine = |node: &NodeId| {
            staged.like == Some(*node) || !versions.contains(node) && !rewrite.traceless.contains(node)
        };
        let consumed = plan.consumed.iter().copied();
        let primary = primary.filter(|node| mine(node) && self.nodes[*node].live);
        let parents = ordered(primary.into_iter().chain(consumed.clone().filter(mine)).map(origin));
        if parents.is_empty() { ordered(consumed.map(origin)) } else { parents }
    }

    /// Adds a node to its scope, right after `after`: it reads its inputs and defines its outputs.
    pub(super) fn add_node(&mut self, node: Node, after: Option<NodeId>) -> NodeId {
        let (scope, slots) = (node.scope, vec![0; node.inputs.len()]);
        let id = self.nodes.push(Node { slots, live: true, ..node });
        for index in 0..self.nodes[id].inputs.len() {
            if let Some(value) = self.nodes[id].inputs[index] {
                self.add_use(value, Use::Input { node: id, index: index as u32 });
            }
        }
        for index in 0..self.nodes[id].outputs.len() {
            if let Some(value) = self.nodes[id].outputs[index] {
                self.values[value].def = Def::Node { node: id, index: index as u32 };
            }
        }
        self.link(id, scope, after);
        id
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
            self.remove_input_use(id, index);
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
            self.remove_output_uses(port.value, id);
        }
        let inputs: Vec<ValueId> = self.scopes[id].inputs.iter().map(|port| port.value).collect();
        for value in inputs.into_iter().chain(std::mem::take(&mut self.scopes[id].constants)) {
            // What was redefined has a definition elsewhere already.
            if self.scope_of(value) == Some(id) {
                self.values[value].def = Def::Removed;
            }
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
            Def::Constant { scope, .. } => {
                let scope = *scope;
                let listed = matches!(self.values[value].def, Def::Constant { scope: of, .. } if of == scope);
                if !listed {
                    self.scopes[scope].constants.push(value);
                }
            }
            _ => {}
        }
        self.values[value].def = def;
        self.move_uses(target, value);
    }

    fn move_uses(&mut self, from: ValueId, to: ValueId) {
        let pinned = std::mem::take(&mut self.values[from].pinned);
        self.values[to].pinned |= pinned;
        for used in std::mem::take(&mut self.values[from].uses) {
            match used {
                Use::Input { node, index } => self.nodes[node].inputs[index as usize] = Some(to),
                Use::Output { scope, index } => self.scopes[scope].outputs[index as usize].value = to,
            }
            self.add_use(to, used);
        }
    }

    /// Lists a use; the input remembers where, so that it is found again at once.
    pub(crate) fn add_use(&mut self, value: ValueId, used: Use) {
        let uses = &mut self.values[value].uses;
        if let Use::Input { node, index } = used {
            self.nodes[node].slots[index as usize] = uses.len() as u32;
        }
        uses.push(used);
    }

    fn remove_input_use(&mut self, node: NodeId, index: usize) {
        let Some(value) = self.nodes[node].inputs[index] else { return };
        let slot = self.nodes[node].slots[index];
        let uses = &mut self.values[value].uses;
        uses.swap_remove(slot as usize);
        if let Some(&Use::Input { node, index }) = uses.get(slot as usize) {
            self.nodes[node].slots[index as usize] = slot;
        }
    }

    /// Takes the uses by outputs of a scope that goes away out of the lists.
    pub(super) fn remove_output_uses(&mut self, value: ValueId, gone: ScopeId) {
        let kept: Vec<Use> = std::mem::take(&mut self.values[value].uses)
            .into_iter()
            .filter(|used| !matches!(used, Use::Output { scope, .. } if *scope == gone))
            .collect();
        kept.into_iter().for_each(|used| self.add_use(value, used));
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
