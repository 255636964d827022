//! Models to files: atomic, streaming, and with weights where they should be.
//!
//! Data files are complete before the model file that refers to them takes its place, by rename. A data file that the
//! model being replaced refers to is never overwritten, so at every moment the old or the new model is whole.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::external::Reference;
use super::load::{folder_of, read_message};
use super::message::{tensors, to_message};
use super::tensor::{Place, external_entries};
use crate::blob::{Blob, Payload};
use crate::ir::model::Model;
use crate::ir::tensor::{Data, Storage, Tensor, TensorError};
use crate::proto::Str;
use crate::proto::schema::{ModelProto, StringStringEntryProto, TensorProto};
use crate::proto::walk::walk;
use crate::progress::{Progress, Silent};
use crate::proto::wire;

/// Protobuf messages must stay below this size.
pub const MESSAGE_LIMIT: u64 = 1 << 31;

/// Tensors smaller than this stay in the model file.
pub const EXTERNAL_FROM: u64 = 1024;

/// Where tensors start in a data file.
const ALIGNMENT: u64 = 64;

/// Bytes copied between two reports of progress.
const PROGRESS_STEP: usize = 32 << 20;

/// Where weights go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum External {
    /// Into the model file while that stays below 2 GiB, else into a data file.
    Auto,
    /// Where they were: external weights stay external under their name and offset, the others inside.
    #[default]
    Keep,
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
    /// A tensor's elements cannot be had.
    #[error("{}: not saved: {source}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TensorError,
    },
    /// The model file would be larger than protobuf allows.
    #[error("{}: the model file would have {size} bytes, and 2 GiB is the limit of the format; use --external split", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes that it would have.
        size: u64,
    },
}

/// What saving wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Every file that was written and its size, the model file last.
    pub files: Vec<(PathBuf, u64)>,
}

/// Writes `model` to `path`.
pub fn save(model: &Model, path: &Path, options: &SaveOptions) -> Result<Saved, SaveError> {
    save_with(model, path, options, &Silent)
}

/// Writes `model` to `path` and tells `progress` about the bytes on their way.
pub fn save_with(
    model: &Model,
    path: &Path,
    options: &SaveOptions,
    progress: &dyn Progress,
) -> Result<Saved, SaveError> {
    let tensor_error = |source| SaveError::Tensor { path: path.to_owned(), source };
    let mut plan = DataPlan::new(path, options.external, model);
    let message = to_message(model, &mut |tensor| plan.place(tensor)).map_err(tensor_error)?;
    let encoded = wire::encode(&message);
    drop(message);
    if encoded.byte_len() >= MESSAGE_LIMIT {
        if matches!(options.external, External::Keep | External::Auto) {
            // Weights that were, or were thought to fit, inside do not fit there.
            return save_with(model, path, &SaveOptions { external: External::Split }, progress);
        }
        return Err(SaveError::TooLarge { path: path.to_owned(), size: encoded.byte_len() });
    }

    // All files are written in full before the first one takes its place.
    let size = encoded.byte_len();
    progress.begin("writing", plan.files.iter().map(|file| file.end).sum::<u64>() + size);
    let mut staged = Vec::new();
    for file in &plan.files {
        staged.push(file.write(progress)?);
    }
    staged.push(stage(path, size, progress, |out| encoded.pieces().try_for_each(|piece| out.copy(&piece)))?);
    progress.end();

    let mut saved = Saved::default();
    for file in staged {
        saved.files.push(file.persist()?);
    }
    for old in plan.obsolete {
        // The new model does not need it and the old one is gone; leaving it behind is no error.
        drop(std::fs::remove_file(old));
    }
    Ok(saved)
}

/// Writes a message as it is; its external data is not touched.
pub fn save_message(message: &ModelProto, path: &Path) -> Result<Saved, SaveError> {
    let encoded = wire::encode(message);
    let size = encoded.byte_len();
    if size >= MESSAGE_LIMIT {
        return Err(SaveError::TooLarge { path: path.to_owned(), size });
    }
    let staged = stage(path, size, &Silent, |out| encoded.pieces().try_for_each(|piece| out.copy(&piece)))?;
    staged.persist().map(|file| Saved { files: vec![file] })
}

/// Encodes `model` with all weights in it.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>, TensorError> {
    let message = super::message::to_inline_message(model)?;
    let encoded = wire::encode(&message);
    let mut bytes = Vec::with_capacity(encoded.byte_len() as usize);
    encoded.write_to(&mut bytes).map_err(|error| TensorError::Unavailable(error.to_string().into()))?;
    Ok(bytes)
}

/// A complete file that has not taken its place.
struct Staged {
    file: NamedTempFile,
    target: PathBuf,
    size: u64,
}

impl Staged {
    /// Puts the file in its place, for good.
    fn persist(self) -> Result<(PathBuf, u64), SaveError> {
        let Self { file, target, size } = self;
        file.persist(&target).map_err(|error| SaveError::Write { path: target.clone(), source: error.error })?;
        sync_folder(&folder_of(&target));
        Ok((target, size))
    }
}

