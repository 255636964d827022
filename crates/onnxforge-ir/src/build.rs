//! Making a model from a file: the one place where nodes appear without consuming others.

use std::collections::{BinaryHeap, HashMap};

use super::edit::ORDER_STEP;
use super::id::{Arena, NodeId, ScopeId, ValueId};
use super::mended::Mend;
use super::model::Model;
use super::names::Names;
use super::node::{Attr, Node, NodeNotes, Op};
use super::origin::{Origin, Origins};
use super::scope::{Listed, Scope, ScopeKind};
use super::value::{Constant, Def, Port, Use, Value};
use onnxforge_proto::Str;
use onnxforge_proto::schema::{GraphProto, ModelProto, StringStringEntryProto, ValueInfoProto};

/// The parts of a node that come from the file.
pub(crate) struct SourceNode {
    pub op: Op,
    pub name: Option<Str>,
    pub inputs: Vec<Option<ValueId>>,
    pub outputs: Vec<Option<ValueId>>,
    pub metadata: Vec<StringStringEntryProto>,
    pub notes: NodeNotes,
}

/// Nodes of a scope that wait for each other.
#[derive(Debug)]
pub(crate) struct Cycle {
    /// What to call the nodes on the cycle, each reading from the one before.
    pub nodes: Vec<String>,
}

/// A model under construction.
pub(crate) struct Builder {
    model: Model,
}

impl Builder {
    /// Starts with the outermost message, whose graph and functions were taken out.
    pub fn new(header: ModelProto, graph: GraphProto) -> Self {
        let mut scopes = Arena::default();
        let main = scopes.push(Scope::new(ScopeKind::Main(Box::new(graph)), None));
        let model = Model {
            header,
            nodes: Arena::default(),
            values: Arena::default(),
            scopes,
            main,
            functions: Vec::new(),
            origins: Origins::default(),
            journal: Vec::new(),
            names: Names::default(),
            source: None,
            source_nodes: 0,
            mended: Vec::new(),
        };
        Self { model }
    }

    pub fn main(&self) -> ScopeId {
        self.model.main
    }

    pub fn scope(&mut self, kind: ScopeKind, parent: Option<ScopeId>) -> ScopeId {
        let function = matches!(kind, ScopeKind::Function(_));
        let id = self.model.scopes.push(Scope::new(kind, parent));
        if function {
            self.model.functions.push(id);
        }
        id
    }

    fn value(&mut self, name: Str, def: Def) -> ValueId {
        self.model.names.take(name.clone());
        self.model.values.push(Value::new(name, def))
    }

    pub fn input(&mut self, scope: ScopeId, name: Str, info: ValueInfoProto) -> ValueId {
        let value = self.value(name, Def::Input { scope, default: None });
        self.model.scopes[scope].inputs.push(Port { value, info: Box::new(info) });
        value
    }

    pub fn constant(&mut self, scope: ScopeId, name: Str, constant: Constant) -> ValueId {
        let value = self.value(name, Def::Constant { scope, constant, origin: None });
        self.model.scopes[scope].constants.push(value);
        value
    }

    /// Gives an input a default. `false`: it has one already, or is no input.
    pub fn default(&mut self, scope: ScopeId, value: ValueId, constant: Constant) -> bool {
        match &mut self.model.values[value].def {
            Def::Input { default: default @ None, .. } => {
                *default = Some(constant);
                self.model.scopes[scope].constants.push(value);
                true
            }
            _ => false,
        }
    }

    /// A value whose node is not made yet.
    pub fn pending(&mut self, name: Str) -> ValueId {
        self.value(name, Def::Removed)
    }

    pub fn node(&mut self, scope: ScopeId, source: SourceNode) -> NodeId {
        let model = &mut self.model;
        let last = model.scopes[scope].last;
        let order = last.map_or(0, |last| model.nodes[last].order) + ORDER_STEP;
        let SourceNode { op, name, inputs, outputs, metadata, notes } = source;
        if let Some(name) = name.as_ref().filter(|name| !name.is_empty()) {
            model.names.take_node(name.clone());
        }
        let id = model.nodes.push(Node {
            op,
            scope,
            name,
            slots: vec![0; inputs.len()],
            inputs,
            outputs,
            attrs: Vec::new(),
            metadata,
            notes: (notes != NodeNotes::default()).then(|| Box::new(notes)),
            // The arena hands out ids in order, so the node's own id is known only now.
            origin: model.origins.intern(Origin::Source(next_id(&model.nodes))),
            previous: last,
            next: None,
            order,
            live: true,
        });
        match last {
            Some(last) => model.nodes[last].next = Some(id),
            None => model.scopes[scope].first = Some(id),
        }
        model.scopes[scope].last = Some(id);
        model.scopes[scope].node_count += 1;
        for index in 0..model.nodes[id].inputs.len() {
            if let Some(value) = model.nodes[id].inputs[index] {
                model.add_use(value, Use::Input { node: id, index: index as u32 });
            }
        }
        for index in 0..model.nodes[id].outputs.len() {
            if let Some(value) = model.nodes[id].outputs[index] {
                model.values[value].def = Def::Node { node: id, index: index as u32 };
            }
        }
        id
    }

