//! Where the nodes of a file come from: the evidence for each, the best first.

use std::collections::{BTreeMap, HashMap};

use super::evidence::{Attribution, Certainty, Evidence};
use super::exporter;
use super::module::{ModuleId, ModuleTable};
use super::naming::Naming;
use super::recorded::Recorded;
use super::scoped::Resolver;
use super::store;
use onnxforge_ir::{Def, Model, NodeId, ScopeId, ValueId};
use onnxforge_ops::callee::Functions;

/// A module stack that could not be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Where it stands.
    pub node: NodeId,
    /// What is wrong with it.
    pub problem: String,
}

/// The origins of all nodes of a model, and the stacks that could not be read. `from_names`: names are all that the table was made of.
pub fn origins(
    model: &Model,
    table: &ModuleTable,
    from_names: bool,
    recorded: Option<&Recorded>,
) -> (HashMap<NodeId, Attribution>, Vec<Unreadable>) {
    let mut search =
        Search { model, table, found: HashMap::new(), ambiguous: BTreeMap::new(), unreadable: Vec::new() };
    search.told(from_names, recorded);
    for scope in [model.main()].into_iter().chain(model.functions().iter().copied()) {
        search.around(scope);
    }
    search.ask_neighbours(model.nodes().map(|(id, _)| id).collect());
    search.enclosed();
    search.rest();
    search.fused();
    (search.found, search.unreadable)
}

struct Search<'m> {
    model: &'m Model,
    table: &'m ModuleTable,
    found: HashMap<NodeId, Attribution>,
    /// Nodes with a scope that could mean several modules.
    ambiguous: BTreeMap<NodeId, Ambiguous>,
    unreadable: Vec<Unreadable>,
}

/// What a scope could mean.
struct Ambiguous {
    meant: Vec<ModuleId>,
    /// The module that is taken if nothing else tells more.
    guess: Option<ModuleId>,
}

