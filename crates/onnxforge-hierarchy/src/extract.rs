//! One module as a model of its own.
//!
//! What is cut out are the nodes that come from the module or from something inside of it, with constants, called functions and whatever computes
//! from constants alone. What they read besides becomes an input; what others read of theirs becomes an output.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};

use serde::Serialize;

use super::Hierarchy;
use super::effect::nodes_of_modules;
use super::module::{ModuleId, is_inside};
use super::store::names;
use onnxforge_ir::cut::Cut;
use onnxforge_ir::value::{Port, Use};
use onnxforge_ir::{Model, NodeId, ScopeId, ValueId};
use onnxforge_ops::callee::{Functions, constant_nodes};
use onnxforge_ops::infer::Inference;
use onnxforge_proto::schema::ValueInfoProto;

/// Why a module cannot be cut out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    /// It left nothing in the graph.
    #[error("module {path:?} has no nodes: {why}")]
    NoNodes {
        /// The module.
        path: String,
        /// What became of it.
        why: String,
    },
    /// Its nodes stand in bodies that do not see each other.
    #[error(
        "the nodes of module {path:?} stand in {bodies} bodies of control flow; extract the module around them"
    )]
    Bodies {
        /// The module.
        path: String,
        /// In how many.
        bodies: usize,
    },
    /// It is not called so often, or calls cannot be told apart.
    #[error("module {path:?} has no call {call}: {calls} found, counted from 0")]
    NoCall {
        /// The module.
        path: String,
        /// The call that was asked for.
        call: usize,
        /// How many there are.
        calls: usize,
    },
}

/// A module that was cut out.
#[derive(Debug)]
pub struct Extraction {
    /// The part, and what its ends are in the whole.
    pub cut: Cut,
    /// What it has to do with the rest.
    pub boundary: Boundary,
}

/// What a part has to do with the rest of the model.
#[derive(Clone, Debug, Serialize)]
pub struct Boundary {
    /// The module's path.
    pub module: String,
    /// Nodes of the part.
    pub nodes: usize,
    /// Those of them that belong to others and compute from constants alone.
    pub feeders: usize,
    /// What it takes, and the modules that make it; none make what the model itself takes.
    pub inputs: Vec<End>,
    /// What it gives, and the modules that read it.
    pub outputs: Vec<End>,
    /// Names of the nodes of the part, in their order; where nodes of the model share a name, their places.
    pub operations: Vec<String>,
    /// Names of the inputs.
    pub external_inputs: Vec<String>,
    /// Names of what its nodes compute for each other alone.
    pub internal_tensors: Vec<String>,
    /// Names of the nodes of the part that read an input, or compute an output.
    pub boundary_operations: Vec<String>,
    /// Nodes that come from modules outside of it, too.
    pub shared: Vec<Shared>,
    /// How often the module is called, as far as repeated nodes tell.
    pub calls: usize,
    /// Nodes of the module that stand in bodies of other nodes and were left out.
    pub left_out: usize,
}

/// Values at one side of a part, with the modules on the other side.
pub type Ends = Vec<(ValueId, Vec<ModuleId>)>;

/// An end of a part.
#[derive(Clone, Debug, Serialize)]
pub struct End {
    /// The value.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: String,
    /// Paths of the modules on the other side.
    pub modules: Vec<String>,
}

/// A node with several origins.
#[derive(Clone, Debug, Serialize)]
pub struct Shared {
    /// The node.
    pub node: String,
    /// Paths of the modules outside that it comes from, too.
    pub with: Vec<String>,
}

/// Cuts modules out of a model.
pub struct Extractor<'m> {
    model: &'m Model,
    hierarchy: &'m Hierarchy,
    facts: &'m Inference,
    /// Nodes that compute from constants alone.
    constant: HashSet<NodeId>,
    /// Modules whose parameters the file has.
    stored: HashSet<ModuleId>,
    /// How often nodes come from each module, or from something inside of it.
    counts: Vec<usize>,
    /// Names that tell nodes apart.
    names: HashMap<NodeId, String>,
}

impl<'m> Extractor<'m> {
    /// For this model.
    pub fn new(model: &'m Model, hierarchy: &'m Hierarchy, facts: &'m Inference) -> Self {
        let origins = model.nodes().flat_map(|(id, _)| hierarchy.origin(id).modules.iter().copied());
        let counts = nodes_of_modules(hierarchy.table(), origins);
        Self {
            model,
            hierarchy,
            facts,
            constant: constant_nodes(model),
            stored: hierarchy.stored(model),
            counts,
            names: names(model),
        }
    }

