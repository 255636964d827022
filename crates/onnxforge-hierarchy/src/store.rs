//! Where a model keeps its hierarchy: metadata of nodes, and one entry of the model that other tools leave alone.
//!
//! | key | of | value |
//! |---|---|---|
//! | `onnxforge.module` | node | JSON list of the paths of its modules, the one that it stands for first |
//! | `onnxforge.tags` | node | JSON list of their tags |
//! | `onnxforge.evidence` | node | what the origin is known from, where that is not exact |
//! | `onnxforge.consumers` | node | JSON list of the paths of the modules that read its results, on request |
//! | `onnxforge.consumer_tags` | node | JSON list of their tags, with them |
//! | `namespace` | node | levels for viewers, where the exporter wrote none |
//! | `onnxforge.hierarchy` | model | the module table, the fingerprint of the graph, and the modules of each result by its name |
//! | `module_to_operations` | model | JSON object of the names of nodes by module path, on request |
//! | `operation_hierarchy` | model | JSON object of the tags of nodes by name, with it |

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use serde::Serialize;
use serde::ser::SerializeMap;
use sha2::{Digest, Sha256};

use super::consumers::tags_of;
use super::evidence::{Attribution, Certainty, Evidence};
use super::exporter::{self, MODULE, NAMESPACE, NO_CLASS, TRACES, entry};
use super::module::{Module, ModuleId, ModuleTable};
use super::recorded::{Recorded, SCHEMA_VERSION, read};
use super::{Hierarchy, Policy, Tags};
use onnxforge_ir::{Model, Node, NodeId};

pub(super) const TAGS: &str = "onnxforge.tags";
pub(super) const EVIDENCE: &str = "onnxforge.evidence";
const CONSUMERS: &str = "onnxforge.consumers";
const CONSUMER_TAGS: &str = "onnxforge.consumer_tags";
const BY_MODULE: &str = "module_to_operations";
const BY_OPERATION: &str = "operation_hierarchy";
pub(super) const HIERARCHY: &str = "onnxforge.hierarchy";
/// What all keys of ours start with.
const OURS: &str = "onnxforge.";
/// What all keys of PyTorch's exporter and its tools start with.
const EXPORTERS: &[&str] = &["pkg.torch.", "pkg.onnxscript."];

/// What the node itself says of its origin.
pub fn attribution(node: &Node, table: &ModuleTable) -> Option<Attribution> {
    let paths: Vec<String> = serde_json::from_str(entry(node.metadata(), MODULE)?).ok()?;
    let evidence = match entry(node.metadata(), EVIDENCE) {
        Some(name) => Evidence::named(name)?,
        None => Evidence::Recorded,
    };
    let modules: Vec<ModuleId> = paths.iter().filter_map(|path| table.find(path)).collect();
    (!modules.is_empty()).then_some(Attribution { modules, evidence })
}

/// The modules that nodes of a model name that was optimized and not tagged. Some have no node of their own any more.
pub fn mentioned(model: &Model) -> Vec<Module> {
    if is_tagged(model) {
        return Vec::new();
    }
    let named = |node: &Node| serde_json::from_str::<Vec<String>>(entry(node.metadata(), MODULE)?).ok();
    let paths = model.nodes().filter_map(|(_, node)| named(node)).flatten();
    paths.map(|path| Module { path: path.into(), ..Module::default() }).collect()
}

/// What the model says, where it was tagged before.
pub fn recorded(model: &Model) -> Option<Recorded> {
    let text = entry(&model.header().metadata_props, HIERARCHY)?;
    match read(text.as_bytes()) {
        Ok(recorded) => Some(recorded),
        Err(error) => {
            tracing::warn!("the metadata entry {HIERARCHY} is not used: {error}");
            None
        }
    }
}

/// Whether the model was tagged.
pub fn is_tagged(model: &Model) -> bool {
    entry(&model.header().metadata_props, HIERARCHY).is_some()
}

/// What is written, beside the table itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Who reads the results of nodes, too.
    pub consumers: bool,
    /// Nodes by module, and tags by node, too.
    pub operations: bool,
}

impl WriteOptions {
    /// What was written into a model earlier.
    pub fn of(model: &Model) -> Self {
        Self {
            consumers: model.nodes().any(|(_, node)| entry(node.metadata(), CONSUMERS).is_some()),
            operations: is_tagged(model) && entry(&model.header().metadata_props, BY_MODULE).is_some(),
        }
    }
}