impl Search<'_> {
    /// What files say of nodes themselves.
    fn told(&mut self, from_names: bool, recorded: Option<&Recorded>) {
        let mut resolver = Resolver::new(self.table, Naming::of(self.model));
        for (id, node) in self.model.nodes() {
            let stored = store::attribution(node, self.table);
            // A table that somebody brings may tell more than what was guessed without it.
            let yields = |stored: &Attribution| {
                let guessed = stored.evidence.certainty() != Certainty::Exact && stored.modules.len() == 1;
                guessed && recorded.is_some_and(|recorded| recorded.anchors.is_empty())
            };
            let found = stored
                .clone()
                .filter(|stored| !yields(stored))
                .or_else(|| self.exported(id))
                .or_else(|| self.recorded(id, recorded?))
                .or_else(|| self.scoped(id, &mut resolver, from_names))
                .or(stored);
            if let Some(found) = found {
                self.found.insert(id, found);
            }
        }
    }

    /// The module of the scope in a node's name. Where several could be meant, the owner of what the node reads decides, or else its neighbours
    /// will.
    fn scoped(&mut self, id: NodeId, resolver: &mut Resolver<'_>, from_names: bool) -> Option<Attribution> {
        let scope = Naming::of(self.model).scope(self.model.node(id).name()?)?;
        let resolved = resolver.resolve(scope);
        if let Some(resolved) = resolved.filter(|resolved| resolved.certain) {
            // A table that was made of names proves nothing about them.
            let evidence = if from_names { Evidence::ScopeGuess } else { Evidence::Scope };
            return Some(Attribution::new(resolved.module, evidence));
        }
        let meant = resolver.fitting(scope);
        let owner = self.owner(id, ModuleId::ROOT).filter(|owner| meant.contains(owner));
        if let Some(owner) = owner {
            return Some(Attribution::new(owner, Evidence::ScopeGuess));
        }
        self.ambiguous.insert(id, Ambiguous { meant, guess: resolved.map(|resolved| resolved.module) });
        None
    }

    fn exported(&mut self, id: NodeId) -> Option<Attribution> {
        let node = self.model.node(id);
        if let Some((path, _)) = exporter::grouped(node).and_then(|levels| levels.last().cloned()) {
            return Some(Attribution::new(self.table.nearest(&path), Evidence::ScopeGuess));
        }
        match exporter::stack(node)? {
            Ok(levels) => {
                let (path, _) = levels.last()?;
                Some(Attribution::new(self.table.nearest(path), Evidence::Exporter))
            }
            Err(error) => {
                self.unreadable.push(Unreadable { node: id, problem: error.to_string() });
                None
            }
        }
    }

    /// What was recorded for the node's name, or for one of its results.
    fn recorded(&self, id: NodeId, recorded: &Recorded) -> Option<Attribution> {
        let node = self.model.node(id);
        let module = |paths: &Vec<String>| -> Option<Vec<ModuleId>> {
            let found: Vec<ModuleId> = paths.iter().filter_map(|path| self.table.find(path)).collect();
            (!found.is_empty()).then_some(found)
        };
        let mut outputs = node.outputs().iter().flatten();
        let anchor = outputs.find_map(|&value| recorded.anchors.get(&**self.model.value(value).name()));
        let anchored = anchor.and_then(|anchor| {
            let evidence = anchor.evidence.as_deref().and_then(Evidence::named).unwrap_or(Evidence::Recorded);
            let modules = module(&anchor.modules).filter(|_| evidence != Evidence::Root)?;
            Some(Attribution { modules, evidence })
        });
        anchored.or_else(|| {
            let modules = module(recorded.origins.get(&**node.name()?)?)?;
            Some(Attribution { modules, evidence: Evidence::Recorded })
        })
    }

    /// Bodies take the origin of the node that holds them, where nothing is told of their nodes.
    fn around(&mut self, scope: ScopeId) {
        for inner in self.model.scopes_within(scope) {
            let Some(holder) = self.model.scope(inner).holder() else { continue };
            let Some(origin) = self.found.get(&holder).map(Attribution::primary) else { continue };
            // Owners of what was computed from parameters alone.
            let mut made: HashMap<NodeId, ModuleId> = HashMap::new();
            for (id, node) in self.model.nodes_in(inner) {
                if !self.found.contains_key(&id) {
                    let by = |value: &ValueId| self.model.value(*value).node();
                    let passed =
                        || node.inputs().iter().flatten().find_map(|value| made.get(&by(value)?).copied());
                    let owner = self.owner(id, origin).or_else(passed);
                    let fixed = |value: &ValueId| {
                        self.model.constant(*value).is_some()
                            || by(value).is_some_and(|by| made.contains_key(&by))
                    };
                    if let Some(owner) = owner.filter(|_| node.inputs().iter().flatten().all(fixed)) {
                        made.insert(id, owner);
                    }
                    self.found.insert(id, Attribution::new(owner.unwrap_or(origin), Evidence::Enclosing));
                }
            }
        }
    }

    /// The same after neighbours were asked, and for functions: their nodes compute for all who call them.
    fn enclosed(&mut self) {
        let mut callers: BTreeMap<ScopeId, Vec<ModuleId>> = BTreeMap::new();
        let functions = Functions::of(self.model);
        // Functions call functions; as often as there are any, so that each is reached.
        for _ in 0..self.model.functions().len().min(64) {
            let mut news = false;
            for (id, node) in self.model.nodes() {
                let (Some(function), Some(origin)) = (functions.get(node.op()), self.found.get(&id)) else {
                    continue;
                };
                let known = callers.entry(function).or_default();
                for &module in &origin.modules {
                    if !known.contains(&module) {
                        known.push(module);
                        news = true;
                    }
                }
            }
            if !news {
                break;
            }
            for (&function, modules) in &callers {
                for scope in self.model.scopes_within(function) {
                    for (id, _) in self.model.nodes_in(scope) {
                        let attribution =
                            Attribution { modules: modules.clone(), evidence: Evidence::Enclosing };
                        let known = self.found.entry(id).or_insert_with(|| attribution.clone());
                        if known.evidence == Evidence::Enclosing {
                            *known = attribution;
                        }
                    }
                }
            }
        }
        self.around(self.model.main());
    }

    /// The owner of a parameter that a node reads or passes on, if that is inside of `around`.
    fn owner(&self, id: NodeId, around: ModuleId) -> Option<ModuleId> {
        let node = self.model.node(id);
        let owner = |value: &ValueId| exporter::owners(self.table, self.model.value(*value)).first().copied();
        let passes_on = node.outputs().iter().flatten().find_map(owner);
        let read = node.inputs().iter().flatten().filter(|&&value| self.model.constant(value).is_some());
        let mut owners = passes_on.into_iter().chain(read.filter_map(owner));
        owners.find(|&owner| self.table.is_within(owner, around))
    }

    /// Those of these nodes that nothing is told of, and then nodes a few steps further, take the origin of their neighbours.
    fn ask_neighbours(&mut self, mut open: Vec<NodeId>) {
        /// Further away a module says nothing about a node.
        const FURTHEST: usize = 4;
        // Each round reaches one node further: it looks at those next to what the last one found.
        for _ in 0..FURTHEST {
            open.retain(|id| !self.found.contains_key(id));
            let answers = open.iter().map(|&id| (id, self.origin_of_neighbours(id)));
            let news: Vec<(NodeId, Attribution)> =
                answers.filter_map(|(id, found)| Some((id, found?))).collect();
            open = self.next_to(news.iter().map(|&(id, _)| id));
            self.found.extend(news);
        }
    }

    /// The nodes next to these.
    fn next_to(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let near = |id: NodeId| {
            let holder = self.model.scope(self.model.node(id).scope()).holder();
            [self.makers(id), self.readers(id), holder.into_iter().collect()].concat()
        };
        let mut found: Vec<NodeId> = nodes.flat_map(near).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn origin_of_neighbours(&self, id: NodeId) -> Option<Attribution> {
        let of = |nodes: &[NodeId]| -> Vec<ModuleId> {
            nodes.iter().filter_map(|node| self.found.get(node)).map(Attribution::primary).collect()
        };
        let (makers, readers) = (of(&self.makers(id)), of(&self.readers(id)));
        let around = [makers.as_slice(), &readers].concat();
        if let Some(ambiguous) = self.ambiguous.get(&id) {
            let near = |meant: &&ModuleId| around.iter().any(|&module| self.table.is_within(module, **meant));
            let mut near = ambiguous.meant.iter().filter(near);
            return match (near.next(), near.next()) {
                (Some(&module), None) => Some(Attribution::new(module, Evidence::ScopeGuess)),
                _ => None,
            };
        }
        let inner = |module: &ModuleId| *module != ModuleId::ROOT;
        if let Some(held) = self.table.common(of(&self.held(id))).filter(inner) {
            return Some(Attribution::new(held, Evidence::Neighbours));
        }
        // What depends on nothing is there for those who read it.
        let common = self.table.common(around)?;
        match self.owner(id, common) {
            Some(owner) => Some(Attribution::new(owner, Evidence::Owner)),
            // The model is around everything: that is no finding.
            None if common == ModuleId::ROOT && !self.is_of_root(id) => {
                let between = self.between(&makers, &readers).filter(inner)?;
                Some(Attribution::new(between, Evidence::Neighbours))
            }
            None => Some(Attribution::new(common, Evidence::Neighbours)),
        }
    }

    /// The innermost module that both a maker and a reader are within: what goes from one to the other does not leave it. The other readers
    /// get what is its result.
    fn between(&self, makers: &[ModuleId], readers: &[ModuleId]) -> Option<ModuleId> {
        /// More of them are no neighbourhood.
        const MOST: usize = 16;
        let (makers, readers) = (makers.iter().take(MOST), readers.iter().take(MOST));
        let pairs = makers.flat_map(|&maker| readers.clone().map(move |&reader| [maker, reader]));
        let around = pairs.filter_map(|pair| self.table.common(pair));
        around.max_by_key(|&module| self.table.depth(module))
    }

    /// The nodes in the bodies of a node.
    fn held(&self, id: NodeId) -> Vec<NodeId> {
        let bodies = self.model.node(id).bodies();
        bodies.flat_map(|body| self.model.nodes_in(body).map(|(inner, _)| inner)).collect()
    }

    /// Whether all that surrounds a node is known to belong to the model itself, and its name does not say otherwise.
    fn is_of_root(&self, id: NodeId) -> bool {
        let naming = Naming::of(self.model);
        let scope = self.model.node(id).name().and_then(|name| naming.scope(name));
        let elsewhere = scope.is_some_and(|scope| !scope.is_empty());
        let around = [self.makers(id), self.readers(id)].concat();
        let known = around.iter().filter_map(|node| self.found.get(node));
        let mut known =
            known.map(|found| found.primary() == ModuleId::ROOT && found.evidence < Evidence::Root);
        !elsewhere && !around.is_empty() && known.all(|root| root)
    }

    fn makers(&self, id: NodeId) -> Vec<NodeId> {
        let inputs = self.model.node(id).inputs().iter().flatten();
        inputs.filter_map(|&value| self.model.value(value).node()).collect()
    }

    fn readers(&self, id: NodeId) -> Vec<NodeId> {
        let outputs = self.model.node(id).outputs().iter().flatten();
        let uses = outputs.flat_map(|&value| self.model.value(value).uses());
        uses.filter_map(|used| self.model.reader(used)).collect()
    }

    /// What is left: the owner of a parameter, or nothing.
    fn rest(&mut self) {
        let all: Vec<NodeId> = self.model.nodes().map(|(id, _)| id).collect();
        let mut news = Vec::new();
        for (id, ambiguous) in std::mem::take(&mut self.ambiguous) {
            if let Some(guess) = ambiguous.guess.filter(|_| !self.found.contains_key(&id)) {
                news.push((id, Attribution::new(guess, Evidence::ScopeGuess)));
            }
        }
        self.found.extend(news.iter().cloned());
        for &id in all.iter().filter(|id| !self.found.contains_key(id)) {
            if let Some(owner) = self.owner(id, ModuleId::ROOT) {
                news.push((id, Attribution::new(owner, Evidence::Owner)));
            }
        }
        self.found.extend(news.iter().cloned());
        self.ask_neighbours(self.next_to(news.iter().map(|&(id, _)| id)));
        for id in all {
            self.found.entry(id).or_insert_with(|| Attribution::new(ModuleId::ROOT, Evidence::Root));
        }
    }

    /// Exporters fold a normalization into the layer before it and keep the name of one of both. The weights tell of the other: their
    /// owner has no node of its own and is a sibling, or lies in one where the exporter says that it fused something.
    fn fused(&mut self) {
        let mut has_nodes = vec![false; self.table.len()];
        let with_nodes = self.found.values().flat_map(|found| &found.modules);
        with_nodes.for_each(|module| has_nodes[module.index()] = true);
        for (id, node) in self.model.nodes() {
            let Some(found) = self.found.get_mut(&id).filter(|found| found.evidence < Evidence::Root) else {
                continue;
            };
            let rewritten = exporter::is_fused(node);
            let weights = node.inputs().iter().flatten();
            let weights =
                weights.filter(|&&value| matches!(self.model.value(value).def(), Def::Constant { .. }));
            for owner in weights.filter_map(|&value| self.table.owner(self.model.value(value).name())) {
                let around = self.table.parent(found.primary());
                let sibling = self.table.parent(owner) == around
                    || rewritten && around.is_some_and(|around| self.table.is_within(owner, around));
                if !has_nodes[owner.index()] && sibling && !found.modules.contains(&owner) {
                    found.modules.push(owner);
                }
            }
        }
    }
}
