//! Files of TensorFlow Lite.
//!
//! [`mod@write`] makes a [`graph`] of a model, node by node, and [`encode`] bytes of that; [`read`] takes both steps back. What bytes mean is in [`schema`], how
//! they lie in [`flatbuffer`].

pub mod encode;
pub mod flatbuffer;
pub mod graph;
pub mod read;
pub mod schema;
pub mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onnxforge_ir::Model;
use onnxforge_ir::io::{LoadError, Source};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::mmap::MappedFile;

use crate::artifact::{Artifact, Part, Summary};
use crate::refusal::Refusals;

/// The model as a file, once the passes of the target ran.
pub fn lower(model: &Model) -> Result<Artifact, Refusals> {
    let graph = write::write(model)?;
    let mut summary = Summary::default();
    for operator in &graph.operators {
        *summary.operators.entry(operator.builtin.name.to_owned()).or_default() += 1;
    }
    summary.transposes = summary.operators.get(schema::TRANSPOSE.name).copied().unwrap_or(0);
    let data = graph.tensors.iter().filter_map(|tensor| tensor.data.as_ref());
    summary.weights = data.map(onnxforge_proto::blob::Payload::byte_len).sum();
    let is_fast = |operator: &&graph::Operator| schema::XNNPACK.contains(&operator.builtin);
    let fast = graph.operators.iter().filter(is_fast).count();
    let runs =
        graph.operators.chunk_by(|a, b| is_fast(&a) == is_fast(&b)).filter(|run| is_fast(&&run[0])).count();
    summary.notes.push(format!(
        "XNNPACK knows {fast} of {} operators, which lie in {runs} parts of the graph",
        graph.operators.len()
    ));
    let pieces = encode::encode(&graph);
    Ok(Artifact { parts: vec![Part { path: PathBuf::new(), pieces }], summary })
}

/// Whether these bytes begin as such a file does.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.get(4..8).is_some_and(|found| found == schema::IDENTIFIER)
}

/// A file as a message, whose weights stay where they are.
pub fn open(path: &Path) -> Result<Source, LoadError> {
    let file = MappedFile::open(path).map_err(|source| LoadError::Open { path: path.to_owned(), source })?;
    decode(&Blob::mapped(Arc::new(file)), path)
}

/// The bytes of such a file as a message. `path` is what errors call it.
pub fn decode(bytes: &Blob, path: &Path) -> Result<Source, LoadError> {
    match read::read(bytes) {
        Ok(message) => Ok(Source::of_message(message, path)),
        Err(error) => Err(LoadError::NotAModel { path: path.to_owned(), why: error.to_string() }),
    }
}
