//! Writing, back to front.

use std::collections::HashMap;

use onnxforge_proto::blob::{Blob, Payload};

/// The alignment of the whole buffer, and the largest that a part of it can have.
const ALIGNMENT: u64 = 16;

/// Something that was written: how far its first byte is from the end of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ref(u64);

/// What a field of a table holds.
#[derive(Clone, Copy, Debug)]
pub enum Field {
    /// A byte, signed or not, a truth value, or the kind of a union.
    Byte(u8),
    /// An integer of 32 bits, signed or not.
    Int(i32),
    /// A float of 32 bits.
    Float(f32),
    /// An integer of 64 bits.
    Long(u64),
    /// A vector, a string or another table.
    Offset(Ref),
}

impl Field {
    fn size(self) -> u64 {
        match self {
            Self::Byte(_) => 1,
            Self::Int(_) | Self::Float(_) | Self::Offset(_) => 4,
            Self::Long(_) => 8,
        }
    }
}

/// A buffer under construction.
#[derive(Debug, Default)]
pub struct Builder {
    /// What is complete, the end of the buffer first.
    pieces: Vec<Payload>,
    /// The bytes in front of that, the last one first.
    reversed: Vec<u8>,
    /// Bytes so far.
    len: u64,
    /// Tables of field offsets that can be shared.
    layouts: HashMap<Vec<u8>, u64>,
}

impl Builder {
    fn push(&mut self, bytes: &[u8]) {
        self.reversed.extend(bytes.iter().rev());
        self.len += bytes.len() as u64;
    }

    /// Zeros, so that after `next` more bytes the first of them is aligned.
    fn align(&mut self, alignment: u64, next: u64) {
        while !(self.len + next).is_multiple_of(alignment) {
            self.push(&[0]);
        }
    }

    /// What is complete becomes a piece of its own.
    fn flush(&mut self) {
        if !self.reversed.is_empty() {
            let mut bytes = std::mem::take(&mut self.reversed);
            bytes.reverse();
            self.pieces.push(Blob::from(bytes).into());
        }
    }

    /// A vector of bytes that is aligned to 16 and stays where it is until the buffer is written.
    pub fn payload(&mut self, payload: Payload) -> Ref {
        let size = payload.byte_len();
        self.align(ALIGNMENT, size);
        self.flush();
        self.pieces.push(payload);
        self.len += size;
        self.counted(size)
    }

    /// The number of elements in front of a vector.
    fn counted(&mut self, count: u64) -> Ref {
        self.push(&(count as u32).to_le_bytes());
        Ref(self.len)
    }

    /// A vector of integers.
    pub fn ints(&mut self, values: &[i32]) -> Ref {
        self.align(4, 0);
        values.iter().rev().for_each(|value| self.push(&value.to_le_bytes()));
        self.counted(values.len() as u64)
    }

    /// A vector of floats.
    pub fn floats(&mut self, values: &[f32]) -> Ref {
        self.align(4, 0);
        values.iter().rev().for_each(|value| self.push(&value.to_le_bytes()));
        self.counted(values.len() as u64)
    }

    /// A vector of integers of 64 bits.
    pub fn longs(&mut self, values: &[i64]) -> Ref {
        self.align(8, 0);
        values.iter().rev().for_each(|value| self.push(&value.to_le_bytes()));
        self.counted(values.len() as u64)
    }

    /// A vector of tables.
    pub fn tables(&mut self, tables: &[Ref]) -> Ref {
        self.align(4, 0);
        tables.iter().rev().for_each(|&table| self.offset(table));
        self.counted(tables.len() as u64)
    }

    /// A string.
    pub fn text(&mut self, text: &str) -> Ref {
        self.align(4, text.len() as u64 + 1);
        self.push(&[0]);
        self.push(text.as_bytes());
        self.counted(text.len() as u64)
    }

    /// An offset from here to something that is further back.
    fn offset(&mut self, to: Ref) {
        let here = self.len + 4;
        self.push(&((here - to.0) as u32).to_le_bytes());
    }

    /// A table with these fields, by their numbers in the schema, each once.
    pub fn table(&mut self, fields: &[(u16, Field)]) -> Ref {
        let mut sorted = fields.to_vec();
        sorted.sort_by_key(|(number, field)| (field.size(), *number));
        let end = self.len;
        let mut places: Vec<(u16, u64)> = Vec::with_capacity(fields.len());
        for &(number, field) in &sorted {
            self.align(field.size(), field.size());
            match field {
                Field::Byte(value) => self.push(&[value]),
                Field::Int(value) => self.push(&value.to_le_bytes()),
                Field::Float(value) => self.push(&value.to_le_bytes()),
                Field::Long(value) => self.push(&value.to_le_bytes()),
                Field::Offset(to) => self.offset(to),
            }
            places.push((number, self.len));
        }
        self.align(4, 4);
        let start = self.len + 4;
        let count = places.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
        let mut layout: Vec<u16> = vec![0; usize::from(count)];
        for (number, place) in places {
            layout[usize::from(number)] = (start - place) as u16;
        }
        let sizes = [4 + 2 * count, (start - end) as u16];
        let layout: Vec<u8> = sizes.into_iter().chain(layout).flat_map(u16::to_le_bytes).collect();
        let known = self.layouts.get(&layout).copied();
        let there = known.unwrap_or(start + layout.len() as u64);
        self.push(&((there as i64 - start as i64) as i32).to_le_bytes());
        if known.is_none() {
            self.push(&layout);
            self.layouts.insert(layout, there);
        }
        Ref(start)
    }

    /// The whole buffer, in order, whose root is this table.
    pub fn finish(mut self, root: Ref, identifier: &[u8; 4]) -> Vec<Payload> {
        self.align(ALIGNMENT, 8);
        self.push(identifier);
        self.offset(root);
        self.flush();
        self.pieces.reverse();
        self.pieces
    }
}
