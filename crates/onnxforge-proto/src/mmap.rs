//! Files mapped into memory: the one place in the crate that needs `unsafe`.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

/// A file whose bytes are mapped into memory. It is not held open: a model may have a data file for every tensor.
///
/// Replacing the file by rename is safe (the old contents live on as long as the map does). Truncating it in place while
/// it is mapped ends the process, as with every program that maps files.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    identity: Identity,
    map: Option<Mmap>,
}

/// What tells a file from another one that took its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    #[cfg(unix)]
    device_and_inode: (u64, u64),
    #[cfg(not(unix))]
    modified: Option<std::time::SystemTime>,
    length: u64,
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Self {
            #[cfg(unix)]
            device_and_inode: (metadata.dev(), metadata.ino()),
            #[cfg(not(unix))]
            modified: metadata.modified().ok(),
            length: metadata.len(),
        }
    }
}

impl MappedFile {
    /// Opens and maps `path`. An empty file needs no map and has none.
    pub fn open(path: &Path) -> io::Result<Self> {
        regular(&std::fs::metadata(path)?)?;
        Self::from_file(path.to_owned(), &File::open(path)?)
    }

    /// Maps an open file; `path` is where it lies.
    pub fn from_file(path: PathBuf, file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        regular(&metadata)?;
        let map = if metadata.len() == 0 {
            None
        } else {
            // SAFETY: the map is private to this process and read-only. Its bytes change under us only if another
            // program writes into the very same inode while we read; what we then read is arbitrary but never
            // interpreted as anything but plain bytes.
            #[allow(unsafe_code)]
            Some(unsafe { Mmap::map(file)? })
        };
        Ok(Self { path, identity: (&metadata).into(), map })
    }

    /// The path that the file was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `path` leads to this very file, and not to one that took its place.
    pub fn is_at(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| Identity::from(&metadata) == self.identity)
    }

    /// Whether both are maps of the very same file: the same offset holds the same bytes.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity && (cfg!(unix) || self.path == other.path)
    }

    /// Opens the file once more, for copying ranges without reading them into this process. `None`: another file took
    /// its place.
    pub fn reopen(&self) -> Option<File> {
        let file = File::open(&self.path).ok()?;
        let metadata = file.metadata().ok()?;
        (Identity::from(&metadata) == self.identity).then_some(file)
    }

    /// Says that the range will be read now: its pages are brought in together, which is cheaper than one by one.
    pub fn will_read(&self, range: Range<usize>) {
        // Systems that cannot do that bring them in as they are read.
        #[cfg(target_os = "linux")]
        if let Some(map) = &self.map
            && range.end <= map.len()
        {
            drop(map.advise_range(memmap2::Advice::PopulateRead, range.start, range.len()));
        }
        #[cfg(not(target_os = "linux"))]
        drop(range);
    }

    /// Says that nothing of the file will be read for some time: its pages no longer count as memory of this process. What is read later
    /// comes from the system's file cache.
    pub fn was_read(&self) {
        #[cfg(target_os = "linux")]
        if let Some(map) = &self.map {
            // SAFETY: nobody writes to the map, so that its pages hold what the file holds, before and after.
            #[allow(unsafe_code)]
            drop(unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) });
        }
    }

    /// Every byte of the file.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

/// Refuses what is not a file: opening a pipe would wait for ever.
pub fn regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}
