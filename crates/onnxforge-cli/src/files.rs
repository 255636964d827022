//! What commands read and write: files, and memory of whoever calls a command from within a program.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use onnxforge::Invalid;
use onnxforge::blob::Blob;
use onnxforge::check::{Rule, nearest};
use onnxforge::io::save::{save_message, write_file};
use onnxforge::io::{
    External, LinkPolicy, LoadError, LoadOptions, SaveOptions, Saved, Source, require_folder, save_with,
    to_bytes,
};
use onnxforge::ir::Model;
use onnxforge::mmap::MappedFile;
use onnxforge::progress::Progress;
use onnxforge::proto::schema::ModelProto;
use onnxforge::proto::wire::encode;
use onnxforge::{load_valid, open};
use serde::Serialize;

use crate::failure::{Failure, Kind};
use crate::output::bytes;

/// How paths into memory begin.
pub const MEMORY: &str = "memory:";

/// Bytes under names that begin with [`MEMORY`]. Others are files.
#[derive(Debug, Default)]
pub struct Memory {
    /// What commands may read.
    given: HashMap<PathBuf, Blob>,
    /// What they wrote.
    made: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
}

impl Memory {
    /// What commands may read.
    pub fn of(given: HashMap<PathBuf, Blob>) -> Self {
        Self { given, made: Mutex::default() }
    }

    /// What commands wrote.
    pub fn take(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.made.lock().map(|mut made| std::mem::take(&mut *made)).unwrap_or_default()
    }

    fn put(&self, path: &Path, bytes: Vec<u8>) -> Vec<WrittenFile> {
        let size = bytes.len() as u64;
        if let Ok(mut made) = self.made.lock() {
            made.insert(path.to_owned(), bytes);
        }
        vec![WrittenFile::new(path, size)]
    }
}

/// The way to files.
#[derive(Debug, Default)]
pub struct Files {
    /// What links external data may lie behind.
    pub links: LinkPolicy,
    /// For commands that are called from within a program.
    pub memory: Option<Memory>,
}

/// A file that a command wrote.
#[derive(Clone, Debug, Serialize)]
pub struct WrittenFile {
    /// Its path.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Data files of another model that it reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<String>,
}

/// Data files of another model that one line names.
const SHOWN_SHARED: usize = 3;

impl WrittenFile {
    /// A file of this size, which shares nothing.
    pub fn new(path: &Path, bytes: u64) -> Self {
        Self { path: path.display().to_string(), bytes, shared: Vec::new() }
    }

    /// What saving wrote; the model file comes last.
    fn all(saved: &Saved) -> Vec<Self> {
        let mut files: Vec<Self> = saved.files.iter().map(|(path, size)| Self::new(path, *size)).collect();
        if let Some(model) = files.last_mut() {
            model.shared = saved.shared.iter().map(|path| path.display().to_string()).collect();
        }
        files
    }

    /// Tells people that the file was written, and whose data it needs.
    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "wrote {} ({})", self.path, bytes(self.bytes))?;
        if self.shared.is_empty() {
            return Ok(());
        }
        let named = self.shared.get(..SHOWN_SHARED).unwrap_or(&self.shared).join(", ");
        let more = match self.shared.len().saturating_sub(SHOWN_SHARED) {
            0 => String::new(),
            more => format!(" and {more} more files"),
        };
        writeln!(out, "{} reads its weights from {named}{more}", self.path)
    }
}

/// Tells people what was written.
pub fn show_files(files: &[WrittenFile], out: &mut dyn Write) -> io::Result<()> {
    files.iter().try_for_each(|file| file.show(out))
}

/// Models that a hint names.
const SHOWN_MODELS: usize = 5;

/// What may have been meant by a path that is no file: models in that folder, or one of nearly that name beside it.
fn near(path: &Path) -> Option<String> {
    if path.is_dir() {
        let mut models = models_in(path);
        models.sort();
        let more = if models.len() > SHOWN_MODELS { ", …" } else { "" };
        models.truncate(SHOWN_MODELS);
        return Some(match models.is_empty() {
            true => "; it is a folder without models".to_owned(),
            false => format!("; it is a folder; its models are {}{more}", models.join(", ")),
        });
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.exists() {
        return Some(format!("; there is no folder {}", folder.display()));
    }
    let name = path.file_name()?.to_str()?;
    let models = models_in(folder);
    let named = || models.iter().find(|model| model.strip_suffix(".onnx") == Some(name));
    let meant = named().map(String::as_str).or_else(|| nearest(name, models.iter().map(String::as_str)))?;
    (!path.exists()).then(|| format!("; did you mean {}?", path.with_file_name(meant).display()))
}

/// The names of the models in a folder.
fn models_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".onnx")).collect()
}

