//! Files that take their place only when they are complete, and on the disk where they replace others.

#[cfg_attr(not(target_os = "linux"), path = "staged/by_hand.rs")]
mod in_kernel;

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use tempfile::TempPath;

use self::in_kernel::{InKernel, start_writing};
use super::ahead::Ahead;
use super::load::folder_of;
use super::request::{SaveError, Saved};
use onnxforge_proto::blob::{Blob, Payload, Stream};
use onnxforge_proto::cancel::checkpoint;
use onnxforge_proto::progress::Progress;

/// Bytes written at a time.
const WRITE_STEP: usize = 2 << 20;

/// From this size on, a file is brought on its way to the disk while it is written, in steps of [`START_WRITING`].
const LARGE: u64 = 1 << 30;

/// See [`LARGE`].
const START_WRITING: u64 = 128 << 20;

/// The unit of the system's file cache.
pub(super) const PAGE: u64 = 4096;

/// Bytes written between two early trips to the disk.
const EARLY_SYNC: u64 = 32 << 20;

/// A complete file that has not taken its place.
pub(super) struct Staged {
    file: TempPath,
    target: PathBuf,
    size: u64,
    durable: bool,
}

impl Staged {
    /// Writes a file of `size` bytes beside its target. `durable`: brings it to the disk, too. A target that is a link is itself replaced; devices,
    /// pipes and folders, also behind links, never are.
    pub fn write(
        target: &Path,
        size: u64,
        durable: bool,
        progress: &dyn Progress,
        write: impl FnOnce(&mut Output<'_>) -> io::Result<()>,
    ) -> Result<Self, SaveError> {
        let attempt = || -> io::Result<TempPath> {
            let replaced = std::fs::metadata(target).ok();
            if replaced.as_ref().is_some_and(|replaced| !replaced.is_file()) {
                return Err(io::Error::other("it is a device, a pipe or a folder, not a file"));
            }
            let folder = folder_of(target);
            let prefix = format!(".{}.", target.file_name().unwrap_or_default().to_string_lossy());
            let mut builder = tempfile::Builder::new();
            builder.prefix(&prefix).suffix(".tmp");
            #[cfg(unix)]
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
            let file = builder.tempfile_in(&folder)?;
            if let Some(replaced) = replaced {
                file.as_file().set_permissions(replaced.permissions())?;
            }
            let handle = file.as_file().try_clone()?;
            let early = file.as_file().try_clone()?;
            std::thread::scope(|threads| {
                // What is written starts on its way to the disk while the rest is still being copied.
                let (written, more) = std::sync::mpsc::sync_channel::<()>(1);
                threads.spawn(move || more.iter().for_each(|()| drop(early.sync_data())));
                let mut out = Output {
                    buffer: BufWriter::with_capacity(1 << 20, handle),
                    progress,
                    written,
                    durable,
                    total: 0,
                    unsynced: 0,
                    in_kernel: InKernel::default(),
                };
                write(&mut out)?;
                out.buffer.flush()?;
                if durable { out.buffer.get_ref().sync_all() } else { Ok(()) }
            })?;
            Ok(file.into_temp_path())
        };
        match attempt() {
            Ok(file) => Ok(Self { file, target: target.to_owned(), size, durable }),
            Err(source) => Err(SaveError::Write { path: target.to_owned(), source }),
        }
    }

    /// Puts complete files in their places, for good. If one cannot be placed, those before it go again.
    pub fn persist_all(files: Vec<Self>) -> Result<Saved, SaveError> {
        let mut saved = Saved::default();
        for Self { file, target, size, durable } in files {
            if let Err(error) = file.persist(&target) {
                saved.files.iter().for_each(|(path, _)| drop(std::fs::remove_file(path)));
                return Err(SaveError::Write { path: target, source: error.error });
            }
            if durable {
                sync_folder(&folder_of(&target));
            }
            saved.files.push((target, size));
        }
        Ok(saved)
    }
}

/// Makes renames in `folder` last through a power cut, where the system can do that.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        drop(folder.sync_all());
    }
}

/// A file under construction.
pub(super) struct Output<'a> {
    buffer: BufWriter<File>,
    progress: &'a dyn Progress,
    /// Wakes the thread that brings what is written to the disk.
    written: SyncSender<()>,
    durable: bool,
    /// Bytes so far, and those of them that the system has not been asked to write.
    total: u64,
    unsynced: u64,
    in_kernel: InKernel,
}

