//! The model: one arena for all scopes, read here, changed only by [`super::edit`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::id::{Arena, Id, NodeId, OriginId, ScopeId, ValueId};
use super::journal::Entry;
use super::mended::Mend;
use super::names::Names;
use super::node::{Node, Op, normal_domain};
use super::origin::{Fate, Origin, Origins};
use super::scope::{Scope, ScopeKind};
use super::tensor::{Data, Tensor};
use super::types::Type;
use super::value::{Constant, Def, Use, Value};
use onnxforge_proto::Str;
use onnxforge_proto::mmap::MappedFile;
use onnxforge_proto::schema::{ModelProto, OperatorSetIdProto};

/// A model. Values are stable, nodes are replaceable, ids are never used again.
#[derive(Clone, Debug)]
pub struct Model {
    /// What the IR does not model; its graph and functions are empty.
    pub(super) header: ModelProto,
    pub(super) nodes: Arena<NodeId, Node>,
    pub(super) values: Arena<ValueId, Value>,
    pub(super) scopes: Arena<ScopeId, Scope>,
    pub(super) main: ScopeId,
    pub(super) functions: Vec<ScopeId>,
    pub(super) origins: Origins,
    pub(super) journal: Vec<Entry>,
    pub(super) names: Names,
    /// The file that it was loaded from.
    pub(super) source: Option<std::path::PathBuf>,
    /// Number of nodes that came from the file; they are the first ones of the arena.
    pub(super) source_nodes: usize,
    /// What was mended when it was loaded.
    pub(super) mended: Vec<Mend>,
}

impl Model {
    /// The fields of the file's outermost message, without graph and functions.
    pub fn header(&self) -> &ModelProto {
        &self.header
    }

    /// The file that the model was loaded from, if any.
    pub fn source(&self) -> Option<&std::path::Path> {
        self.source.as_deref()
    }

    /// What the file says otherwise than the standard asks for, and was mended when the model was loaded.
    pub fn mended(&self) -> &[Mend] {
        &self.mended
    }

    /// Notes something else that was mended, and logs it.
    pub fn note_mended(&mut self, mended: Mend) {
        let source = self.source.as_deref().unwrap_or_else(|| std::path::Path::new("<bytes>"));
        tracing::warn!("{}: {mended}", source.display());
        self.mended.push(mended);
    }

    pub(crate) fn set_source(&mut self, path: &std::path::Path) {
        self.source = Some(path.to_owned());
    }

    /// The scope of the model's graph.
    pub fn main(&self) -> ScopeId {
        self.main
    }

    /// The scopes of local functions in file order.
    pub fn functions(&self) -> &[ScopeId] {
        &self.functions
    }

    /// What a node has to call to call this function; `None` for a scope that is no function.
    pub fn called_as(&self, function: ScopeId) -> Option<Op> {
        let ScopeKind::Function(rest) = &self.scopes[function].kind else { return None };
        let text = |field: &Option<Str>| field.clone().unwrap_or_default();
        Some(Op { overload: text(&rest.overload), ..Op::new(&text(&rest.domain), &text(&rest.name)) })
    }

    /// Every scope that is part of the model.
    pub fn scopes(&self) -> impl Iterator<Item = (ScopeId, &Scope)> {
        self.scopes.iter().filter(|(_, scope)| scope.live)
    }

    /// A scope.
    pub fn scope(&self, id: ScopeId) -> &Scope {
        &self.scopes[id]
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// How errors name a node: its operator and its name, or its first output where it has none.
    pub fn node_label(&self, id: NodeId) -> String {
        let node = &self.nodes[id];
        let output = || node.outputs().iter().flatten().next().map(|&id| &self.values[id].name);
        let name = node.name().filter(|name| !name.is_empty()).or_else(output);
        name.map_or_else(|| node.op().to_string(), |name| format!("{} {name}", node.op()))
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id]
    }

    /// Whether there is, or was, a value of this id.
    pub fn has_value(&self, id: ValueId) -> bool {
        id.index() < self.values.len()
    }

    /// Every value that is part of the model.
    pub fn values(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.values.iter().filter(|(_, value)| value.is_live())
    }

    /// The nodes of a scope in topological order.
    pub fn nodes_in(&self, scope: ScopeId) -> impl Iterator<Item = (NodeId, &Node)> {
        let mut next = self.scopes[scope].first;
        std::iter::from_fn(move || {
            let id = next?;
            let node = &self.nodes[id];
            next = node.next;
            Some((id, node))
        })
    }

