//! The graph for Model Explorer's JSON adapter: nodes grouped by module, at any depth.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value as Json, json};

use super::module::ModuleId;
use super::store::places;
use super::{Hierarchy, Tags};
use onnxforge_ir::{Model, NodeId, ScopeId, ValueId};
use onnxforge_ops::infer::Inference;

/// The graph as Model Explorer reads it: the main graph, and one for each function.
pub fn graphs(model: &Model, name: &str, hierarchy: &Hierarchy, tags: &Tags, facts: &Inference) -> Json {
    let explorer = Explorer { model, hierarchy, facts, places: places(model) };
    let functions = model.functions().iter().map(|&scope| {
        let called = model.called_as(scope).map(|op| op.to_string()).unwrap_or_default();
        explorer.graph(scope, &called, tags)
    });
    let graphs: Vec<Json> =
        std::iter::once(explorer.graph(model.main(), name, tags)).chain(functions).collect();
    json!({ "label": name, "graphs": graphs })
}

struct Explorer<'m> {
    model: &'m Model,
    hierarchy: &'m Hierarchy,
    facts: &'m Inference,
    places: HashMap<NodeId, String>,
}

impl Explorer<'_> {
    fn graph(&self, scope: ScopeId, id: &str, tags: &Tags) -> Json {
        let mut nodes = Vec::new();
        let mut groups: BTreeSet<ModuleId> = BTreeSet::new();
        for port in self.model.scope(scope).inputs() {
            nodes.push(json!({
                "id": self.input_id(port.value),
                "label": &**self.model.value(port.value).name(),
                "namespace": "",
                "outputsMetadata": [self.shape(0, port.value)],
            }));
        }
        for inner in self.model.scopes_within(scope) {
            for (node, _) in self.model.nodes_in(inner) {
                groups.extend(self.hierarchy.table().chain(self.hierarchy.origin(node).primary()));
                nodes.push(self.node(node));
            }
        }
        let attributes: BTreeMap<String, Json> =
            groups.iter().map(|&module| (self.namespace(module), self.group(module, tags))).collect();
        json!({ "id": id, "nodes": nodes, "groupNodeAttributes": attributes })
    }

    fn node(&self, id: NodeId) -> Json {
        let node = self.model.node(id);
        let origin = self.hierarchy.origin(id);
        let edges = node.inputs().iter().enumerate().filter_map(|(index, &value)| {
            let value = value?;
            let (source, output) = match self.model.value(value).def() {
                onnxforge_ir::Def::Node { node, index } => (self.places.get(node)?.clone(), *index),
                onnxforge_ir::Def::Input { .. } => (self.input_id(value), 0),
                _ => return None,
            };
            Some(json!({ "sourceNodeId": source, "sourceNodeOutputId": output.to_string(), "targetNodeInputId": index.to_string() }))
        });
        let outputs =
            node.outputs().iter().enumerate().filter_map(|(index, &value)| Some(self.shape(index, value?)));
        let mut attrs = vec![attr("evidence", origin.evidence.words())];
        attrs.extend(node.name().map(|name| attr("name", name)));
        let others = origin.modules.iter().skip(1).map(|&module| &*self.hierarchy.table().get(module).path);
        attrs.extend(others.map(|path| attr("also from", path)));
        json!({
            "id": self.places.get(&id),
            "label": node.op().to_string(),
            "namespace": self.namespace(origin.primary()),
            "attrs": attrs,
            "incomingEdges": edges.collect::<Vec<_>>(),
            "outputsMetadata": outputs.collect::<Vec<_>>(),
        })
    }

    fn input_id(&self, value: ValueId) -> String {
        format!("input {}", self.model.value(value).name())
    }

    fn shape(&self, index: usize, value: ValueId) -> Json {
        let shape = match self.facts.tensor(value) {
            Some(fact) => fact.display(self.facts.symbols()).to_string(),
            None => self.model.declared_type(value).to_string(),
        };
        let name = attr("tensor_name", self.model.value(value).name());
        json!({ "id": index.to_string(), "attrs": [name, attr("tensor_shape", &shape)] })
    }

    /// The levels of a module; names without the character between them.
    fn namespace(&self, module: ModuleId) -> String {
        let table = self.hierarchy.table();
        let mut levels: Vec<String> = Vec::new();
        for id in table.chain(module) {
            let above = table.parent(id).map_or("", |above| &table.get(above).path);
            let own = table.get(id).path.get(above.len()..).unwrap_or_default().trim_start_matches('.');
            let class = table.get(id).short_class().unwrap_or_default();
            let level = match (own, class) {
                ("", "") => "model".to_owned(),
                ("", class) => class.to_owned(),
                (own, "") => own.to_owned(),
                (own, class) => format!("{own} ({class})"),
            };
            levels.push(level.replace('/', "∕"));
        }
        levels.reverse();
        levels.join("/")
    }

    fn group(&self, module: ModuleId, tags: &Tags) -> Json {
        let listed = self.hierarchy.table().get(module);
        json!({ "path": &*listed.path, "tag": tags.get(module), "class": listed.class.as_deref().unwrap_or_default() })
    }
}

fn attr(key: &str, value: &str) -> Json {
    json!({ "key": key, "value": value })
}
