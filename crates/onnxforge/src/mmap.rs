//! Files mapped into memory: the one place in the crate that needs `unsafe`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

/// A file opened for reading whose bytes are mapped into memory.
///
/// The open handle is kept beside the map, so that unchanged ranges can be copied from file to file by the kernel.
/// Replacing the file by rename is safe (the old contents live on as long as the map does). Truncating it in place while
/// it is mapped ends the process, as with every program that maps files.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    file: File,
    map: Option<Mmap>,
}

impl MappedFile {
    /// Opens and maps `path`. An empty file needs no map and has none.
    pub fn open(path: &Path) -> io::Result<Self> {
        regular(&std::fs::metadata(path)?)?;
        Self::from_file(path.to_owned(), File::open(path)?)
    }

    /// Maps an already open file; `path` is remembered for messages and for comparing places.
    pub fn from_file(path: PathBuf, file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        regular(&metadata)?;
        let map = if metadata.len() == 0 {
            None
        } else {
            // SAFETY: the map is private to this process and read-only. Its bytes change under us only if another
            // program writes into the very same inode while we read; what we then read is arbitrary but never
            // interpreted as anything but plain bytes.
            #[allow(unsafe_code)]
            Some(unsafe { Mmap::map(&file)? })
        };
        Ok(Self { path, file, map })
    }

    /// The path that the file was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open handle, for copying ranges without reading them into this process.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Every byte of the file.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

/// Refuses what is not a file: opening a pipe would wait for ever.
pub(crate) fn regular(metadata: &std::fs::Metadata) -> io::Result<()> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}
