//! The hierarchy of a model that another tool made out of one whose hierarchy is known.
//!
//! Other tools drop what is written at nodes but keep the names of most results. A node that computes a result known by name comes from
//! all nodes of the original that stand between that result and the nearest ones that have kept their names.

use std::collections::{HashMap, HashSet};

use super::Hierarchy;
use super::evidence::{Attribution, Evidence};
use super::recorded::{Anchor, Recorded};
use onnxforge_ir::{Model, NodeId, ValueId};

/// What nodes compute, by name.
fn results(model: &Model) -> HashMap<&str, ValueId> {
    let computed = model.values().filter(|(_, value)| value.node().is_some());
    computed.map(|(id, value)| (&**value.name(), id)).collect()
}

/// How many nodes of `other` have a result that the model computes too, by its name. Names of inputs and outputs are the same in many models and
/// do not count.
pub fn matched(other: &Model, model: &Model) -> usize {
    let computed = results(model);
    let known = |&value: &ValueId| {
        let value = other.value(value);
        !value.is_exposed() && computed.contains_key(&**value.name())
    };
    other.nodes().filter(|(_, node)| node.outputs().iter().flatten().any(known)).count()
}

/// What is known of `other` from the model that it was made of.
pub fn recorded(other: &Model, model: &Model, hierarchy: &Hierarchy) -> Recorded {
    let kept: HashSet<&str> = other.values().map(|(_, value)| &**value.name()).collect();
    let by_name = results(model);
    let owned = |found: &Attribution| -> Vec<String> {
        hierarchy.table().paths(&found.modules).into_iter().map(str::to_owned).collect()
    };
    let mut anchors = HashMap::new();
    for (_, node) in other.nodes() {
        for &output in node.outputs().iter().flatten() {
            let name = &**other.value(output).name();
            if let Some(&value) = by_name.get(name) {
                let between = between(model, value, &kept);
                if let Some(found) =
                    hierarchy.union(&between).filter(|found| found.evidence != Evidence::Root)
                {
                    let evidence = Some(found.evidence.name().to_owned());
                    anchors.insert(name.to_owned(), Anchor { modules: owned(&found), evidence });
                }
            }
        }
    }
    let origins = model.nodes().filter_map(|(id, node)| {
        let found = hierarchy.origin(id);
        let name = node.name().filter(|name| !name.is_empty() && found.evidence != Evidence::Root)?;
        Some((name.to_string(), owned(found)))
    });
    Recorded { table: hierarchy.table().clone(), origins: origins.collect(), anchors, ..Recorded::default() }
}

/// The nodes that compute a value from values that have kept their names, the last one first.
fn between(model: &Model, value: ValueId, kept: &HashSet<&str>) -> Vec<NodeId> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut open: Vec<ValueId> = vec![value];
    while let Some(value) = open.pop() {
        let Some(node) = model.value(value).node() else { continue };
        if !seen.insert(node) {
            continue;
        }
        found.push(node);
        let inputs = model.node(node).inputs().iter().flatten().copied();
        open.extend(
            inputs
                .filter(|&input| !kept.contains(&**model.value(input).name()))
                .collect::<Vec<_>>()
                .into_iter()
                .rev(),
        );
    }
    found
}
