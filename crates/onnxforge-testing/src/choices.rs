//! Random choices that shrink: each one is a byte of an input that somebody else makes up.

/// Makes choices out of bytes; always the first one when they are used up.
pub struct Choices<'a>(pub std::slice::Iter<'a, u8>);

impl Choices<'_> {
    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % count.max(1)
    }

    /// The same for more choices than a byte has.
    pub fn wide(&mut self, count: usize) -> usize {
        (self.below(256) << 8 | self.below(256)) % count.max(1)
    }

    /// One of the items.
    ///
    /// # Panics
    /// If there are none.
    pub fn one<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}
