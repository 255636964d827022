//! Every edit of a model, one by one.

use onnxforge_ir::{Model, NodeId, Trust};
use serde::Serialize;

/// An edit.
#[derive(Clone, Debug, Serialize)]
pub struct Edit<'m> {
    /// Its number, from 1.
    pub edit: usize,
    /// The pass that made it.
    pub pass: &'m str,
    /// The rule.
    pub rule: &'m str,
    /// Its accuracy class.
    pub class: &'static str,
    /// Why types and shapes stay where inference did not prove it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<&'static str>,
    /// Change of the number of nodes.
    pub nodes: i64,
    /// Change of the bytes of constants.
    pub bytes: i64,
    /// The nodes that it replaced.
    pub consumed: Vec<String>,
    /// The nodes that it made.
    pub produced: Vec<String>,
    /// The values that got another definition.
    pub redefined: Vec<String>,
}

/// The edits that were made to a model, in their order.
pub fn edits(model: &Model) -> impl Iterator<Item = Edit<'_>> {
    let node = |&id: &NodeId| model.node_label(id);
    model.journal().iter().enumerate().map(move |(place, entry)| Edit {
        edit: place + 1,
        pass: &entry.pass,
        rule: &entry.rule,
        class: entry.accuracy.class(),
        trusted: entry.trusted.map(Trust::name),
        nodes: entry.nodes,
        bytes: entry.bytes,
        consumed: entry.consumed.iter().map(node).collect(),
        produced: entry.produced.iter().map(node).collect(),
        redefined: entry.redefined.iter().map(|&id| model.value(id).name().to_string()).collect(),
    })
}
