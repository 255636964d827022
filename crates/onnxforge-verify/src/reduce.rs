//! The smallest part of a model that still shows something.

use std::collections::{BTreeSet, HashSet};

use onnxforge_ir::{Model, NodeId, Use, ValueId};
use onnxforge_ops::infer::Inference;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::schema::ValueInfoProto;

/// What reducing has found.
#[derive(Debug)]
pub struct Reduced {
    /// The part.
    pub model: Model,
    /// How many parts were tried.
    pub tried: usize,
    /// Whether nothing smaller shows it: no node and no output can be taken away. Otherwise time was up.
    pub is_minimal: bool,
}

/// The smallest part of the model for which `shows` holds, as far as taking away nodes and outputs leads to it. What a part reads and
/// does not compute becomes an input. `None`: it does not hold for the model itself.
pub fn reduce(
    model: &Model,
    deadline: Option<Instant>,
    shows: &mut dyn FnMut(&Model) -> bool,
) -> Option<Reduced> {
    if !shows(model) {
        return None;
    }
    let mut search = Search { model, facts: Inference::of(model), deadline, shows, tried: 1 };
    let mut nodes: Vec<NodeId> = model.nodes_in(model.main()).map(|(id, _)| id).collect();
    let mut outputs = search.ends(&nodes);
    let mut best = None;
    loop {
        let before = (nodes.len(), outputs.len());
        search.fewer_nodes(&mut nodes, &mut outputs, &mut best);
        search.fewer_outputs(&mut nodes, &mut outputs, &mut best);
        if search.is_late() || (nodes.len(), outputs.len()) == before {
            break;
        }
    }
    let is_minimal = !search.is_late();
    Some(Reduced { model: best.unwrap_or_else(|| model.clone()), tried: search.tried, is_minimal })
}

struct Search<'a> {
    model: &'a Model,
    facts: Inference,
    deadline: Option<Instant>,
    shows: &'a mut dyn FnMut(&Model) -> bool,
    tried: usize,
}

impl Search<'_> {
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() > deadline)
    }

    /// The part of these nodes with these outputs, if it still shows.
    fn attempt(&mut self, nodes: &[NodeId], outputs: &[ValueId]) -> Option<Model> {
        if nodes.is_empty() || outputs.is_empty() || self.is_late() {
            return None;
        }
        self.tried += 1;
        let main = self.model.scope(self.model.main());
        let declare = |value: ValueId| {
            let port = main.inputs().iter().chain(main.outputs()).find(|port| port.value == value);
            port.map(|port| (*port.info).clone()).unwrap_or_else(|| ValueInfoProto {
                r#type: self.facts.declaration(value).map(Box::new),
                ..ValueInfoProto::default()
            })
        };
        let part = self.model.cut(nodes, outputs, &declare).model;
        (self.shows)(&part).then_some(part)
    }

    /// What a part computes for others: outputs of the model, and what nodes beyond it read, or nobody.
    fn ends(&self, nodes: &[NodeId]) -> Vec<ValueId> {
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let mut ends = Vec::new();
        for &node in nodes {
            for &value in self.model.node(node).outputs().iter().flatten() {
                let uses = self.model.value(value).uses();
                let leaves = |used: &Use| match *used {
                    Use::Output { scope, .. } => scope == self.model.main(),
                    Use::Input { node, .. } => {
                        self.outermost(node).is_none_or(|node| !inside.contains(&node))
                    }
                };
                if uses.is_empty() || uses.iter().any(leaves) {
                    ends.push(value);
                }
            }
        }
        ends
    }

    /// The node of the main graph that a node is, or in whose body it stands.
    fn outermost(&self, mut node: NodeId) -> Option<NodeId> {
        loop {
            let scope = self.model.node(node).scope();
            if scope == self.model.main() {
                return Some(node);
            }
            node = self.model.scope(scope).holder()?;
        }
    }

    /// Takes away as many nodes as possible, in large pieces first.
    fn fewer_nodes(&mut self, nodes: &mut Vec<NodeId>, outputs: &mut Vec<ValueId>, best: &mut Option<Model>) {
        let mut size = nodes.len().div_ceil(2);
        while size > 0 && !self.is_late() {
            let mut start = 0;
            let before = nodes.len();
            while start < nodes.len() {
                let end = (start + size).min(nodes.len());
                let fewer: Vec<NodeId> = [&nodes[..start], &nodes[end..]].concat();
                let ends = self.ends(&fewer);
                match self.attempt(&fewer, &ends) {
                    Some(part) => (*nodes, *outputs, *best) = (fewer, ends, Some(part)),
                    None => start = end,
                }
            }
            if nodes.len() == before || size > nodes.len() {
                size /= 2;
            }
        }
    }

    /// Takes away as many outputs as possible, and what only they need.
    fn fewer_outputs(
        &mut self,
        nodes: &mut Vec<NodeId>,
        outputs: &mut Vec<ValueId>,
        best: &mut Option<Model>,
    ) {
        let mut place = 0;
        while place < outputs.len() && outputs.len() > 1 && !self.is_late() {
            let mut fewer = outputs.clone();
            fewer.remove(place);
            let needed = self.needed(nodes, &fewer);
            match self.attempt(&needed, &fewer) {
                Some(part) => (*nodes, *outputs, *best) = (needed, fewer, Some(part)),
                None => place += 1,
            }
        }
    }

    /// Those of the nodes that the outputs need.
    fn needed(&self, nodes: &[NodeId], outputs: &[ValueId]) -> Vec<NodeId> {
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let mut needed = BTreeSet::new();
        let mut open: Vec<ValueId> = outputs.to_vec();
        while let Some(value) = open.pop() {
            let Some(node) = self.model.value(value).node().filter(|node| inside.contains(node)) else {
                continue;
            };
            if needed.insert(node) {
                open.extend(self.model.reads(node));
            }
        }
        nodes.iter().copied().filter(|node| needed.contains(node)).collect()
    }
}
