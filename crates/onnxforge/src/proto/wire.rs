//! The protobuf wire format, both ways: a bounds-checked reader over a [`Blob`] and a writer that never copies weights.
//!
//! Messages are written back to front: when a message's header is due, its length is known. No size is computed twice,
//! and large byte strings enter the output as references to where they already are.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use crate::blob::{Blob, Payload};

/// Messages nested deeper than this are refused; the same limit as in Google's implementations.
pub const MAX_DEPTH: u32 = 100;

/// Byte strings of this size and more are referred to instead of copied while encoding.
const REFERENCE_FROM: u64 = 4096;

/// Why bytes are not a message, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}{}", Within(.path))]
pub struct WireError {
    /// Offset from the start of the outermost message.
    pub offset: u64,
    /// Field path, innermost first.
    pub path: Vec<Step>,
    /// What is wrong there.
    pub kind: WireErrorKind,
}

/// One step of a field path: a field, and the position in it when it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the field.
    pub field: &'static str,
    /// Position in a repeated field.
    pub index: Option<usize>,
}

/// What can be wrong with bytes that should be a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum WireErrorKind {
    #[error("the data ends in the middle of a field")]
    Truncated,
    #[error("a field claims {claimed} bytes where {left} are left")]
    TooLong { claimed: u64, left: u64 },
    #[error("a number is encoded in more than ten bytes")]
    Varint,
    #[error("field number 0 or above the maximum")]
    FieldNumber,
    #[error("wire type {0} does not exist")]
    WireType(u8),
    #[error("a group is not closed, or closed without being open")]
    Group,
    #[error("a text is not valid UTF-8")]
    Utf8,
    #[error("packed numbers do not fill their length")]
    Packed,
    #[error("messages are nested more than {MAX_DEPTH} deep")]
    Depth,
}

struct Within<'a>(&'a [Step]);

impl fmt::Display for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().rev().enumerate() {
            f.write_str(if i == 0 { ", in " } else { "." })?;
            f.write_str(step.field)?;
            if let Some(index) = step.index {
                write!(f, "[{index}]")?;
            }
        }
        Ok(())
    }
}

impl WireError {
    fn within(mut self, field: &'static str, index: Option<usize>) -> Self {
        self.path.push(Step { field, index });
        self
    }
}

/// How a field's bytes are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Len = 2,
    StartGroup = 3,
    EndGroup = 4,
    Fixed32 = 5,
}

/// A cursor over one message.
pub struct Reader<'a> {
    blob: &'a Blob,
    position: usize,
    end: usize,
    depth: u32,
}

type Result<T> = std::result::Result<T, WireError>;

impl<'a> Reader<'a> {
    /// Reads the message that fills `blob`.
    pub fn new(blob: &'a Blob) -> Self {
        Self { blob, position: 0, end: blob.len(), depth: 0 }
    }