/// Writes the hierarchy into the metadata of the model. Nothing else changes.
pub fn write(model: &mut Model, hierarchy: &Hierarchy, policy: &Policy, options: WriteOptions) {
    let tags = &Tags::new(hierarchy.table(), policy);
    let nodes: Vec<NodeId> = model.nodes().map(|(id, _)| id).collect();
    let table = hierarchy.table();
    for &id in &nodes {
        let origin = hierarchy.origin(id);
        let node = model.node(id);
        // One that was written earlier may be of another module, since passes changed the node.
        if entry(node.metadata(), NAMESPACE).is_none() || leads_to_its_module(node) {
            let namespace = namespace(table, origin.primary(), node);
            model.annotate(id, NAMESPACE, Some(namespace.into()));
        }
        write_origin(model, id, origin, table);
        model.annotate(id, TAGS, Some(json(&distinct(origin, tags)).into()));
        let readers = options.consumers.then(|| hierarchy.node_consumers(model, id));
        let paths = readers.as_ref().map(|readers| json(&table.paths(readers)).into());
        model.annotate(id, CONSUMERS, paths);
        let readers = readers.map(|readers| json(&tags_of(tags, readers)).into());
        model.annotate(id, CONSUMER_TAGS, readers);
    }
    let operations = options.operations.then(|| {
        let operations = Operations::new(model, hierarchy, tags);
        (json(&operations.by_module()), json(&operations.tags()))
    });
    // Entries of these names may be somebody else's where they were not asked for.
    if operations.is_some() || is_tagged(model) {
        let (modules, tags) = operations.unzip();
        model.annotate_model(BY_MODULE, modules.map(Into::into));
        model.annotate_model(BY_OPERATION, tags.map(Into::into));
    }
    let whole = json(&Whole { model, hierarchy, policy });
    model.annotate_model(HIERARCHY, Some(whole.into()));
}

/// The modules of nodes that passes made or gave other work, for a model that was not tagged: what such a node inherited tells of one of
/// them only.
pub fn write_new(model: &mut Model, before: &Hierarchy, carried: &Hierarchy) {
    let changed = |&id: &NodeId| !before.knows(id) || before.origin(id) != carried.origin(id);
    let nodes: Vec<NodeId> = model.nodes().map(|(id, _)| id).filter(changed).collect();
    for id in nodes {
        let origin = carried.origin(id);
        if origin.evidence != Evidence::Root {
            write_origin(model, id, origin, carried.table());
        }
    }
}

/// Writes at a node which modules it comes from, and what that is known from.
fn write_origin(model: &mut Model, id: NodeId, origin: &Attribution, table: &ModuleTable) {
    model.annotate(id, MODULE, Some(json(&table.paths(&origin.modules)).into()));
    let weak = origin.evidence.certainty() != Certainty::Exact;
    model.annotate(id, EVIDENCE, weak.then(|| origin.evidence.name().into()));
}

/// The tags of a node's modules, each once.
pub fn distinct<'t>(origin: &Attribution, tags: &'t Tags) -> Vec<&'t str> {
    let mut found: Vec<&str> = Vec::new();
    for tag in origin.modules.iter().map(|&module| tags.get(module)) {
        if !found.contains(&tag) {
            found.push(tag);
        }
    }
    found
}

/// What to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strip {
    /// What this program wrote.
    Ours,
    /// That, and what exporters wrote.
    All,
    /// Lines of source code and paths of the machine that exported.
    Traces,
}

/// Removes metadata; the answer is how many entries went.
pub fn strip(model: &mut Model, what: Strip) -> usize {
    // Names without a prefix of ours are ours only in a model that was tagged.
    let listed = is_tagged(model);
    let ours = |key: &str| key.starts_with(OURS) || listed && [BY_MODULE, BY_OPERATION].contains(&key);
    let exporters = |key: &str| key == NAMESPACE || EXPORTERS.iter().any(|prefix| key.starts_with(prefix));
    match what {
        // A namespace of ours tells nothing that the exporter's keys beside it would not.
        Strip::Ours => {
            let added: Vec<NodeId> =
                model.nodes().filter(|(_, node)| has_our_namespace(node)).map(|(id, _)| id).collect();
            added.iter().for_each(|&id| model.annotate(id, NAMESPACE, None));
            model.retain_metadata(&|key| !ours(key)) + added.len()
        }
        Strip::All => model.retain_metadata(&|key| !ours(key) && !exporters(key)),
        Strip::Traces => {
            model.retain_metadata(&|key| !TRACES.contains(&key)) + model.forget_docs(&is_call_stack)
        }
    }
}

