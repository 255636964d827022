//! Metadata: what is written beside a model, its graphs and nodes, and changes nothing of what it computes. The journal does not list it.

use crate::id::NodeId;
use crate::model::Model;
use crate::scope::{Listed, ScopeKind};
use onnxforge_proto::Str;
use onnxforge_proto::schema::StringStringEntryProto;

impl Model {
    /// Sets a metadata entry of a node, or removes it.
    pub fn annotate(&mut self, node: NodeId, key: &str, value: Option<Str>) {
        set(&mut self.nodes[node].metadata, key, value);
    }

    /// Sets a metadata entry of the model, or removes it.
    pub fn annotate_model(&mut self, key: &str, value: Option<Str>) {
        set(&mut self.header.metadata_props, key, value);
    }

    /// Gives a node another name.
    pub fn name_node(&mut self, node: NodeId, name: &str) {
        self.nodes[node].name = Some(name.into());
    }

    /// Gives the graph of the model another name.
    pub fn name_graph(&mut self, name: &str) {
        if let ScopeKind::Main(graph) = &mut self.scopes[self.main].kind {
            graph.name = Some(name.into());
        }
    }

    /// Keeps only metadata entries with these keys: of the model, its graphs, functions, nodes and declared values. The answer is
    /// how many went.
    pub fn retain_metadata(&mut self, keep: &dyn Fn(&str) -> bool) -> usize {
        let mut gone = 0;
        let mut retain = |entries: &mut Vec<StringStringEntryProto>| {
            let before = entries.len();
            entries.retain(|entry| entry.key.as_deref().is_none_or(keep));
            gone += before - entries.len();
        };
        retain(&mut self.header.metadata_props);
        let nodes: Vec<NodeId> = self.nodes().map(|(id, _)| id).collect();
        for id in nodes {
            retain(&mut self.nodes[id].metadata);
        }
        let values: Vec<_> = self.values().map(|(id, _)| id).collect();
        for id in values {
            if let Some(info) = &mut self.values[id].info {
                retain(&mut info.metadata_props);
            }
        }
        let scopes: Vec<_> = self.scopes().map(|(id, _)| id).collect();
        for id in scopes {
            let scope = &mut self.scopes[id];
            match &mut scope.kind {
                ScopeKind::Main(graph) | ScopeKind::Body { rest: graph, .. } => {
                    retain(&mut graph.metadata_props);
                }
                ScopeKind::Function(function) => retain(&mut function.metadata_props),
            }
            for port in scope.inputs.iter_mut().chain(&mut scope.outputs) {
                retain(&mut port.info.metadata_props);
            }
            for listed in &mut scope.listed {
                if let Listed::Stray(info) = listed {
                    retain(&mut info.metadata_props);
                }
            }
        }
        gone
    }

    /// Removes the documentation of nodes that `leaks` says so of. The answer is of how many.
    pub fn forget_docs(&mut self, leaks: &dyn Fn(&str) -> bool) -> usize {
        let mut gone = 0;
        let nodes: Vec<NodeId> = self.nodes().map(|(id, _)| id).collect();
        for id in nodes {
            if let Some(notes) = &mut self.nodes[id].notes
                && notes.doc_string.as_deref().is_some_and(leaks)
            {
                notes.doc_string = None;
                gone += 1;
            }
        }
        gone
    }
}

/// Sets the first entry with this key and removes others; a new one comes last.
fn set(entries: &mut Vec<StringStringEntryProto>, key: &str, value: Option<Str>) {
    let is_it = |entry: &StringStringEntryProto| entry.key.as_deref() == Some(key);
    let at = entries.iter().position(is_it).unwrap_or(entries.len());
    entries.retain(|entry| !is_it(entry));
    if let Some(value) = value {
        let entry = StringStringEntryProto {
            key: Some(key.into()),
            value: Some(value),
            ..StringStringEntryProto::default()
        };
        entries.insert(at.min(entries.len()), entry);
    }
}
