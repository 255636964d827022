//! Shared, immutable byte ranges: on the heap, in a mapped file, or in somebody else's memory. Cloning and slicing never copy.

use std::fmt;
use std::io::{self, Write};
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::mmap::MappedFile;

/// An immutable range of bytes that is cheap to clone and to slice.
#[derive(Clone)]
pub struct Blob {
    backing: Backing,
    range: Range<usize>,
}

#[derive(Clone)]
enum Backing {
    Heap(Arc<[u8]>),
    Owner(Arc<dyn AsRef<[u8]> + Send + Sync>),
    File(Arc<MappedFile>),
}

impl Blob {
    /// All bytes of a mapped file.
    pub fn mapped(file: Arc<MappedFile>) -> Self {
        let range = 0..file.bytes().len();
        Self { backing: Backing::File(file), range }
    }

    /// All bytes of somebody who keeps them as they are; they are not copied.
    pub fn owned_by(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let range = 0..owner.as_ref().len();
        Self { backing: Backing::Owner(Arc::new(owner)), range }
    }

    /// The part `range` of these bytes, or `None` where it reaches past them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let start = self.range.start.checked_add(range.start)?;
        let end = self.range.start.checked_add(range.end)?;
        (start <= end && end <= self.range.end)
            .then(|| Self { backing: self.backing.clone(), range: start..end })
    }

    /// The file that holds these bytes and the offset at which they start, when they are mapped.
    pub fn place(&self) -> Option<(&Arc<MappedFile>, u64)> {
        match &self.backing {
            Backing::Heap(_) | Backing::Owner(_) => None,
            Backing::File(file) => Some((file, self.range.start as u64)),
        }
    }

    /// Says that all bytes will be read now; see [`MappedFile::will_read`].
    pub fn will_read(&self) {
        if let Backing::File(file) = &self.backing {
            file.will_read(self.range.clone());
        }
    }

    /// Whether both are the very same range of the same memory, or of the same file.
    pub fn same_place(&self, other: &Self) -> bool {
        let same_file = || match (self.place(), other.place()) {
            (Some((a, at)), Some((b, there))) => at == there && a.is_same(b),
            _ => false,
        };
        self.range.len() == other.range.len() && (std::ptr::eq(self.as_ptr(), other.as_ptr()) || same_file())
    }
}

impl Default for Blob {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = match &self.backing {
            Backing::Heap(bytes) => bytes,
            Backing::Owner(owner) => (**owner).as_ref(),
            Backing::File(file) => file.bytes(),
        };
        // The range was checked when it was made; a map never shrinks.
        all.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { backing: Backing::Heap(bytes.into()), range }
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        Self { backing: Backing::Heap(bytes.into()), range: 0..bytes.len() }
    }
}

impl From<&str> for Blob {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.same_place(other) || self[..] == other[..]
    }
}

impl Eq for Blob {}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self) {
            Ok(text) if self.len() <= 64 && !text.contains(|c: char| c.is_control()) => {
                write!(f, "b{text:?}")
            }
            _ => write!(f, "<{} bytes>", self.len()),
        }
    }
}

/// Bytes that are made while they are written, so that they are never all in memory.
pub trait Stream: Send + Sync + fmt::Debug {
    /// How many bytes [`Stream::write_to`] writes.
    fn byte_len(&self) -> u64;
    /// Writes exactly [`Stream::byte_len`] bytes, the same ones each time.
    fn write_to(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// Bytes to be written: at hand, or made while they are written.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Bytes at hand.
    Bytes(Blob),
    /// Bytes that are made on the way out.
    Stream(Arc<dyn Stream>),
}

impl Payload {
    /// The number of bytes.
    pub fn byte_len(&self) -> u64 {
        match self {
            Self::Bytes(blob) => blob.len() as u64,
            Self::Stream(stream) => stream.byte_len(),
        }
    }

    /// Writes all bytes.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Bytes(blob) => out.write_all(blob),
            Self::Stream(stream) => stream.write_to(out),
        }
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Stream(a), Self::Stream(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl From<Blob> for Payload {
    fn from(blob: Blob) -> Self {
        Self::Bytes(blob)
    }
}
