//! LiteRT in a build without it.

use std::collections::HashMap;
use std::path::Path;

use onnxforge_ops::Value;

/// Why it does nothing.
#[derive(Debug, thiserror::Error)]
#[error("LiteRT is not supported by this build: build it with the Cargo feature `litert`")]
pub struct LiteRtError;

/// There is none.
#[derive(Clone, Copy, Debug)]
pub enum LiteRt {}

impl LiteRt {
    /// Nothing is found.
    pub fn get() -> Result<&'static Self, LiteRtError> {
        Err(LiteRtError)
    }

    /// Never called.
    pub fn run(
        &self,
        _file: &Path,
        _inputs: &HashMap<String, Value>,
        _threads: usize,
    ) -> Result<HashMap<String, Value>, LiteRtError> {
        match *self {}
    }
}
