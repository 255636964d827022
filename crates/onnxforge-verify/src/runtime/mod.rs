//! ONNX Runtime, where it is installed: found, loaded once per process, and asked.
//!
//! It needs the feature `ort`; without it [`Runtime::get`] reports [`Missing::NotBuilt`].

pub mod find;
#[cfg_attr(not(feature = "litert"), path = "litert_absent.rs")]
pub mod litert;
#[cfg_attr(not(feature = "ort"), path = "absent.rs")]
mod loaded;

use std::path::PathBuf;

use serde::Serialize;

use self::find::VARIABLE;
pub use self::loaded::{Opened, Runtime, profiled, timed};
use onnxforge_ir::DType;

/// Why there is no ONNX Runtime.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Missing {
    /// The variable names something that cannot be loaded.
    #[error("{VARIABLE} names {path}, which cannot be loaded ({reason}); correct it, or unset it", path = .0.display(), reason = .1)]
    Variable(PathBuf, String),
    /// Nothing was found that could be loaded. What was found is listed, with the reason.
    #[error("ONNX Runtime is not found{}; `pip install onnxruntime`, or set {VARIABLE} to its library", tried(.0))]
    Nowhere(Vec<(PathBuf, String)>),
    /// This build cannot load it.
    #[error("ONNX Runtime is not supported by this build: build it with the Cargo feature `ort`")]
    NotBuilt,
}

fn tried(failures: &[(PathBuf, String)]) -> String {
    let tried = failures.iter().map(|(path, reason)| format!(" ({}: {reason})", path.display()));
    tried.collect()
}

/// What ONNX Runtime could not do.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// It refuses the model.
    #[error("ONNX Runtime refuses it: {0}")]
    Refused(String),
    /// A value that it does not take, or that cannot be taken from it.
    #[error("ONNX Runtime does not exchange {0}")]
    Value(String),
    /// What it wrote cannot be read.
    #[error("what ONNX Runtime wrote cannot be read: {0}")]
    Unreadable(String),
    /// What it is to read cannot be written.
    #[error("cannot be written for ONNX Runtime: {0}")]
    Unwritable(String),
    /// No place for a temporary file.
    #[error("no temporary folder: {0}")]
    Folder(#[from] std::io::Error),
}

/// How much ONNX Runtime rewrites a model when it loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing.
    Off,
    /// Removals and folding, whatever the device.
    Basic,
    /// Fusions too.
    Extended,
    /// And the layout of the device: what it does unless told otherwise.
    All,
}

/// A span of time in a profile, in microseconds.
#[derive(Clone, Debug)]
pub struct Span {
    /// The node; nothing for the run as a whole.
    pub node: Option<Named>,
    /// When it began.
    pub start: f64,
    /// How long it took.
    pub time: f64,
    /// The thread.
    pub thread: i64,
}

/// A node of the graph that ONNX Runtime runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its operator, without the domain.
    pub op: String,
}

/// Whether tensors of this element type are handed over and taken back.
pub fn exchanges(dtype: DType) -> bool {
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, String, U8, U16, U32, U64};
    matches!(dtype, F32 | F64 | F16 | BF16 | Bool | String | I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
}
