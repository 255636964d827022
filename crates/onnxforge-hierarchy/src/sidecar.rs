//! The file beside a model, `<model>_hierarchy.json`: modules, nodes, tensors and how much of it is known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::Value as Json;

use super::coverage::{Coverage, coverage};
use super::module::{Module, ModuleId};
use super::recorded::SCHEMA_VERSION;
use super::store::{Entries, distinct, fingerprint, names, places};
use super::{Hierarchy, Policy, Tags};
use onnxforge_ir::Model;

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
        map.serialize_entry(
            "model",
            &serde_json::json!({
                "class": root.class.as_deref(),
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
        let names = names(model);
        let unnamed = String::new();
        let name = |id| names.get(&id).unwrap_or(&unnamed);
        let mut of_module: Vec<Vec<&String>> = vec![Vec::new(); table.len()];
        for (id, _) in model.nodes() {
            for module in &self.hierarchy.origin(id).modules {
                of_module[module.index()].push(name(id));
            }
        }
        let with_nodes = || {
            table
                .iter()
                .map(|(id, module)| (&*module.path, &of_module[id.index()]))
                .filter(|(_, nodes)| !nodes.is_empty())
        };
        map.serialize_entry("module_to_operations", &Entries(with_nodes))?;
        let tag_of = |id| self.tags.get(self.hierarchy.origin(id).primary());
        map.serialize_entry(
            "operation_hierarchy",
            &Entries(|| model.nodes().map(|(id, _)| (name(id), tag_of(id)))),
        )?;
        let places = places(model);
        let place = |id| places.get(&id).unwrap_or(&unnamed);
        map.serialize_entry("nodes", &Entries(|| model.nodes().map(|(id, _)| (place(id), self.node(id)))))?;
        let stored = || model.initializers().map(|(id, _)| (&**model.value(id).name(), self.tensor(id)));
        map.serialize_entry("tensors", &Entries(stored))?;
        let found = coverage(model, self.hierarchy, self.tags);
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
            "class": module.class.as_deref(),
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
        })
    }

    fn tensor(&self, id: onnxforge_ir::ValueId) -> Json {
        serde_json::json!({
            "modules": self.hierarchy.table().paths(self.hierarchy.constant(id)),
            "consumers": self.hierarchy.table().paths(&self.hierarchy.consumers(self.model, id)),
        })
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
        map.serialize_entry("modules", &self.modules)?;
        map.serialize_entry("nodes", &found.counts)?;
        map.serialize_entry("coverage", &found.coverage)?;
        map.serialize_entry("with_parameters", &found.with_parameters)?;
        map.serialize_entry("evidence", &found.evidence)?;
        let categories = || found.categories.iter().map(|category| (category.category, category));
        map.serialize_entry("category_statistics", &Entries(categories))?;
        map.serialize_entry("uncovered", &found.uncovered)?;
        map.serialize_entry("modules_without_nodes", &found.without_nodes)?;
        map.end()
    }
}
