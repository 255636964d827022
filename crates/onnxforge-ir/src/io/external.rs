//! Finding the bytes of tensors that are stored beside the model, without ever leaving its folder.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::mmap::{MappedFile, regular};
use onnxforge_proto::schema::StringStringEntryProto;

/// What may be read when a model refers to other files.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkPolicy {
    /// Accept external data behind symbolic links that leave the folder, and files with several hard links.
    /// Needed for caches that store weights once and link to them; off by default because a model is untrusted input.
    pub follow: bool,
}

/// Why external data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExternalError {
    /// The model did not come from a file, so there is no folder to look in.
    #[error("external data {location:?} has no folder: the model was not loaded from a file")]
    NoFolder {
        /// The path in the model.
        location: String,
    },
    /// The path could lead out of the model's folder.
    #[error("external data path {location:?} is refused: {why}")]
    Escape {
        /// The path in the model.
        location: String,
        /// Which rule it breaks.
        why: &'static str,
    },
    /// The file lies behind a link, which the policy does not follow.
    #[error("external data path {location:?} is refused: {why}; follow links to accept it")]
    Link {
        /// The path in the model.
        location: String,
        /// What kind of link.
        why: &'static str,
    },
    /// The file is not there or cannot be read.
    #[error("external data file {} cannot be read: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file ends before the tensor does.
    #[error("external data file {} has {found} bytes, the tensor needs bytes {offset} to {end}", path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// Where the tensor starts.
        offset: u64,
        /// Where it would end.
        end: u64,
        /// Bytes in the file.
        found: u64,
    },
    /// An entry is missing or not a number.
    #[error("external data entry {key:?}: {why}")]
    Entry {
        /// Key of the entry.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Two tensors share some bytes but not all of them.
    #[error("bytes {offset} to {end} of external data file {location:?} overlap another tensor's in part")]
    Overlap {
        /// The path in the model.
        location: String,
        /// Where the tensor starts.
        offset: u64,
        /// Where it ends.
        end: u64,
    },
}

/// `location`, `offset` and `length` of a tensor's external data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Path relative to the model's folder.
    pub location: Str,
    /// First byte; 0 when absent.
    pub offset: u64,
    /// Number of bytes, when given.
    pub length: Option<u64>,
}

impl Reference {
    /// Reads the entries of `external_data`.
    pub fn parse(entries: &[StringStringEntryProto]) -> Result<Self, ExternalError> {
        let get = |key: &str| {
            entries
                .iter()
                .find(|e| e.key.as_deref() == Some(key))
                .map(|e| e.value.clone().unwrap_or_default())
        };
        let number = |key: &'static str| -> Result<Option<u64>, ExternalError> {
            get(key)
                .map(|text| {
                    text.trim().parse().map_err(|_| ExternalError::Entry {
                        key,
                        why: format!("{text:?} is not a number of bytes"),
                    })
                })
                .transpose()
        };
        let location = get("location")
            .ok_or(ExternalError::Entry { key: "location", why: "it is missing".to_owned() })?;
        Ok(Self { location, offset: number("offset")?.unwrap_or(0), length: number("length")? })
    }
}

/// The one spelling of a location: `./a//b` is `a/b`, so that two spellings are not taken for two files.
pub fn normal_location(location: &str) -> Str {
    let parts: Vec<&str> = location.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    parts.join("/").into()
}

/// The files that a model refers to, each opened and mapped once.
#[derive(Debug, Default)]
pub struct ExternalFiles {
    folder: Option<PathBuf>,
    policy: LinkPolicy,
    open: HashMap<Str, Arc<MappedFile>>,
    /// Ranges in use, by file: end by start.
    used: HashMap<Str, std::collections::BTreeMap<u64, u64>>,
}

impl ExternalFiles {
    /// Files are looked up in `folder`; `None`: the model has no place in the file system.
    pub fn new(folder: Option<PathBuf>, policy: LinkPolicy) -> Self {
        Self { folder, policy, ..Self::default() }
    }

    /// The bytes that `reference` names; `needed` is what type and shape ask for.
    pub fn read(&mut self, reference: &Reference, needed: u64) -> Result<Blob, ExternalError> {
        let length = reference.length.unwrap_or(needed);
        if length != needed {
            return Err(ExternalError::Entry {
                key: "length",
                why: format!("{length} bytes are announced where type and shape need {needed}"),
            });
        }
        let file = self.file(&reference.location)?;
        let found = file.bytes().len() as u64;
        let end = reference.offset.checked_add(length).filter(|&end| end <= found).ok_or_else(|| {
            ExternalError::Short {
                path: file.path().to_owned(),
                offset: reference.offset,
                end: reference.offset.saturating_add(length),
                found,
            }
        })?;
        self.claim(reference, end)?;
        let blob = Blob::mapped(file).slice(reference.offset as usize..end as usize);
        Ok(blob.unwrap_or_default())
    }

