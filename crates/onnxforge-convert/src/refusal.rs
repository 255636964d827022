//! What a format cannot express.

use onnxforge_ir::{Model, NodeId};
use serde::Serialize;

/// A node, an input or an output that has no place in a format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What it is called.
    pub node: String,
    /// Its operator; `input`, `output` or `model` for what is no node.
    pub operator: String,
    /// Why it has no place there.
    pub reason: String,
    /// What may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'static str>,
}

impl Refusal {
    /// A node that cannot be expressed.
    pub fn of(model: &Model, id: NodeId, reason: impl Into<String>) -> Self {
        let operator = model.node(id).op().to_string();
        Self { node: model.node_label(id), operator, reason: reason.into(), hint: None }
    }

    /// Something else than a node.
    pub fn about(kind: &str, name: &str, reason: impl Into<String>) -> Self {
        Self { node: name.to_owned(), operator: kind.to_owned(), reason: reason.into(), hint: None }
    }

    /// The same, with what may help.
    pub fn hinting(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }
}

/// Everything that has no place in a format, in the order of the model; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} nodes cannot be expressed, the first is {} ({}): {}", .0.len(), .0[0].node, .0[0].operator, .0[0].reason)]
pub struct Refusals(pub Vec<Refusal>);
