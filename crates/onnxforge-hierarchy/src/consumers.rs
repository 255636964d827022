//! Who reads what: the modules that need a tensor, one node away or through any number of nodes.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::evidence::Evidence;
use super::module::ModuleId;
use super::{Hierarchy, Tags};
use onnxforge_ir::value::{Def, Use};
use onnxforge_ir::{Model, NodeId, ScopeId, Value, ValueId};

/// Tensors that nodes read, and how many of them carry the modules of all nodes that read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Consumed {
    /// Inputs, constants and results that at least one node reads.
    pub total: usize,
    /// Those of which every reading node has a known module.
    pub tagged: usize,
    /// That as a percentage.
    pub percentage: f64,
    /// Tensors that no node reads, such as most outputs of the model. They do not count.
    pub unread: usize,
}

/// How many tensors are known with all that read them.
pub fn consumed(model: &Model, hierarchy: &Hierarchy) -> Consumed {
    let mut found = Consumed::default();
    for (_, value) in tensors(model) {
        let mut readers = value.uses().iter().filter_map(|used| model.reader(used)).peekable();
        match readers.peek() {
            None => found.unread += 1,
            Some(_) => {
                found.total += 1;
                let known = readers.all(|node| hierarchy.origin(node).evidence != Evidence::Root);
                found.tagged += usize::from(known);
            }
        }
    }
    found.percentage =
        if found.total == 0 { 100.0 } else { found.tagged as f64 / found.total as f64 * 100.0 };
    found
}

/// Every tensor of the model: inputs, constants and results, also those in bodies and functions.
pub fn tensors(model: &Model) -> impl Iterator<Item = (ValueId, &Value)> {
    model.values().filter(|(_, value)| value.is_live())
}

/// What a tensor is to the model.
pub fn kind(model: &Model, id: ValueId) -> &'static str {
    let value = model.value(id);
    let is_output = |used: &Use| matches!(used, Use::Output { scope, .. } if *scope == model.main());
    match value.def() {
        Def::Input { scope, .. } if *scope == model.main() => "input",
        Def::Input { .. } => "body_input",
        Def::Constant { .. } => "initializer",
        _ if value.uses().iter().any(is_output) => "output",
        _ => "activation",
    }
}

/// Names of all tensors that tell them apart: their own, behind the name of the function that they belong to.
pub fn names(model: &Model) -> HashMap<ValueId, String> {
    let mut prefixes: HashMap<ScopeId, String> = HashMap::new();
    for &function in model.functions() {
        let called = model.called_as(function).map(|op| op.to_string()).unwrap_or_default();
        prefixes.insert(function, format!("function {called}/"));
    }
    let name = |(id, value): (ValueId, &Value)| {
        let root = model.scope_of(id).map(|scope| model.root_of(scope));
        let prefix = root.and_then(|root| prefixes.get(&root));
        (id, format!("{}{}", prefix.map_or("", String::as_str), value.name()))
    };
    tensors(model).map(name).collect()
}

/// The tags of a tensor: of the modules that make it or own it, then of those that read it, each once.
pub fn tags_of(tags: &Tags, modules: impl IntoIterator<Item = ModuleId>) -> Vec<&str> {
    let mut seen = HashSet::new();
    modules.into_iter().map(|module| tags.get(module)).filter(|tag| seen.insert(*tag)).collect()
}

/// The modules that make a tensor, or own it where it is stored.
pub fn producers<'h>(model: &Model, hierarchy: &'h Hierarchy, value: ValueId) -> &'h [ModuleId] {
    match model.value(value).node() {
        Some(node) => &hierarchy.origin(node).modules,
        None => hierarchy.constant(value),
    }
}

/// Why the modules that need each tensor are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{nodes} nodes of {modules} modules are too many to list all consumers of every tensor")]
pub struct TooMany {
    nodes: usize,
    modules: usize,
}

/// Bits that the sets of all nodes may take together.
const MOST_BITS: usize = 1 << 31;

/// The modules that need each tensor, through any number of nodes. A node with bodies needs what any node in them needs.
pub struct Reach {
    /// The modules, one for each bit.
    modules: Vec<ModuleId>,
    /// For each node what it and everything after it belongs to, as bits.
    of_node: HashMap<NodeId, Vec<u64>>,
    words: usize,
}

impl Reach {
    /// For all tensors of a model.
    pub fn of(model: &Model, hierarchy: &Hierarchy) -> Result<Self, TooMany> {
        let mut bits: HashMap<ModuleId, usize> = HashMap::new();
        let mut modules = Vec::new();
        for (id, _) in model.nodes() {
            for &module in &hierarchy.origin(id).modules {
                bits.entry(module).or_insert_with(|| {
                    modules.push(module);
                    modules.len() - 1
                });
            }
        }
        let words = modules.len().div_ceil(64);
        if words.saturating_mul(64).saturating_mul(model.node_count()) > MOST_BITS {
            return Err(TooMany { nodes: model.node_count(), modules: modules.len() });
        }
        let mut reach = Self { modules, of_node: HashMap::new(), words };
        // Outer scopes first: what leaves a body is read by whoever reads its holder.
        let mut open: Vec<ScopeId> = model.functions().iter().copied().chain([model.main()]).collect();
        while let Some(scope) = open.pop() {
            let nodes: Vec<NodeId> = model.nodes_in(scope).map(|(id, _)| id).collect();
            for &id in nodes.iter().rev() {
                let mut own = vec![0u64; words];
                let inside = model.nodes_inside(id);
                for node in inside.into_iter().chain([id]) {
                    for module in &hierarchy.origin(node).modules {
                        if let Some(&bit) = bits.get(module) {
                            own[bit / 64] |= 1 << (bit % 64);
                        }
                    }
                }
                for &output in model.node(id).outputs().iter().flatten() {
                    reach.add(model, output, &mut own);
                }
                reach.of_node.insert(id, own);
                open.extend(model.node(id).bodies());
            }
        }
        Ok(reach)
    }

    /// The modules that need a tensor.
    pub fn consumers(&self, model: &Model, value: ValueId) -> Vec<ModuleId> {
        let mut found = vec![0u64; self.words];
        self.add(model, value, &mut found);
        let mut modules: Vec<ModuleId> = self
            .modules
            .iter()
            .enumerate()
            .filter(|(bit, _)| found[bit / 64] >> (bit % 64) & 1 == 1)
            .map(|(_, &module)| module)
            .collect();
        modules.sort_unstable();
        modules
    }

    /// Adds what needs a value.
    fn add(&self, model: &Model, value: ValueId, to: &mut [u64]) {
        let home = model.scope_of(value);
        for used in model.value(value).uses() {
            let Some(mut at) = model.reader(used) else { continue };
            // What stands in a body reads it for the holder, whose set has all that is in its bodies.
            let leaves = matches!(used, Use::Output { scope, .. } if Some(*scope) == home);
            while !leaves
                && Some(model.node(at).scope()) != home
                && let Some(holder) = model.scope(model.node(at).scope()).holder()
            {
                at = holder;
            }
            if let Some(set) = self.of_node.get(&at) {
                to.iter_mut().zip(set).for_each(|(to, set)| *to |= set);
            }
        }
    }
}
