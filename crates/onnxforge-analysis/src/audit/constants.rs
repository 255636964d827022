//! Constants: those that are computed at run time, stored twice, or read by nobody.

use std::collections::HashSet;

use super::{Find, Found, Kind, On};
use crate::scene::{Place, Scene};
use onnxforge_ir::{NodeId, ValueId};
use onnxforge_rewrite::passes::{eliminate, simplify};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        id: "constant_subgraphs",
        text: "Results that are the same in every run, and computed in every run",
        on: On::File,
        passes: &[&simplify::fold_constants::PASS],
        otherwise: "one of the nodes before it is not computed beforehand",
        find: Find::Walk(subgraphs),
    },
    Kind {
        id: "constant_nodes",
        text: "Constants that are stored in nodes",
        on: On::File,
        passes: &[&simplify::fold_constants::PASS],
        otherwise: "a function has no other place for its constants",
        find: Find::Walk(nodes),
    },
    Kind {
        id: "duplicate_constants",
        text: "Constants of the same type, shape and bytes as another one",
        on: On::File,
        passes: &[&eliminate::eliminate_duplicate_constants::PASS],
        otherwise: "",
        find: Find::Edits(&eliminate::eliminate_duplicate_constants::PASS),
    },
    Kind {
        id: "unused_initializers",
        text: "Stored tensors that nothing reads",
        on: On::File,
        passes: &[&eliminate::eliminate_unused_initializers::PASS],
        otherwise: "something refers to it by its name",
        find: Find::Walk(unused),
    },
];

fn nodes(scene: &Scene<'_>) -> Found {
    let constants = scene.model().nodes().filter(|(_, node)| node.op().is("Constant"));
    constants.map(|(id, _)| Place::at(id, [])).collect::<Vec<_>>().into()
}

/// The largest subgraphs of nodes that read only constants; one place for each result that something else reads.
fn subgraphs(scene: &Scene<'_>) -> Found {
    let model = scene.model();
    let mut members: HashSet<NodeId> = HashSet::new();
    let mut order = Vec::new();
    let mut stored: HashSet<ValueId> = HashSet::new();
    for (id, node) in model.nodes() {
        if node.op().is("Constant") {
            stored.extend(node.outputs().iter().flatten());
            continue;
        }
        let op = node.op();
        let known = onnxforge_ops::find(&op.domain, &op.name)
            .is_some_and(|def| !def.random && def.eval.is_ok() && node.bodies().next().is_none());
        let fixed = |&value: &ValueId| {
            let inside = || model.value(value).node().is_some_and(|source| members.contains(&source));
            model.constant(value).is_some() || stored.contains(&value) || inside()
        };
        let mut inputs = node.inputs().iter().flatten().peekable();
        if known && inputs.peek().is_some() && inputs.all(fixed) {
            members.insert(id);
            order.push(id);
        }
    }
    let mut found = Found::from(scene.results(&order));
    found.details.insert("nodes", order.len() as f64);
    found
}

fn unused(scene: &Scene<'_>) -> Found {
    let model = scene.model();
    let constants = model.scopes().flat_map(|(scope, _)| model.constants_in(scope));
    let unread = constants.filter(|(id, _)| model.value(*id).uses().is_empty());
    unread.map(|(id, _)| Place::constant(id)).collect::<Vec<_>>().into()
}