/// Whether the namespace of a node was written by this program.
fn has_our_namespace(node: &Node) -> bool {
    let written = entry(node.metadata(), NAMESPACE).unwrap_or_default();
    leads_to_its_module(node) && written.ends_with(&format!("/{}", leaf(node)))
}

/// Whether the namespace of a node leads to the module that this program wrote at the node. The exporter writes its own keys with one.
fn leads_to_its_module(node: &Node) -> bool {
    let theirs = node.metadata().iter().any(|entry| {
        entry.key.as_deref().is_some_and(|key| EXPORTERS.iter().any(|prefix| key.starts_with(prefix)))
    });
    let module = entry(node.metadata(), MODULE)
        .and_then(|text| serde_json::from_str::<Vec<String>>(text).ok()?.into_iter().next());
    let levels = entry(node.metadata(), NAMESPACE).and_then(exporter::namespace).unwrap_or_default();
    !theirs && module.is_some() && levels.last().map(|(path, _)| path) == module.as_ref()
}

/// Whether a text has lines such as `…/model.py(12): forward`, which the older exporter writes when told to be verbose.
fn is_call_stack(text: &str) -> bool {
    let line = |line: &str| {
        let rest = line.split_once(".py(").and_then(|(_, rest)| rest.split_once(')'));
        rest.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.lines().any(line)
}

/// The levels of a node for viewers, as the exporter writes them.
fn namespace(table: &ModuleTable, module: ModuleId, node: &Node) -> String {
    let mut levels: Vec<ModuleId> = table.chain(module).collect();
    levels.reverse();
    let mut text = String::new();
    for level in levels {
        let module = table.get(level);
        let class = module.class.as_deref().unwrap_or(NO_CLASS);
        let _ = write!(text, "{}: {class}/", module.path);
    }
    text + &leaf(node)
}

/// The level of a node itself.
fn leaf(node: &Node) -> String {
    let name = node.name().map_or(&*node.op().name, |name| name.rsplit('/').next().unwrap_or(name));
    format!("{name}: {}", node.op())
}

/// What tells one graph from another: operators, and the names of what they read and compute.
pub fn fingerprint(model: &Model) -> String {
    let mut hash = Sha256::new();
    let mut text = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    for (_, node) in model.nodes() {
        text(&node.op().to_string());
        for value in node.inputs().iter().chain(node.outputs()) {
            text(value.map_or("", |value| model.value(value).name()));
        }
    }
    hash.finalize().iter().take(16).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// JSON in one line.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// An object with the entries of an iterator, in their order.
pub(super) struct Entries<F>(pub F);

impl<K: Serialize, V: Serialize, I: Iterator<Item = (K, V)>, F: Fn() -> I> Serialize for Entries<F> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map((self.0)())
    }
}

/// A module as it is stored: what can be derived is left out.
struct Stored<'t>(&'t Module);

impl Serialize for Stored<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let module = self.0;
        let mut map = serializer.serialize_map(None)?;
        if let Some(class) = &module.class {
            map.serialize_entry("class", class)?;
        }
        if let Some(alias) = &module.alias_of {
            map.serialize_entry("alias_of", alias)?;
        }
        let lists = [
            ("forward_args", &module.forward_args),
            ("direct_parameters", &module.direct_parameters),
            ("direct_buffers", &module.direct_buffers),
        ];
        for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            map.serialize_entry(key, list)?;
        }
        if !module.forward_defaults.is_empty() {
            map.serialize_entry("forward_defaults", &module.forward_defaults)?;
        }
        if !module.children.is_empty() {
            map.serialize_entry(
                "children",
                &Entries(|| module.children.iter().map(|(name, class)| (name, class))),
            )?;
        }
        map.end()
    }
}

/// The entry of the model.
struct Whole<'m> {
    model: &'m Model,
    hierarchy: &'m Hierarchy,
    policy: &'m Policy,
}

