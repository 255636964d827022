//! Elements of tensors, one by one.

use std::fmt::{self, Display, Write};
use std::io;

use super::super::element::Unit;
use super::super::literal::{Float, small_float_decimal};
use crate::dtype::DType;

/// An integer, or the float whose bits it is.
pub(super) struct Integer {
    pub(super) dtype: DType,
    pub(super) bits: i64,
    /// Whether to write the float.
    pub(super) decimals: bool,
}

impl Display for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u16::try_from(self.bits).ok().filter(|_| self.decimals);
        match bits.and_then(|bits| small_float_decimal(self.dtype, bits)) {
            Some(decimal) => f.write_str(&decimal),
            None => self.bits.fmt(f),
        }
    }
}

/// Writes bytes as the numbers that they are, however they are cut into pieces.
pub(super) struct Numbers<'a> {
    out: &'a mut dyn Write,
    unit: Unit,
    dtype: DType,
    decimals: bool,
    /// The start of a number whose other bytes have not come yet.
    pending: Vec<u8>,
    first: bool,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(out: &'a mut dyn Write, unit: Unit, dtype: DType, decimals: bool) -> Self {
        Self { out, unit, dtype, decimals, pending: Vec::new(), first: true }
    }

    /// Whether no number has been written yet.
    pub(super) fn is_empty(&self) -> bool {
        self.first
    }

    fn number(&mut self, bytes: &[u8]) -> fmt::Result {
        self.out.write_str(if self.first { "" } else { ", " })?;
        self.first = false;
        let mut wide = [0; 8];
        wide.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let bits = u64::from_le_bytes(wide);
        match self.unit {
            Unit::F32 => write!(self.out, "{}", Float(f32::from_bits(bits as u32))),
            Unit::F64 => write!(self.out, "{}", Float(f64::from_bits(bits))),
            Unit::Signed(width) => {
                let spare = 64 - 8 * width;
                // Moving the sign bit to the top and back extends it.
                write!(self.out, "{}", (bits << spare) as i64 >> spare)
            }
            Unit::Unsigned(8) => write!(self.out, "{bits}"),
            Unit::Unsigned(_) => {
                write!(
                    self.out,
                    "{}",
                    Integer { dtype: self.dtype, bits: bits as i64, decimals: self.decimals }
                )
            }
        }
    }
}

impl io::Write for Numbers<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let width = self.unit.width();
        let mut rest = bytes;
        if !self.pending.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(width - self.pending.len()));
            self.pending.extend_from_slice(head);
            rest = tail;
            if self.pending.len() < width {
                return Ok(bytes.len());
            }
            let whole = std::mem::take(&mut self.pending);
            self.number(&whole).map_err(io::Error::other)?;
        }
        let mut chunks = rest.chunks_exact(width);
        chunks.try_for_each(|number| self.number(number)).map_err(io::Error::other)?;
        self.pending.extend_from_slice(chunks.remainder());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
