//! The protobuf wire format, both ways: a bounds-checked reader over a [`Blob`](crate::blob::Blob) and a writer that never copies weights.

mod encoder;
mod error;
mod field;
mod reader;

pub use encoder::{Encoder, encode};
pub use error::{Step, WireError, WireErrorKind};
pub use field::{Delimited, Field, Packed, PackedFixed, in_field};
pub use reader::{Reader, decode};

/// Messages nested deeper than this are refused; the same limit as in Google's implementations.
pub const MAX_DEPTH: u32 = 100;

type Result<T> = std::result::Result<T, WireError>;

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
