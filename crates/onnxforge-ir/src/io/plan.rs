//! Where weights go: which tensors into which data file, at which offset, under which entries.
//!
//! No file that somebody may still need is overwritten: not the data of the model being replaced, not that of a
//! neighbour, not what the model itself is mapped from. A new data file then gets a free name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::external::{Reference, contained, normal_location};
use super::load::{folder_of, read_message};
use super::message::to_message;
use super::request::{External, MESSAGE_LIMIT, SaveError};
use super::staged::Staged;
use super::tensor::{Place, external_entries};
use crate::model::Model;
use crate::tensor::{Data, Storage, Tensor, TensorError};
use onnxforge_proto::Str;
use onnxforge_proto::blob::{Blob, Payload};
use onnxforge_proto::mmap::MappedFile;
use onnxforge_proto::progress::Progress;
use onnxforge_proto::schema::TensorProto;
use onnxforge_proto::walk::walk;

/// Tensors smaller than this stay in the model file.
const EXTERNAL_FROM: u64 = 1024;

/// Where tensors start in a data file.
const ALIGNMENT: u64 = 64;

/// What goes into data files, and under which entries the model refers to it.
pub(super) struct DataPlan {
    mode: External,
    folder: PathBuf,
    /// Data files to write.
    pub files: Vec<DataFile>,
    /// What each kept data file is called in the new folder, by its name in the model.
    kept: HashMap<Str, Kept>,
    /// Where each range or lazy tensor went in the split file, so that tied weights stay tied.
    placed: HashMap<(usize, usize), u64>,
    split_name: String,
    /// Data files of the replaced model that nothing needs any more.
    pub obsolete: Vec<PathBuf>,
}

/// A data file of the model that goes on under a name of its own.
struct Kept {
    source: Arc<MappedFile>,
    name: String,
}

/// A data file to write.
pub(super) struct DataFile {
    target: PathBuf,
    parts: Vec<(u64, Payload)>,
    pub end: u64,
}

impl DataFile {
    /// Writes the file beside its target.
    pub fn write(&self, durable: bool, progress: &dyn Progress) -> Result<Staged, SaveError> {
        let mut parts: Vec<&(u64, Payload)> =
            self.parts.iter().filter(|(_, payload)| payload.byte_len() > 0).collect();
        parts.sort_by_key(|(offset, _)| *offset);
        Staged::write(&self.target, self.end, durable, progress, |out| {
            out.copy_all(
                merge_neighbours(&parts).into_iter().map(|(offset, payload)| (Some(offset), payload)),
            )?;
            out.end_at(self.end)
        })
    }
}

/// Joins parts that follow each other in the same source file, padding between them included: one copy instead of many.
fn merge_neighbours(parts: &[&(u64, Payload)]) -> Vec<(u64, Payload)> {
    let mut merged: Vec<(u64, Payload)> = Vec::new();
    for (offset, payload) in parts.iter().map(|part| (part.0, &part.1)) {
        if let Some((start, Payload::Bytes(before))) = merged.last_mut()
            && let Payload::Bytes(blob) = payload
            && let Some(joined) = join(before, blob, offset - *start)
        {
            *before = joined;
            continue;
        }
        merged.push((offset, payload.clone()));
    }
    merged
}

/// The range from the start of `before` to the end of `after`, when both lie in one file at this distance and close by.
fn join(before: &Blob, after: &Blob, distance: u64) -> Option<Blob> {
    let ((file, from), (other_file, other_from)) = (before.place()?, after.place()?);
    let gap = distance.saturating_sub(before.len() as u64);
    let fits =
        Arc::ptr_eq(file, other_file) && other_from.checked_sub(from) == Some(distance) && gap < 1 << 16;
    let end = (other_from as usize + after.len()).max(from as usize + before.len());
    if fits { Blob::mapped(file.clone()).slice(from as usize..end) } else { None }
}