    /// What a module takes and gives, with the modules on the other side; nothing for one that cannot be cut out.
    pub fn ends(&self, path: &str) -> Option<[Ends; 2]> {
        let (scope, core, _) = self.core(path).ok()?;
        let outputs = self.outputs(scope, &core);
        let (nodes, _) = self.needed(&core, &outputs);
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let mut seen = HashSet::new();
        let read = nodes.iter().flat_map(|&node| self.model.reads(node));
        let is_given = |value: &ValueId| {
            let made = self.model.value(*value).node().is_some_and(|by| self.stands_among(by, &inside));
            let own =
                self.model.scope_of(*value).is_some_and(|of| of != scope && self.held_among(of, &inside));
            !made && !own && self.model.constant(*value).is_none()
        };
        let inputs: Vec<ValueId> = read.filter(|value| is_given(value) && seen.insert(*value)).collect();
        let inputs = inputs.into_iter().map(|value| (value, self.makers(value))).collect();
        Some([inputs, outputs.into_iter().map(|value| (value, self.readers(value, &inside))).collect()])
    }

    /// Whether a node is one of these, or stands in a body of one of them.
    fn stands_among(&self, node: NodeId, nodes: &HashSet<NodeId>) -> bool {
        nodes.contains(&node) || self.held_among(self.model.node(node).scope(), nodes)
    }

    /// Whether a scope is a body of one of these nodes, at any depth.
    fn held_among(&self, mut scope: ScopeId, nodes: &HashSet<NodeId>) -> bool {
        while let Some(holder) = self.model.scope(scope).holder() {
            if nodes.contains(&holder) {
                return true;
            }
            scope = self.model.node(holder).scope();
        }
        false
    }

    /// The modules that make a value.
    fn makers(&self, value: ValueId) -> Vec<ModuleId> {
        let by = self.model.value(value).node();
        by.map(|by| self.hierarchy.origin(by).modules.clone()).unwrap_or_default()
    }

    /// The modules outside of these nodes that read a value.
    fn readers(&self, value: ValueId, inside: &HashSet<NodeId>) -> Vec<ModuleId> {
        let readers = self.model.value(value).uses().iter().filter_map(|used| self.model.reader(used));
        let readers = readers.filter(|&reader| !self.stands_among(reader, inside));
        let mut seen = HashSet::new();
        readers
            .map(|reader| self.hierarchy.origin(reader).primary())
            .filter(|&module| seen.insert(module))
            .collect()
    }

    /// The module of a path, or one of its calls.
    pub fn extract(&self, path: &str, call: Option<usize>) -> Result<Extraction, ExtractError> {
        let (scope, mut core, left_out) = self.core(path)?;
        let calls = self.calls(scope, &core);
        if let Some(call) = call {
            let wanted = calls.get(call).ok_or(ExtractError::NoCall {
                path: path.to_owned(),
                call,
                calls: calls.len(),
            })?;
            core.retain(|node| wanted.contains(node) || self.constant.contains(node));
        }
        let outputs = self.outputs(scope, &core);
        let (nodes, feeders) = self.needed(&core, &outputs);
        let declare = |value: ValueId| self.declaration(value);
        let mut cut = self.model.cut(&nodes, &outputs, &declare);
        cut.model.name_graph(if path.is_empty() { "model" } else { path });
        let boundary = self.boundary(path, &cut, &nodes, feeders, calls.len(), left_out);
        Ok(Extraction { cut, boundary })
    }

    /// The scope that the nodes of a module stand in, those nodes, and how many stand elsewhere.
    fn core(&self, path: &str) -> Result<(ScopeId, BTreeSet<NodeId>, usize), ExtractError> {
        if self.hierarchy.table().find(path).is_some_and(|id| self.counts[id.index()] == 0) {
            return Err(self.without_nodes(path));
        }
        let comes_from = |id: NodeId| {
            let modules = &self.hierarchy.origin(id).modules;
            modules.iter().any(|&module| is_inside(&self.hierarchy.table().get(module).path, path))
        };
        let mut by_scope: HashMap<ScopeId, BTreeSet<NodeId>> = HashMap::new();
        for (scope, _) in self.model.scopes() {
            let nodes: BTreeSet<NodeId> =
                self.model.nodes_in(scope).map(|(id, _)| id).filter(|&id| comes_from(id)).collect();
            if !nodes.is_empty() {
                by_scope.insert(scope, nodes);
            }
        }
        // Bodies come with the nodes that hold them.
        let all: HashSet<NodeId> = by_scope.values().flatten().copied().collect();
        // So do functions with the nodes that call them.
        let main = self.model.main();
        let own = by_scope.iter().filter(|(scope, _)| self.model.root_of(**scope) == main);
        let called = self.called(own.flat_map(|(_, nodes)| nodes.iter().copied()).collect());
        let comes_along =
            |scope: ScopeId| self.held_among(scope, &all) || called.contains(&self.model.root_of(scope));
        let mut free: Vec<ScopeId> = by_scope.keys().copied().filter(|&scope| !comes_along(scope)).collect();
        free.sort();
        let count = |scope: &ScopeId| by_scope[scope].len();
        let place = match free.as_slice() {
            [] => return Err(self.without_nodes(path)),
            _ if free.contains(&main) => main,
            [one] => *one,
            several => return Err(ExtractError::Bodies { path: path.to_owned(), bodies: several.len() }),
        };
        let left_out = free.iter().filter(|&&scope| scope != place).map(count).sum();
        Ok((place, by_scope[&place].clone(), left_out))
    }

