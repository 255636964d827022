//! What ONNX Runtime makes of a model when it loads it: the operators that it recovers, and how many are left.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use onnxforge_verify::runtime::{Level, Runtime, RuntimeError};

/// The operators of a model, as it is and as ONNX Runtime runs it.
#[derive(Clone, Debug, Serialize)]
pub struct Census {
    /// How often each operator is called in the file.
    pub stored: BTreeMap<String, usize>,
    /// How often each operator is called in what ONNX Runtime makes of it.
    pub run: BTreeMap<String, usize>,
}

impl Census {
    /// Loads the model at `path`, whose operators are `stored`, into ONNX Runtime.
    pub fn take(
        path: &Path,
        stored: BTreeMap<String, usize>,
        runtime: &Runtime,
        level: Level,
    ) -> Result<Self, RuntimeError> {
        Ok(Self { stored, run: runtime.rewritten(path, level)? })
    }

    /// How many nodes ONNX Runtime runs.
    pub fn nodes(&self) -> usize {
        self.run.values().sum()
    }

    /// What ONNX Runtime recovers: operators that it calls more often than the file does.
    pub fn recovered(&self) -> impl Iterator<Item = (&str, usize)> {
        self.run.iter().filter_map(|(op, &count)| {
            let more = count.saturating_sub(self.stored.get(op).copied().unwrap_or(0));
            (more > 0).then_some((op.as_str(), more))
        })
    }
}
