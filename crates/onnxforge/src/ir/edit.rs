//! The one door for changes: a [`Rewrite`] says which nodes it consumes, what takes their place, and which values get
//! another definition. [`Model::commit`] checks all of it before it touches anything.

use std::collections::{BTreeSet, HashSet};

use super::id::{NodeId, ScopeId, ValueId};
use super::journal::{Accuracy, Entry};
use super::model::Model;
use super::node::{Attr, AttrValue, Node, NodeNotes, Op};
use super::origin::Origin;
use super::scope::{Listed, ScopeKind};
use super::tensor::Tensor;
use super::value::{Constant, Def, Use, Value};
use crate::proto::Str;
use crate::proto::schema::ValueInfoProto;

/// Distance between the order numbers of neighbours when a scope is numbered.
pub(super) const ORDER_STEP: u64 = 1 << 20;

/// Why a rewrite cannot be committed. The model is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// A node or value that an earlier edit removed.
    #[error("{0} is no longer part of the model")]
    Gone(String),
    /// The consumed nodes do not stand in one scope.
    #[error("the consumed nodes stand in different scopes")]
    Scopes,
    /// New nodes were made without consuming any.
    #[error("new nodes must say which nodes they consume")]
    FromNothing,
    /// A value loses its definition but is still read.
    #[error("value {0:?} would lose its definition, but is still read")]
    StillRead(Str),
    /// A value that is neither a result of a consumed node nor a constant.
    #[error("value {0:?} is neither a result of the consumed nodes nor a constant")]
    NotRedefinable(Str),
    /// A value would be read before it is computed, or where it cannot be seen.
    #[error("value {0:?} would not be available where it is read")]
    Order(Str),
    /// An output of a scope cannot become another name for an input or another output.
    #[error("value {0:?} is an output and cannot become another name for {1:?}")]
    Exposed(Str, Str),
    /// An operand refers to something that is not in the rewrite.
    #[error("an operand refers to a node or constant that the rewrite does not have")]
    Operand,
}

/// A node that a rewrite will make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode(usize);

impl NewNode {
    /// Its output `index`.
    pub fn output(self, index: usize) -> Operand {
        Operand::Output(self, index)
    }
}

/// What a new node reads, or what a value becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A value of the model.
    Value(ValueId),
    /// An output of a new node.
    Output(NewNode, usize),
    /// A new constant.
    Constant(usize),
    /// An optional input that is left out.
    Absent,
}

impl From<ValueId> for Operand {
    fn from(value: ValueId) -> Self {
        Self::Value(value)
    }
}

impl From<Option<ValueId>> for Operand {
    fn from(value: Option<ValueId>) -> Self {
        value.map_or(Self::Absent, Self::Value)
    }
}

#[derive(Clone, Debug)]
struct Staged {
    op: Op,
    inputs: Vec<Operand>,
    outputs: usize,
    attrs: Vec<Attr>,
}

/// A change that is prepared and not yet made.
#[derive(Clone, Debug)]
pub struct Rewrite {
    pass: Str,
    rule: Str,
    accuracy: Accuracy,
    consumed: Vec<NodeId>,
    nodes: Vec<Staged>,
    constants: Vec<(Str, Tensor)>,
    redefined: Vec<(ValueId, Operand)>,
    dropped: Vec<ValueId>,
}