    fn error<T>(&self, kind: WireErrorKind) -> Result<T> {
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

    pub(super) fn nested<M: Message>(&mut self, into: &mut M) -> Result<()> {
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

/// Fields that this version does not know, byte for byte as they were read, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unknown(pub Vec<u8>);

/// A message: its fields by number, and what else was in it.
pub trait Message: Default {
    /// Reads one field. `false`: this number with this wire type is not a field of the message, and nothing was read.
    fn merge_field(&mut self, number: u32, wire: Wire, reader: &mut Reader<'_>) -> Result<bool>;
    /// Where fields that are not known go.
    fn unknown_mut(&mut self) -> &mut Unknown;
    /// Writes all fields, the last one first.
    fn encode(&self, out: &mut Encoder);
}

/// Decodes the message that fills `blob`.
pub fn decode<M: Message>(blob: &Blob) -> Result<M> {
    let mut message = M::default();
    Reader::new(blob).message(&mut message)?;
    Ok(message)
}

/// A Rust type that stands for a field of a certain label and type.
pub trait Field: Default {
    /// Reads one occurrence. `false`: the wire type is not one of this field's.
    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<bool>;
    /// Writes the field unless it is absent.
    fn encode(&self, number: u32, out: &mut Encoder);
    /// Number of occurrences so far, for a repeated field.
    fn count(&self) -> Option<usize> {
        None
    }
}

/// Names the field in an error that came out of it.
pub fn in_field<F: Field>(field: &mut F, name: &'static str, wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
    let index = field.count();
    field.merge(wire, reader).map_err(|error| error.within(name, index))
}

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

    fn raw(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        match self.pieces.last_mut() {
            Some(Piece::Reversed(buffer)) => buffer.extend(bytes.iter().rev()),
            _ => self.pieces.push(Piece::Reversed(bytes.iter().rev().copied().collect())),
        }
    }

    fn payload(&mut self, payload: &Payload) {
        match payload {
            Payload::Bytes(blob) if (blob.len() as u64) < REFERENCE_FROM => self.raw(blob),
            _ => {
                self.length += payload.byte_len();
                self.pieces.push(Piece::Payload(payload.clone()));
            }
        }
    }

    fn varint(&mut self, mut value: u64) {
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

    fn key(&mut self, number: u32, wire: Wire) {
        self.varint(u64::from(number) << 3 | wire as u64);
    }

    /// Puts the header before what was written since the encoder had `mark` bytes.
    fn close(&mut self, number: u32, mark: u64) {
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

/// A number and the way it stands on the wire.
trait Scalar: Copy {
    const WIRE: Wire;
    fn read(reader: &mut Reader<'_>) -> Result<Self>;
    fn write(self, out: &mut Encoder);
}

macro_rules! varint_scalar {
    ($($type:ty),*) => {$(
        impl Scalar for $type {
            const WIRE: Wire = Wire::Varint;
            fn read(reader: &mut Reader<'_>) -> Result<Self> {
                reader.varint().map(|value| value as $type)
            }
            fn write(self, out: &mut Encoder) {
                // Negative 32-bit numbers are sign-extended to ten bytes, as the format demands.
                out.varint(self as i64 as u64);
            }
        }
    )*};
}
varint_scalar!(i64, i32, u64);

impl Scalar for f32 {
    const WIRE: Wire = Wire::Fixed32;
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.fixed().map(f32::from_le_bytes)
    }
    fn write(self, out: &mut Encoder) {
        out.raw(&self.to_le_bytes());
    }
}

macro_rules! scalar_fields {
    ($($type:ty),*) => {$(
        impl Field for Option<$type> {
            fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
                if wire != <$type as Scalar>::WIRE {
                    return Ok(false);
                }
                *self = Some(Scalar::read(reader)?);
                Ok(true)
            }
            fn encode(&self, number: u32, out: &mut Encoder) {
                if let Some(value) = self {
                    value.write(out);
                    out.key(number, <$type as Scalar>::WIRE);
                }
            }
        }

        /// Written one by one, read in both forms.
        impl Field for Vec<$type> {
            fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
                if wire == <$type as Scalar>::WIRE {
                    self.push(Scalar::read(reader)?);
                } else if wire == Wire::Len {
                    read_packed(self, reader)?;
                } else {
                    return Ok(false);
                }
                Ok(true)
            }
            fn encode(&self, number: u32, out: &mut Encoder) {
                for value in self.iter().rev() {
                    value.write(out);
                    out.key(number, <$type as Scalar>::WIRE);
                }
            }
        }
    )*};
}
scalar_fields!(i64, i32, f32);

fn read_packed<T: Scalar>(into: &mut Vec<T>, reader: &mut Reader<'_>) -> Result<()> {
    reader.part(|part| {
        while !part.at_end() {
            into.push(T::read(part)?);
        }
        Ok(())
    })
}

/// Repeated integers that are written packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed<T>(pub Vec<T>);

impl<T: Scalar> Field for Packed<T>
where
    Packed<T>: Default,
{
    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
        if wire == T::WIRE {
            self.0.push(T::read(reader)?);
        } else if wire == Wire::Len {
            read_packed(&mut self.0, reader)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn encode(&self, number: u32, out: &mut Encoder) {
        if !self.0.is_empty() {
            let mark = out.length;
            for &value in self.0.iter().rev() {
                value.write(out);
            }
            out.close(number, mark);
        }
    }
}

/// Repeated fixed-width numbers of `W` bytes as their little-endian bytes: packed ones stay where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PackedFixed<const W: usize> {
    /// No element.
    #[default]
    Empty,
    /// One packed run, shared with the input.
    Shared(Blob),
    /// Elements that stood apart, collected.
    Collected(Vec<u8>),
}

impl<const W: usize> PackedFixed<W> {
    const WIRE: Wire = if W == 8 { Wire::Fixed64 } else { Wire::Fixed32 };

    fn append(&mut self, more: &[u8]) {
        if let Self::Shared(blob) = self {
            *self = Self::Collected(blob.to_vec());
        }
        match self {
            Self::Collected(bytes) => bytes.extend_from_slice(more),
            _ => *self = Self::Collected(more.to_vec()),
        }
    }

    /// The bytes of all elements; `None` when there is no element.
    pub fn into_blob(self) -> Option<Blob> {
        match self {
            Self::Empty => None,
            Self::Shared(blob) => Some(blob),
            Self::Collected(bytes) => Some(bytes.into()),
        }
    }
}

impl<const W: usize> Field for PackedFixed<W> {
    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
        if wire == Self::WIRE {
            let element = reader.fixed::<W>()?;
            self.append(&element);
        } else if wire == Wire::Len {
            let run = reader.bytes()?;
            if run.len() % W != 0 {
                return reader.error(WireErrorKind::Packed);
            }
            match self {
                _ if run.is_empty() => {}
                Self::Empty => *self = Self::Shared(run),
                _ => self.append(&run),
            }
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn encode(&self, number: u32, out: &mut Encoder) {
        let mark = out.length;
        match self {
            Self::Empty => return,
            Self::Shared(blob) => out.payload(&blob.clone().into()),
            Self::Collected(bytes) => out.raw(bytes),
        }
        out.close(number, mark);
    }
}

/// A value that stands on the wire behind its length.
pub trait Delimited: Sized {
    /// Reads the length and the value.
    fn read(reader: &mut Reader<'_>) -> Result<Self>;
    /// Writes the value without its length.
    fn write(&self, out: &mut Encoder);
}

impl Delimited for Arc<str> {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.text()
    }
    fn write(&self, out: &mut Encoder) {
        out.raw(self.as_bytes());
    }
}

impl Delimited for Blob {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.bytes()
    }
    fn write(&self, out: &mut Encoder) {
        out.payload(&self.clone().into());
    }
}

impl Delimited for Payload {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.bytes().map(Self::from)
    }
    fn write(&self, out: &mut Encoder) {
        out.payload(self);
    }
}

macro_rules! optional_fields {
    ($($type:ty),*) => {$(
        impl Field for Option<$type> {
            fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
                if wire != Wire::Len {
                    return Ok(false);
                }
                *self = Some(<$type>::read(reader)?);
                Ok(true)
            }

            fn encode(&self, number: u32, out: &mut Encoder) {
                if let Some(value) = self {
                    let mark = out.length;
                    value.write(out);
                    out.close(number, mark);
                }
            }
        }
    )*};
}
optional_fields!(Arc<str>, Blob, Payload);

impl<T: Delimited> Field for Vec<T> {
    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
        if wire != Wire::Len {
            return Ok(false);
        }
        self.push(T::read(reader)?);
        Ok(true)
    }

    fn encode(&self, number: u32, out: &mut Encoder) {
        for value in self.iter().rev() {
            let mark = out.length;
            value.write(out);
            out.close(number, mark);
        }
    }

    fn count(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// A message that occurs at most once; a second occurrence is merged into the first, as the format demands.
impl<M: Message> Field for Option<Box<M>> {
    fn merge(&mut self, wire: Wire, reader: &mut Reader<'_>) -> Result<bool> {
        if wire != Wire::Len {
            return Ok(false);
        }
        reader.nested(&mut **self.get_or_insert_default())?;
        Ok(true)
    }

    fn encode(&self, number: u32, out: &mut Encoder) {
        if let Some(message) = self {
            let mark = out.length;
            message.encode(out);
            out.close(number, mark);
        }
    }
}
