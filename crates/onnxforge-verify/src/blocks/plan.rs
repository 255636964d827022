//! Which nodes run together when models are compared block by block, and what is compared after each block.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::pairs::{Pairs, results};
use crate::draws::is_random;
use onnxforge_ir::{Model, NodeId, ValueId};
use onnxforge_ops::callee::constant_nodes;
use onnxforge_ops::eval::shapes::{Search, Wanted};
use onnxforge_ops::liveness::peak;

/// Bytes of constants in a block, unless a single node has more.
const WEIGHTS: u64 = 16 << 20;
/// Bytes of values that a block computes, unless a single node has more.
const VALUES: u64 = 16 << 20;
/// Nodes in a block.
const NODES: usize = 256;
/// Models with more bytes of constants than this are compared block by block.
const LARGE: u64 = 32 << 20;
/// Unless the values that are there at one time take more than this share of that.
const SHARE: u64 = 4;

/// A value that both models compute.
pub struct Twin {
    /// In each of them.
    pub values: [ValueId; 2],
    /// The nodes that compute it from the nearest other values that both compute, in each model.
    pub nodes: [Vec<NodeId>; 2],
    /// Those values, in the first.
    pub from: BTreeSet<ValueId>,
    /// Both models compute it by the very same nodes, of the same constants.
    pub is_same: bool,
}

/// A stretch of nodes of the first model.
#[derive(Default)]
pub struct Block {
    pub nodes: Vec<NodeId>,
    /// What of its results is read after it, or compared.
    pub outputs: Vec<ValueId>,
    /// What can be compared when it has run.
    pub twins: Vec<Twin>,
    /// What nobody needs after it.
    pub last: Vec<ValueId>,
}

/// Whether a model and what was made of it are best compared block by block: a session of a whole model takes its weights several times.
pub fn suits_blocks(model: &Model) -> bool {
    let weights = model.stored_bytes();
    if weights <= LARGE || is_random(model) {
        return false;
    }
    let Some(shapes) = Search::new(model, Wanted::default()).next() else { return true };
    // What follows from constants alone is computed where it is read.
    let constant = constant_nodes(model);
    let follows = |value: ValueId| model.value(value).node().is_some_and(|node| constant.contains(&node));
    let bytes = |value: ValueId| if follows(value) { Some(0) } else { shapes.bytes_of(value) };
    peak(model, &bytes).bytes <= weights / SHARE
}

/// Blocks of the first model, each with what can be compared after it. `bytes` is the size of a value.
pub fn plan(
    first: &Model,
    second: &Model,
    pairs: &Pairs,
    bytes: &dyn Fn(ValueId) -> Option<u64>,
) -> Vec<Block> {
    let prepared = prepared(first, pairs);
    let mut blocks: Vec<Block> = Vec::new();
    let (mut weights, mut values) = (u64::MAX, 0u64);
    for (node, _) in first.nodes_in(first.main()).filter(|(node, _)| !prepared.contains(node)) {
        let with_it = with_prepared(first, node, &prepared);
        let read = with_it.iter().flat_map(|&node| first.reads(node));
        let own: u64 = read.filter_map(|value| Some(first.constant(value)?.byte_len())).sum();
        let made = first.node(node).outputs().iter().flatten().filter_map(|&value| bytes(value)).sum();
        (weights, values) = (weights.saturating_add(own), values.saturating_add(made));
        let is_full = |block: &Block| block.nodes.len() >= NODES || values > VALUES;
        if weights > WEIGHTS || blocks.last().is_none_or(is_full) {
            blocks.push(Block::default());
            (weights, values) = (own, made);
        }
        if let Some(block) = blocks.last_mut() {
            let new: Vec<NodeId> = with_it.into_iter().filter(|node| !block.nodes.contains(node)).collect();
            block.nodes.extend(new);
        }
    }
    let is_prepared = |value: ValueId| first.value(value).node().is_some_and(|node| prepared.contains(&node));
    // The block after which each value is there.
    let mut made: HashMap<ValueId, usize> = HashMap::new();
    for (place, block) in blocks.iter().enumerate() {
        let results = block.nodes.iter().flat_map(|&node| first.node(node).outputs().iter().flatten());
        made.extend(results.filter(|value| !is_prepared(**value)).map(|&value| (value, place)));
    }
    let mut last: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut need = |value: ValueId, place: usize| {
        let entry = last.entry(value).or_default();
        *entry = place.max(*entry);
    };
    for value in results(first) {
        let Some(&other) = pairs.second.get(&value) else { continue };
        let (a, mut from) = nearest(first, value, &pairs.second);
        let (b, others) = nearest(second, other, &pairs.first);
        from.extend(others.into_iter().filter_map(|value| pairs.in_first(1, value)));
        let ready =
            from.iter().chain([&value]).filter_map(|value| made.get(value)).max().copied().unwrap_or(0);
        let is_same = pairs.one_origin && is_same([first, second], [&a, &b]);
        if !is_same || first.value(value).is_exposed() {
            from.iter().chain([&value]).for_each(|&value| need(value, ready));
        }
        if let Some(block) = blocks.get_mut(ready) {
            block.twins.push(Twin { values: [value, other], nodes: [a, b], from, is_same });
        }
    }
    for (place, block) in blocks.iter().enumerate() {
        for &node in &block.nodes {
            let read = first.reads(node).into_iter().filter(|value| !is_prepared(*value));
            read.for_each(|value| need(value, place));
        }
    }
    for (place, block) in blocks.iter_mut().enumerate() {
        let results =
            block.nodes.iter().flat_map(|&node| first.node(node).outputs().iter().flatten().copied());
        let compared: HashSet<ValueId> = block
            .twins
            .iter()
            .filter(|twin| !twin.is_same || first.value(twin.values[0]).is_exposed())
            .flat_map(|twin| twin.from.iter().chain([&twin.values[0]]))
            .copied()
            .collect();
        let outlives =
            |value: &ValueId| last.get(value).is_some_and(|&end| end > place) || compared.contains(value);
        block.outputs = results.filter(outlives).collect();
    }
    for (value, place) in last {
        if let Some(block) = blocks.get_mut(place) {
            block.last.push(value);
        }
    }
    blocks
}

