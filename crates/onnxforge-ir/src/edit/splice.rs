//! Splicing: the nodes of a body, or of a function, become nodes of the scope that holds or calls it.
//!
//! A splice stages a copy of every node; the originals go with the consumed node, unless they belong to a function. So a
//! body can be spliced as often as a loop has turns. What goes away leaves its names to the first copy.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::staged::{Copied, Staged, StagedConstant};
use super::{EditError, NewNode, Operand, Rewrite};
use crate::id::{NodeId, OriginId, ScopeId, ValueId};
use crate::model::Model;
use crate::node::{Attr, AttrValue, Node, Op};
use crate::origin::Origin;
use crate::scope::{Listed, Scope, ScopeKind};
use crate::value::{Def, Port, Use, Value};
use onnxforge_proto::Str;

/// A body whose nodes become nodes of the scope of the edit.
#[derive(Clone, Debug)]
pub(super) struct Splice {
    pub body: ScopeId,
    /// The consumed node that holds the body or calls the function.
    pub holder: NodeId,
    /// What the values of the body become.
    values: HashMap<ValueId, Operand>,
    /// What references to the attributes of the function's caller stand for.
    attributes: Option<BTreeMap<Str, AttrValue>>,
    /// Names and declarations are those of the originals: nothing else has them afterwards.
    only: bool,
}

impl Rewrite {
    /// Stages the nodes and constants of `body`, which the consumed node `holder` holds or, if it is a function, calls.
    /// `inputs` is what its inputs become; those that are not given are absent. `attributes` is what references to the
    /// attributes of a function's caller stand for; a reference to any other one is left out. The answer is what the
    /// outputs of the body become. Those that are not `wanted` are absent, and so are nodes that only they need.
    pub fn splice(
        &mut self,
        model: &Model,
        holder: NodeId,
        body: ScopeId,
        inputs: &[Operand],
        attributes: Option<BTreeMap<Str, AttrValue>>,
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Operand>, EditError> {
        let attribute_bodies = attributes.iter().flat_map(|all| all.values()).any(AttrValue::holds_bodies);
        if attribute_bodies {
            return Err(EditError::Body);
        }
        let scope = &model.scopes[body];
        let given = inputs.iter().copied().chain(std::iter::repeat(Operand::Absent));
        let values = scope.inputs.iter().map(|port| port.value).zip(given).collect();
        let index = self.splices.len();
        let earlier = self.splices.iter().find(|splice| splice.body == body);
        let shared = earlier.map(|splice| splice.values.clone()).unwrap_or_default();
        let only = earlier.is_none() && matches!(scope.kind, ScopeKind::Body { .. });
        let mut splice = Splice { body, holder, values, attributes, only };
        if let Some(named) = model.values_in(body).find(|&value| model.values[value].pinned) {
            return Err(EditError::StillRead(model.values[named].name.clone()));
        }
        for (id, constant) in model.constants_in(body) {
            // Every copy of the nodes reads the same constants.
            if let Some(&constant) = shared.get(&id) {
                splice.values.insert(id, constant);
                continue;
            }
            let tensor = constant.dense().ok_or(EditError::Body)?.clone();
            let hint = model.values[id].name.clone();
            self.constants.push(StagedConstant { hint, tensor, copied: Some(id) });
            splice.values.insert(id, Operand::Constant(self.constants.len() - 1));
        }
        let outputs = scope.outputs.iter().enumerate();
        let outputs = outputs.map(|(index, port)| wanted(index).then_some(port.value)).collect::<Vec<_>>();
        let needed = needed(model, body, outputs.iter().copied().flatten());
        for (id, node) in model.nodes_in(body).filter(|(id, _)| needed.contains(id)) {
            let inputs = node.inputs.iter().map(|&input| splice.operand(input)).collect();
            let (captured, bytes) = splice.captured(model, id)?;
            let new = NewNode(self.nodes.len());
            let present = node.outputs.iter().map(Option::is_some).collect();
            let attrs = splice.attrs(&node.attrs);
            let copied = Some(Copied { node: id, splice: index, captured, bytes });
            self.nodes.push(Staged {
                op: node.op.clone(),
                inputs,
                outputs: present,
                attrs,
                copied,
                like: None,
                serves: None,
            });
            let results = node.outputs.iter().enumerate();
            splice.values.extend(results.filter_map(|(index, value)| Some(((*value)?, new.output(index)))));
        }
        let outputs = outputs.into_iter().map(|output| splice.operand(output)).collect();
        self.splices.push(splice);
        Ok(outputs)
    }
}

/// The nodes of a body that these values depend on.
fn needed(model: &Model, body: ScopeId, outputs: impl Iterator<Item = ValueId>) -> HashSet<NodeId> {
    let mut needed = HashSet::new();
    let mut open: Vec<ValueId> = outputs.collect();
    while let Some(value) = open.pop() {
        let Some(node) = model.values[value].node() else { continue };
        if model.nodes[node].scope != body || !needed.insert(node) {
            continue;
        }
        open.extend(model.nodes[node].inputs.iter().flatten());
        let mut bodies: Vec<ScopeId> = model.nodes[node].bodies().collect();
        while let Some(inner) = bodies.pop() {
            open.extend(model.scopes[inner].outputs.iter().map(|port| port.value));
            for (_, node) in model.nodes_in(inner) {
                open.extend(node.inputs.iter().flatten());
                bodies.extend(node.bodies());
            }
        }
    }
    needed
}

impl Splice {
    /// What a node of the body reads afterwards.
    fn operand(&self, value: Option<ValueId>) -> Operand {
        match value {
            Some(value) => self.values.get(&value).copied().unwrap_or(Operand::Value(value)),
            None => Operand::Absent,
        }
    }

