//! What is printed, and how.

/// What to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintOptions {
    /// Tensors and lists with more elements than this are printed as `...`, which cannot be read back.
    /// Encoded messages may have eight bytes for each.
    pub max_elements: Option<usize>,
    /// Whether what the standard notation cannot say is said in notes (`#@`). Without them the text is for
    /// people: it reads back as a model that computes the same, without documentation, metadata and details
    /// of storage.
    pub notes: bool,
    /// Print the elements of 16- and 8-bit floats as decimals, which [`parse`](super::parse) accepts but
    /// other readers do not, instead of as the bit patterns that the standard asks for.
    pub decimals: bool,
}

impl Default for PrintOptions {
    /// Everything, exactly.
    fn default() -> Self {
        Self { max_elements: None, notes: true, decimals: false }
    }
}

impl PrintOptions {
    /// For people: no long tensors, no notes, decimals.
    pub fn brief() -> Self {
        Self { max_elements: Some(16), notes: false, decimals: true }
    }
}
