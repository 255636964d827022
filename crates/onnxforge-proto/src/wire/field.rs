//! Rust types that stand for fields: how each is read and written.

use std::sync::Arc;

use super::{Encoder, Message, Reader, Result, Wire, WireErrorKind};
use crate::blob::{Blob, Payload};

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
pub fn in_field<F: Field>(
    field: &mut F,
    name: &'static str,
    wire: Wire,
    reader: &mut Reader<'_>,
) -> Result<bool> {
    let index = field.count();
    field.merge(wire, reader).map_err(|error| error.within(name, index))
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
            let mark = out.byte_len();
            for &value in self.0.iter().rev() {
                value.write(out);
            }
            out.close(number, mark);
        }
    }
}

/// Repeated fixed-width numbers of `W` bytes as their little-endian bytes: packed ones stay where they are.
#[derive(Clone, Debug, Default)]
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

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Shared(blob) => blob,
            Self::Collected(bytes) => bytes,
        }
    }

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

/// The same elements, wherever they are.
impl<const W: usize> PartialEq for PackedFixed<W> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl<const W: usize> Eq for PackedFixed<W> {}

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
        let mark = out.byte_len();
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
                    let mark = out.byte_len();
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
            let mark = out.byte_len();
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
            let mark = out.byte_len();
            message.encode(out);
            out.close(number, mark);
        }
    }
}
