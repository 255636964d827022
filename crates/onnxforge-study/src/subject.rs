//! The models of a study, and the state of their files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use onnxforge::io::load::folder_of;
use onnxforge_cli::failure::Failure;

use crate::step::Stamp;

/// Memory that a process takes besides the model.
const OVERHEAD: u64 = 1 << 30;
/// Bytes from which on models are compared block by block, which takes no more memory than this.
const LARGE: u64 = 1 << 30;

/// A model of the study.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name in tables.
    pub name: String,
    pub path: PathBuf,
    pub stamp: Stamp,
}

impl Subject {
    /// Whether it is compared block by block.
    pub fn is_large(&self) -> bool {
        self.stamp.bytes > LARGE
    }

    /// Memory that commands need for it: two sessions of ONNX Runtime, or blocks.
    pub fn memory(&self) -> u64 {
        2 * self.stamp.bytes.min(LARGE) + OVERHEAD
    }
}

/// Every model, with a name of its own.
pub fn subjects(places: &[PathBuf]) -> Result<Vec<Subject>, Failure> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    for place in places {
        let mut files = Vec::new();
        models_in(place, &mut files)?;
        let root = if place.is_dir() { place.as_path() } else { place.parent().unwrap_or(place) };
        for file in files {
            let inside = file.strip_prefix(root).unwrap_or(&file).with_extension("");
            let name = inside.to_string_lossy().replace(['/', '\\'], ".");
            if let Some(other) = found.insert(name.clone(), file.clone()).filter(|other| *other != file) {
                let text = format_args!("{} has the same name; put them into one folder", other.display());
                return Err(Failure::at(&file, text));
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::new("there is no model in there"));
    }
    let subject = |(name, path): (String, PathBuf)| {
        let stamp = stamp(&path);
        Subject { name, path, stamp }
    };
    Ok(found.into_iter().map(subject).collect())
}

/// The models in a folder and in those inside of it, or the one that this is.
fn models_in(place: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if !place.is_dir() {
        found.push(place.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(place)
        .map_err(|error| Failure::at(place, format_args!("cannot be read: {error}")))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            models_in(&path, found)?;
        } else if path.extension().is_some_and(|kind| kind == "onnx") {
            found.push(path);
        }
    }
    Ok(())
}

/// The state of a model and of the files that begin with its name.
fn stamp(path: &Path) -> Stamp {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_own = |file: &str| {
        let beside = [format!("{stem}."), format!("{name}_")];
        file == name || beside.iter().any(|start| file.starts_with(start)) && !file.ends_with(".onnx")
    };
    let entries = std::fs::read_dir(folder_of(path)).into_iter().flatten();
    let own = entries.flatten().filter(|entry| is_own(&entry.file_name().to_string_lossy()));
    own.filter_map(|entry| entry.metadata().ok()).fold(Stamp::default(), |stamp, file| {
        let written = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Stamp {
            bytes: stamp.bytes.saturating_add(file.len()),
            written: stamp.written.max(written.map_or(0, |time| time.as_secs())),
        }
    })
}