impl Rewrite {
    /// A rewrite that removes `consumed` (and all that is in their bodies) by the given rule.
    pub fn new(
        pass: impl Into<Str>,
        rule: impl Into<Str>,
        accuracy: Accuracy,
        consumed: impl Into<Vec<NodeId>>,
    ) -> Self {
        Self {
            pass: pass.into(),
            rule: rule.into(),
            accuracy,
            consumed: consumed.into(),
            nodes: Vec::new(),
            constants: Vec::new(),
            redefined: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// Adds a node with `outputs` outputs. Bodies in `attrs` must be those of consumed nodes; they move.
    pub fn node(
        &mut self,
        op: Op,
        inputs: impl IntoIterator<Item = Operand>,
        outputs: usize,
        attrs: Vec<Attr>,
    ) -> NewNode {
        self.nodes.push(Staged { op, inputs: inputs.into_iter().collect(), outputs, attrs });
        NewNode(self.nodes.len() - 1)
    }

    /// Adds a constant; its name starts with `hint`.
    pub fn constant(&mut self, hint: impl Into<Str>, tensor: Tensor) -> Operand {
        self.constants.push((hint.into(), tensor));
        Operand::Constant(self.constants.len() - 1)
    }

    /// Gives `value` another definition. It keeps its id, its name and its readers.
    pub fn redefine(&mut self, value: ValueId, by: impl Into<Operand>) {
        self.redefined.push((value, by.into()));
    }

    /// Removes a constant that nothing reads.
    pub fn drop_constant(&mut self, value: ValueId) {
        self.dropped.push(value);
    }
}

/// What the checks found out, for the application that cannot fail any more.
struct Plan {
    scope: ScopeId,
    /// The consumed nodes and everything in bodies that do not move.
    consumed: Vec<NodeId>,
    /// New nodes come right after this one; `None`: at the start.
    after: Option<NodeId>,
    removed_scopes: Vec<ScopeId>,
}

impl Model {
    /// Makes the change, or says why it cannot be made and leaves the model as it is.
    /// The number returned is the edit's position in the journal.
    pub fn commit(&mut self, rewrite: Rewrite) -> Result<usize, EditError> {
        let plan = self.plan(&rewrite)?;
        let bytes_before = self.constant_bytes(&rewrite, &plan);
        let nodes_before = plan.consumed.len() as i64;

        // The readers of what goes away forget it first, so that uses stay exact.
        for &node in &plan.consumed {
            self.detach(node);
        }
        for &scope in &plan.removed_scopes {
            self.remove_scope(scope);
        }

        let parents: Vec<_> = ordered(plan.consumed.iter().map(|&node| self.nodes[node].origin));
        let folded = ordered(parents.iter().copied().chain(plan.consumed.iter().flat_map(|&node| {
            self.nodes[node].inputs.iter().flatten().filter_map(|&value| match self.values[value].def {
                Def::Constant { origin, .. } => origin,
                _ => None,
            })
        })));

        let constants: Vec<ValueId> = rewrite
            .constants
            .iter()
            .map(|(hint, tensor)| {
                let origin = (!folded.is_empty()).then(|| {
                    self.origins.intern(Origin::Derived {
                        rule: rewrite.rule.clone(),
                        parents: folded.clone().into_boxed_slice(),
                    })
                });
                let name = self.names.fresh(hint);
                let def = Def::Constant { scope: plan.scope, constant: Constant::Dense(tensor.clone()), origin };
                let value = self.values.push(Value { name, def, uses: Vec::new(), info: None });
                self.scopes[plan.scope].constants.push(value);
                value
            })
            .collect();

        // A new definition goes to the first value that asks for it; later ones become other names for that value.
        let mut results: Vec<Vec<Option<ValueId>>> = rewrite.nodes.iter().map(|n| vec![None; n.outputs]).collect();
        let mut homes: Vec<Option<ValueId>> = vec![None; constants.len()];
        let mut aliases = Vec::new();
        for &(value, by) in &rewrite.redefined {
            let slot = match by {
                Operand::Output(NewNode(node), index) => &mut results[node][index],
                Operand::Constant(index) => &mut homes[index],
                Operand::Value(target) => {
                    aliases.push((value, target));
                    continue;
                }
                Operand::Absent => continue,
            };
            match slot {
                None => *slot = Some(value),
                Some(first) => aliases.push((value, *first)),
            }
        }

        let produced = self.insert(&rewrite, &plan, &parents, &constants, &mut results);
        for (&constant, home) in constants.iter().zip(&homes) {
            if let Some(value) = *home {
                self.take_over(value, constant);
            }
        }
        for &(value, target) in &aliases {
            if self.values[value].is_exposed() {
                self.take_over(value, target);
            } else {
                self.forward(value, target);
            }
        }
        for &node in &plan.consumed {
            for value in self.nodes[node].outputs.clone().into_iter().flatten() {
                if matches!(self.values[value].def, Def::Node { node: by, .. } if by == node) {
                    self.values[value].def = Def::Removed;
                }
            }
        }
        for &value in &rewrite.dropped {
            self.values[value].def = Def::Removed;
        }

        let entry = Entry {
            pass: rewrite.pass,
            rule: rewrite.rule,
            accuracy: rewrite.accuracy,
            nodes: produced.len() as i64 - nodes_before,
            bytes: rewrite.constants.iter().map(|(_, tensor)| tensor.byte_len() as i64).sum::<i64>() - bytes_before,
            consumed: plan.consumed,
            produced,
            redefined: rewrite.redefined.iter().map(|&(value, _)| value).collect(),
        };
        self.journal.push(entry);
        Ok(self.journal.len() - 1)
    }

    /// Declares the type of a value that has no declaration of its own, for `value_info`.
    pub fn declare(&mut self, value: ValueId, info: ValueInfoProto) {
        let Some(scope) = self.scope_of(value) else { return };
        if self.values[value].info.is_none() {
            self.scopes[scope].listed.push(Listed::Value(value));
        }
        self.values[value].info = Some(Box::new(info));
    }

    /// The bytes of constants that the rewrite removes.
    fn constant_bytes(&self, rewrite: &Rewrite, plan: &Plan) -> i64 {
        let own = rewrite.dropped.iter().chain(rewrite.redefined.iter().map(|(value, _)| value));
        let in_bodies = plan.removed_scopes.iter().flat_map(|&scope| self.constants_in(scope).map(|(_, c)| c));
        own.filter_map(|&value| self.values[value].constant()).chain(in_bodies).map(|c| c.byte_len() as i64).sum()
    }

    fn plan(&self, rewrite: &Rewrite) -> Result<Plan, EditError> {
        let scope = self.scope_of_rewrite(rewrite)?;
        for operand in self.operands(rewrite) {
            self.check_operand(rewrite, operand)?;
        }

        // Bodies that new nodes take over stay; everything else in the bodies goes with its node.
        let moved: HashSet<ScopeId> = rewrite.nodes.iter().flat_map(|n| &n.attrs).flat_map(|a| a.scopes()).copied().collect();
        let mut consumed: Vec<NodeId> = ordered(rewrite.consumed.iter().copied());
        let mut removed_scopes = Vec::new();
        let mut next = 0;
        while let Some(&node) = consumed.get(next) {
            for body in self.nodes[node].bodies().filter(|body| !moved.contains(body)) {
                removed_scopes.push(body);
                consumed.extend(self.nodes_in(body).map(|(inner, _)| inner));
            }
            next += 1;
        }
        let gone: BTreeSet<NodeId> = consumed.iter().copied().collect();
        let gone_scopes: HashSet<ScopeId> = removed_scopes.iter().copied().collect();
        let remaining = |value: ValueId| {
            self.values[value].uses.iter().copied().filter(|used| match used {
                Use::Input { node, .. } => !gone.contains(node),
                Use::Output { scope, .. } => !gone_scopes.contains(scope),
                Use::Pinned => true,
            })
        };

        let redefined: HashSet<ValueId> = rewrite.redefined.iter().map(|&(value, _)| value).collect();
        for &node in &consumed {
            for value in self.nodes[node].outputs.iter().flatten() {
                if !redefined.contains(value) && remaining(*value).next().is_some() {
                    return Err(EditError::StillRead(self.values[*value].name.clone()));
                }
            }
        }
        for &value in &rewrite.dropped {
            let entry = &self.values[value];
            if entry.constant().is_none() {
                return Err(EditError::NotRedefinable(entry.name.clone()));
            }
            if remaining(value).next().is_some() {
                return Err(EditError::StillRead(entry.name.clone()));
            }
        }

        // New nodes fit between the last definition that they read and the first reader of what they define.
        let mut latest: Option<NodeId> = None;
        let mut earliest = u64::MAX;
        for operand in self.operands(rewrite) {
            let Operand::Value(value) = operand else { continue };
            if self.values[value].node().is_some_and(|node| gone.contains(&node)) {
                return Err(EditError::Gone(format!("value {:?}", self.values[value].name)));
            }
            if let Some(node) = self.visible_from(value, scope)?
                && latest.is_none_or(|latest| self.nodes[node].order > self.nodes[latest].order)
            {
                latest = Some(node);
            }
        }
        for &(value, by) in &rewrite.redefined {
            let entry = &self.values[value];
            match entry.def {
                Def::Node { node, .. } if gone.contains(&node) => {}
                Def::Constant { .. } if matches!(by, Operand::Value(_) | Operand::Constant(_)) => {}
                _ => return Err(EditError::NotRedefinable(entry.name.clone())),
            }
            for used in remaining(value) {
                if let Some(order) = self.position(used, scope)? {
                    earliest = earliest.min(order);
                }
            }
            if let Operand::Value(target) = by {
                self.check_alias(value, target)?;
            }
        }
        let latest_order = latest.map_or(0, |node| self.nodes[node].order);
        if latest_order >= earliest {
            let name = rewrite.redefined.first().map(|&(value, _)| self.values[value].name.clone());
            return Err(EditError::Order(name.unwrap_or_default()));
        }
        let last_consumed = rewrite.consumed.iter().copied().max_by_key(|&node| self.nodes[node].order);
        let after = match last_consumed {
            Some(node) if (latest_order..earliest).contains(&self.nodes[node].order) => Some(node),
            _ => latest,
        };
        // The anchor itself may be going away; its place is after the next one before it that stays.
        let mut after = after;
        while let Some(node) = after.filter(|node| gone.contains(node)) {
            after = self.nodes[node].previous;
        }
        Ok(Plan { scope, consumed, after, removed_scopes })
    }

    fn scope_of_rewrite(&self, rewrite: &Rewrite) -> Result<ScopeId, EditError> {
        for &node in &rewrite.consumed {
            if !self.nodes[node].live {
                return Err(EditError::Gone(format!("node {node:?}")));
            }
        }
        match rewrite.consumed.split_first() {
            Some((&first, others)) => {
                let scope = self.nodes[first].scope;
                if others.iter().any(|&node| self.nodes[node].scope != scope) {
                    return Err(EditError::Scopes);
                }
                Ok(scope)
            }
            None if !rewrite.nodes.is_empty() => Err(EditError::FromNothing),
            None => {
                let value = rewrite.redefined.first().map(|&(value, _)| value).or(rewrite.dropped.first().copied());
                Ok(value.and_then(|value| self.scope_of(value)).unwrap_or(self.main))
            }
        }
    }

    fn operands<'a>(&self, rewrite: &'a Rewrite) -> impl Iterator<Item = Operand> + use<'a> {
        let inputs = rewrite.nodes.iter().flat_map(|node| node.inputs.iter().copied());
        inputs.chain(rewrite.redefined.iter().map(|&(_, by)| by))
    }

