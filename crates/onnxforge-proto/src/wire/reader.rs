//! Reading: a cursor that checks every length before it believes it.

use std::sync::Arc;

use super::{MAX_DEPTH, Message, Result, Wire, WireError, WireErrorKind};
use crate::blob::Blob;

/// A cursor over one message.
pub struct Reader<'a> {
    blob: &'a Blob,
    position: usize,
    end: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// Reads the message that fills `blob`.
    pub fn new(blob: &'a Blob) -> Self {
        Self { blob, position: 0, end: blob.len(), depth: 0 }
    }

    pub(super) fn error<T>(&self, kind: WireErrorKind) -> Result<T> {
        Err(WireError { offset: self.position as u64, path: Vec::new(), kind })
    }

    /// Whether the message has ended.
    pub fn at_end(&self) -> bool {
        self.position >= self.end
    }

    fn rest(&self) -> &'a [u8] {
        self.blob.get(self.position..self.end).unwrap_or_default()
    }

    pub(super) fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (i, &byte) in self.rest().iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                if i == 9 && byte > 1 {
                    return self.error(WireErrorKind::Varint);
                }
                self.position += i + 1;
                return Ok(value);
            }
        }
        self.error(if self.rest().len() < 10 { WireErrorKind::Truncated } else { WireErrorKind::Varint })
    }

    pub(super) fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest().first_chunk::<N>() {
            Some(bytes) => {
                self.position += N;
                Ok(*bytes)
            }
            None => self.error(WireErrorKind::Truncated),
        }
    }

    fn key(&mut self) -> Result<(u32, Wire)> {
        let start = self.position;
        let key = self.varint()?;
        let number = match u32::try_from(key >> 3) {
            Ok(number) if (1..1 << 29).contains(&number) => number,
            _ => {
                self.position = start;
                return self.error(WireErrorKind::FieldNumber);
            }
        };
        let wire = match key & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Len,
            3 => Wire::StartGroup,
            4 => Wire::EndGroup,
            5 => Wire::Fixed32,
            other => {
                self.position = start;
                return self.error(WireErrorKind::WireType(other as u8));
            }
        };
        Ok((number, wire))
    }

    /// Consumes a length and returns the range that it announces, checked against the enclosing message.
    fn len_range(&mut self) -> Result<(usize, usize)> {
        let start = self.position;
        let claimed = self.varint()?;
        let left = (self.end - self.position) as u64;
        if claimed > left {
            self.position = start;
            return self.error(WireErrorKind::TooLong { claimed, left });
        }
        let begin = self.position;
        self.position += claimed as usize;
        Ok((begin, self.position))
    }

    /// A length-delimited byte string, shared with the input.
    pub(super) fn bytes(&mut self) -> Result<Blob> {
        let (begin, end) = self.len_range()?;
        Ok(self.blob.slice(begin..end).unwrap_or_default())
    }

    pub(super) fn text(&mut self) -> Result<Arc<str>> {
        let start = self.position;
        let (begin, end) = self.len_range()?;
        match std::str::from_utf8(self.blob.get(begin..end).unwrap_or_default()) {
            Ok(text) => Ok(text.into()),
            Err(_) => {
                self.position = start;
                self.error(WireErrorKind::Utf8)
            }
        }
    }

    /// Runs `read` on the length-delimited part that comes next.
    pub(super) fn part<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let (begin, end) = self.len_range()?;
        let mut part = Reader { blob: self.blob, position: begin, end, depth: self.depth };
        read(&mut part)
    }

    /// Reads a message behind its length.
    pub fn nested<M: Message>(&mut self, into: &mut M) -> Result<()> {
        if self.depth >= MAX_DEPTH {
            return self.error(WireErrorKind::Depth);
        }
        self.part(|part| {
            part.depth += 1;
            part.message(into)
        })
    }

    /// Merges all fields up to the end of this message into `into`.
    pub fn message<M: Message>(&mut self, into: &mut M) -> Result<()> {
        while !self.at_end() {
            let start = self.position;
            let (number, wire) = self.key()?;
            if !into.merge_field(number, wire, self)? {
                self.skip(number, wire, self.depth)?;
                let bytes = self.blob.get(start..self.position).unwrap_or_default();
                into.unknown_mut().0.extend_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn skip(&mut self, number: u32, wire: Wire, depth: u32) -> Result<()> {
        match wire {
            Wire::Varint => self.varint().map(drop),
            Wire::Fixed64 => self.fixed::<8>().map(drop),
            Wire::Fixed32 => self.fixed::<4>().map(drop),
            Wire::Len => self.len_range().map(drop),
            Wire::EndGroup => self.error(WireErrorKind::Group),
            Wire::StartGroup => {
                if depth >= MAX_DEPTH {
                    return self.error(WireErrorKind::Depth);
                }
                loop {
                    if self.at_end() {
                        return self.error(WireErrorKind::Group);
                    }
                    match self.key()? {
                        (inner, Wire::EndGroup) if inner == number => return Ok(()),
                        (inner, wire) => self.skip(inner, wire, depth + 1)?,
                    }
                }
            }
        }
    }
}

/// Decodes the message that fills `blob`.
pub fn decode<M: Message>(blob: &Blob) -> Result<M> {
    let mut message = M::default();
    Reader::new(blob).message(&mut message)?;
    Ok(message)
}
