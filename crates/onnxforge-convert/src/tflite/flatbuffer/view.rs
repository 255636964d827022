//! Reading, without trust.

use std::cell::Cell;
use std::ops::Range;

/// A place at which bytes are no FlatBuffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct Damage {
    /// Where.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// The bytes of a buffer, and how much may still be read of it.
#[derive(Debug)]
pub struct File<'a> {
    bytes: &'a [u8],
    /// Lists may be shared; how many elements of them are still looked at, so that a small file cannot stand for a large one.
    left: Cell<usize>,
}

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    file: &'a File<'a>,
    at: usize,
    layout: usize,
    /// Bytes of the layout, and of the table itself.
    sizes: (usize, usize),
}

impl<'a> File<'a> {
    /// The buffer in these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, left: Cell::new(bytes.len().saturating_mul(4)) }
    }

    /// Its outermost table.
    pub fn root(&'a self) -> Result<Table<'a>, Damage> {
        self.table(self.follow(0)?)
    }

    fn fixed<const N: usize>(&self, at: usize) -> Result<[u8; N], Damage> {
        let part = at.checked_add(N).and_then(|end| self.bytes.get(at..end));
        part.and_then(|part| part.try_into().ok()).ok_or(Damage { at, what: "the file ends" })
    }

    fn u16(&self, at: usize) -> Result<usize, Damage> {
        Ok(u16::from_le_bytes(self.fixed(at)?).into())
    }

    fn u32(&self, at: usize) -> Result<usize, Damage> {
        Ok(u32::from_le_bytes(self.fixed(at)?) as usize)
    }

    /// Where an offset leads.
    fn follow(&self, at: usize) -> Result<usize, Damage> {
        let to = at.checked_add(self.u32(at)?).filter(|&to| to < self.bytes.len());
        to.ok_or(Damage { at, what: "an offset points out of the file" })
    }

    fn table(&'a self, at: usize) -> Result<Table<'a>, Damage> {
        let back = i64::from(i32::from_le_bytes(self.fixed(at)?));
        let layout =
            usize::try_from(at as i64 - back).map_err(|_| Damage { at, what: "a table without layout" })?;
        let sizes = (self.u16(layout)?, self.u16(layout.saturating_add(2))?);
        if sizes.0 < 4 || layout + sizes.0 > self.bytes.len() || sizes.1 > self.bytes.len() - at {
            return Err(Damage { at: layout, what: "a layout of a wrong size" });
        }
        Ok(Table { file: self, at, layout, sizes })
    }

    /// The elements of a vector, of so many bytes each.
    fn vector(&self, at: usize, size: usize) -> Result<(usize, usize), Damage> {
        let (count, start) = (self.u32(at)?, at + 4);
        let fits = count.checked_mul(size).is_some_and(|bytes| bytes <= self.bytes.len() - start);
        if !fits {
            return Err(Damage { at, what: "a list is longer than the file" });
        }
        Ok((start, count))
    }

    fn spend(&self, at: usize, count: usize) -> Result<(), Damage> {
        let left = self.left.get().checked_sub(count).ok_or(Damage { at, what: "too many shared lists" })?;
        self.left.set(left);
        Ok(())
    }
}

impl<'a> Table<'a> {
    /// Where it lies, for messages.
    pub fn place(&self) -> usize {
        self.at
    }

    /// A complaint about it.
    pub fn wrong(&self, what: &'static str) -> Damage {
        Damage { at: self.at, what }
    }

    /// Where a field of so many bytes lies; `None` where it is left out.
    fn field(&self, number: u16, size: usize) -> Result<Option<usize>, Damage> {
        let entry = 4 + 2 * usize::from(number);
        if entry + 2 > self.sizes.0 {
            return Ok(None);
        }
        match self.file.u16(self.layout + entry)? {
            0 => Ok(None),
            place if place + size <= self.sizes.1 => Ok(Some(self.at + place)),
            _ => Err(Damage { at: self.layout + entry, what: "a field lies outside of its table" }),
        }
    }

    /// A byte, 0 where it is left out.
    pub fn byte(&self, number: u16) -> Result<u8, Damage> {
        self.field(number, 1)?.map_or(Ok(0), |at| self.file.fixed::<1>(at).map(|[byte]| byte))
    }

    /// A truth value, false where it is left out.
    pub fn flag(&self, number: u16) -> Result<bool, Damage> {
        Ok(self.byte(number)? != 0)
    }

    /// An integer.
    pub fn int(&self, number: u16, default: i32) -> Result<i32, Damage> {
        let read = |at| self.file.fixed(at).map(i32::from_le_bytes);
        self.field(number, 4)?.map_or(Ok(default), read)
    }

    /// An integer that is not negative, 0 where it is left out.
    pub fn index(&self, number: u16) -> Result<usize, Damage> {
        self.field(number, 4)?.map_or(Ok(0), |at| self.file.u32(at))
    }

    /// A float, 0 where it is left out.
    pub fn float(&self, number: u16) -> Result<f32, Damage> {
        let read = |at| self.file.fixed(at).map(f32::from_le_bytes);
        self.field(number, 4)?.map_or(Ok(0.0), read)
    }

    /// An integer of 64 bits, 0 where it is left out.
    pub fn long(&self, number: u16) -> Result<u64, Damage> {
        let read = |at| self.file.fixed(at).map(u64::from_le_bytes);
        self.field(number, 8)?.map_or(Ok(0), read)
    }

    /// What an offset in a field leads to.
    fn target(&self, number: u16) -> Result<Option<usize>, Damage> {
        self.field(number, 4)?.map(|at| self.file.follow(at)).transpose()
    }

    /// Another table.
    pub fn table(&self, number: u16) -> Result<Option<Table<'a>>, Damage> {
        self.target(number)?.map(|at| self.file.table(at)).transpose()
    }

    /// A list of tables, empty where it is left out.
    pub fn tables(&self, number: u16) -> Result<Vec<Table<'a>>, Damage> {
        let Some(at) = self.target(number)? else { return Ok(Vec::new()) };
        let (start, count) = self.file.vector(at, 4)?;
        self.file.spend(at, count)?;
        (0..count).map(|index| self.file.table(self.file.follow(start + 4 * index)?)).collect()
    }

    /// A list of integers; `None` where it is left out.
    pub fn ints(&self, number: u16) -> Result<Option<Vec<i32>>, Damage> {
        let Some(at) = self.target(number)? else { return Ok(None) };
        let (start, count) = self.file.vector(at, 4)?;
        self.file.spend(at, count)?;
        let read = |index| self.file.fixed(start + 4 * index).map(i32::from_le_bytes);
        (0..count).map(read).collect::<Result<_, _>>().map(Some)
    }

    /// A list of floats; `None` where it is left out.
    pub fn floats(&self, number: u16) -> Result<Option<Vec<f32>>, Damage> {
        let Some(at) = self.target(number)? else { return Ok(None) };
        let (start, count) = self.file.vector(at, 4)?;
        self.file.spend(at, count)?;
        let read = |index| self.file.fixed(start + 4 * index).map(f32::from_le_bytes);
        (0..count).map(read).collect::<Result<_, _>>().map(Some)
    }

    /// A list of integers of 64 bits; `None` where it is left out.
    pub fn longs(&self, number: u16) -> Result<Option<Vec<i64>>, Damage> {
        let Some(at) = self.target(number)? else { return Ok(None) };
        let (start, count) = self.file.vector(at, 8)?;
        self.file.spend(at, count)?;
        let read = |index| self.file.fixed(start + 8 * index).map(i64::from_le_bytes);
        (0..count).map(read).collect::<Result<_, _>>().map(Some)
    }

    /// Where the bytes of a list lie in the file; `None` where it is left out.
    pub fn bytes(&self, number: u16) -> Result<Option<Range<usize>>, Damage> {
        let Some(at) = self.target(number)? else { return Ok(None) };
        let (start, count) = self.file.vector(at, 1)?;
        Ok(Some(start..start + count))
    }

    /// A text, with what is no text in it replaced; `None` where it is left out.
    pub fn text(&self, number: u16) -> Result<Option<String>, Damage> {
        let Some(range) = self.bytes(number)? else { return Ok(None) };
        self.file.spend(range.start, range.len())?;
        Ok(Some(String::from_utf8_lossy(self.file.bytes.get(range).unwrap_or_default()).into_owned()))
    }
}
