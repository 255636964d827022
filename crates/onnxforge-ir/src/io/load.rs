//! Files to models: open, decode, and hand over to `resolve`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::external::{ExternalFiles, LinkPolicy};
use super::mend::mend;
pub use super::model_error::{ModelError, ModelErrorKind};
pub use super::resolve::{filled_kinds, from_message};
use crate::mended::Mend;
use crate::model::Model;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::mmap::MappedFile;
use onnxforge_proto::schema::ModelProto;
use onnxforge_proto::wire::{self, WireError, WireErrorKind};

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

impl LoadError {
    /// Whether the file is text: it may hold a model in the ONNX notation, which [`crate::text`] reads.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::NotAModel { why, .. } if why == TEXT)
    }
}

/// A file that is decoded, but not a model yet: the message as it stands there, and the files that it may refer to. Weights stay
/// where they are.
#[derive(Debug)]
pub struct Source {
    /// What the file holds.
    pub message: ModelProto,
    /// The files beside it.
    pub files: ExternalFiles,
    /// What was mended in the message so far.
    mended: Vec<Mend>,
    /// What errors call it.
    name: PathBuf,
    /// Whether that is a file that the model can be read from again.
    is_file: bool,
}

impl Source {
    /// Decodes a file.
    pub fn open(path: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        let name = path.to_owned();
        let file = MappedFile::open(path).map_err(|source| LoadError::Open { path: name.clone(), source })?;
        let files = ExternalFiles::new(Some(folder_of(path)), options.links);
        Self::decode(&Blob::mapped(Arc::new(file)), files, name, true)
    }

    /// Decodes bytes; external data is looked up in `folder`.
    pub fn from_bytes(
        bytes: impl Into<Blob>,
        folder: Option<&Path>,
        options: &LoadOptions,
    ) -> Result<Self, LoadError> {
        let name = folder.map_or_else(|| PathBuf::from("<bytes>"), Path::to_owned);
        let files = ExternalFiles::new(folder.map(Path::to_owned), options.links);
        Self::decode(&bytes.into(), files, name, false)
    }

    /// A message that was read from a file of another format. Its weights stay where they are.
    pub fn of_message(message: ModelProto, path: &Path) -> Self {
        let files = ExternalFiles::new(None, LinkPolicy::default());
        Self { message, files, mended: Vec::new(), name: path.to_owned(), is_file: false }
    }

    fn decode(blob: &Blob, files: ExternalFiles, name: PathBuf, is_file: bool) -> Result<Self, LoadError> {
        match decode_model(blob) {
            Ok(message) => Ok(Self { message, files, mended: Vec::new(), name, is_file }),
            Err(why) => Err(LoadError::NotAModel { path: name, why }),
        }
    }

    /// Mends what the message says otherwise than the standard asks for, as far as it has a meaning.
    pub fn mend(&mut self) {
        self.mended.extend(mend(&mut self.message));
    }

    /// The model that the message describes, mended where it has to be ([`Model::mended`]). What was mended is logged.
    pub fn into_model(mut self) -> Result<Model, LoadError> {
        self.mend();
        match from_message(self.message, &mut self.files) {
            Ok(mut model) => {
                model.mended.splice(0..0, self.mended);
                for mended in &model.mended {
                    tracing::warn!("{}: {mended}", self.name.display());
                }
                if self.is_file {
                    model.set_source(&self.name);
                }
                Ok(model)
            }
            Err(source) => Err(LoadError::Model { path: self.name, source: Box::new(source) }),
        }
    }
}

/// Decodes the message in a file without interpreting it.
pub fn read_message(path: &Path) -> Result<ModelProto, LoadError> {
    Ok(Source::open(path, &LoadOptions::default())?.message)
}

/// Decodes the outermost message of `blob`; the error says what the bytes are instead, as far as that can be told.
pub fn decode_model(blob: &Blob) -> Result<ModelProto, String> {
    let decoded: Result<ModelProto, WireError> = wire::decode(blob);
    match (decoded, other_format(blob)) {
        (Ok(model), _) if model.graph.is_some() => Ok(model),
        (_, Some(other)) => Err(other.to_owned()),
        (Err(error), None) => Err(match error.kind {
            // Other files than models do not get as far as into a graph.
            WireErrorKind::TooLong { .. } | WireErrorKind::Truncated if !error.path.is_empty() => {
                format!("it ends too early, as if a download had been interrupted: {error}")
            }
            _ => error.to_string(),
        }),
        (Ok(model), None) if !model.functions.is_empty() => Ok(model),
        (Ok(_), None) => Err("it has no graph".to_owned()),
    }
}

/// What is said of a file of text.
const TEXT: &str = "it is a text file";

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
    is_text.then_some(TEXT)
}

/// Loads the model in `path`.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Model, LoadError> {
    Source::open(path, options)?.into_model()
}

/// Loads a model from its bytes; external data is looked up in `folder`.
pub fn load_bytes(
    bytes: impl Into<Blob>,
    folder: Option<&Path>,
    options: &LoadOptions,
) -> Result<Model, LoadError> {
    Source::from_bytes(bytes, folder, options)?.into_model()
}

/// The folder that a file lies in.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