    /// What the bodies of a node read of what is outside of them, and the bytes of their constants.
    fn captured(&self, model: &Model, node: NodeId) -> Result<(Vec<Operand>, u64), EditError> {
        let mut bytes = 0u64;
        let mut inside: HashSet<ValueId> = HashSet::new();
        let (mut read, mut given) = (Vec::new(), Vec::new());
        let mut open: Vec<ScopeId> = model.nodes[node].bodies().collect();
        while let Some(scope) = open.pop() {
            if let Some(named) = model.values_in(scope).find(|&value| model.values[value].pinned) {
                return Err(EditError::StillRead(model.values[named].name.clone()));
            }
            inside.extend(model.values_in(scope));
            let constants = model.constants_in(scope).map(|(_, constant)| constant.byte_len());
            bytes = constants.fold(bytes, u64::saturating_add);
            given.extend(model.scopes[scope].outputs.iter().map(|port| port.value));
            for (_, node) in model.nodes_in(scope) {
                read.extend(node.inputs.iter().flatten().copied());
                open.extend(node.bodies());
            }
        }
        given.retain(|value| !inside.contains(value));
        read.retain(|value| !inside.contains(value));
        // An input may be absent, an output must be something.
        if given.iter().any(|&value| self.operand(Some(value)) == Operand::Absent) {
            return Err(EditError::Operand);
        }
        Ok((read.into_iter().chain(given).map(|value| self.operand(Some(value))).collect(), bytes))
    }

    /// The attributes of a copy; bodies are still those of the original.
    fn attrs(&self, attrs: &[Attr]) -> Vec<Attr> {
        let bound = |attr: &Attr| match (&attr.value, &self.attributes) {
            (AttrValue::Reference { name, .. }, Some(given)) => {
                given.get(name).map(|value| Attr::new(attr.name.clone(), value.clone()))
            }
            _ => Some(attr.clone()),
        };
        attrs.iter().filter_map(bound).collect()
    }
}

impl AttrValue {
    fn holds_bodies(&self) -> bool {
        matches!(self, Self::Graph(_) | Self::Graphs(_))
    }
}

impl Model {
    /// Only what a consumed node holds or calls is spliced.
    pub(super) fn check_splices(&self, rewrite: &Rewrite) -> Result<(), EditError> {
        let held = |splice: &Splice| {
            let scope = &self.scopes[splice.body];
            let called = matches!(scope.kind, ScopeKind::Function(_));
            scope.live && (called || scope.holder() == Some(splice.holder))
        };
        let consumed = |splice: &Splice| rewrite.consumed.contains(&splice.holder);
        let right = rewrite.splices.iter().all(|splice| held(splice) && consumed(splice));
        if right { Ok(()) } else { Err(EditError::Body) }
    }

