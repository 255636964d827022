//! The file of weights: a head, and for each tensor a record that says where its bytes are.

use std::path::Path;

use onnxforge_proto::blob::{Blob, Payload};

use super::schema::Elem;

/// Where it lies in a package.
pub const PLACE: &str = "Data/com.apple.CoreML/weights/weight.bin";
/// What programs call it.
pub const NAME: &str = "@model_path/weights/weight.bin";
/// What heads, records and bytes are aligned to, and how long heads and records are.
const PAGE: u64 = 64;
/// What a record begins with.
const SENTINEL: u32 = 0xDEAD_BEEF;
const VERSION: u32 = 2;

/// A file under construction.
#[derive(Debug, Default)]
pub struct Weights {
    pieces: Vec<Payload>,
    end: u64,
    count: u32,
}

impl Weights {
    /// Adds the bytes of a tensor; the offset of its record.
    pub fn push(&mut self, elem: Elem, data: Payload) -> u64 {
        let record = self.end.max(PAGE);
        let size = data.byte_len();
        let mut head = Vec::with_capacity(PAGE as usize);
        head.extend(SENTINEL.to_le_bytes());
        head.extend(elem.stored().to_le_bytes());
        head.extend(size.to_le_bytes());
        head.extend((record + PAGE).to_le_bytes());
        head.resize(PAGE as usize, 0);
        self.pieces.push(Blob::from(head).into());
        self.pieces.push(data);
        self.end = (record + PAGE + size).next_multiple_of(PAGE);
        let gap = self.end - (record + PAGE + size);
        if gap > 0 {
            self.pieces.push(Blob::from(vec![0; gap as usize]).into());
        }
        self.count += 1;
        record
    }

    /// Bytes of tensors alone.
    pub fn byte_len(&self) -> u64 {
        self.end
    }

    /// The file, piece by piece.
    pub fn into_pieces(self) -> Vec<Payload> {
        let mut head = Vec::with_capacity(PAGE as usize);
        head.extend(self.count.to_le_bytes());
        head.extend(VERSION.to_le_bytes());
        head.resize(PAGE as usize, 0);
        std::iter::once(Blob::from(head).into()).chain(self.pieces).collect()
    }
}

/// The bytes of a tensor of this type and length, whose record is at this offset of a file.
pub fn find(file: &Blob, offset: i64, elem: Elem, length: usize) -> Result<Blob, String> {
    let damaged = |what: &str| format!("a weight whose record at {offset} {what}");
    let start = usize::try_from(offset).map_err(|_| damaged("lies before the file"))?;
    let number = |at: usize, width: usize| -> Option<u64> {
        let from = start.checked_add(at)?;
        let bytes = file.get(from..from.checked_add(width)?)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    };
    let fields = [number(0, 4), number(4, 4), number(8, 8), number(16, 8)];
    let [Some(sentinel), Some(kind), Some(size), Some(at)] = fields else {
        return Err(damaged("lies behind the file"));
    };
    if sentinel != u64::from(SENTINEL) || kind != u64::from(elem.stored()) {
        return Err(damaged("is none of its type"));
    }
    if size != length as u64 {
        return Err(damaged("has another size than its type"));
    }
    let range = usize::try_from(at).ok().and_then(|at| Some(at..at.checked_add(length)?));
    range.and_then(|range| file.slice(range)).ok_or_else(|| damaged("refers to bytes behind the file"))
}

/// The name of a file of weights, whose folder is that of the package whatever stands before it.
pub fn file_name(name: &str) -> Option<&str> {
    let name = name.rsplit('/').next()?;
    let is_plain = Path::new(name).components().count() == 1
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && !name.starts_with('.');
    is_plain.then_some(name)
}
