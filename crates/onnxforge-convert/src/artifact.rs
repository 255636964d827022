//! A converted model that is ready to be written: a file, or a folder of files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use onnxforge_ir::io::load::folder_of;
use onnxforge_proto::blob::Payload;
use onnxforge_proto::cancel::checkpoint;
use onnxforge_proto::progress::{Progress, Unit};
use serde::Serialize;
use tempfile::{TempDir, TempPath};

use crate::refusal::Refusal;

/// What a converted model is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Operators of the format, and how many.
    pub operators: BTreeMap<String, usize>,
    /// Operators that only move elements into another layout.
    pub transposes: usize,
    /// Each of them.
    pub moved: Vec<Moved>,
    /// Inputs and outputs that have another layout than in the model.
    #[serde(skip_serializing_if = "ChannelsLast::is_empty")]
    pub channels_last: ChannelsLast,
    /// What the processor's fast library takes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Delegate>,
    /// Nodes between quantized tensors that compute in floats, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub floats: Vec<Refusal>,
    /// Bytes of weights.
    pub weights: u64,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Inputs and outputs of a file that have their channels last, and in the model do not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChannelsLast {
    /// Names of inputs.
    pub inputs: Vec<String>,
    /// Names of outputs.
    pub outputs: Vec<String>,
}

impl ChannelsLast {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty()
    }
}

/// An operator that only moves elements into another layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// The tensor that it gives.
    pub tensor: String,
    /// Its sizes; nothing for one that is not known.
    pub shape: Vec<Option<i32>>,
    /// The module of the node that it is made of, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

/// How much of a graph something else than the runtime itself takes: by operators and element types, shapes left aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delegate {
    /// What takes it.
    pub name: &'static str,
    /// How many operators.
    pub taken: usize,
    /// What stays, and how many of it.
    pub left: BTreeMap<String, usize>,
    /// Parts of the graph that it gets, each in one piece.
    pub partitions: usize,
}

/// One file.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it lies in the folder; empty for the only file.
    pub path: PathBuf,
    /// Its bytes, one after the other; weights stay where they are until they are written.
    pub pieces: Vec<Payload>,
}

impl Part {
    /// The number of bytes.
    pub fn byte_len(&self) -> u64 {
        self.pieces.iter().map(Payload::byte_len).sum()
    }

    fn write(&self, path: &Path, progress: &dyn Progress) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        for piece in &self.pieces {
            checkpoint();
            piece.write_to(&mut out)?;
            progress.advance(piece.byte_len());
        }
        out.flush()
    }
}

/// A converted model that is ready to be written.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// Its files: one without a path of its own, or those of a folder.
    pub parts: Vec<Part>,
    /// What it is made of.
    pub summary: Summary,
}

/// Something that is written in full beside the place that it is to take; it goes away unless it [takes](Self::persist) that place.
#[derive(Debug)]
pub struct Staged {
    place: Place,
    target: PathBuf,
}

#[derive(Debug)]
enum Place {
    File(TempPath),
    /// The folder lies in another one that goes away.
    Folder(TempDir, PathBuf),
}

impl Artifact {
    /// The number of bytes of all files.
    pub fn byte_len(&self) -> u64 {
        self.parts.iter().map(Part::byte_len).sum()
    }

    /// Writes everything beside `target`.
    pub fn stage(&self, target: &Path, progress: &dyn Progress) -> io::Result<Staged> {
        progress.begin("write", self.byte_len(), Unit::Bytes);
        let name = target.file_name().unwrap_or_default();
        let mut builder = tempfile::Builder::new();
        let prefix = format!(".{}.", name.to_string_lossy());
        builder.prefix(&prefix).suffix(".tmp");
        let place = match &self.parts[..] {
            [file] if file.path.as_os_str().is_empty() => {
                #[cfg(unix)]
                builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
                let place = builder.tempfile_in(folder_of(target))?.into_temp_path();
                file.write(&place, progress)?;
                Place::File(place)
            }
            parts => {
                let outer = builder.tempdir_in(folder_of(target))?;
                let folder = outer.path().join(name);
                for part in parts {
                    let path = folder.join(&part.path);
                    std::fs::create_dir_all(folder_of(&path))?;
                    part.write(&path, progress)?;
                }
                Place::Folder(outer, folder)
            }
        };
        progress.end();
        Ok(Staged { place, target: target.to_owned() })
    }
}

impl Staged {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        match &self.place {
            Place::File(path) => path,
            Place::Folder(_, path) => path,
        }
    }

    /// Takes the place of whatever is there.
    pub fn persist(self) -> io::Result<()> {
        match self.place {
            Place::File(path) => Ok(path.persist(&self.target)?),
            Place::Folder(outer, path) => {
                // What is replaced goes away with the folder around the new one.
                if self.target.exists() {
                    std::fs::rename(&self.target, outer.path().join("replaced"))?;
                }
                std::fs::rename(path, &self.target)
            }
        }
    }
}
