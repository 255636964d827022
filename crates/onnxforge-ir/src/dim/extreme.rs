//! Minimum and maximum.

use std::collections::BTreeSet;

use super::{Atom, Dim, Extreme, Symbols};

/// Most members of one minimum or maximum.
const MAX_MEMBERS: usize = 16;

impl Extreme {
    /// The extreme of plain values, `None` if there are none.
    pub(super) fn of(self, values: impl IntoIterator<Item = i64>) -> Option<i64> {
        match self {
            Extreme::Min => values.into_iter().min(),
            Extreme::Max => values.into_iter().max(),
        }
    }
}

impl Dim {
    /// The smaller of both. Nested minima are flattened and members that provably never decide the
    /// result are dropped.
    pub fn minimum(&self, other: &Dim, symbols: &Symbols) -> Option<Dim> {
        Dim::extreme(Extreme::Min, [self, other], symbols)
    }

    /// The larger of both; see [`Dim::minimum`].
    pub fn maximum(&self, other: &Dim, symbols: &Symbols) -> Option<Dim> {
        Dim::extreme(Extreme::Max, [self, other], symbols)
    }

    pub(super) fn extreme<'a>(
        end: Extreme,
        dims: impl IntoIterator<Item = &'a Dim>,
        symbols: &Symbols,
    ) -> Option<Dim> {
        let mut members = BTreeSet::new();
        for dim in dims {
            match dim.as_atom() {
                Some(Atom::Extreme(e, nested)) if *e == end => {
                    members.extend(nested.iter().cloned());
                }
                _ => {
                    members.insert(dim.clone());
                }
            }
        }
        if members.len() > MAX_MEMBERS {
            return None;
        }
        // Members are values in their own right, so they lie within i64.
        let le = |a: &Dim, b: &Dim| {
            a.as_const() == Some(i64::MIN) || b.as_const() == Some(i64::MAX) || a.provably_le(b, symbols)
        };
        for member in members.clone() {
            let decided_by_other = |other: &Dim| {
                *other != member
                    && match end {
                        Extreme::Min => le(other, &member),
                        Extreme::Max => le(&member, other),
                    }
            };
            if members.iter().any(decided_by_other) {
                members.remove(&member);
            }
        }
        let members: Vec<Dim> = members.into_iter().collect();
        match members.as_slice() {
            [only] => Some(only.clone()),
            _ => Dim::from_atom(Atom::Extreme(end, members)),
        }
    }
}
