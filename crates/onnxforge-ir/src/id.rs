//! Typed, never-reused ids and the arenas they index.

use std::fmt;
use std::marker::PhantomData;

/// An index into an [`Arena`].
pub trait Id: Copy + Eq + fmt::Debug {
    /// The id with this index.
    fn from_index(index: u32) -> Self;
    /// The index of this id.
    fn index(self) -> usize;
}

macro_rules! ids {
    ($( $(#[$doc:meta])* $name:ident $prefix:literal; )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u32);

        impl Id for $name {
            fn from_index(index: u32) -> Self {
                Self(index)
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A node of a model.
    NodeId "n";
    /// A value of a model: what a node computes, an input, or a constant.
    ValueId "v";
    /// A graph, a body of a node, or a function.
    ScopeId "s";
    /// Where a node comes from.
    OriginId "o";
}

/// A growing list whose entries keep their id for ever.
#[derive(Clone, Debug)]
pub struct Arena<K, T> {
    entries: Vec<T>,
    ids: PhantomData<K>,
}

impl<K: Id, T> Default for Arena<K, T> {
    fn default() -> Self {
        Self { entries: Vec::new(), ids: PhantomData }
    }
}

impl<K: Id, T> Arena<K, T> {
    /// Adds an entry. Ids are 32 bits wide; no model comes near four thousand million nodes, and its file could not
    /// be read by anything else.
    pub fn push(&mut self, entry: T) -> K {
        let id = K::from_index(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.push(entry);
        id
    }

    /// Number of entries ever made.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry was ever made.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every id and entry in the order of making.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &T)> {
        self.entries.iter().enumerate().map(|(index, entry)| (K::from_index(index as u32), entry))
    }
}

/// Ids come from the arena they are used with, so indexing does not fail.
impl<K: Id, T> std::ops::Index<K> for Arena<K, T> {
    type Output = T;
    fn index(&self, id: K) -> &T {
        &self.entries[id.index()]
    }
}

impl<K: Id, T> std::ops::IndexMut<K> for Arena<K, T> {
    fn index_mut(&mut self, id: K) -> &mut T {
        &mut self.entries[id.index()]
    }
}
