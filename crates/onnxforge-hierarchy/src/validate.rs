//! Whether what is written into a model about its modules holds together.

use std::collections::{HashMap, HashSet};

use super::evidence::Evidence;
use super::exporter::{MODULE, entry};
use super::recorded::Recorded;
use super::store::{EVIDENCE, HIERARCHY, TAGS, distinct, fingerprint};
use super::{Hierarchy, Tags};
use onnxforge_ir::{Model, Node, NodeId};

/// Everything that does not hold, in words.
pub fn problems(model: &Model, hierarchy: &Hierarchy, tags: &Tags) -> Vec<String> {
    let mut found: Vec<String> = hierarchy
        .unreadable()
        .iter()
        .map(|stack| {
            format!("{}: its module stack cannot be read: {}", model.node_label(stack.node), stack.problem)
        })
        .collect();
    let mut unique = HashSet::new();
    found.extend(
        tags.own()
            .filter(|(tag, _)| !unique.insert(*tag))
            .map(|(tag, _)| format!("the tag {tag} means several modules")),
    );
    let table = hierarchy.table();
    let mut keys: HashMap<&str, usize> = HashMap::new();
    for (id, node) in model.nodes() {
        let mut problem = |text: String| found.push(format!("{}: {text}", model.node_label(id)));
        keys.clear();
        for key in node.metadata().iter().filter_map(|entry| entry.key.as_deref()) {
            *keys.entry(key).or_default() += 1;
        }
        for key in
            [MODULE, TAGS, EVIDENCE].into_iter().filter(|key| keys.get(key).is_some_and(|&count| count > 1))
        {
            problem(format!("{key} is there more than once"));
        }
        if let Some(name) = entry(node.metadata(), EVIDENCE).filter(|name| Evidence::named(name).is_none()) {
            problem(format!("{EVIDENCE} {name:?} is not known"));
        }
        let Some(text) = entry(node.metadata(), MODULE) else { continue };
        match serde_json::from_str::<Vec<String>>(text) {
            Err(error) => problem(format!("{MODULE} is no list of paths: {error}")),
            Ok(paths) => {
                let unknown = paths.iter().find(|path| table.find(path).is_none());
                unknown.into_iter().for_each(|path| {
                    problem(format!("{MODULE} names {path:?}, which the table does not have"));
                });
            }
        }
        if let Some(written) = entry(node.metadata(), TAGS) {
            match serde_json::from_str::<Vec<String>>(written) {
                Err(error) => problem(format!("{TAGS} is no list of tags: {error}")),
                Ok(written) => {
                    let expected = distinct(hierarchy.origin(id), tags);
                    if written != expected {
                        problem(format!("{TAGS} {written:?} should be {expected:?}"));
                    }
                }
            }
        }
    }
    if let Some(text) = entry(&model.header().metadata_props, HIERARCHY) {
        match super::recorded::read(text.as_bytes()) {
            Err(error) => found.push(format!("{HIERARCHY}: {error}")),
            Ok(recorded)
                if recorded.fingerprint.as_ref().is_some_and(|known| *known != fingerprint(model)) =>
            {
                found.push(format!(
                    "{HIERARCHY} was written for another graph: a tool changed it since; tag the model again, or restore its hierarchy"
                ));
            }
            Ok(_) => {}
        }
    }
    found
}

/// Where what was recorded beside a model says otherwise than the model.
pub fn contradictions(model: &Model, hierarchy: &Hierarchy, recorded: &Recorded) -> Vec<String> {
    let table = hierarchy.table();
    let differs = |(id, node): (NodeId, &Node)| {
        let output = node.outputs().iter().flatten().next()?;
        let anchor = recorded.anchors.get(&**model.value(*output).name())?;
        let own = table.paths(&hierarchy.origin(id).modules);
        let label = model.node_label(id);
        (anchor.modules != own)
            .then(|| format!("{label}: comes from {own:?}, the sidecar says {:?}", anchor.modules))
    };
    model.nodes().filter_map(differs).collect()
}
