//! Shapes that are computed at run time.

use std::collections::{BTreeMap, HashSet};

use super::{Find, Found, Kind, On};
use crate::scene::{Left, Place, Scene};
use onnxforge_ir::{NodeId, ValueId};
use onnxforge_rewrite::passes::{Pass, eliminate, simplify};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        id: "shape_chains",
        text: "Integers that are computed from shapes at run time, for each that something else reads",
        on: On::File,
        passes: &[&simplify::simplify_shape_chains::PASS],
        otherwise: "something needs its elements at run time, and they are no numbers known beforehand",
        find: Find::Walk(chains),
    },
    Kind {
        id: "expand_add",
        text: "Expand whose result is only added: a sum repeats elements by itself",
        on: On::File,
        passes: &[&eliminate::eliminate_expand_identity::PASS],
        otherwise: "the Expand is what gives the sum its shape",
        find: Find::Walk(expand_add),
    },
];

/// The nodes that compute integers from shapes, as far as these are known; one place for each result that something else reads.
fn chains(scene: &Scene<'_>) -> Found {
    let model = scene.model();
    let known = |value: &ValueId| scene.facts().tensor(*value).is_some_and(|fact| fact.dims().is_some());
    let mut members: HashSet<NodeId> = HashSet::new();
    let mut order: Vec<NodeId> = Vec::new();
    for (id, node) in model.nodes() {
        let outputs: Vec<ValueId> = node.outputs().iter().flatten().copied().collect();
        if outputs.is_empty() || !outputs.iter().all(known) || node.bodies().next().is_some() {
            continue;
        }
        let from_shape = matches!(&*node.op().name, "Shape" | "Size") && node.op().domain.is_empty();
        let computed = node.inputs().iter().flatten().filter_map(|&input| model.value(input).node());
        if from_shape || computed.into_iter().any(|source| members.contains(&source)) {
            members.insert(id);
            order.push(id);
        }
    }
    let mut found = Found::from(scene.results(&order));
    found.details.insert("nodes", order.len() as f64);
    found
}

/// The rules that recognise operands of elementwise operators that an Expand makes.
pub(super) const EXPANDED_OPERANDS: (&Pass, &[&str]) =
    (&eliminate::eliminate_expand_identity::PASS, &["broadcast_anyway"]);

/// Sums of an Expand, as the pass sees them at every elementwise operator.
fn expand_add(scene: &Scene<'_>) -> Found {
    let (pass, rules) = EXPANDED_OPERANDS;
    let mut places = scene.places(pass, rules, Left::Counts);
    let is_sum = |place: &Place| place.root.is_some_and(|root| scene.model().node(root).op().is("Add"));
    places.retain(is_sum);
    // The Expand stands for the place: the sum is made anew whatever happens.
    let mut once: BTreeMap<NodeId, Place> = BTreeMap::new();
    for place in places {
        let expand = place.nodes.iter().copied().find(|&node| scene.model().node(node).op().is("Expand"));
        if let Some(root) = expand.or(place.root) {
            once.entry(root).or_insert_with(|| Place::at(root, place.nodes));
        }
    }
    once.into_values().collect::<Vec<_>>().into()
}
