//! Files of TensorFlow Lite.

use std::path::Path;

use onnxforge_ir::Model;
use onnxforge_ir::io::{LoadError, Source};

use crate::artifact::Artifact;
use crate::format::Options;
use crate::refusal::{Refusal, Refusals};

/// The model as a file, once the passes of the target ran.
pub fn lower(_: &Model, _: &Options) -> Result<Artifact, Refusals> {
    Err(Refusals(vec![Refusal::about("model", "the model", "there is no writer yet")]))
}

/// A file as a message, whose weights stay where they are.
pub fn open(path: &Path) -> Result<Source, LoadError> {
    Err(LoadError::NotAModel { path: path.to_owned(), why: "there is no reader yet".to_owned() })
}