    fn check_operand(&self, rewrite: &Rewrite, operand: Operand) -> Result<(), EditError> {
        match operand {
            Operand::Value(value) if !self.values[value].is_live() => {
                Err(EditError::Gone(format!("value {:?}", self.values[value].name)))
            }
            Operand::Output(NewNode(node), index) => match rewrite.nodes.get(node) {
                Some(staged) if index < staged.outputs => Ok(()),
                _ => Err(EditError::Operand),
            },
            Operand::Constant(index) if index >= rewrite.constants.len() => Err(EditError::Operand),
            _ => Ok(()),
        }
    }

    /// The node of `scope` that must come before a reader of `value` in `scope`; an error where it cannot be seen.
    fn visible_from(&self, value: ValueId, scope: ScopeId) -> Result<Option<NodeId>, EditError> {
        let entry = &self.values[value];
        let order_error = || EditError::Order(entry.name.clone());
        let defined = self.scope_of(value).ok_or_else(order_error)?;
        let holder = self.holder_within(defined, scope).map_err(|_| order_error())?;
        match (entry.node(), holder) {
            (Some(node), None) => Ok(Some(node)),
            (Some(node), Some(holder)) if self.nodes[node].order >= self.nodes[holder].order => Err(order_error()),
            _ => Ok(None),
        }
    }

