//! The file beside a model, `<model>_hierarchy.json`: modules, nodes, tensors and how much of it is known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::Value as Json;

use super::consumers::{self, Reach, tags_of, tensors};
use super::coverage::{Coverage, Thresholds, coverage};
use super::module::{Module, ModuleId};
use super::recorded::SCHEMA_VERSION;
use super::store::{Entries, Operations, distinct, fingerprint, places};
use super::{Hierarchy, Policy, Tags};
use onnxforge_ir::{Model, ValueId};

/// Where the sidecar of a model lies.
pub fn path_for(model: &Path) -> PathBuf {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    model.with_file_name(format!("{stem}_hierarchy.json"))
}

/// The sidecar of a model, to be written as JSON.
pub struct Sidecar<'m> {
    /// The model.
    pub model: &'m Model,
    /// The file that it goes with.
    pub file: String,
    /// Its hierarchy.
    pub hierarchy: &'m Hierarchy,
    /// Its tags.
    pub tags: &'m Tags,
    /// What they were made under.
    pub policy: &'m Policy,
    /// What share of each category should be known.
    pub thresholds: &'m Thresholds,
    /// The modules that need each tensor through any number of nodes, where they are wanted.
    pub reach: Option<&'m Reach>,
}

impl Serialize for Sidecar<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (model, table) = (self.model, self.hierarchy.table());
        let root = table.get(ModuleId::ROOT);
        let header = model.header();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema_version", SCHEMA_VERSION)?;
        map.serialize_entry("model_file", &self.file)?;
        map.serialize_entry("fingerprint", &fingerprint(model))?;
        let made_by = [("name", &header.producer_name), ("version", &header.producer_version)];
        map.serialize_entry("producer", &Entries(|| made_by.into_iter()))?;
        map.serialize_entry("written_by", concat!("onnxforge ", env!("CARGO_PKG_VERSION")))?;
        map.serialize_entry("model_class", &root.class.as_deref())?;
        map.serialize_entry(
            "model_signature",
            &serde_json::json!({
                "forward_args": root.forward_args,
                "forward_defaults": root.forward_defaults,
            }),
        )?;
        map.serialize_entry("hierarchy_depth", &table.deepest())?;
        map.serialize_entry("policy", self.policy)?;
        map.serialize_entry(
            "modules",
            &Entries(|| table.iter().map(|(id, module)| (&*module.path, self.module(id, module)))),
        )?;
        map.serialize_entry(
            "expected_hierarchy",
            &Entries(|| self.tags.own().map(|(tag, id)| (tag, [&*table.get(id).path]))),
        )?;
        let operations = Operations::new(model, self.hierarchy, self.tags);
        map.serialize_entry("module_to_operations", &operations.by_module())?;
        map.serialize_entry("operation_hierarchy", &operations.tags())?;
        map.serialize_entry("hierarchy_mapping", &operations.paths())?;
        let unnamed = String::new();
        let places = places(model);
        let place = |id| places.get(&id).unwrap_or(&unnamed);
        map.serialize_entry("nodes", &Entries(|| model.nodes().map(|(id, _)| (place(id), self.node(id)))))?;
        let names = consumers::names(model);
        let name = |id| names.get(&id).unwrap_or(&unnamed);
        let all = || tensors(model).map(|(id, _)| (name(id), self.tensor(id)));
        map.serialize_entry("tensors", &Entries(all))?;
        let found = coverage(model, self.hierarchy, self.tags, self.thresholds);
        map.serialize_entry("summary", &Summary { coverage: &found, modules: table.len() })?;
        map.end()
    }
}

impl Sidecar<'_> {
    fn module(&self, id: ModuleId, module: &Module) -> Json {
        let table = self.hierarchy.table();
        let listed = || -> Vec<(String, String)> {
            let class = |inner| table.get(inner).short_class().unwrap_or_default().to_owned();
            table.children(id).map(|(name, inner)| (name.to_owned(), class(inner))).collect()
        };
        let children = if module.children.is_empty() { listed() } else { module.children.clone() };
        let mut entry = serde_json::json!({
            "class": module.short_class(),
            "qualified_class": module.class.as_deref(),
            "module_path": &*module.path,
            "tag": self.tags.get(id),
            "forward_args": module.forward_args,
            "forward_defaults": module.forward_defaults,
            "parameters": table.parameters(id),
            "direct_parameters": module.direct_parameters,
            "direct_buffers": module.direct_buffers,
            "children": children.into_iter().collect::<BTreeMap<_, _>>(),
        });
        if let (Some(alias), Some(entry)) = (&module.alias_of, entry.as_object_mut()) {
            entry.insert("alias_of".to_owned(), Json::from(&**alias));
        }
        entry
    }

    fn node(&self, id: onnxforge_ir::NodeId) -> Json {
        let node = self.model.node(id);
        let origin = self.hierarchy.origin(id);
        let outputs: Vec<&str> =
            node.outputs().iter().flatten().map(|&value| &**self.model.value(value).name()).collect();
        serde_json::json!({
            "name": node.name().map(|name| &**name),
            "op": node.op().to_string(),
            "outputs": outputs,
            "modules": self.hierarchy.table().paths(&origin.modules),
            "tags": distinct(origin, self.tags),
            "consumers": self.hierarchy.table().paths(&self.hierarchy.node_consumers(self.model, id)),
            "evidence": origin.evidence.name(),
            "certainty": origin.evidence.certainty(),
            "confidence": self.hierarchy.confidence(id),
        })
    }

    fn tensor(&self, id: ValueId) -> Json {
        let (model, hierarchy) = (self.model, self.hierarchy);
        let made = consumers::producers(model, hierarchy, id);
        let read = hierarchy.consumers(model, id);
        let paths =
            |modules: &[ModuleId]| hierarchy.table().paths(modules).into_iter().map(Json::from).collect();
        let tags = |modules: Vec<ModuleId>| -> Json {
            tags_of(self.tags, modules).into_iter().map(Json::from).collect()
        };
        let mut entry = serde_json::Map::new();
        entry.insert("kind".to_owned(), Json::from(consumers::kind(model, id)));
        entry.insert("modules".to_owned(), paths(made));
        entry.insert("consumers".to_owned(), paths(&read));
        entry.insert("tags".to_owned(), tags(made.iter().chain(&read).copied().collect()));
        entry.insert("consumer_tags".to_owned(), tags(read));
        if let Some(reach) = self.reach {
            let all = reach.consumers(model, id);
            entry.insert("transitive_consumers".to_owned(), paths(&all));
            entry.insert("transitive_consumer_tags".to_owned(), tags(all));
        }
        Json::Object(entry)
    }
}

/// How much is known; categories by name.
struct Summary<'c> {
    modules: usize,
    coverage: &'c Coverage,
}

impl Serialize for Summary<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let found = self.coverage;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("total_operations", &found.counts.nodes)?;
        map.serialize_entry("tagged_operations", &found.counts.known())?;
        map.serialize_entry("modules", &self.modules)?;
        map.serialize_entry("nodes", &found.counts)?;
        map.serialize_entry("coverage", &found.coverage)?;
        map.serialize_entry("confidence", &found.confidence)?;
        map.serialize_entry("with_parameters", &found.with_parameters)?;
        map.serialize_entry("evidence", &found.evidence)?;
        let categories = || found.categories.iter().map(|category| (category.category, category));
        map.serialize_entry("category_statistics", &Entries(categories))?;
        map.serialize_entry("consumers", &found.consumers)?;
        map.serialize_entry("uncovered", &found.uncovered)?;
        map.serialize_entry("modules_without_nodes", &found.without_nodes)?;
        map.end()
    }
}
