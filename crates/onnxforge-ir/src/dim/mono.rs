//! The factors of a term: atoms and products of atoms.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{Dim, MAX_DEGREE, Symbol};

/// A product of atoms with positive exponents, atoms ascending. Empty is 1.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Mono(pub(super) Vec<(Atom, u32)>);

/// An indivisible factor.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Atom {
    Symbol(Symbol),
    /// Numerator and divisor. The divisor is positive wherever it is known to be non-zero and signed.
    FloorDiv(Dim, Dim),
    /// Two or more members, ascending, none of which is provably redundant.
    Extreme(Extreme, Vec<Dim>),
}

/// Which end of a set of members an extreme takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Extreme {
    Min,
    Max,
}

pub(super) static UNIT: Mono = Mono(Vec::new());

impl Atom {
    pub(super) fn depth(&self) -> u32 {
        match self {
            Atom::Symbol(_) => 0,
            Atom::FloorDiv(x, b) => 1 + x.depth().max(b.depth()),
            Atom::Extreme(_, members) => 1 + members.iter().map(Dim::depth).max().unwrap_or(0),
        }
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Atom::Symbol(_) => 1,
            Atom::FloorDiv(x, b) => 1 + x.size() + b.size(),
            Atom::Extreme(_, members) => 1 + members.iter().map(Dim::size).sum::<usize>(),
        }
    }
}

/// Graded lexicographic: compatible with multiplication, as polynomial division requires.
impl Ord for Mono {
    fn cmp(&self, other: &Self) -> Ordering {
        self.degree().cmp(&other.degree()).then_with(|| {
            for ((a, n), (b, m)) in self.0.iter().zip(&other.0) {
                let order = b.cmp(a).then(n.cmp(m));
                if order.is_ne() {
                    return order;
                }
            }
            Ordering::Equal
        })
    }
}

impl PartialOrd for Mono {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Mono {
    pub(super) fn degree(&self) -> u32 {
        self.0.iter().map(|(_, n)| n).sum()
    }

    pub(super) fn exponent(&self, atom: &Atom) -> u32 {
        self.0.iter().find(|(a, _)| a == atom).map_or(0, |(_, n)| *n)
    }

    fn from_powers(powers: BTreeMap<Atom, u32>) -> Mono {
        Mono(powers.into_iter().filter(|(_, n)| *n > 0).collect())
    }

    pub(super) fn mul(&self, other: &Mono) -> Option<Mono> {
        if self.degree() + other.degree() > MAX_DEGREE {
            return None;
        }
        let mut powers: BTreeMap<Atom, u32> = self.0.iter().cloned().collect();
        for (atom, n) in &other.0 {
            *powers.entry(atom.clone()).or_default() += n;
        }
        Some(Mono::from_powers(powers))
    }

    /// The quotient, if `other` divides `self`.
    pub(super) fn div(&self, other: &Mono) -> Option<Mono> {
        let mut powers: BTreeMap<Atom, u32> = self.0.iter().cloned().collect();
        for (atom, n) in &other.0 {
            let have = powers.get_mut(atom)?;
            *have = have.checked_sub(*n)?;
        }
        Some(Mono::from_powers(powers))
    }
}
