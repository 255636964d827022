//! Files of TensorFlow Lite.
//!
//! [`mod@write`] makes a [`graph`] of a model, node by node, and [`encode`] bytes of that; [`read`] takes both steps back. What bytes mean is in [`schema`], how
//! they lie in [`flatbuffer`].

mod delegate;
pub mod encode;
pub mod flatbuffer;
pub mod graph;
pub mod read;
pub mod schema;
pub mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onnxforge_ir::Model;
use onnxforge_ir::io::{LoadError, Source};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::mmap::MappedFile;
use onnxforge_proto::schema::ModelProto;

use serde_json::json;

use self::graph::Graph;
use crate::artifact::{Artifact, ChannelsLast, Moved, Part, Summary};
use crate::format::Settings;
use crate::refusal::Refusals;

/// The model as a file, once the passes of the target ran.
pub fn lower(model: &Model, settings: &Settings<'_>) -> Result<Artifact, Refusals> {
    let written = write::write(model, settings.weights, settings.layout)?;
    let write::Written { mut graph, floats, channels_last } = written;
    graph.metadata.push((METADATA.to_owned(), metadata(&graph, settings)));
    let mut summary =
        Summary { floats, channels_last, delegate: Some(delegate::xnnpack(&graph)), ..Summary::default() };
    for operator in &graph.operators {
        *summary.operators.entry(operator.builtin.name.to_owned()).or_default() += 1;
    }
    summary.transposes = summary.operators.get(schema::TRANSPOSE.name).copied().unwrap_or(0);
    summary.moved = moved(&graph, settings);
    let data = graph.tensors.iter().filter_map(|tensor| tensor.data.as_ref());
    summary.weights = data.map(onnxforge_proto::blob::Payload::byte_len).sum();
    let pieces = encode::encode(&graph);
    Ok(Artifact { parts: vec![Part { path: PathBuf::new(), pieces }], summary })
}

/// The name under which a file says where it comes from.
const METADATA: &str = "onnxforge";

/// Where a file comes from, as JSON: the program, the model, and the module of each operator.
fn metadata(graph: &Graph, settings: &Settings<'_>) -> String {
    let mut paths: Vec<String> = Vec::new();
    let mut places = HashMap::new();
    let mut index_of = |operator: &graph::Operator| {
        let path = settings.module?(operator.node?)?;
        Some(*places.entry(path.clone()).or_insert_with(|| {
            paths.push(path);
            paths.len() - 1
        }))
    };
    let operators: Vec<Option<usize>> = graph.operators.iter().map(&mut index_of).collect();
    let producer = concat!("onnxforge ", env!("CARGO_PKG_VERSION"));
    let known = operators.iter().any(Option::is_some);
    let about = match known {
        true => {
            json!({ "producer": producer, "source": settings.source, "modules": paths, "operators": operators })
        }
        false => json!({ "producer": producer, "source": settings.source }),
    };
    about.to_string()
}

/// The operators that only move elements into another layout.
fn moved(graph: &Graph, settings: &Settings<'_>) -> Vec<Moved> {
    let moves = graph.operators.iter().filter(|operator| operator.builtin == schema::TRANSPOSE);
    let tensor = |operator: &graph::Operator| {
        let index = usize::try_from(*operator.outputs.first()?).ok()?;
        graph.tensors.get(index)
    };
    let described = moves.filter_map(|operator| {
        let tensor = tensor(operator)?;
        let module = settings.module.and_then(|module| module(operator.node?));
        Some(Moved { tensor: tensor.name.clone(), shape: tensor.shape.clone(), module })
    });
    described.collect()
}

/// Whether these bytes begin as such a file does.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.get(4..8).is_some_and(|found| found == schema::IDENTIFIER)
}

/// A file as a message, whose weights stay where they are.
pub fn open(path: &Path) -> Result<Source, LoadError> {
    open_with(path, &ChannelsLast::default())
}

/// The same, where these inputs and outputs get their channels first again.
pub fn open_with(path: &Path, channels_last: &ChannelsLast) -> Result<Source, LoadError> {
    let file = MappedFile::open(path).map_err(|source| LoadError::Open { path: path.to_owned(), source })?;
    let message = message(&Blob::mapped(Arc::new(file)), path)?;
    Ok(Source::of_message(read::ports::channels_first(message, channels_last), path))
}

/// The bytes of such a file as a message. `path` is what errors call it.
pub fn decode(bytes: &Blob, path: &Path) -> Result<Source, LoadError> {
    Ok(Source::of_message(message(bytes, path)?, path))
}

fn message(bytes: &Blob, path: &Path) -> Result<ModelProto, LoadError> {
    read::read(bytes).map_err(|error| LoadError::NotAModel { path: path.to_owned(), why: error.to_string() })
}