    /// Every node that is part of the model, scope by scope.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.scopes().flat_map(|(scope, _)| self.nodes_in(scope))
    }

    /// How often each operator is called, bodies and functions included.
    pub fn operator_counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (_, node) in self.nodes() {
            *counts.entry(node.op().to_string()).or_default() += 1;
        }
        counts
    }

    /// Number of nodes in the whole model, bodies and functions included.
    pub fn node_count(&self) -> usize {
        self.scopes().map(|(_, scope)| scope.node_count).sum()
    }

    /// The constants of a scope that are not defaults of inputs, in file order.
    pub fn constants_in(&self, scope: ScopeId) -> impl Iterator<Item = (ValueId, &Constant)> {
        self.scopes[scope].constants.iter().filter_map(move |&id| match &self.values[id].def {
            Def::Constant { scope: of, constant, .. } if *of == scope => Some((id, constant)),
            _ => None,
        })
    }

    /// The stored tensors of a scope: constants and defaults of inputs, in file order.
    pub fn initializers_in(&self, scope: ScopeId) -> impl Iterator<Item = (ValueId, &Constant)> {
        self.scopes[scope].constants.iter().filter_map(move |&id| match &self.values[id].def {
            Def::Constant { scope: of, constant, .. } | Def::Input { scope: of, default: Some(constant) }
                if *of == scope =>
            {
                Some((id, constant))
            }
            _ => None,
        })
    }

    /// Every dense tensor of the model with the value it belongs to, attributes of nodes not included.
    pub fn initializers(&self) -> impl Iterator<Item = (ValueId, &Constant)> {
        self.scopes().flat_map(|(scope, _)| self.initializers_in(scope))
    }

    /// Bytes of all stored tensors, attributes of nodes not included.
    pub fn stored_bytes(&self) -> u64 {
        self.initializers().fold(0, |sum, (_, constant)| sum.saturating_add(constant.byte_len()))
    }

    /// Says that no weights will be read for some time; see [`MappedFile::was_read`].
    pub fn weights_were_read(&self) {
        let mut last: Option<&Arc<MappedFile>> = None;
        for (_, constant) in self.initializers() {
            let Some(Data::Bytes(blob)) = constant.dense().map(Tensor::data) else { continue };
            let file = blob.place().map(|(file, _)| file);
            // Weights of one file stand one after the other.
            if let Some(file) = file.filter(|file| !last.is_some_and(|last| Arc::ptr_eq(last, file))) {
                file.was_read();
                last = Some(file);
            }
        }
    }

    /// The dense constant that a value always is. Before IR version 4 every constant had to be listed as an input
    /// too, and nobody could override it.
    pub fn constant(&self, id: ValueId) -> Option<&Tensor> {
        match &self.values[id].def {
            Def::Constant { constant, .. } => constant.dense(),
            Def::Input { scope, default: Some(constant) }
                if *scope == self.main && self.header.ir_version.unwrap_or(0) < 4 =>
            {
                constant.dense()
            }
            _ => None,
        }
    }

    /// The scope in which a value is defined.
    pub fn scope_of(&self, id: ValueId) -> Option<ScopeId> {
        match &self.values[id].def {
            Def::Input { scope, .. } | Def::Constant { scope, .. } => Some(*scope),
            Def::Node { node, .. } => Some(self.nodes[*node].scope),
            Def::Removed => None,
        }
    }

    /// What is declared of a value, by its port or by `value_info`.
    pub fn declared_type(&self, id: ValueId) -> Type {
        let value = &self.values[id];
        let port = |ports: &[super::value::Port]| {
            ports.iter().find(|port| port.value == id).map_or(Type::Unknown, super::value::Port::declared)
        };
        let by_port = match value.def {
            Def::Input { scope, .. } => port(&self.scopes[scope].inputs),
            _ => value
                .uses
                .iter()
                .find_map(|used| match used {
                    Use::Output { scope, index } => self.scopes[*scope].outputs.get(*index as usize),
                    _ => None,
                })
                .map_or(Type::Unknown, super::value::Port::declared),
        };
        match (by_port, &value.info) {
            (Type::Unknown, Some(info)) => info.r#type.as_deref().map_or(Type::Unknown, Type::from),
            (known, _) => known,
        }
    }

    /// The outermost scope around a scope: a function, or the graph of the model.
    pub fn root_of(&self, mut scope: ScopeId) -> ScopeId {
        while let Some(parent) = self.scopes[scope].parent {
            scope = parent;
        }
        scope
    }

    /// A scope and every body in it, at any depth.
    pub fn scopes_within(&self, root: ScopeId) -> Vec<ScopeId> {
        let mut found = vec![root];
        let mut next = 0;
        while let Some(&scope) = found.get(next) {
            found.extend(self.nodes_in(scope).flat_map(|(_, node)| node.bodies()));
            next += 1;
        }
        found
    }

    /// The operator sets that hold in a scope: those of the function, or of the model.
    pub fn opset_imports(&self, scope: ScopeId) -> &[OperatorSetIdProto] {
        match &self.scopes[self.root_of(scope)].kind {
            ScopeKind::Function(rest) => &rest.opset_import,
            _ => &self.header.opset_import,
        }
    }

    /// The version of `domain` that holds in a scope.
    pub fn opset(&self, scope: ScopeId, domain: &str) -> Option<i64> {
        let domain = normal_domain(domain);
        self.opset_imports(scope)
            .iter()
            .find(|import| normal_domain(import.domain.as_deref().unwrap_or_default()) == domain)
            .map(|import| import.version.unwrap_or(0))
    }

    /// Everything that was done to the model since it was loaded.
    pub fn journal(&self) -> &[Entry] {
        &self.journal
    }

    /// All origins.
    pub fn origins(&self) -> &Origins {
        &self.origins
    }

    /// The nodes that stood in the file, whether or not they are still there.
    pub fn source_nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.source_nodes as u32).map(NodeId::from_index)
    }

    /// What became of every node of the file. Total: each one has exactly one fate.
    pub fn fates(&self) -> Vec<(NodeId, Fate)> {
        let mut merged: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        let mut folded: HashMap<NodeId, Vec<ValueId>> = HashMap::new();
        let mut sources: HashMap<OriginId, Vec<NodeId>> = HashMap::new();
        let mut sources_of =
            |id: OriginId| sources.entry(id).or_insert_with(|| self.origins.sources(id)).clone();
        for (id, node) in self.nodes() {
            if matches!(self.origins.get(node.origin), Origin::Derived { .. }) {
                for source in sources_of(node.origin) {
                    merged.entry(source).or_default().push(id);
                }
            }
        }
        for (id, value) in self.values() {
            if let Def::Constant { origin: Some(origin), .. } = value.def {
                for source in sources_of(origin) {
                    folded.entry(source).or_default().push(id);
                }
            }
        }
        self.source_nodes()
            .map(|id| {
                let fate = if self.nodes[id].live {
                    Fate::Kept
                } else if let Some(nodes) = merged.remove(&id) {
                    Fate::Merged(nodes)
                } else if let Some(values) = folded.remove(&id) {
                    Fate::Folded(values)
                } else {
                    Fate::Dead
                };
                (id, fate)
            })
            .collect()
    }

    /// A node that goes back to no node of the file. There is none: whoever makes a node says what it consumes.
    pub fn unaccounted(&self) -> Option<NodeId> {
        let nowhere = |node: &Node| self.origins.sources(node.origin).is_empty();
        self.nodes().find(|(_, node)| nowhere(node)).map(|(id, _)| id)
    }

    /// Where in `scope` something happens that happens in `inner`: the node of `scope` that holds `inner`.
    /// `None`: `inner` is `scope` itself. `Err`: `inner` does not lie in `scope`.
    pub(super) fn holder_within(&self, scope: ScopeId, inner: ScopeId) -> Result<Option<NodeId>, NotInside> {
        let mut holder = None;
        let mut current = inner;
        while current != scope {
            let entered = &self.scopes[current];
            holder = entered.holder();
            current = entered.parent.ok_or(NotInside)?;
        }
        Ok(holder)
    }

    /// Whether a node comes before another one of the same scope.
    pub fn is_before(&self, first: NodeId, second: NodeId) -> bool {
        self.nodes[first].scope == self.nodes[second].scope
            && self.nodes[first].order < self.nodes[second].order
    }

    /// The node that reads a value by this use: itself, or the one that holds the body whose output it is. None reads an output of the model or
    /// of a function.
    pub fn reader(&self, used: &Use) -> Option<NodeId> {
        match *used {
            Use::Input { node, .. } => Some(node),
            Use::Output { scope, .. } => self.scopes[scope].holder(),
        }
    }

    /// What a node reads: its inputs, and everything that its bodies read or hand on, their own values included.
    pub fn reads(&self, node: NodeId) -> Vec<ValueId> {
        let mut found: Vec<ValueId> = self.nodes[node].inputs.iter().flatten().copied().collect();
        let mut open: Vec<ScopeId> = self.nodes[node].bodies().collect();
        while let Some(body) = open.pop() {
            found.extend(self.scopes[body].outputs.iter().map(|port| port.value));
            for (_, inner) in self.nodes_in(body) {
                found.extend(inner.inputs.iter().flatten());
                open.extend(inner.bodies());
            }
        }
        found
    }

    /// Every node in the bodies of `node`, at any depth.
    pub fn nodes_inside(&self, node: NodeId) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut open: Vec<ScopeId> = self.nodes[node].bodies().collect();
        while let Some(scope) = open.pop() {
            for (id, inner) in self.nodes_in(scope) {
                found.push(id);
                open.extend(inner.bodies());
            }
        }
        found
    }
}

/// A scope does not lie in another one.
#[derive(Debug)]
pub(super) struct NotInside;