impl Serialize for Whole<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut anchors: Vec<(&str, Vec<usize>)> = Vec::new();
        let mut weak: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, node) in self.model.nodes() {
            let origin = self.hierarchy.origin(id);
            let Some(&output) = node.outputs().iter().flatten().next() else { continue };
            let name = &**self.model.value(output).name();
            if origin.evidence == Evidence::Root {
                continue;
            }
            anchors.push((name, origin.modules.iter().map(|module| module.index()).collect()));
            if origin.evidence.certainty() != Certainty::Exact {
                weak.entry(origin.evidence.name()).or_default().push(name);
            }
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema_version", SCHEMA_VERSION)?;
        map.serialize_entry("fingerprint", &fingerprint(self.model))?;
        map.serialize_entry("policy", self.policy)?;
        let modules = || self.hierarchy.table().iter().map(|(_, module)| (&*module.path, Stored(module)));
        map.serialize_entry("modules", &Entries(modules))?;
        map.serialize_entry("anchors", &Entries(|| anchors.iter().map(|(name, modules)| (name, modules))))?;
        map.serialize_entry("weak", &weak)?;
        map.end()
    }
}

/// Names that nodes can be told apart by: their own where no other has it, else their place.
pub fn names(model: &Model) -> HashMap<NodeId, String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (_, node) in model.nodes() {
        *counts.entry(node.name().map_or("", |name| name)).or_default() += 1;
    }
    let places = places(model);
    let name = |(id, node): (NodeId, &Node)| {
        let own = node.name().filter(|name| !name.is_empty() && counts.get(&***name) == Some(&1));
        let place = || places.get(&id).cloned().unwrap_or_default();
        (id, own.map_or_else(place, ToString::to_string))
    };
    model.nodes().map(name).collect()
}

/// Nodes by module and modules by node, each node by a name that no other has.
pub struct Operations<'m> {
    hierarchy: &'m Hierarchy,
    tags: &'m Tags,
    /// In the order of the model.
    nodes: Vec<(NodeId, String)>,
    /// Places in that list, by module.
    by_module: Vec<Vec<usize>>,
}

impl<'m> Operations<'m> {
    /// Of a model.
    pub fn new(model: &Model, hierarchy: &'m Hierarchy, tags: &'m Tags) -> Self {
        let mut names = names(model);
        let nodes: Vec<(NodeId, String)> =
            model.nodes().map(|(id, _)| (id, names.remove(&id).unwrap_or_default())).collect();
        let mut by_module = vec![Vec::new(); hierarchy.table().len()];
        for (place, (id, _)) in nodes.iter().enumerate() {
            for module in &hierarchy.origin(*id).modules {
                by_module[module.index()].push(place);
            }
        }
        Self { hierarchy, tags, nodes, by_module }
    }

    /// Names of nodes by the path of their module.
    pub fn by_module(&self) -> impl Serialize + '_ {
        let names = |places: &Vec<usize>| -> Vec<&str> {
            places.iter().map(|&place| &*self.nodes[place].1).collect()
        };
        Entries(move || {
            let modules = self.hierarchy.table().iter().zip(&self.by_module);
            let some = modules.filter(|(_, nodes)| !nodes.is_empty());
            some.map(move |((_, module), nodes)| (&*module.path, names(nodes)))
        })
    }

    /// The tag of each node by its name.
    pub fn tags(&self) -> impl Serialize + '_ {
        let tag = |id: NodeId| self.tags.get(self.hierarchy.origin(id).primary());
        Entries(move || self.nodes.iter().map(move |(id, name)| (name, tag(*id))))
    }

    /// The path of each node's module by its name.
    pub fn paths(&self) -> impl Serialize + '_ {
        let path = |id: NodeId| &*self.hierarchy.table().get(self.hierarchy.origin(id).primary()).path;
        Entries(move || self.nodes.iter().map(move |(id, name)| (name, path(*id))))
    }
}

/// Where each node stands: `graph/12`, or `graph/12/then_branch/0` in a body.
pub fn places(model: &Model) -> HashMap<NodeId, String> {
    let mut places = HashMap::new();
    let functions = model.functions().iter().map(|&scope| {
        let called = model.called_as(scope).map(|op| op.to_string()).unwrap_or_default();
        (scope, format!("function {called}"))
    });
    let mut open: Vec<_> = std::iter::once((model.main(), "graph".to_owned())).chain(functions).collect();
    while let Some((scope, prefix)) = open.pop() {
        for (index, (id, node)) in model.nodes_in(scope).enumerate() {
            let place = format!("{prefix}/{index}");
            for attr in node.attrs() {
                for (number, &body) in attr.scopes().iter().enumerate() {
                    let which =
                        if number == 0 { attr.name.to_string() } else { format!("{}[{number}]", attr.name) };
                    open.push((body, format!("{place}/{which}")));
                }
            }
            places.insert(id, place);
        }
    }
    places
}
