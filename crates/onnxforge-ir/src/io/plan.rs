//! Where weights go: which tensors into which data file, at which offset, under which entries.
//!
//! No file that somebody may still need is overwritten: not the data of the model being replaced, not that of a
//! neighbour, not what the model itself is mapped from. A new data file then gets a free name. And no model is left reading
//! the data of another one, which may change or go away, unless that is asked for.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::external::{Reference, contained, normal_location};
use super::message::to_message;
use super::owner::Site;
use super::request::{External, MESSAGE_LIMIT, SaveError};
use super::staged::{PAGE, Staged};
use super::tensor::{Place, external_entries};
use crate::model::Model;
use crate::tensor::{Data, Storage, Tensor, TensorError};
use onnxforge_proto::Str;
use onnxforge_proto::blob::{Blob, Payload};
use onnxforge_proto::mmap::MappedFile;
use onnxforge_proto::progress::Progress;

/// Tensors smaller than this stay in the model file.
const EXTERNAL_FROM: u64 = 1024;

/// Where tensors start in a data file.
const ALIGNMENT: u64 = 64;

/// What lies between two tensors and no tensor uses is copied along with them up to this size: one copy instead of two.
const GAP: u64 = 1 << 16;

/// What goes into data files, and under which entries the model refers to it.
pub(super) struct DataPlan {
    mode: External,
    folder: PathBuf,
    /// Data files to write.
    pub files: Vec<DataFile>,
    /// What each kept data file is called in the new folder, by its name in the model.
    kept: HashMap<Str, Kept>,
    /// Where each range or lazy tensor went in the first data file, so that tied weights stay tied.
    placed: HashMap<(usize, usize), u64>,
    /// What the model calls the first data file, which takes the weights that were not in one.
    first_name: String,
    /// Data files of the replaced model that nothing needs any more.
    pub obsolete: Vec<PathBuf>,
    /// Data files of another model that the saved one reads.
    pub shared: Vec<PathBuf>,
}

/// A data file of the model that goes on under a name of its own.
struct Kept {
    source: Arc<MappedFile>,
    name: String,
    /// Where its ranges go, when it is copied.
    moves: Option<Moves>,
}

/// Where ranges of a data file go in its copy: what no tensor uses is left out, and pages stay pages, which is what systems copy
/// fastest. Holds the stretches that move, by where they start.
#[derive(Default)]
struct Moves(BTreeMap<u64, u64>);

impl Moves {
    /// Packs ranges of an offset and a length that are given in the order of their offsets.
    fn packing(ranges: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut moves = Self::default();
        let (mut used, mut end) = (0, 0);
        for (offset, length) in ranges {
            if offset > used + GAP {
                moves.0.insert(offset, u64::next_multiple_of(end, PAGE) + offset % PAGE);
            }
            used = used.max(offset + length);
            end = end.max(moves.target(offset) + length);
        }
        moves
    }

    fn target(&self, offset: u64) -> u64 {
        self.0.range(..=offset).next_back().map_or(offset, |(start, target)| target + (offset - start))
    }
}

/// A data file to write.
pub(super) struct DataFile {
    target: PathBuf,
    /// Whether it lies in a folder below the model's, which is made for it.
    is_below: bool,
    parts: Vec<(u64, Payload)>,
    pub end: u64,
}

