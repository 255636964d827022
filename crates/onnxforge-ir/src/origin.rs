//! Where nodes come from, and what became of the nodes of the file.

use std::collections::{BTreeSet, HashMap};

use super::id::{Arena, NodeId, OriginId, ValueId};
use onnxforge_proto::Str;

/// Where a node comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It stands in the file.
    Source(NodeId),
    /// A rule made it out of others.
    Derived {
        /// The rule.
        rule: Str,
        /// The origins of the nodes that the rule consumed, in their order, each once.
        parents: Box<[OriginId]>,
    },
}

/// All origins of a model, each stored once.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    entries: Arena<OriginId, Origin>,
    known: HashMap<Origin, OriginId>,
}

impl Origins {
    /// The id of this origin.
    pub fn intern(&mut self, origin: Origin) -> OriginId {
        if let Some(&id) = self.known.get(&origin) {
            return id;
        }
        let id = self.entries.push(origin.clone());
        self.known.insert(origin, id);
        id
    }

    /// What an id stands for.
    pub fn get(&self, id: OriginId) -> &Origin {
        &self.entries[id]
    }

    /// The nodes of the file that `id` goes back to, in the order in which rules consumed them.
    pub fn sources(&self, id: OriginId) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            if !seen.insert(id) {
                continue;
            }
            match self.get(id) {
                Origin::Source(node) => found.push(*node),
                Origin::Derived { parents, .. } => stack.extend(parents.iter().rev()),
            }
        }
        found
    }
}

/// What became of a node of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is still there.
    Kept,
    /// It lives on in these nodes.
    Merged(Vec<NodeId>),
    /// It was computed; its result is part of these constants.
    Folded(Vec<ValueId>),
    /// Nothing that is left depends on it.
    Dead,
}
