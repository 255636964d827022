//! Where weights go: which tensors into which data file, at which offset, under which entries.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::external::Reference;
use super::load::{folder_of, read_message};
use super::message::tensors;
use super::save::{External, MESSAGE_LIMIT, SaveError};
use super::staged::Staged;
use super::tensor::{Place, external_entries};
use crate::blob::{Blob, Payload};
use crate::ir::model::Model;
use crate::ir::tensor::{Data, Storage, Tensor, TensorError};
use crate::progress::Progress;
use crate::proto::Str;
use crate::proto::schema::{StringStringEntryProto, TensorProto};
use crate::proto::walk::walk;

/// Tensors smaller than this stay in the model file.
const EXTERNAL_FROM: u64 = 1024;

/// Where tensors start in a data file.
const ALIGNMENT: u64 = 64;

/// What goes into data files, and under which entries the model refers to it.
pub(super) struct DataPlan {
    folder: PathBuf,
    mode: External,
    pub files: Vec<DataFile>,
    /// Where each mapped range already went, so that tied weights stay tied.
    placed: HashMap<(usize, usize), (usize, u64)>,
    /// The position in `files` of each file that is kept, by its name in the model.
    kept: HashMap<Str, Option<usize>>,
    /// Names that the model being replaced refers to.
    in_use: Vec<Str>,
    split_name: String,
    /// Data files of the replaced model that nothing needs any more.
    pub obsolete: Vec<PathBuf>,
}

pub(super) struct DataFile {
    target: PathBuf,
    name: String,
    /// Offsets ascend; ranges do not overlap.
    parts: Vec<(u64, Payload)>,
    pub end: u64,
}

impl DataFile {
    pub fn write(&self, progress: &dyn Progress) -> Result<Staged, SaveError> {
        let mut parts: Vec<&(u64, Payload)> = self.parts.iter().collect();
        parts.sort_by_key(|(offset, _)| *offset);
        Staged::write(&self.target, self.end, progress, |out| {
            let mut position = 0;
            for (offset, payload) in merge_neighbours(&parts) {
                if offset != position {
                    out.skip_to(offset)?;
                }
                out.copy(&payload)?;
                position = offset + payload.byte_len();
            }
            Ok(())
        })
    }
}

/// Joins parts that follow each other in the same source file, padding between them included: one copy instead of many.
fn merge_neighbours(parts: &[&(u64, Payload)]) -> Vec<(u64, Payload)> {
    let mut merged: Vec<(u64, Payload)> = Vec::new();
    for (offset, payload) in parts.iter().map(|part| (part.0, &part.1)) {
        if let Some((start, Payload::Bytes(before))) = merged.last_mut()
            && let Payload::Bytes(blob) = payload
            && let (Some((file, from)), Some((next_file, next_from))) = (before.place(), blob.place())
            && std::sync::Arc::ptr_eq(file, next_file)
            && next_from >= from
            && next_from - from == offset - *start
            && next_from - (from + before.len() as u64).min(next_from) < 1 << 16
            && let Some(joined) =
                Blob::mapped(file.clone()).slice(from as usize..next_from as usize + blob.len())
        {
            *before = joined;
            continue;
        }
        merged.push((offset, payload.clone()));
    }
    merged
}