    pub fn attr(&mut self, node: NodeId, attr: Attr) {
        self.model.nodes[node].attrs.push(attr);
    }

    pub fn output(&mut self, scope: ScopeId, value: ValueId, info: ValueInfoProto) {
        let index = self.model.scopes[scope].outputs.len() as u32;
        self.model.scopes[scope].outputs.push(Port { value, info: Box::new(info) });
        self.model.add_use(value, Use::Output { scope, index });
    }

    pub fn pin(&mut self, value: ValueId) {
        self.model.values[value].pinned = true;
    }

    /// Lists a declaration; it is attached to `value` unless that has one.
    pub fn info(&mut self, scope: ScopeId, value: Option<ValueId>, info: ValueInfoProto) {
        let listed = match value {
            Some(id) if self.model.values[id].info.is_none() => {
                self.model.values[id].info = Some(Box::new(info));
                Listed::Value(id)
            }
            _ => {
                self.model.names.take(info.name.clone().unwrap_or_default());
                Listed::Stray(Box::new(info))
            }
        };
        self.model.scopes[scope].listed.push(listed);
    }

    /// The model, whose scopes are in topological order already.
    pub fn finish_sorted(mut self) -> Model {
        self.model.source_nodes = self.model.nodes.len();
        self.model
    }

    /// Brings every scope into topological order, keeping the file's order wherever it is one.
    pub fn finish(mut self) -> Result<Model, Cycle> {
        self.model.source_nodes = self.model.nodes.len();
        let scopes: Vec<ScopeId> = self.model.scopes().map(|(id, _)| id).collect();
        for scope in scopes {
            sort(&mut self.model, scope)?;
        }
        Ok(self.model)
    }
}

fn label(node: &Node) -> String {
    match &node.name {
        Some(name) if !name.is_empty() => format!("{name} ({})", node.op),
        _ => node.op.to_string(),
    }
}

fn next_id(nodes: &Arena<NodeId, Node>) -> NodeId {
    super::id::Id::from_index(u32::try_from(nodes.len()).unwrap_or(u32::MAX))
}

/// The nodes of the same scope that `node` reads from, its bodies included.
fn producers(model: &Model, node: NodeId) -> Vec<NodeId> {
    let scope = model.nodes[node].scope;
    let producer =
        |value: ValueId| model.values[value].node().filter(|&from| model.nodes[from].scope == scope);
    model.reads(node).into_iter().filter_map(producer).collect()
}

fn sort(model: &mut Model, scope: ScopeId) -> Result<(), Cycle> {
    let nodes: Vec<NodeId> = model.nodes_in(scope).map(|(id, _)| id).collect();
    let producers: Vec<Vec<NodeId>> = nodes.iter().map(|&node| producers(model, node)).collect();
    let sorted = nodes.iter().zip(&producers).all(|(&node, from)| {
        from.iter().all(|&producer| model.nodes[producer].order < model.nodes[node].order)
    });
    if sorted {
        return Ok(());
    }
    let position: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, &node)| (node, i)).collect();
    let mut waiting = vec![0usize; nodes.len()];
    let mut readers = vec![Vec::new(); nodes.len()];
    for (i, from) in producers.iter().enumerate() {
        for producer in from.iter().filter_map(|producer| position.get(producer)) {
            waiting[i] += 1;
            readers[*producer].push(i);
        }
    }
    // Of the nodes that can come next, the one that stands first in the file.
    let mut ready: BinaryHeap<std::cmp::Reverse<usize>> =
        (0..nodes.len()).filter(|&i| waiting[i] == 0).map(std::cmp::Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(std::cmp::Reverse(i)) = ready.pop() {
        order.push(nodes[i]);
        for &reader in &readers[i] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push(std::cmp::Reverse(reader));
            }
        }
    }
    if order.len() < nodes.len() {
        // Every node that still waits has a producer that still waits: walking back must come round.
        let mut walk: Vec<usize> = Vec::new();
        let mut seen: HashMap<usize, usize> = HashMap::new();
        let mut at = (0..nodes.len()).find(|&i| waiting[i] > 0);
        while let Some(i) = at {
            if let Some(start) = seen.insert(i, walk.len()) {
                walk.drain(..start);
                break;
            }
            walk.push(i);
            at = producers[i].iter().filter_map(|p| position.get(p).copied()).find(|&p| waiting[p] > 0);
        }
        walk.reverse();
        return Err(Cycle { nodes: walk.into_iter().map(|i| label(&model.nodes[nodes[i]])).collect() });
    }
    for (i, &node) in order.iter().enumerate() {
        let entry = &mut model.nodes[node];
        entry.previous = i.checked_sub(1).map(|previous| order[previous]);
        entry.next = order.get(i + 1).copied();
        entry.order = (i as u64 + 1) * ORDER_STEP;
    }
    let scope = &mut model.scopes[scope];
    scope.first = order.first().copied();
    scope.last = order.last().copied();
    let graph = scope.name().map_or_else(String::new, ToString::to_string);
    model.mended.push(Mend::Sorted { graph });
    Ok(())
}