/// Writes a file beside its target and brings it to the disk.
fn stage(
    target: &Path,
    size: u64,
    progress: &dyn Progress,
    write: impl FnOnce(&mut Output<'_>) -> io::Result<()>,
) -> Result<Staged, SaveError> {
    let attempt = || -> io::Result<NamedTempFile> {
        let folder = folder_of(target);
        std::fs::create_dir_all(&folder)?;
        let prefix = format!(".{}.", target.file_name().unwrap_or_default().to_string_lossy());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        #[cfg(unix)]
        builder.permissions(permissions(target));
        let file = builder.tempfile_in(&folder)?;
        let mut out = Output { buffer: BufWriter::with_capacity(1 << 20, file.reopen()?), progress };
        write(&mut out)?;
        out.buffer.flush()?;
        out.buffer.get_ref().sync_all()?;
        Ok(file)
    };
    match attempt() {
        Ok(file) => Ok(Staged { file, target: target.to_owned(), size }),
        Err(source) => Err(SaveError::Write { path: target.to_owned(), source }),
    }
}

/// A replaced file keeps its permissions; a new one gets the usual ones.
#[cfg(unix)]
fn permissions(target: &Path) -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(target)
        .map(|metadata| metadata.permissions())
        .unwrap_or_else(|_| std::fs::Permissions::from_mode(0o666))
}

/// Makes renames in `folder` last through a power cut, where the system can do that.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        drop(folder.sync_all());
    }
}

/// A file under construction.
struct Output<'a> {
    buffer: BufWriter<File>,
    progress: &'a dyn Progress,
}

impl Output<'_> {
    /// Goes on at `offset`, which is not before the current place; what lies between is zero.
    fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        self.buffer.seek(io::SeekFrom::Start(offset)).map(drop)
    }

    /// Writes a payload; mapped bytes go from file to file inside the kernel where the system can do that.
    fn copy(&mut self, payload: &Payload) -> io::Result<()> {
        match payload {
            Payload::Bytes(blob) => self.copy_blob(blob),
            Payload::Stream(stream) => stream.write_to(self),
        }
    }

    fn copy_blob(&mut self, blob: &Blob) -> io::Result<()> {
        let mut done = 0;
        #[cfg(target_os = "linux")]
        if blob.len() >= 1 << 20
            && let Some((file, start)) = blob.place()
        {
            self.buffer.flush()?;
            done = self.copy_in_kernel(file.file(), start, blob.len());
        }
        // What the kernel did not copy is written in pieces small enough to show progress.
        blob.get(done..).unwrap_or_default().chunks(PROGRESS_STEP).try_for_each(|part| self.write_all(part))
    }

    /// Copies up to `length` bytes to the end of what is written, and says how many it could.
    #[cfg(target_os = "linux")]
    fn copy_in_kernel(&mut self, from: &File, mut start: u64, length: usize) -> usize {
        let mut done = 0;
        while done < length {
            let part = (length - done).min(PROGRESS_STEP);
            match rustix::fs::copy_file_range(from, Some(&mut start), self.buffer.get_ref(), None, part) {
                Ok(0) | Err(_) => break,
                Ok(copied) => {
                    done += copied;
                    self.progress.advance(copied as u64);
                }
            }
        }
        done
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.buffer.write(bytes)?;
        self.progress.advance(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.buffer.flush()
    }
}

/// What goes into data files, and under which entries the model refers to it.
struct DataPlan {
    folder: PathBuf,
    mode: External,
    files: Vec<DataFile>,
    /// Where each mapped range already went, so that tied weights stay tied.
    placed: HashMap<(usize, usize), (usize, u64)>,
    /// The position in `files` of each file that is kept, by its name in the model.
    kept: HashMap<Str, Option<usize>>,
    /// Names that the model being replaced refers to.
    in_use: Vec<Str>,
    split_name: String,
    obsolete: Vec<PathBuf>,
}

struct DataFile {
    target: PathBuf,
    name: String,
    /// Offsets ascend; ranges do not overlap.
    parts: Vec<(u64, Payload)>,
    end: u64,
}

impl DataFile {
    fn write(&self, progress: &dyn Progress) -> Result<Staged, SaveError> {
        let mut parts: Vec<&(u64, Payload)> = self.parts.iter().collect();
        parts.sort_by_key(|(offset, _)| *offset);
        stage(&self.target, self.end, progress, |out| {
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
    fn new(path: &Path, external: External, model: &Model) -> Self {
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
        let own = |used: &&Str| used.starts_with(&format!("{name}.")) && used.ends_with(".data") && ***used != *split_name;
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

    fn place(&mut self, tensor: &Tensor) -> Result<Place, TensorError> {
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
        let Ok(reference) = Reference::parse(entries) else { return Place::Inside };
        let slot = match self.kept.get(&reference.location) {
            Some(&slot) => slot,
            None => {
                let stays = blob.place().is_some_and(|(file, _)| {
                    same_file(file.path(), &self.folder.join(&*reference.location))
                });
                let slot = (!stays).then(|| {
                    let name = free_name(&reference.location, &self.in_use);
                    self.files.push(DataFile { target: self.folder.join(&name), name, parts: Vec::new(), end: 0 });
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
    let (stem, ending) = name.rsplit_once('.').map_or((name, String::new()), |(stem, e)| (stem, format!(".{e}")));
    (1u64..).map(|i| format!("{stem}.{i}{ending}")).find(|name| !taken(name)).unwrap_or_else(|| name.to_owned())
}

/// The data files that the model in `path` refers to; none when there is no readable model.
fn references_of(path: &Path) -> Vec<Str> {
    let Ok(mut message) = read_message(path) else { return Vec::new() };
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
