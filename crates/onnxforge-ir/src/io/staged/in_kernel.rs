//! What Linux does for files on its own: copying between them, and writing early.

use std::fs::File;
use std::sync::Arc;

use super::PAGE;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::mmap::MappedFile;

/// Bytes copied at a time: between two reports of progress.
const STEP: usize = 32 << 20;

/// Copies between files without reading them into this process.
///
/// This is also how data is cloned: on file systems with reflinks (btrfs, XFS, bcachefs), `copy_file_range` makes the copy
/// share the blocks of the original until one of the files is written. That needs ranges that begin at a block and lie on
/// one file system; [`copy`](Self::copy) takes whole pages at the same offsets, and the kernel shortens what ends inside a
/// block. So no call of `FICLONERANGE` is needed.
#[derive(Default)]
pub struct InKernel {
    /// The file that was copied from last.
    source: Option<(Arc<MappedFile>, Arc<File>)>,
}

impl InKernel {
    /// Copies a step of a mapped range, from `done` on, to where `to` stands; how many bytes. `None`: there is nothing left, or the rest has
    /// to be copied by hand. Pages of the one file must be pages of the other: those the kernel copies fastest.
    pub fn copy(&mut self, blob: &Blob, done: usize, to: &File) -> Option<usize> {
        let (mapped, start) = blob.place()?;
        let mut start = start + done as u64;
        if !start.is_multiple_of(PAGE) || done >= blob.len() {
            return None;
        }
        let from = self.source(mapped)?;
        let step = (blob.len() - done).min(STEP);
        rustix::fs::copy_file_range(&*from, Some(&mut start), to, None, step)
            .ok()
            .filter(|&copied| copied > 0)
    }

    /// The open handle of a mapped file; neighbouring ranges share it.
    fn source(&mut self, mapped: &Arc<MappedFile>) -> Option<Arc<File>> {
        if let Some((of, file)) = &self.source
            && Arc::ptr_eq(of, mapped)
        {
            return Some(file.clone());
        }
        let file = Arc::new(mapped.reopen()?);
        self.source = Some((mapped.clone(), file.clone()));
        Some(file)
    }
}

/// Asks the system to write what a file has so far in the background.
pub fn start_writing(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}