    /// Nothing that stays calls a function that goes.
    pub(super) fn check_functions(
        &self,
        rewrite: &Rewrite,
        gone: &BTreeSet<NodeId>,
    ) -> Result<(), EditError> {
        if rewrite.functions.is_empty() {
            return Ok(());
        }
        let op = |&function: &ScopeId| self.called_as(function).filter(|_| self.scopes[function].live);
        let ops: Option<HashSet<Op>> = rewrite.functions.iter().map(op).collect();
        let ops = ops.ok_or_else(|| EditError::Gone("a function".to_owned()))?;
        match self.nodes().find(|(id, node)| ops.contains(&node.op) && !gone.contains(id)) {
            Some((_, node)) => Err(EditError::Called(node.op.name.clone())),
            None => Ok(()),
        }
    }
}

/// A splice whose bodies are being copied.
struct Copying<'a> {
    splice: &'a Splice,
    rule: &'a Str,
    /// What the values of the body, and of bodies in it, have become.
    values: HashMap<ValueId, Option<ValueId>>,
    free: &'a mut HashSet<Str>,
    /// The nodes of the copied bodies.
    produced: Vec<NodeId>,
}

impl Model {
    /// The node that `staged` is a copy of, as it will stand in `scope`.
    pub(super) fn copied_node(&mut self, rewrite: &Rewrite, staged: &Staged, scope: ScopeId) -> Option<Node> {
        let copied = staged.copied.as_ref()?;
        let splice = &rewrite.splices[copied.splice];
        Some(self.copy_of(copied.node, splice, &rewrite.rule, scope))
    }

    /// The name of a node, if it can have it in `scope` too: runtimes refuse two nodes of one name in a graph.
    fn name_in(&self, id: NodeId, scope: ScopeId) -> Option<Str> {
        let name = self.nodes[id].name.clone()?;
        let clashes = || self.nodes_in(scope).any(|(_, other)| other.name.as_ref() == Some(&name));
        let is_free = name.is_empty() || !self.names.is_repeated_node(&name) || !clashes();
        is_free.then_some(name)
    }

    /// A copy of a node without inputs, outputs and attributes.
    fn copy_of(&mut self, id: NodeId, splice: &Splice, rule: &Str, scope: ScopeId) -> Node {
        let name = self.name_in(id, scope).filter(|_| splice.only);
        let (node, holder) = (&self.nodes[id], &self.nodes[splice.holder]);
        let parents: Box<[OriginId]> = [node.origin, holder.origin].into();
        let metadata = if node.metadata.is_empty() { &holder.metadata } else { &node.metadata };
        Node {
            name,
            metadata: metadata.clone(),
            notes: node.notes.clone(),
            origin: self.origins.intern(Origin::Derived { rule: rule.clone(), parents }),
            ..Node::detached(node.op.clone(), scope, &[], &[])
        }
    }

    /// The value that output `index` of a copied node becomes; `None` where the original has no such output.
    pub(super) fn copied_output(
        &mut self,
        rewrite: &Rewrite,
        copied: &Copied,
        index: usize,
        scope: ScopeId,
        free: &mut HashSet<Str>,
    ) -> Option<ValueId> {
        let original = self.nodes[copied.node].outputs[index]?;
        let value = self.copy_value(original, Def::Removed, &rewrite.splices[copied.splice], free);
        if self.values[value].info.is_some() {
            self.scopes[scope].listed.push(Listed::Value(value));
        }
        Some(value)
    }

    fn copy_value(&mut self, id: ValueId, def: Def, splice: &Splice, free: &mut HashSet<Str>) -> ValueId {
        let original = &self.values[id];
        let info = original.info.clone().filter(|_| splice.only);
        let name = original.name.clone();
        let name = if free.remove(&name) { name } else { self.names.fresh(&name) };
        self.values.push(Value { info, ..Value::new(name, def) })
    }