    /// The functions that these nodes call, with those that these call in turn.
    fn called(&self, mut open: Vec<NodeId>) -> HashSet<ScopeId> {
        if self.model.functions().is_empty() {
            return HashSet::new();
        }
        let functions = Functions::of(self.model);
        let (mut found, mut seen) = (HashSet::new(), HashSet::new());
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let node = self.model.node(id);
            let function = functions.get(node.op()).filter(|&function| found.insert(function));
            let inside = node.bodies().chain(function);
            open.extend(inside.flat_map(|scope| self.model.nodes_in(scope)).map(|(id, _)| id));
        }
        found
    }

    fn without_nodes(&self, path: &str) -> ExtractError {
        let why = match self.hierarchy.table().find(path) {
            Some(id) => self.hierarchy.why_without_nodes(id, &self.stored).to_owned(),
            None => "nothing inside of it has any".to_owned(),
        };
        ExtractError::NoNodes { path: path.to_owned(), why }
    }

    /// The nodes of each call of a module that is called several times: nodes that repeat, with the same weights.
    fn calls(&self, scope: ScopeId, core: &BTreeSet<NodeId>) -> Vec<BTreeSet<NodeId>> {
        let ordered = self.model.nodes_in(scope).map(|(id, _)| id);
        let nodes: Vec<NodeId> =
            ordered.filter(|id| core.contains(id) && !self.constant.contains(id)).collect();
        let shape = |&id: &NodeId| {
            let node = self.model.node(id);
            let is_weight =
                |value: &ValueId| self.model.constant(*value).is_some_and(|tensor| tensor.len() > 1);
            let weights: Vec<ValueId> = self.model.reads(id).into_iter().filter(is_weight).collect();
            (node.op(), self.hierarchy.origin(id).primary(), weights)
        };
        let shapes: Vec<_> = nodes.iter().map(shape).collect();
        // Without weights nothing tells two calls from two equal nodes of one.
        let weighs = shapes.iter().any(|(_, _, weights)| !weights.is_empty());
        let repeats = |period: &usize| {
            nodes.len().is_multiple_of(*period)
                && shapes.iter().zip(shapes.iter().skip(*period)).all(|(a, b)| a == b)
        };
        let period = (1..=nodes.len() / 2).filter(|_| weighs).find(repeats);
        match period {
            Some(period) => nodes.chunks(period).map(|call| call.iter().copied().collect()).collect(),
            None => vec![core.clone()],
        }
    }

    /// What others read of the module's results; what nothing reads, if nothing is read.
    fn outputs(&self, scope: ScopeId, core: &BTreeSet<NodeId>) -> Vec<ValueId> {
        let ordered = self.model.nodes_in(scope).filter(|(id, _)| core.contains(id));
        let results: Vec<(NodeId, ValueId)> = ordered
            .flat_map(|(id, node)| node.outputs().iter().flatten().map(move |&value| (id, value)))
            .collect();
        let inside: HashSet<NodeId> = core.iter().copied().collect();
        let leaves = |value: ValueId| {
            self.model.value(value).uses().iter().any(|used| match *used {
                Use::Input { node, .. } => !self.stands_among(node, &inside),
                Use::Output { scope: of, .. } => of == scope || !self.held_among(of, &inside),
            })
        };
        let read: Vec<(NodeId, ValueId)> =
            results.iter().copied().filter(|&(_, value)| leaves(value)).collect();
        let computed = read.iter().filter(|(node, _)| !self.constant.contains(node)).map(|&(_, value)| value);
        let computed: Vec<ValueId> = computed.collect();
        if !computed.is_empty() {
            return computed;
        }
        if !read.is_empty() {
            return read.into_iter().map(|(_, value)| value).collect();
        }
        let unread = |&(_, value): &(NodeId, ValueId)| self.model.value(value).uses().is_empty();
        results.iter().filter(|result| unread(result)).map(|&(_, value)| value).collect()
    }

    /// The nodes that the outputs need: of the module, and of others if they compute from constants alone. How many these are.
    fn needed(&self, core: &BTreeSet<NodeId>, outputs: &[ValueId]) -> (Vec<NodeId>, usize) {
        let mut needed: BTreeSet<NodeId> = BTreeSet::new();
        let mut open: Vec<ValueId> = outputs.to_vec();
        while let Some(value) = open.pop() {
            let Some(node) = self.model.value(value).node() else { continue };
            if (core.contains(&node) || self.constant.contains(&node)) && needed.insert(node) {
                open.extend(self.model.reads(node));
            }
        }
        // What a body computes for itself comes with its holder.
        let among: HashSet<NodeId> = needed.iter().copied().collect();
        let is_free = |node: &NodeId| !self.held_among(self.model.node(*node).scope(), &among);
        let nodes: Vec<NodeId> = needed.into_iter().filter(is_free).collect();
        let feeders = nodes.iter().filter(|node| !core.contains(node)).count();
        (nodes, feeders)
    }

    /// The order of nodes of one scope.
    fn order(&self, a: NodeId, b: NodeId) -> Ordering {
        match (self.model.is_before(a, b), self.model.is_before(b, a)) {
            (true, _) => Ordering::Less,
            (_, true) => Ordering::Greater,
            _ => a.cmp(&b),
        }
    }

    fn declaration(&self, value: ValueId) -> ValueInfoProto {
        let own = self.model.scope(self.model.main());
        let port = own.inputs().iter().chain(own.outputs()).find(|port| port.value == value);
        if let Some(port) = port {
            return (*port.info).clone();
        }
        let declared = || self.model.value(value).info().and_then(|info| info.r#type.clone());
        let ty = self.facts.declaration(value).map(Box::new).or_else(declared);
        ValueInfoProto { r#type: ty, ..ValueInfoProto::default() }
    }

    fn boundary(
        &self,
        path: &str,
        cut: &Cut,
        nodes: &[NodeId],
        feeders: usize,
        calls: usize,
        left_out: usize,
    ) -> Boundary {
        let table = self.hierarchy.table();
        let paths = |modules: Vec<ModuleId>| -> Vec<String> {
            table.paths(&modules).into_iter().map(str::to_owned).collect()
        };
        let main = cut.model.scope(cut.model.main());
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let end = |value: ValueId, port: &Port, modules: Vec<ModuleId>| End {
            name: self.model.value(value).name().to_string(),
            ty: port.declared().to_string(),
            modules: paths(modules),
        };
        let inputs =
            cut.inputs.iter().zip(main.inputs()).map(|(&value, port)| end(value, port, self.makers(value)));
        let outputs = cut
            .outputs
            .iter()
            .zip(main.outputs())
            .map(|(&value, port)| end(value, port, self.readers(value, &inside)));
        let name = |id: NodeId| self.names.get(&id).cloned().unwrap_or_default();
        let value_name = |value: ValueId| self.model.value(value).name().to_string();
        let mut ordered = nodes.to_vec();
        ordered.sort_by(|&a, &b| self.order(a, b));
        let [given, taken]: [HashSet<ValueId>; 2] =
            [&cut.inputs, &cut.outputs].map(|ends| ends.iter().copied().collect());
        let results = |id: NodeId| self.model.node(id).outputs().iter().flatten().copied();
        let is_at_edge = |&id: &NodeId| {
            self.model.reads(id).iter().any(|value| given.contains(value))
                || results(id).any(|value| taken.contains(&value))
        };
        let internal = ordered.iter().flat_map(|&id| results(id)).filter(|value| !taken.contains(value));
        let shared = nodes.iter().filter_map(|&id| {
            let modules = &self.hierarchy.origin(id).modules;
            let (own, with): (Vec<ModuleId>, Vec<ModuleId>) =
                modules.iter().partition(|&&module| is_inside(&table.get(module).path, path));
            (!own.is_empty() && !with.is_empty())
                .then(|| Shared { node: self.model.node_label(id), with: paths(with) })
        });
        Boundary {
            module: path.to_owned(),
            nodes: nodes.len(),
            feeders,
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            operations: ordered.iter().map(|&id| name(id)).collect(),
            external_inputs: cut.inputs.iter().map(|&value| value_name(value)).collect(),
            internal_tensors: internal.map(value_name).collect(),
            boundary_operations: ordered.iter().filter(|id| is_at_edge(id)).map(|&id| name(id)).collect(),
            shared: shared.collect(),
            calls,
            left_out,
        }
    }
}