/// Whether these nodes of two models, of which one was made from the other, are the very same, and read the same constants.
fn is_same([first, second]: [&Model; 2], [nodes, others]: [&[NodeId]; 2]) -> bool {
    let same_constant = |value: ValueId| match (first.constant(value), second.constant(value)) {
        (Some(a), Some(b)) => a.same_bits(b),
        (None, None) => true,
        _ => false,
    };
    let same = |&node: &NodeId| {
        let (mine, theirs) = (first.reads(node), second.reads(node));
        let inside = first.nodes_inside(node) == second.nodes_inside(node);
        inside && mine == theirs && mine.into_iter().all(same_constant)
    };
    nodes == others && nodes.iter().all(same)
}

/// The nodes of the graph that compute from constants alone what the other model does not compute.
fn prepared(model: &Model, pairs: &Pairs) -> HashSet<NodeId> {
    let mut nodes = constant_nodes(model);
    let is_own = |value: &ValueId| !pairs.second.contains_key(value) && !model.value(*value).is_exposed();
    nodes.retain(|&id| {
        let node = model.node(id);
        node.scope() == model.main() && node.outputs().iter().flatten().all(is_own)
    });
    nodes
}

/// A node, and those of `prepared` that it needs.
fn with_prepared(model: &Model, node: NodeId, prepared: &HashSet<NodeId>) -> BTreeSet<NodeId> {
    let (mut found, mut open) = (BTreeSet::from([node]), vec![node]);
    while let Some(at) = open.pop() {
        let makers = model.reads(at).into_iter().filter_map(|value| model.value(value).node());
        open.extend(makers.filter(|maker| prepared.contains(maker) && found.insert(*maker)));
    }
    found
}

/// The nodes that compute a value from values that both models compute, and those values.
fn nearest(
    model: &Model,
    value: ValueId,
    known: &HashMap<ValueId, ValueId>,
) -> (Vec<NodeId>, BTreeSet<ValueId>) {
    let (mut nodes, mut from) = (BTreeSet::new(), BTreeSet::new());
    let mut open = vec![value];
    while let Some(at) = open.pop() {
        let Some(node) = model.value(at).node() else {
            if model.constant(at).is_none() {
                from.insert(at);
            }
            continue;
        };
        if at != value && known.contains_key(&at) {
            from.insert(at);
            continue;
        }
        if model.node(node).scope() == model.main() && nodes.insert(node) {
            open.extend(model.reads(node).into_iter().filter(|&read| is_outside(model, read)));
        }
    }
    (nodes.into_iter().collect(), from)
}

/// Whether a value belongs to the main graph.
fn is_outside(model: &Model, value: ValueId) -> bool {
    model.scope_of(value) == Some(model.main())
}