impl DataPlan {
    pub fn new(path: &Path, external: External, model: &Model) -> Self {
        let mode = match external {
            External::Auto => {
                let bytes: u64 = tensors(model).map(Tensor::byte_len).sum();
                // Room for everything that is not weights; the exact size is checked again later.
                if bytes < MESSAGE_LIMIT - (MESSAGE_LIMIT >> 4) { External::Inline } else { External::Split }
            }
            other => other,
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = folder_of(path);
        let in_use = references_of(path);
        let split_name = free_name(&format!("{name}.data"), &in_use);
        // Data files of the replaced model that are named after it are its own; others may have other readers.
        let own = |used: &&Str| {
            used.starts_with(&format!("{name}.")) && used.ends_with(".data") && ***used != *split_name
        };
        let obsolete = match mode {
            External::Keep => Vec::new(),
            _ => in_use.iter().filter(own).map(|used| folder.join(&**used)).collect(),
        };
        Self {
            folder,
            mode,
            files: Vec::new(),
            placed: HashMap::new(),
            kept: HashMap::new(),
            in_use,
            split_name,
            obsolete,
        }
    }

    pub fn place(&mut self, tensor: &Tensor) -> Result<Place, TensorError> {
        match (self.mode, tensor.storage(), tensor.data()) {
            (_, _, Data::Unavailable(why)) => Err(TensorError::Unavailable(why.clone())),
            (External::Keep, Storage::External(entries), Data::Bytes(blob)) => Ok(self.keep(entries, blob)),
            (External::Split, _, Data::Strings(_)) => Ok(Place::Inside),
            (External::Split, ..) if tensor.byte_len() >= EXTERNAL_FROM => self.split(tensor),
            _ => Ok(Place::Inside),
        }
    }

    /// An external tensor stays under its name and offset; the file is copied when the model moves.
    fn keep(&mut self, entries: &[StringStringEntryProto], blob: &Blob) -> Place {
        let Ok(reference) = Reference::parse(entries) else {
            return Place::Inside;
        };
        let slot = match self.kept.get(&reference.location) {
            Some(&slot) => slot,
            None => {
                let stays = blob
                    .place()
                    .is_some_and(|(file, _)| same_file(file.path(), &self.folder.join(&*reference.location)));
                let slot = (!stays).then(|| {
                    let name = free_name(&reference.location, &self.in_use);
                    self.files.push(DataFile {
                        target: self.folder.join(&name),
                        name,
                        parts: Vec::new(),
                        end: 0,
                    });
                    self.files.len() - 1
                });
                self.kept.insert(reference.location.clone(), slot);
                slot
            }
        };
        let mut entries = entries.to_vec();
        if let Some(slot) = slot
            && let Some(file) = self.files.get_mut(slot)
        {
            let key = (blob.as_ptr().addr(), blob.len());
            if self.placed.insert(key, (slot, reference.offset)).is_none() {
                file.parts.push((reference.offset, blob.clone().into()));
                file.end = file.end.max(reference.offset + blob.len() as u64);
            }
            if file.name != *reference.location {
                for entry in entries.iter_mut().filter(|entry| entry.key.as_deref() == Some("location")) {
                    entry.value = Some(file.name.as_str().into());
                }
            }
        }
        Place::Beside(entries)
    }

    fn split(&mut self, tensor: &Tensor) -> Result<Place, TensorError> {
        if self.files.is_empty() {
            let target = self.folder.join(&self.split_name);
            self.files.push(DataFile { target, name: self.split_name.clone(), parts: Vec::new(), end: 0 });
        }
        let length = tensor.byte_len();
        let key = match tensor.data() {
            Data::Bytes(blob) => Some((blob.as_ptr().addr(), blob.len())),
            _ => None,
        };
        if let Some(&(_, offset)) = key.and_then(|key| self.placed.get(&key)) {
            return Ok(Place::Beside(external_entries(&self.split_name, offset, length)));
        }
        let payload = tensor.payload()?;
        let mut offset = 0;
        if let Some(file) = self.files.first_mut() {
            offset = file.end.next_multiple_of(ALIGNMENT);
            file.parts.push((offset, payload));
            file.end = offset + length;
        }
        if let Some(key) = key {
            self.placed.insert(key, (0, offset));
        }
        Ok(Place::Beside(external_entries(&self.split_name, offset, length)))
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// `name`, or `name` with a number before its ending when the replaced model still needs the file of that name.
fn free_name(name: &str, in_use: &[Str]) -> String {
    let taken = |name: &str| in_use.iter().any(|used| &**used == name);
    if !taken(name) {
        return name.to_owned();
    }
    let (stem, ending) =
        name.rsplit_once('.').map_or((name, String::new()), |(stem, e)| (stem, format!(".{e}")));
    (1u64..)
        .map(|i| format!("{stem}.{i}{ending}"))
        .find(|name| !taken(name))
        .unwrap_or_else(|| name.to_owned())
}

/// The data files that the model in `path` refers to; none when there is no readable model.
fn references_of(path: &Path) -> Vec<Str> {
    let Ok(mut message) = read_message(path) else {
        return Vec::new();
    };
    let mut found: Vec<Str> = Vec::new();
    walk(&mut message, &mut |tensor: &mut TensorProto| {
        if tensor.data_location == Some(1)
            && let Ok(reference) = Reference::parse(&tensor.external_data)
            && !found.contains(&reference.location)
        {
            found.push(reference.location);
        }
    });
    found
}
