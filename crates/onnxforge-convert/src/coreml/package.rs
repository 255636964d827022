//! The files of a package: a list of its parts, the model, and its weights.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use onnxforge_ir::io::LoadError;
use onnxforge_proto::blob::{Blob, Payload};
use onnxforge_proto::mmap::MappedFile;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::weights::{self, Weights};
use crate::artifact::Part;

const MANIFEST: &str = "Manifest.json";
const DATA: &str = "Data";
const MODEL: &str = "com.apple.CoreML/model.mlmodel";
const WEIGHTS: &str = "com.apple.CoreML/weights";
const AUTHOR: &str = "com.apple.CoreML";
/// Bytes of a list of parts.
const LONGEST: u64 = 1 << 20;

/// The list of the parts of a package.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    file_format_version: String,
    item_info_entries: BTreeMap<String, Item>,
    root_model_identifier: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Item {
    author: String,
    description: String,
    name: String,
    path: String,
}

/// An identifier in the form of others, made of what it is for.
fn identifier(digest: &[u8], what: u8) -> String {
    let mut hash = Sha256::new();
    hash.update(digest);
    hash.update([what]);
    let hash = hash.finalize();
    let mut text = String::new();
    for (index, byte) in hash.iter().take(16).enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02X}"));
    }
    text
}

/// The files of a package.
pub fn parts(model: Vec<Payload>, weights: Weights) -> Vec<Part> {
    let mut hash = Sha256::new();
    for piece in &model {
        if let Payload::Bytes(bytes) = piece {
            hash.update(&bytes[..]);
        }
    }
    let digest = hash.finalize();
    let item = |description: &str, name: &str, path: &str| Item {
        author: AUTHOR.to_owned(),
        description: description.to_owned(),
        name: name.to_owned(),
        path: path.to_owned(),
    };
    let root = identifier(&digest, 0);
    let mut items = BTreeMap::new();
    items.insert(root.clone(), item("CoreML Model Specification", "model.mlmodel", MODEL));
    let data = weights.byte_len() > 0;
    if data {
        items.insert(identifier(&digest, 1), item("CoreML Model Weights", "weights", WEIGHTS));
    }
    let manifest = Manifest {
        file_format_version: "1.0.0".to_owned(),
        item_info_entries: items,
        root_model_identifier: root,
    };
    let mut text = serde_json::to_string_pretty(&manifest).unwrap_or_default();
    text.push('\n');
    let mut parts = vec![
        Part { path: PathBuf::from(MANIFEST), pieces: vec![Blob::from(text.as_str()).into()] },
        Part { path: Path::new(DATA).join(MODEL), pieces: model },
    ];
    if data {
        parts.push(Part { path: PathBuf::from(weights::PLACE), pieces: weights.into_pieces() });
    }
    parts
}

/// Whether a package lies there.
pub fn is_one(path: &Path) -> bool {
    path.is_dir() && path.join(MANIFEST).is_file()
}

/// A package: its model, and where its weights are.
#[derive(Debug)]
pub struct Package {
    /// The bytes of the model.
    pub model: Blob,
    weights: Place,
}

/// Where weights are.
#[derive(Debug)]
enum Place {
    /// In memory.
    Bytes(Blob),
    /// In the folder of the package, and in that of the model in it.
    Folders(PathBuf, PathBuf),
}

impl Package {
    /// A package in memory.
    pub fn of_bytes(model: Blob, weights: Blob) -> Self {
        Self { model, weights: Place::Bytes(weights) }
    }

    /// The package in a folder.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let broken = |why: String| LoadError::NotAModel {
            path: path.to_owned(),
            why: format!("it is a Core ML package that is damaged: {why}"),
        };
        let unreadable = |at: &Path, source| LoadError::Open { path: at.to_owned(), source };
        let listed = path.join(MANIFEST);
        let size = std::fs::metadata(&listed).map_err(|error| unreadable(&listed, error))?.len();
        if size > LONGEST {
            return Err(broken(format!("{MANIFEST} has {size} bytes")));
        }
        let text = std::fs::read(&listed).map_err(|error| unreadable(&listed, error))?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| broken(format!("{MANIFEST}: {error}")))?;
        let root = manifest.item_info_entries.get(&manifest.root_model_identifier);
        let root = root.ok_or_else(|| broken(format!("{MANIFEST} lists no model")))?;
        let place = Path::new(&root.path);
        if !place.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(broken(format!("{MANIFEST} refers to {:?}", root.path)));
        }
        let folder = path.canonicalize().map_err(|error| unreadable(path, error))?;
        let model = folder.join(DATA).join(place);
        let bytes = inside(&folder, &model).map_err(broken)?;
        let beside = model.parent().unwrap_or(&folder).to_owned();
        Ok(Self { model: bytes, weights: Place::Folders(folder, beside) })
    }

    /// The bytes of a file of weights, whatever folder its name says.
    pub fn weights(&self, name: &str) -> Result<Blob, String> {
        let file = weights::file_name(name).ok_or_else(|| format!("weights in {name:?}"))?;
        match &self.weights {
            Place::Bytes(bytes) => Ok(bytes.clone()),
            Place::Folders(folder, beside) => inside(folder, &beside.join("weights").join(file)),
        }
    }
}

/// The bytes of a file, which must lie in a folder, links followed.
fn inside(folder: &Path, file: &Path) -> Result<Blob, String> {
    let at = |error: std::io::Error| format!("{}: {error}", file.display());
    let real = file.canonicalize().map_err(at)?;
    if !real.starts_with(folder) {
        return Err(format!("{} lies outside of it", file.display()));
    }
    Ok(Blob::mapped(Arc::new(MappedFile::open(&real).map_err(at)?)))
}
