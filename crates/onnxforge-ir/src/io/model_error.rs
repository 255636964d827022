//! Contradictions that keep a model from being held, each with its place.

use super::tensor::StoredTensorError;
use onnxforge_proto::Str;

/// A contradiction in a model, with its place.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", Trail(.trail))]
pub struct ModelError {
    /// Steps from the outside in, innermost first.
    trail: Vec<String>,
    /// What is wrong there.
    pub kind: ModelErrorKind,
}

struct Trail<'a>(&'a [String]);

impl std::fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, step) in self.0.iter().rev().enumerate() {
            if i > 0 {
                f.write_str(" / ")?;
            }
            f.write_str(step)?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str(": ") }
    }
}

impl ModelError {
    pub(super) fn within(mut self, step: impl FnOnce() -> String) -> Self {
        self.trail.push(step());
        self
    }

    /// The place as one line, from the outside in.
    pub fn place(&self) -> String {
        self.trail.iter().rev().map(String::as_str).collect::<Vec<_>>().join(" / ")
    }
}

impl From<ModelErrorKind> for ModelError {
    fn from(kind: ModelErrorKind) -> Self {
        Self { trail: Vec::new(), kind }
    }
}

/// The contradictions that keep a model from being held. `check` finds these and every other one.
#[derive(Debug, thiserror::Error)]
pub enum ModelErrorKind {
    /// There is no graph.
    #[error("the model has no graph")]
    NoGraph,
    /// Something that needs a name has none.
    #[error("{0} has no name")]
    Unnamed(&'static str),
    /// Two definitions of one name.
    #[error("the name {0:?} is defined twice")]
    Twice(Str),
    /// A name that nothing defines.
    #[error("{what} {name:?} is not defined by any input, constant or node that is visible here")]
    Dangling {
        /// What refers to it.
        what: &'static str,
        /// The name.
        name: Str,
    },
    /// A node that says nothing about what it calls.
    #[error("the node has no operator type")]
    NoOperator,
    /// Nodes that wait for each other.
    #[error("nodes form a cycle: {0}")]
    Cycle(String),
    /// An attribute without a clear value.
    #[error("attribute {name:?}: {why}")]
    Attribute {
        /// Its name.
        name: Str,
        /// What is wrong with it.
        why: String,
    },
    /// A stored tensor that makes no sense.
    #[error("tensor {name:?}: {source}")]
    Tensor {
        /// Its name.
        name: Str,
        /// What is wrong with it.
        source: StoredTensorError,
    },
}