impl DataPlan {
    /// Looks at every tensor of `model` once and decides about data files.
    pub fn new(path: &Path, external: External, model: &Model) -> Result<Self, SaveError> {
        let tensor_error = |source| SaveError::Tensor { path: path.to_owned(), source };
        let folder = folder_of(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut total = 0u64;
        let mut sources: BTreeMap<Str, Source> = BTreeMap::new();
        let mut overwritten = None;
        to_message(model, &mut |tensor| {
            if let Data::Unavailable(why) = tensor.data() {
                return Err(TensorError::Unavailable(why.clone()));
            }
            total = total.saturating_add(tensor.byte_len());
            if let Some((file, reference, blob)) = kept_range(tensor) {
                if overwritten.is_none() && file.is_at(path) {
                    overwritten = Some(reference.location.clone());
                }
                let source = sources
                    .entry(reference.location.clone())
                    .or_insert_with(|| Source { file: file.clone(), parts: BTreeMap::new() });
                if Arc::ptr_eq(&source.file, file) {
                    source.parts.insert((reference.offset, blob.len()), blob.clone());
                }
            }
            // The message is thrown away; only the look at each tensor counts.
            Ok(Place::Beside(Vec::new()))
        })
        .map_err(tensor_error)?;
        if let Some(location) = overwritten {
            let why = format!("the output would replace {location}, which holds the model's weights");
            return Err(tensor_error(TensorError::Unavailable(why.into())));
        }
        let mode = match external {
            // Room for everything that is not weights; the exact size is checked again later.
            External::Auto if total < MESSAGE_LIMIT - (MESSAGE_LIMIT >> 4) => External::Inline,
            External::Auto => External::Split,
            other => other,
        };

        let in_use = references_of(path);
        let mut plan = Self {
            mode,
            folder: folder.clone(),
            files: Vec::new(),
            kept: HashMap::new(),
            placed: HashMap::new(),
            split_name: String::new(),
            obsolete: Vec::new(),
        };
        let mut taken: HashSet<String> =
            in_use.iter().map(ToString::to_string).chain([name.clone()]).collect();
        if mode == External::Keep {
            taken.extend(sources.keys().map(ToString::to_string));
            for (location, source) in sources {
                plan.keep(&folder, location, source, &name, &in_use, &mut taken);
            }
        } else {
            let exists = |name: &str| folder.join(name).symlink_metadata().is_ok();
            plan.split_name = free_name(&format!("{name}.data"), |name| taken.contains(name) || exists(name));
            // Data files that are named after the replaced model are its own, unless the saved model came from
            // another file and has its weights there; others may have other readers.
            let in_place = model.source().is_some_and(|source| same_path(source, path));
            let needed = |file: &Path| !in_place && sources.values().any(|source| source.file.is_at(file));
            let own = in_use.iter().filter(|used| is_own_data(used, &name)).map(|used| folder.join(&**used));
            plan.obsolete = own.filter(|file| !needed(file)).collect();
        }
        Ok(plan)
    }

    /// Decides about one data file: it may stay, or is copied under its own or a free name.
    fn keep(
        &mut self,
        folder: &Path,
        location: Str,
        source: Source,
        model_name: &str,
        in_use: &[Str],
        taken: &mut HashSet<String>,
    ) {
        let target = folder.join(&*location);
        let stays = *location != *model_name && (source.file.is_at(&target) || source.is_stored_in(&target));
        let mut name = location.to_string();
        if !stays {
            // Its own name is reserved for it, unless the replaced model, a neighbour or the model file has it.
            if in_use.contains(&location) || name == model_name || target.symlink_metadata().is_ok() {
                name = free_name(&name, |name| {
                    taken.contains(name) || folder.join(name).symlink_metadata().is_ok()
                });
                taken.insert(name.clone());
            }
            let parts: Vec<(u64, Payload)> =
                source.parts.iter().map(|((offset, _), blob)| (*offset, blob.clone().into())).collect();
            let end = parts.iter().map(|(offset, payload)| offset + payload.byte_len()).max().unwrap_or(0);
            self.files.push(DataFile { target: folder.join(&name), parts, end });
        }
        self.kept.insert(location, Kept { source: source.file, name });
    }

    /// Where the elements of `tensor` go.
    pub fn place(&mut self, tensor: &Tensor) -> Result<Place, TensorError> {
        match (self.mode, tensor.data()) {
            (_, Data::Unavailable(why)) => Err(TensorError::Unavailable(why.clone())),
            (External::Keep, _) => Ok(self.place_kept(tensor).unwrap_or(Place::Inside)),
            (External::Split, Data::Strings(_)) => Ok(Place::Inside),
            (External::Split, _) if tensor.byte_len() >= EXTERNAL_FROM => self.place_split(tensor),
            _ => Ok(Place::Inside),
        }
    }

    /// An external tensor stays under its offset, and under its name where that is free.
    fn place_kept(&self, tensor: &Tensor) -> Option<Place> {
        let (file, reference, _) = kept_range(tensor)?;
        let kept = self.kept.get(&reference.location).filter(|kept| Arc::ptr_eq(&kept.source, file))?;
        let Storage::External(entries) = tensor.storage() else { return None };
        let mut entries = entries.to_vec();
        if kept.name != *reference.location {
            for entry in entries.iter_mut().filter(|entry| entry.key.as_deref() == Some("location")) {
                entry.value = Some(kept.name.as_str().into());
            }
        }
        Some(Place::Beside(entries))
    }

    fn place_split(&mut self, tensor: &Tensor) -> Result<Place, TensorError> {
        let length = tensor.byte_len();
        let key = match tensor.data() {
            Data::Bytes(blob) => Some((blob.as_ptr().addr(), blob.len())),
            Data::Lazy(lazy) => Some((Arc::as_ptr(lazy).addr(), 0)),
            _ => None,
        };
        if let Some(&offset) = key.and_then(|key| self.placed.get(&key)) {
            return Ok(Place::Beside(external_entries(&self.split_name, offset, length)));
        }
        let payload = tensor.payload()?;
        let end = self.files.first().map_or(0, |file| file.end);
        let too_large = || TensorError::TooLarge(tensor.shape().to_vec());
        let offset = end.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
        let end = offset.checked_add(length).ok_or_else(too_large)?;
        if self.files.is_empty() {
            let target = self.folder.join(&self.split_name);
            self.files.push(DataFile { target, parts: Vec::new(), end: 0 });
        }
        if let Some(file) = self.files.first_mut() {
            file.parts.push((offset, payload));
            file.end = end;
        }
        if let Some(key) = key {
            self.placed.insert(key, offset);
        }
        Ok(Place::Beside(external_entries(&self.split_name, offset, length)))
    }
}

/// The ranges of one data file that a model uses.
struct Source {
    file: Arc<MappedFile>,
    parts: BTreeMap<(u64, usize), Blob>,
}

impl Source {
    /// Whether the file `target` already has the same bytes at the same places.
    fn is_stored_in(&self, target: &Path) -> bool {
        let Ok(stored) = MappedFile::open(target) else { return false };
        self.parts.iter().all(|((offset, length), blob)| {
            let start = usize::try_from(*offset).unwrap_or(usize::MAX);
            stored.bytes().get(start..start.saturating_add(*length)) == Some(&blob[..])
        })
    }
}

/// The mapped file, the normal reference and the bytes of a tensor that is stored just where its entries say.
fn kept_range(tensor: &Tensor) -> Option<(&Arc<MappedFile>, Reference, &Blob)> {
    let (Storage::External(entries), Data::Bytes(blob)) = (tensor.storage(), tensor.data()) else {
        return None;
    };
    let mut reference = Reference::parse(entries).ok()?;
    let (file, offset) = blob.place()?;
    let kept = offset == reference.offset && contained(&reference.location).is_ok();
    reference.location = normal_location(&reference.location);
    kept.then_some((file, reference, blob))
}

fn same_path(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// `name`, or `name` with a number before its ending where it is taken.
fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.to_owned();
    }
    let (stem, ending) =
        name.rsplit_once('.').map_or((name, String::new()), |(stem, ending)| (stem, format!(".{ending}")));
    (1u64..)
        .map(|i| format!("{stem}.{i}{ending}"))
        .find(|name| !taken(name))
        .unwrap_or_else(|| name.to_owned())
}

/// Whether a data file has one of the names that [`free_name`] gives the data of the model file `model`.
fn is_own_data(location: &str, model: &str) -> bool {
    let number = location.strip_prefix(model).and_then(|rest| rest.strip_suffix("data"));
    number.and_then(|rest| rest.strip_prefix('.')).is_some_and(|number| {
        number.is_empty() || number.strip_suffix('.').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// The data files that the model in `path` refers to; none when there is no readable model.
fn references_of(path: &Path) -> Vec<Str> {
    let Ok(mut message) = read_message(path) else { return Vec::new() };
    let mut found: Vec<Str> = Vec::new();
    let mut seen: HashSet<Str> = HashSet::new();
    walk(&mut message, &mut |tensor: &mut TensorProto| {
        if tensor.data_location == Some(1)
            && let Ok(reference) = Reference::parse(&tensor.external_data)
            && let location = normal_location(&reference.location)
            && seen.insert(location.clone())
        {
            found.push(location);
        }
    });
    found
}