    /// Gives the copies of nodes with bodies bodies of their own. `nodes` are the nodes that the rewrite staged, which now
    /// stand in the model; the answer is the nodes in the new bodies.
    pub(super) fn copy_bodies(
        &mut self,
        rewrite: &Rewrite,
        nodes: &[NodeId],
        constants: &[Option<ValueId>],
        results: &[Vec<Option<ValueId>>],
        free: &mut HashSet<Str>,
    ) -> Vec<NodeId> {
        let become_value = |operand: &Operand| match *operand {
            Operand::Value(value) => Some(value),
            Operand::Output(NewNode(node), index) => results[node][index],
            Operand::Constant(index) => constants[index],
            Operand::Absent => None,
        };
        let mut produced = Vec::new();
        for (staged, &id) in rewrite.nodes.iter().zip(nodes) {
            let Some(copied) = &staged.copied else { continue };
            if self.nodes[id].bodies().next().is_none() {
                continue;
            }
            let splice = &rewrite.splices[copied.splice];
            let values = splice.values.iter().map(|(&value, by)| (value, become_value(by))).collect();
            let mut copying = Copying { splice, rule: &rewrite.rule, values, free, produced };
            self.own_bodies(id, &mut copying);
            produced = copying.produced;
        }
        produced
    }

    /// Replaces the bodies of a node, which belong to its original, by copies.
    fn own_bodies(&mut self, id: NodeId, copying: &mut Copying<'_>) {
        let mut attrs = std::mem::take(&mut self.nodes[id].attrs);
        for attr in &mut attrs {
            match &mut attr.value {
                AttrValue::Graph(body) => *body = self.copy_body(*body, id, copying),
                AttrValue::Graphs(bodies) => {
                    bodies.iter_mut().for_each(|body| *body = self.copy_body(*body, id, copying));
                }
                _ => {}
            }
        }
        self.nodes[id].attrs = attrs;
    }

    fn copy_body(&mut self, body: ScopeId, holder: NodeId, copying: &mut Copying<'_>) -> ScopeId {
        let original = self.scopes[body].clone();
        let kind = match original.kind {
            ScopeKind::Body { rest, .. } => ScopeKind::Body { node: holder, rest },
            other => other,
        };
        let scope = self.scopes.push(Scope::new(kind, Some(self.nodes[holder].scope)));
        for port in original.inputs {
            let default = match &self.values[port.value].def {
                Def::Input { default, .. } => default.clone(),
                _ => None,
            };
            let value = self.copy_into(port.value, Def::Input { scope, default }, copying);
            self.scopes[scope].inputs.push(Port { value, info: port.info });
        }
        for id in original.constants {
            let value = match self.values[id].def.clone() {
                Def::Constant { scope: of, constant, origin } if of == body => {
                    self.copy_into(id, Def::Constant { scope, constant, origin }, copying)
                }
                Def::Input { scope: of, default: Some(_) } if of == body => copying.value(id).unwrap_or(id),
                _ => continue,
            };
            self.scopes[scope].constants.push(value);
        }
        let nodes: Vec<NodeId> = self.nodes_in(body).map(|(id, _)| id).collect();
        let mut last = None;
        for id in nodes {
            let new = self.copy_of(id, copying.splice, copying.rule, scope);
            let (inputs, outputs) = (self.nodes[id].inputs.clone(), self.nodes[id].outputs.clone());
            let attrs = copying.splice.attrs(&self.nodes[id].attrs);
            let inputs =
                inputs.into_iter().map(|input| input.and_then(|value| copying.value(value))).collect();
            let outputs = outputs
                .into_iter()
                .map(|output| output.map(|output| self.copy_into(output, Def::Removed, copying)))
                .collect();
            let id = self.add_node(Node { inputs, outputs, attrs, ..new }, last);
            copying.produced.push(id);
            self.own_bodies(id, copying);
            last = Some(id);
        }
        for (index, port) in original.outputs.into_iter().enumerate() {
            let value = copying.value(port.value).unwrap_or(port.value);
            self.scopes[scope].outputs.push(Port { value, info: port.info });
            self.add_use(value, Use::Output { scope, index: index as u32 });
        }
        for listed in original.listed {
            if let Listed::Value(value) = listed
                && let Some(&Some(copy)) = copying.values.get(&value)
                && self.values[copy].info.is_some()
            {
                self.scopes[scope].listed.push(Listed::Value(copy));
            }
        }
        scope
    }

    fn copy_into(&mut self, id: ValueId, def: Def, copying: &mut Copying<'_>) -> ValueId {
        let value = self.copy_value(id, def, copying.splice, copying.free);
        copying.values.insert(id, Some(value));
        value
    }
}

impl Copying<'_> {
    fn value(&self, value: ValueId) -> Option<ValueId> {
        self.values.get(&value).copied().unwrap_or(Some(value))
    }
}