    /// The order number in `scope` at which a use happens; `None` at the end of the scope.
    fn position(&self, used: Use, scope: ScopeId) -> Result<Option<u64>, EditError> {
        let (inner, node) = match used {
            Use::Input { node, .. } => (self.nodes[node].scope, Some(node)),
            Use::Output { scope, .. } => (scope, None),
            Use::Pinned => return Ok(None),
        };
        let holder = self.holder_within(scope, inner).map_err(|_| EditError::Scopes)?;
        Ok(holder.or(node).map(|node| self.nodes[node].order))
    }

    /// An output keeps its name: it can take over a definition, but not become another name for an input or output.
    fn check_alias(&self, value: ValueId, target: ValueId) -> Result<(), EditError> {
        let (from, to) = (&self.values[value], &self.values[target]);
        let takes_over = !matches!(to.def, Def::Input { .. })
            && !to.is_exposed()
            && self.scope_of(value) == self.scope_of(target);
        if from.is_exposed() && !takes_over {
            return Err(EditError::Exposed(from.name.clone(), to.name.clone()));
        }
        Ok(())
    }

    /// Makes the new nodes, in their order, after the plan's anchor.
    fn insert(
        &mut self,
        rewrite: &Rewrite,
        plan: &Plan,
        parents: &[super::id::OriginId],
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
                *output = Some(self.values.push(Value { name, def: Def::Removed, uses: Vec::new(), info: None }));
            }
        }
        for (staged, outputs) in rewrite.nodes.iter().zip(results.iter()) {
            let origin = self
                .origins
                .intern(Origin::Derived { rule: rewrite.rule.clone(), parents: parents.into() });
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
    fn detach(&mut self, id: NodeId) {
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
    fn remove_scope(&mut self, id: ScopeId) {
        self.scopes[id].live = false;
        for port in self.scopes[id].outputs.clone() {
            self.values[port.value].uses.retain(|used| !matches!(used, Use::Output { scope, .. } if *scope == id));
        }
        for port in self.scopes[id].inputs.clone() {
            self.values[port.value].def = Def::Removed;
        }
        for value in std::mem::take(&mut self.scopes[id].constants) {
            self.values[value].def = Def::Removed;
        }
    }

    /// Lets everything that read `value` read `target`, and removes `value`.
    fn forward(&mut self, value: ValueId, target: ValueId) {
        self.values[value].def = Def::Removed;
        self.move_uses(value, target);
    }

    /// Lets what defined `target` define `value`, which then stands for both, and removes `target`.
    fn take_over(&mut self, value: ValueId, target: ValueId) {
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

/// Each item once, in the order of its first appearance.
fn ordered<T: Copy + Eq + std::hash::Hash>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    items.filter(|&item| seen.insert(item)).collect()
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

/// Convenience for building attributes.
impl From<(&str, i64)> for Attr {
    fn from((name, value): (&str, i64)) -> Self {
        Self::new(name, AttrValue::Int(value))
    }
}

impl From<(&str, f32)> for Attr {
    fn from((name, value): (&str, f32)) -> Self {
        Self::new(name, AttrValue::Float(value))
    }
}

impl From<(&str, Vec<i64>)> for Attr {
    fn from((name, value): (&str, Vec<i64>)) -> Self {
        Self::new(name, AttrValue::Ints(value))
    }
}
