//! What can be wrong with bytes, and where.

use std::fmt;

use super::MAX_DEPTH;

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
    pub(super) fn within(mut self, field: &'static str, index: Option<usize>) -> Self {
        self.path.push(Step { field, index });
        self
    }
}
