//! What saving is asked for, and what it answers.

use std::io;
use std::path::{Path, PathBuf};

use crate::tensor::TensorError;

/// Protobuf messages must stay below this size.
pub const MESSAGE_LIMIT: u64 = 1 << 31;

/// Where weights go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum External {
    /// Into the model file while that stays below 2 GiB, else into a data file.
    Auto,
    /// As they were: external weights stay external, in data files of the new model's own, the others inside. A model that
    /// is saved in place keeps its data files.
    #[default]
    Keep,
    /// As [`Keep`](Self::Keep), but data files of the original that lie in the new model's folder are not copied: both models
    /// read them.
    Share,
    /// Into the model file.
    Inline,
    /// All but the small ones into one data file beside the model.
    Split,
}

/// How to save.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveOptions {
    /// Where weights go.
    pub external: External,
}

/// Why a model was not saved. The target is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder that a file should go to is missing.
    #[error("the folder {} does not exist; create it first", folder.display())]
    NoFolder {
        /// The file.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// A tensor's elements cannot be had.
    #[error("{}: not saved: {source}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TensorError,
    },
    /// The model file would be larger than protobuf allows.
    #[error("{}: the model file would have {size} bytes, and 2 GiB is the limit of the format; split the weights off into a data file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes that it would have.
        size: u64,
    },
}

impl SaveError {
    /// The file that could not be saved.
    pub fn path(&self) -> &Path {
        match self {
            Self::Write { path, .. }
            | Self::NoFolder { path, .. }
            | Self::Tensor { path, .. }
            | Self::TooLarge { path, .. } => path,
        }
    }
}

/// What saving wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Every file that was written and its size, the model file last.
    pub files: Vec<(PathBuf, u64)>,
    /// Data files of another model that the saved one reads ([`External::Share`]).
    pub shared: Vec<PathBuf>,
}