impl Output<'_> {
    fn advance(&mut self, bytes: u64) {
        checkpoint();
        self.progress.advance(bytes);
        self.total += bytes;
        self.unsynced += bytes;
        if self.durable && self.unsynced >= EARLY_SYNC {
            // A full channel means that the thread is at it already.
            let _ = self.written.try_send(());
            self.unsynced = 0;
        } else if self.total >= LARGE && self.unsynced >= START_WRITING {
            // So much unwritten data makes the system slow writers down; asked early, it writes in the background.
            start_writing(self.buffer.get_ref());
            self.unsynced = 0;
        }
    }

    /// Makes the file `length` bytes long.
    pub fn end_at(&mut self, length: u64) -> io::Result<()> {
        self.buffer.flush()?;
        if self.buffer.get_ref().metadata()?.len() == length {
            Ok(())
        } else {
            self.buffer.get_ref().set_len(length)
        }
    }

    /// Writes parts one after the other, each at its offset if it has one, which is not before the end of the last.
    ///
    /// Stretches that stand in a mapped file just like that, the few bytes between tensors included, are copied in one go: an
    /// unchanged model is mostly one such stretch. What has to be made is made by another thread, a little ahead.
    pub fn copy_all(&mut self, parts: impl Iterator<Item = (Option<u64>, Payload)>) -> io::Result<()> {
        let parts: Vec<(Option<u64>, Payload)> = parts.collect();
        let stream = |(_, payload): &(_, Payload)| match payload {
            Payload::Stream(stream) => Some(stream.clone()),
            Payload::Bytes(_) => None,
        };
        let streams: Vec<Arc<dyn Stream>> = parts.iter().filter_map(stream).collect();
        std::thread::scope(|scope| {
            let mut made = Ahead::start(scope, streams)?;
            let mut stretch: Option<Blob> = None;
            for (offset, payload) in &parts {
                if let (None, Some(before), Payload::Bytes(blob)) = (offset, &stretch, payload)
                    && let Some(longer) = continued(before, blob)
                {
                    stretch = Some(longer);
                    continue;
                }
                if let Some(whole) = stretch.take() {
                    self.copy_blob(&whole)?;
                }
                if let Some(offset) = offset {
                    self.skip_to(*offset)?;
                }
                match payload {
                    Payload::Bytes(blob) if blob.place().is_some() => stretch = Some(blob.clone()),
                    Payload::Bytes(blob) => self.copy_blob(blob)?,
                    Payload::Stream(stream) => made.write_next(stream.byte_len(), self)?,
                }
            }
            stretch.map_or(Ok(()), |whole| self.copy_blob(&whole))
        })
    }

    /// Goes on at `offset`; what lies between is zero.
    fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        if self.buffer.stream_position()? == offset {
            return Ok(());
        }
        self.buffer.seek(io::SeekFrom::Start(offset)).map(drop)
    }

    fn copy_blob(&mut self, blob: &Blob) -> io::Result<()> {
        if blob.len() < WRITE_STEP {
            return self.write_all(blob);
        }
        // Whole pages go faster: the bytes up to the next page come first.
        let place = self.buffer.stream_position()?;
        let mut done = (place.next_multiple_of(PAGE) - place) as usize;
        self.write_all(blob.get(..done).unwrap_or_default())?;
        self.buffer.flush()?;
        while let Some(copied) = self.in_kernel.copy(blob, done, self.buffer.get_ref()) {
            done += copied;
            self.advance(copied as u64);
        }
        while let Some(part) =
            blob.slice(done..blob.len().min(done + WRITE_STEP)).filter(|part| !part.is_empty())
        {
            part.will_read();
            self.write_all(&part)?;
            done += part.len();
        }
        Ok(())
    }
}

/// The mapped range `before` and what follows it in the file, when that is just the bytes of `next`.
fn continued(before: &Blob, next: &Blob) -> Option<Blob> {
    let (file, start) = before.place()?;
    let end = start as usize + before.len();
    let following = Blob::mapped(file.clone()).slice(end..end.checked_add(next.len())?)?;
    let same = following.same_place(next) || (next.place().is_none() && following == *next);
    if same { Blob::mapped(file.clone()).slice(start as usize..end + next.len()) } else { None }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.buffer.write(bytes)?;
        self.advance(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.buffer.flush()
    }
}
