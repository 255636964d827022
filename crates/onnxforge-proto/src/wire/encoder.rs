//! Writing, back to front: when a message's header is due, its length is known. No size is computed twice, and large byte
//! strings enter the output as references to where they already are.

use std::io::{self, Write};

use super::{Message, Unknown, Wire};
use crate::blob::Payload;

/// Byte strings of this size and more are referred to instead of copied.
const REFERENCE_FROM: u64 = 4096;

/// One piece of the output.
#[derive(Debug)]
enum Piece {
    /// Bytes, last one first.
    Reversed(Vec<u8>),
    Payload(Payload),
}

/// Collects a message from its end to its start.
#[derive(Debug, Default)]
pub struct Encoder {
    pieces: Vec<Piece>,
    length: u64,
}

impl Encoder {
    /// Bytes collected so far.
    pub fn byte_len(&self) -> u64 {
        self.length
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        match self.pieces.last_mut() {
            Some(Piece::Reversed(buffer)) => buffer.extend(bytes.iter().rev()),
            _ => self.pieces.push(Piece::Reversed(bytes.iter().rev().copied().collect())),
        }
    }

    pub(super) fn payload(&mut self, payload: &Payload) {
        match payload {
            Payload::Bytes(blob) if (blob.len() as u64) < REFERENCE_FROM => self.raw(blob),
            _ => {
                self.length += payload.byte_len();
                self.pieces.push(Piece::Payload(payload.clone()));
            }
        }
    }

    pub(super) fn varint(&mut self, mut value: u64) {
        let mut bytes = [0u8; 10];
        let mut used = 0;
        for byte in &mut bytes {
            *byte = (value & 0x7f) as u8 | 0x80;
            value >>= 7;
            used += 1;
            if value == 0 {
                *byte &= 0x7f;
                break;
            }
        }
        self.raw(bytes.get(..used).unwrap_or_default());
    }

    pub(super) fn key(&mut self, number: u32, wire: Wire) {
        self.varint(u64::from(number) << 3 | wire as u64);
    }

    /// Puts the header before what was written since the encoder had `mark` bytes.
    pub(super) fn close(&mut self, number: u32, mark: u64) {
        self.varint(self.length - mark);
        self.key(number, Wire::Len);
    }

    /// Writes fields that were kept as they were read.
    pub fn unknown(&mut self, unknown: &Unknown) {
        self.raw(&unknown.0);
    }

    /// Hands the pieces over in their order: bytes that were encoded, and payloads that are still where they were.
    pub fn pieces(self) -> impl Iterator<Item = Payload> {
        self.pieces.into_iter().rev().map(|piece| match piece {
            Piece::Reversed(mut bytes) => {
                bytes.reverse();
                Payload::Bytes(bytes.into())
            }
            Piece::Payload(payload) => payload,
        })
    }

    /// Writes everything to `out`.
    pub fn write_to(self, out: &mut dyn Write) -> io::Result<()> {
        self.pieces().try_for_each(|piece| piece.write_to(out))
    }
}

/// Encodes `message` on its own.
pub fn encode<M: Message>(message: &M) -> Encoder {
    let mut out = Encoder::default();
    message.encode(&mut out);
    out
}
