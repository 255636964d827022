//! Names for new values, and for nodes that have none: readable, and never one that is taken anywhere in the model.

use std::collections::{HashMap, HashSet};

use onnxforge_proto::Str;

use crate::NodeId;
use crate::model::Model;

/// Every name that a value of the model has or had, or that is declared somewhere.
#[derive(Clone, Debug, Default)]
pub struct Names {
    taken: HashSet<Str>,
    /// Names that several values have, somewhere in the model.
    repeated: HashSet<Str>,
    /// Names of the nodes of the file.
    nodes: HashSet<Str>,
    /// Names that several nodes of the file have, somewhere in the model.
    repeated_nodes: HashSet<Str>,
    /// The next number to try for a hint.
    next: HashMap<Str, u64>,
}

impl Names {
    /// Marks `name` as taken.
    pub fn take(&mut self, name: Str) {
        if !self.taken.insert(name.clone()) {
            self.repeated.insert(name);
        }
    }

    /// Whether several values have this name, so that it may mean another value in an inner scope.
    pub fn is_repeated(&self, name: &str) -> bool {
        self.repeated.contains(name)
    }

    /// Notes the name of a node of the file.
    pub fn take_node(&mut self, name: Str) {
        if !self.nodes.insert(name.clone()) {
            self.repeated_nodes.insert(name);
        }
    }

    /// Whether several nodes of the file have this name, so that it may clash in another scope.
    pub fn is_repeated_node(&self, name: &str) -> bool {
        self.repeated_nodes.contains(name)
    }

    /// A name that starts with `hint` and is not taken; it is taken now.
    pub fn fresh(&mut self, hint: &str) -> Str {
        let mut name: Str = hint.into();
        let next = self.next.entry(name.clone()).or_insert(1);
        while name.is_empty() || self.taken.contains(&name) {
            name = format!("{hint}_{next}").into();
            *next += 1;
        }
        self.taken.insert(name.clone());
        name
    }
}

impl Model {
    /// Names every node that has no name, after its operator: `Conv_0`, `Conv_1`. Answers how many there were.
    pub fn name_nodes(&mut self) -> usize {
        let named = |name: &Option<Str>| name.as_ref().is_some_and(|name| !name.is_empty());
        let mut taken: HashSet<Str> = self.nodes().filter_map(|(_, node)| node.name().cloned()).collect();
        let nameless: Vec<NodeId> =
            self.nodes().filter(|(_, node)| !named(&node.name)).map(|(id, _)| id).collect();
        let mut next: HashMap<Str, u64> = HashMap::new();
        for &id in &nameless {
            let operator = self.nodes[id].op.name.clone();
            let number = next.entry(operator.clone()).or_default();
            let name = loop {
                let name: Str = format!("{operator}_{number}").into();
                *number += 1;
                if taken.insert(name.clone()) {
                    break name;
                }
            };
            self.nodes[id].name = Some(name);
        }
        nameless.len()
    }
}