impl Files {
    /// The memory that a path leads to.
    fn memory(&self, path: &Path) -> Option<&Memory> {
        self.memory.as_ref().filter(|_| path.to_str().is_some_and(|path| path.starts_with(MEMORY)))
    }

    /// The bytes that a path into memory leads to.
    fn given(&self, path: &Path) -> Option<Result<&Blob, Failure>> {
        let absent = || Failure::at(path, "there is nothing of this name").of_kind(Kind::Load);
        self.memory(path).map(|memory| memory.given.get(path).ok_or_else(absent))
    }

    /// The bytes of a file that is no model.
    pub fn read(&self, path: &Path) -> Result<Blob, Failure> {
        match self.given(path) {
            Some(given) => given.cloned(),
            None => match MappedFile::open(path) {
                Ok(file) => Ok(Blob::mapped(Arc::new(file))),
                Err(error) => {
                    Err(Failure::at(path, format_args!("cannot be read: {error}")).of_kind(Kind::Load))
                }
            },
        }
    }

    /// A file that is decoded: its message, and the files that it may refer to.
    pub fn open(&self, path: &Path) -> Result<Source, Failure> {
        let options = LoadOptions { links: self.links };
        match self.given(path) {
            Some(given) => Ok(Source::from_bytes(given?.clone(), None, &options)?),
            None => open(path, &options).map_err(|error| {
                let near = matches!(error, LoadError::Open { .. }).then(|| near(path)).flatten();
                let mut failure = Failure::from(error);
                failure.message.extend(near);
                failure
            }),
        }
    }

    /// The model in a file.
    pub fn load(&self, path: &Path) -> Result<Model, Failure> {
        Ok(self.open(path)?.into_model()?)
    }

    /// The model in a file that is valid, but for rules that what is to be done takes care of.
    pub fn load_valid(&self, path: &Path, accepted: &[Rule]) -> Result<Model, Failure> {
        match load_valid(self.open(path)?, accepted) {
            Err(onnxforge::Error::Invalid(Invalid { first, more })) => {
                let more = match more {
                    0 => String::new(),
                    more => format!(" (and {more} more; `onnxforge check` lists them)"),
                };
                let failure = Failure::at(path, format_args!("{}: {}{more}", first.place, first.message));
                Err(Failure { kind: Kind::Invalid, place: Some(first.place.to_string()), ..failure })
            }
            loaded => Ok(loaded?),
        }
    }

    /// Whether the folders of files that a command is going to write exist; asked before its work.
    pub fn require_folders<'p>(&self, paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Failure> {
        let mut files = paths.into_iter().filter(|path| self.memory(path).is_none());
        Ok(files.try_for_each(|path| require_folder(path))?)
    }

    /// Fails for a place in memory, where only models and single files can go.
    pub fn require_real(&self, path: &Path) -> Result<(), Failure> {
        match self.memory(path) {
            Some(_) => Err(Failure::at(path, "a conversion needs the path of a file for the result")),
            None => Ok(()),
        }
    }

    /// Saves a model. Memory takes it with all its weights.
    pub fn save(
        &self,
        model: &Model,
        path: &Path,
        external: impl Into<External>,
        progress: &dyn Progress,
    ) -> Result<Vec<WrittenFile>, Failure> {
        if let Some(memory) = self.memory(path) {
            let bytes = to_bytes(model).map_err(|error| {
                Failure::new(format_args!("{error}; give the path of a file for the result"))
                    .of_kind(Kind::Save)
            })?;
            return Ok(memory.put(path, bytes));
        }
        let saved = save_with(model, path, &SaveOptions { external: external.into() }, progress)?;
        Ok(WrittenFile::all(&saved))
    }

    /// Saves a message as it is.
    pub fn save_message(&self, message: &ModelProto, path: &Path) -> Result<Vec<WrittenFile>, Failure> {
        if let Some(memory) = self.memory(path) {
            let mut bytes = Vec::new();
            encode(message).write_to(&mut bytes)?;
            return Ok(memory.put(path, bytes));
        }
        let saved = save_message(message, path)?;
        Ok(WrittenFile::all(&saved))
    }

    /// Writes a file that is no model: as a whole or not at all.
    pub fn write(
        &self,
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Vec<WrittenFile>, Failure> {
        if let Some(memory) = self.memory(path) {
            let mut bytes = Vec::new();
            write(&mut bytes)?;
            return Ok(memory.put(path, bytes));
        }
        let saved = write_file(path, write)?;
        Ok(WrittenFile::all(&saved))
    }
}