    /// Sharing a whole range is fine (tied weights), sharing a part of one is not.
    fn claim(&mut self, reference: &Reference, end: u64) -> Result<(), ExternalError> {
        let start = reference.offset;
        if start == end {
            return Ok(());
        }
        let used = self.used.entry(normal_location(&reference.location)).or_default();
        if used.get(&start) == Some(&end) {
            return Ok(());
        }
        let before = used.range(..end).next_back();
        if before.is_some_and(|(_, &other_end)| other_end > start) {
            return Err(ExternalError::Overlap {
                location: reference.location.to_string(),
                offset: start,
                end,
            });
        }
        used.insert(start, end);
        Ok(())
    }

    fn file(&mut self, location: &Str) -> Result<Arc<MappedFile>, ExternalError> {
        let key = normal_location(location);
        if let Some(file) = self.open.get(&key).filter(|_| contained(location).is_ok()) {
            return Ok(file.clone());
        }
        let folder = self
            .folder
            .as_deref()
            .ok_or_else(|| ExternalError::NoFolder { location: location.to_string() })?;
        let file = Arc::new(open_inside(folder, location, self.policy)?);
        self.open.insert(key, file.clone());
        Ok(file)
    }
}

/// Whether `location` is a relative path that cannot climb out of the folder it is joined to.
pub fn contained(location: &str) -> Result<(), &'static str> {
    if location.is_empty() {
        return Err("it is empty");
    }
    if location.contains('\0') {
        return Err("it contains a zero byte");
    }
    // Windows spellings are refused everywhere, so that a model means the same on every system.
    if location.starts_with(['/', '\\']) || location.get(1..2) == Some(":") {
        return Err("it is absolute; external data must lie in the model's folder");
    }
    if location.split(['/', '\\']).any(|part| part == "..") {
        return Err("it contains \"..\"; external data must lie in the model's folder");
    }
    if !Path::new(location).components().any(|part| matches!(part, Component::Normal(_))) {
        return Err("it names a folder");
    }
    Ok(())
}

fn open_inside(folder: &Path, location: &str, policy: LinkPolicy) -> Result<MappedFile, ExternalError> {
    let escape = |why| ExternalError::Escape { location: location.to_owned(), why };
    let link = |why| ExternalError::Link { location: location.to_owned(), why };
    contained(location).map_err(escape)?;
    let path = folder.join(location);
    let open_error = |source| ExternalError::Open { path: path.clone(), source };
    let real = path.canonicalize().map_err(open_error)?;
    let inside = folder.canonicalize().map_err(open_error)?;
    if !policy.follow && !real.starts_with(&inside) {
        return Err(link("a symbolic link leads out of the model's folder"));
    }
    real.metadata().and_then(|metadata| regular(&metadata)).map_err(open_error)?;
    let file = std::fs::File::open(&real).map_err(open_error)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let links = file.metadata().map_err(open_error)?.nlink();
        if !policy.follow && links > 1 {
            return Err(link("the file has several hard links, so it may belong elsewhere"));
        }
    }
    MappedFile::from_file(path.clone(), &file).map_err(open_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_inside_the_folder_are_contained() {
        for good in ["weights.bin", "a/b.bin", "./w", "a..b/c", "..w"] {
            assert_eq!(contained(good), Ok(()), "{good}");
        }
        for bad in
            ["", "/etc/passwd", "../w", "a/../../w", "a/..", "\\w", "C:\\w", "c:w", ".", "a\0b", "a\\..\\b"]
        {
            assert!(contained(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ranges_may_be_shared_whole_but_not_in_part() {
        let mut files = ExternalFiles::default();
        let mut claim = |start: u64, end: u64| {
            let reference = Reference { location: "w".into(), offset: start, length: Some(end - start) };
            files.claim(&reference, end).is_ok()
        };
        assert!(claim(0, 10));
        assert!(claim(20, 30));
        assert!(claim(10, 20));
        assert!(claim(20, 30));
        assert!(!claim(20, 25));
        assert!(!claim(5, 12));
        assert!(!claim(0, 30));
        assert!(claim(25, 25));
    }
}
