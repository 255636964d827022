//! What must hold among sizes for a model to run.

use super::Dim;

/// Something that holds in every run that succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Both are the same.
    Equal(Dim, Dim),
    /// Both are the same, or one of them is 1.
    Broadcast(Dim, Dim),
    /// The first is a multiple of the second, which is not 0.
    Multiple(Dim, Dim),
    /// It is at least 1.
    Positive(Dim),
}

impl Requirement {
    /// Whether it holds for all sizes, or says nothing of any.
    pub(super) fn is_trivial(&self) -> bool {
        match self {
            Self::Equal(a, b) => a == b,
            Self::Broadcast(a, b) => a == b || *a == Dim::ONE || *b == Dim::ONE,
            Self::Multiple(a, b) => b.is_const() && a.divide_exact(b).is_some(),
            Self::Positive(dim) => dim.is_const(),
        }
    }

    /// Whether it holds for sizes under which expressions have these values. `None` where one of them is not known.
    pub fn holds(&self, value: &dyn Fn(&Dim) -> Option<i64>) -> Option<bool> {
        Some(match self {
            Self::Equal(a, b) => value(a)? == value(b)?,
            Self::Broadcast(a, b) => {
                let (a, b) = (value(a)?, value(b)?);
                a == b || a == 1 || b == 1
            }
            Self::Multiple(a, b) => value(a)?.checked_rem(value(b)?) == Some(0),
            Self::Positive(dim) => value(dim)? >= 1,
        })
    }

    /// The expressions that it is about.
    pub fn dims(&self) -> impl Iterator<Item = &Dim> {
        match self {
            Self::Equal(a, b) | Self::Broadcast(a, b) | Self::Multiple(a, b) => [Some(a), Some(b)],
            Self::Positive(dim) => [Some(dim), None],
        }
        .into_iter()
        .flatten()
    }
}