impl DataFile {
    /// Writes the file beside its target.
    pub fn write(&self, durable: bool, progress: &dyn Progress) -> Result<Staged, SaveError> {
        if let Some(below) = self.target.parent().filter(|_| self.is_below) {
            std::fs::create_dir_all(below)
                .map_err(|source| SaveError::Write { path: self.target.clone(), source })?;
        }
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
    let fits = Arc::ptr_eq(file, other_file) && other_from.checked_sub(from) == Some(distance) && gap <= GAP;
    let end = (other_from as usize + after.len()).max(from as usize + before.len());
    if fits { Blob::mapped(file.clone()).slice(from as usize..end) } else { None }
}

impl DataPlan {
    /// Looks at every tensor of `model` once and decides about data files.
    pub fn new(path: &Path, external: External, model: &Model) -> Result<Self, SaveError> {
        let tensor_error = |source| SaveError::Tensor { path: path.to_owned(), source };
        let mut total = 0u64;
        let mut sources: BTreeMap<Str, Source> = BTreeMap::new();
        let (mut overwritten, mut were_external) = (None, false);
        to_message(model, &mut |tensor| {
            if let Data::Unavailable(why) = tensor.data() {
                return Err(TensorError::Unavailable(why.clone()));
            }
            total = total.saturating_add(tensor.byte_len());
            were_external |= is_made(tensor) && tensor.is_of_data_file();
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

        let mut site = Site::new(path, model);
        let mut plan = Self {
            mode,
            folder: site.folder.clone(),
            files: Vec::new(),
            kept: HashMap::new(),
            placed: HashMap::new(),
            first_name: String::new(),
            obsolete: Vec::new(),
            shared: Vec::new(),
        };
        // Data files that are named after the replaced model are its own, unless the saved model came from another file and
        // has its weights there; others may have other readers.
        let needed = |file: &Path| !site.in_place && sources.values().any(|source| source.file.is_at(file));
        let own = site.own_data().filter(|name| !needed(&site.folder.join(&***name)));
        let mut obsolete: Vec<Str> = own.cloned().collect();
        match mode {
            External::Keep | External::Share => {
                site.reserve(sources.keys());
                for (location, source) in sources {
                    plan.keep(path, location, source, &mut site);
                }
                obsolete.retain(|old| plan.kept.values().all(|kept| kept.name != **old));
                plan.choose_first();
                if plan.files.is_empty() && were_external {
                    plan.first_name = site.own_name();
                }
            }
            _ => plan.first_name = site.own_name(),
        }
        plan.obsolete = obsolete.iter().map(|name| site.folder.join(&**name)).collect();
        Ok(plan)
    }

    /// Decides about one data file: it stays, is shared, or is copied.
    fn keep(&mut self, path: &Path, location: Str, source: Source, site: &mut Site) {
        let target = site.folder.join(&*location);
        let is_original = source.file.is_at(&target);
        // Of what lies there, the new model may go on reading what the replaced one read. The original's data is that of
        // another model, unless the original is what is replaced.
        let stays = !site.is_model(&location)
            && !site.is_of_another(&location)
            && if is_original {
                site.in_place
            } else {
                site.is_in_use(&location) && source.is_stored_in(&target)
            };
        let shares = !stays && is_original && self.mode == External::Share && !site.is_model(&location);
        let (mut name, mut moves) = (location.to_string(), None);
        if shares {
            self.shared.push(path.with_file_name(&*location));
        } else if !stays {
            name = site.name_for(&location);
            let packed = Moves::packing(source.parts.keys().map(|&(offset, length)| (offset, length as u64)));
            let part =
                |((offset, _), blob): (&(u64, usize), &Blob)| (packed.target(*offset), blob.clone().into());
            let parts: Vec<(u64, Payload)> = source.parts.iter().map(part).collect();
            let end = parts.iter().map(|(offset, payload)| offset + payload.byte_len()).max().unwrap_or(0);
            let is_below = name.contains('/');
            self.files.push(DataFile { target: site.folder.join(&name), is_below, parts, end });
            moves = Some(packed);
        }
        self.kept.insert(location, Kept { source: source.file, name, moves });
    }

    /// Weights that passes made go into the largest data file that is written.
    fn choose_first(&mut self) {
        let largest = self.files.iter().enumerate().max_by_key(|(_, file)| file.end).map(|(place, _)| place);
        let Some(largest) = largest else { return };
        self.files.swap(0, largest);
        let is_first = |kept: &&Kept| self.folder.join(&kept.name) == self.files[0].target;
        self.first_name = self.kept.values().find(is_first).map(|kept| kept.name.clone()).unwrap_or_default();
    }

    /// Where the elements of `tensor` go.
    pub fn place(&mut self, tensor: &Tensor) -> Result<Place, TensorError> {
        let is_large = tensor.byte_len() >= EXTERNAL_FROM;
        match (self.mode, tensor.data()) {
            (_, Data::Unavailable(why)) => Err(TensorError::Unavailable(why.clone())),
            (_, Data::Strings(_)) => Ok(Place::Inside),
            (External::Keep | External::Share, _) => match self.place_kept(tensor) {
                Some(place) => Ok(place),
                None if is_made(tensor) && is_large && !self.first_name.is_empty() => {
                    self.place_in_first(tensor)
                }
                None => Ok(Place::Inside),
            },
            (External::Split, _) if is_large => self.place_in_first(tensor),
            _ => Ok(Place::Inside),
        }
    }

    /// An external tensor stays in its file, under its name where that is free.
    fn place_kept(&self, tensor: &Tensor) -> Option<Place> {
        let (file, reference, _) = kept_range(tensor)?;
        let kept = self.kept.get(&reference.location).filter(|kept| Arc::ptr_eq(&kept.source, file))?;
        let Storage::External(entries) = tensor.storage() else { return None };
        let mut entries = entries.to_vec();
        let mut set = |key: &str, value: &str| {
            for entry in entries.iter_mut().filter(|entry| entry.key.as_deref() == Some(key)) {
                entry.value = Some(value.into());
            }
        };
        if kept.name != *reference.location {
            set("location", &kept.name);
        }
        if let Some(moves) = &kept.moves {
            let target = moves.target(reference.offset);
            if target != reference.offset {
                set("offset", &target.to_string());
            }
            // That of the original's file.
            entries.retain(|entry| entry.key.as_deref() != Some("checksum"));
        }
        Some(Place::Beside(entries))
    }

    fn place_in_first(&mut self, tensor: &Tensor) -> Result<Place, TensorError> {
        let length = tensor.byte_len();
        let key = match tensor.data() {
            Data::Bytes(blob) => Some((blob.as_ptr().addr(), blob.len())),
            Data::Lazy(lazy) => Some((Arc::as_ptr(lazy).addr(), 0)),
            _ => None,
        };
        if let Some(&offset) = key.and_then(|key| self.placed.get(&key)) {
            return Ok(Place::Beside(external_entries(&self.first_name, offset, length)));
        }
        let payload = tensor.payload()?;
        let end = self.files.first().map_or(0, |file| file.end);
        let too_large = || TensorError::TooLarge(tensor.shape().to_vec());
        let offset = end.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
        let end = offset.checked_add(length).ok_or_else(too_large)?;
        if self.files.is_empty() {
            let target = self.folder.join(&self.first_name);
            self.files.push(DataFile { target, is_below: false, parts: Vec::new(), end: 0 });
        }
        if let Some(file) = self.files.first_mut() {
            file.parts.push((offset, payload));
            file.end = end;
        }
        if let Some(key) = key {
            self.placed.insert(key, offset);
        }
        Ok(Place::Beside(external_entries(&self.first_name, offset, length)))
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

/// Whether the elements come from no file: a pass made them.
fn is_made(tensor: &Tensor) -> bool {
    let is_read = matches!(tensor.data(), Data::Bytes(blob) if blob.place().is_some());
    !is_read && *tensor.storage() == Storage::Raw
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
