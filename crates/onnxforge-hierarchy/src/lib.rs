//! The hierarchy: which PyTorch module every node comes from, and who reads what it computes.
//!
//! Facts and views are kept apart. A [`Hierarchy`] holds facts: a table of module instances and, for each node, the instances that it comes from and
//! the evidence for that. Tags such as `/BertModel/BertEncoder/BertLayer.0` are a view of them under a [`Policy`], made anew whenever
//! somebody wants another one. Who reads a value ([`Hierarchy::consumers`]) is a third thing, never mixed with origins.

pub mod consumers;
pub mod coverage;
pub mod drawing;
pub mod effect;
pub mod evidence;
pub mod explorer;
mod exporter;
pub mod extract;
pub mod lineage;
pub mod module;
pub mod naming;
pub mod origin;
pub mod recorded;
pub mod report;
mod repr;
pub mod restore;
pub mod scoped;
pub mod select;
pub mod sidecar;
pub mod store;
pub mod tag;
pub mod validate;

use std::collections::{HashMap, HashSet};

pub use self::evidence::{Attribution, Certainty, Evidence};
pub use self::module::{Module, ModuleId, ModuleTable};
use self::origin::Unreadable;
use self::recorded::Recorded;
pub use self::tag::{Policy, Tags};
use onnxforge_ir::{Def, Model, NodeId, ValueId};

/// The modules of a model, and where its nodes come from.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    table: ModuleTable,
    origins: HashMap<NodeId, Attribution>,
    /// Modules that constants were made for by passes.
    constants: HashMap<ValueId, Vec<ModuleId>>,
    unreadable: Vec<Unreadable>,
    /// What tags were made under, where the model or its table says so.
    policy: Option<Policy>,
}

impl Hierarchy {
    /// What the file tells, and what was recorded beside it.
    pub fn of(model: &Model, recorded: Option<&Recorded>) -> Self {
        let stored = if recorded.is_none() { store::recorded(model) } else { None };
        let recorded = recorded.or(stored.as_ref());
        let (table, from_names) = table(model, recorded);
        let (origins, unreadable) = origin::origins(model, &table, from_names, recorded);
        let policy = recorded.and_then(|recorded| recorded.policy.clone());
        let mut hierarchy = Self { table, origins, constants: HashMap::new(), unreadable, policy };
        hierarchy.constants = model
            .initializers()
            .map(|(id, _)| (id, exporter::owners(&hierarchy.table, model.value(id))))
            .filter(|(_, owners)| !owners.is_empty())
            .collect();
        hierarchy
    }

    /// The same modules for a model that edits made out of the one that this was found for. A new node comes from the modules of all nodes that it was
    /// made of; a new constant from those of the nodes that were folded.
    pub fn carried(&self, model: &Model) -> Self {
        let mut known: HashMap<onnxforge_ir::OriginId, Option<Attribution>> = HashMap::new();
        let origins = model.nodes().map(|(id, node)| {
            let origin = known
                .entry(node.origin())
                .or_insert_with(|| self.union(&model.origins().sources(node.origin())));
            let root = || Attribution::new(ModuleId::ROOT, Evidence::Root);
            (id, origin.clone().unwrap_or_else(root))
        });
        let origins = origins.collect();
        let mut constants: HashMap<ValueId, Vec<ModuleId>> = HashMap::new();
        for (id, _) in model.initializers() {
            let made = match model.value(id).def() {
                Def::Constant { origin: Some(origin), .. } => self.union(&model.origins().sources(*origin)),
                _ => None,
            };
            let modules = made.map(|made| made.modules).or_else(|| self.constants.get(&id).cloned());
            constants.extend(modules.map(|modules| (id, modules)));
        }
        Self {
            table: self.table.clone(),
            origins,
            constants,
            unreadable: Vec::new(),
            policy: self.policy.clone(),
        }
    }

    /// The modules of all these nodes, each once; the weakest evidence holds for all.
    fn union(&self, nodes: &[NodeId]) -> Option<Attribution> {
        let mut union: Option<Attribution> = None;
        let mut seen = HashSet::new();
        for found in nodes.iter().filter_map(|node| self.origins.get(node)) {
            let all =
                union.get_or_insert_with(|| Attribution { modules: Vec::new(), evidence: found.evidence });
            all.evidence = all.evidence.max(found.evidence);
            all.modules.extend(found.modules.iter().filter(|module| seen.insert(**module)));
        }
        union
    }

    /// The modules.
    pub fn table(&self) -> &ModuleTable {
        &self.table
    }

    /// Where a node comes from.
    pub fn origin(&self, node: NodeId) -> &Attribution {
        static NOTHING: Attribution = Attribution { modules: Vec::new(), evidence: Evidence::Root };
        self.origins.get(&node).unwrap_or(&NOTHING)
    }

