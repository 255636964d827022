//! Files to models: open, decode, and hand over to `resolve`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::external::{ExternalFiles, LinkPolicy};
pub use super::model_error::{ModelError, ModelErrorKind};
pub use super::resolve::{filled_kinds, from_message};
use crate::blob::Blob;
use crate::ir::model::Model;
use crate::mmap::MappedFile;
use crate::proto::schema::ModelProto;
use crate::proto::wire::{self, WireError};

/// How to load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// What links external data may lie behind.
    pub links: LinkPolicy,
}

/// Why a file is not a model that can be held.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{}: not an ONNX model: {why}", path.display())]
    NotAModel {
        /// The file.
        path: PathBuf,
        /// What it is instead, and what to do.
        why: String,
    },
    /// The model contradicts itself.
    #[error("{}: {source}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        source: Box<ModelError>,
    },
}

/// Decodes the message in a file without interpreting it. Weights stay in the file.
pub fn read_message(path: &Path) -> Result<ModelProto, LoadError> {
    let file = MappedFile::open(path).map_err(|source| LoadError::Open { path: path.to_owned(), source })?;
    let blob = Blob::mapped(Arc::new(file));
    decode_model(&blob).map_err(|why| LoadError::NotAModel { path: path.to_owned(), why })
}

/// Decodes the outermost message of `blob`; the error says what the bytes are instead, as far as that can be told.
pub fn decode_model(blob: &Blob) -> Result<ModelProto, String> {
    let decoded: Result<ModelProto, WireError> = wire::decode(blob);
    match (decoded, other_format(blob)) {
        (Ok(model), _) if model.graph.is_some() => Ok(model),
        (_, Some(other)) => Err(other.to_owned()),
        (Err(error), None) => Err(error.to_string()),
        (Ok(model), None) if !model.functions.is_empty() => Ok(model),
        (Ok(_), None) => Err("it has no graph".to_owned()),
    }
}

/// Says what a file is that is not a model.
fn other_format(bytes: &[u8]) -> Option<&'static str> {
    const KNOWN: &[(usize, &[u8], &str)] = &[
        (0, b"PK\x03\x04", "it is a zip archive (a PyTorch checkpoint?); export or unpack it first"),
        (0, b"\x1f\x8b", "it is compressed with gzip; unpack it first"),
        (0, b"\x89HDF", "it is an HDF5 file (Keras?); convert it with tf2onnx"),
        (4, b"TFL3", "it is a TensorFlow Lite model"),
        (0, b"\x80\x02", "it is a Python pickle (a PyTorch checkpoint?); export it first"),
        (0, b"GGUF", "it is a GGUF file"),
        (0, b"ORTM", "it is an ONNX Runtime (.ort) model; use the .onnx file that it was made from"),
        (4, b"ORTM", "it is an ONNX Runtime (.ort) model; use the .onnx file that it was made from"),
        (0, b"version https://git-lfs", "it is a Git LFS pointer; run `git lfs pull`"),
    ];
    if bytes.is_empty() {
        return Some("the file is empty");
    }
    if let Some((.., what)) =
        KNOWN.iter().find(|(at, magic, _)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
    {
        return Some(what);
    }
    let start = bytes.get(..512).unwrap_or(bytes);
    let is_text = start.iter().all(|&byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..));
    is_text.then_some("it is a text file; `onnxforge parse` reads models in the ONNX notation")
}

/// Loads the model in `path`.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Model, LoadError> {
    let message = read_message(path)?;
    let folder = folder_of(path);
    let mut model = from_message(message, &mut ExternalFiles::new(Some(folder), options.links))
        .map_err(|source| LoadError::Model { path: path.to_owned(), source: Box::new(source) })?;
    model.set_source(path);
    Ok(model)
}

/// Loads a model from its bytes; external data is looked up in `folder`.
pub fn load_bytes(
    bytes: impl Into<Blob>,
    folder: Option<&Path>,
    options: &LoadOptions,
) -> Result<Model, LoadError> {
    let path = || folder.map_or_else(|| PathBuf::from("<bytes>"), Path::to_owned);
    let message = decode_model(&bytes.into()).map_err(|why| LoadError::NotAModel { path: path(), why })?;
    from_message(message, &mut ExternalFiles::new(folder.map(Path::to_owned), options.links))
        .map_err(|source| LoadError::Model { path: path(), source: Box::new(source) })
}

/// The folder that a file lies in.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