    /// How likely the module of a node is the right one: the [confidence](Evidence::confidence) of its evidence. Tables that were made of names know no classes.
    pub fn confidence(&self, node: NodeId) -> f64 {
        self.origin(node).evidence.confidence(!self.table.has_classes())
    }

    /// Whether this was found for a model that had this node.
    pub fn knows(&self, node: NodeId) -> bool {
        self.origins.contains_key(&node)
    }

    /// The modules that a stored tensor belongs to: owners of the parameters that it is, or was computed from.
    pub fn constant(&self, value: ValueId) -> &[ModuleId] {
        self.constants.get(&value).map_or(&[], Vec::as_slice)
    }

    /// The module that a stored tensor counts for: its owner, or else the module around all that read it.
    pub fn home(&self, model: &Model, value: ValueId) -> ModuleId {
        let owner = self.constant(value).first().copied();
        let readers = || self.table.common(self.consumers(model, value));
        owner.or_else(readers).unwrap_or(ModuleId::ROOT)
    }

    /// The policy that tags were made under; the usual one, if nothing says which.
    pub fn policy(&self) -> Policy {
        self.policy.clone().unwrap_or_default()
    }

    /// Module stacks of the exporter that could not be read.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Whether anything is known beyond that there is a model.
    pub fn is_known(&self) -> bool {
        !self.table.is_empty() || self.origins.values().any(|found| found.evidence != Evidence::Root)
    }

    /// The modules of the nodes that read a value, each once: who needs it, one step away.
    pub fn consumers(&self, model: &Model, value: ValueId) -> Vec<ModuleId> {
        let mut seen = HashSet::new();
        let readers = model.value(value).uses().iter().filter_map(|used| model.reader(used));
        let modules = readers.flat_map(|node| self.origin(node).modules.iter().copied());
        modules.filter(|&module| seen.insert(module)).collect()
    }

    /// The same for all results of a node.
    pub fn node_consumers(&self, model: &Model, node: NodeId) -> Vec<ModuleId> {
        let mut seen = HashSet::new();
        let outputs = model.node(node).outputs().iter().flatten();
        outputs
            .flat_map(|&value| self.consumers(model, value))
            .filter(|&module| seen.insert(module))
            .collect()
    }

    /// The modules with a parameter or buffer that the file has by its name.
    pub fn stored(&self, model: &Model) -> HashSet<ModuleId> {
        model.initializers().filter_map(|(value, _)| self.table.owner(model.value(value).name())).collect()
    }

    /// What became of a module that has no node, given those that have something [`stored`](Self::stored).
    pub fn why_without_nodes(&self, id: ModuleId, stored: &HashSet<ModuleId>) -> &'static str {
        let module = self.table.get(id);
        let holds = self.table.children(id).next().is_some();
        if module.alias_of.is_some() {
            "it is another name of a module whose nodes are under the first"
        } else if module.is_container() || holds && module.class.is_none() {
            "it only holds other modules"
        } else if holds {
            "nothing is left of what is inside of it: it was folded, merged with the same elsewhere, or is never called"
        } else if module.direct_parameters.is_empty() && module.direct_buffers.is_empty() {
            "it computes nothing when the model is not being trained, or the exporter folded it"
        } else if stored.contains(&id) {
            "other modules compute with its parameters, or its computation was folded"
        } else {
            "its parameters are no longer in the file: they were folded, or it is never called"
        }
    }
}

/// All modules that are recorded, that the exporter mentions, or, if there are none, that names tell of; and whether it had to be names.
fn table(model: &Model, recorded: Option<&Recorded>) -> (ModuleTable, bool) {
    let recorded = recorded.map(|recorded| recorded.table.iter().map(|(_, module)| module.clone()).collect());
    let mut modules: Vec<Module> = recorded.unwrap_or_default();
    let mut listed: HashSet<_> = modules.iter().map(|module| module.path.clone()).collect();
    let told = exporter::modules(model);
    modules.extend(told.into_iter().filter(|module| listed.insert(module.path.clone())));
    let from_names = modules.iter().all(|module| module.path.is_empty() && module.class.is_none());
    if from_names {
        modules
            .extend(scoped::modules(model).into_iter().filter(|module| listed.insert(module.path.clone())));
    }
    let mentioned = store::mentioned(model).into_iter();
    modules.extend(mentioned.filter(|module| listed.insert(module.path.clone())));
    // A file may mention more than a table holds; nothing is then known of its modules.
    let table = ModuleTable::new(modules).unwrap_or_else(|error| {
        tracing::warn!("the modules of this model are not used: {error}");
        ModuleTable::default()
    });
    (table, from_names)
}
