//! Symbolic dimensions: exact integer expressions in a normal form.
//!
//! A [`Dim`] is a polynomial with `i64` coefficients over *atoms*: symbols, floor divisions, minima
//! and maxima. Ceiling division and modulo are rewritten exactly into floor division, so they need
//! no atom of their own and `k·(x // k) + x mod k = x` holds by construction.
//!
//! Contract:
//! - **Structural equality is a proof.** Two equal `Dim`s have the same value under every assignment
//!   that respects the lower bounds recorded in [`Symbols`] and under which both are defined (no
//!   division by zero, no `i64` overflow). Unequal `Dim`s prove nothing; ask
//!   [`Dim::provably_different`].
//! - **Every operation is checked.** `None` means overflow, division by zero, or a result beyond the
//!   size budget. The caller then goes on with a fresh symbol.
//! - **Order is structural** (`Ord` is for sorted containers and stable output, not for magnitude;
//!   use [`Dim::provably_le`]) and depends on nothing but the expression.
//! - Operations that may use a bound take the [`Symbols`] table. Bounds only ever tighten, so a
//!   normal form built earlier stays valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod bounds;
mod divide;
mod extreme;
mod mono;
mod parse;
mod print;
mod require;
mod solve;
mod symbols;
#[cfg(test)]
mod tests;

use mono::{Atom, Extreme, Mono, UNIT};
pub use require::Requirement;
pub use solve::Solution;
pub use symbols::{Symbol, Symbols};

/// Most terms in one sum.
const MAX_TERMS: usize = 64;
/// Highest total degree of one product.
const MAX_DEGREE: u32 = 32;
/// Deepest nesting of divisions, minima and maxima.
const MAX_DEPTH: u32 = 16;
/// Most nodes in one expression, counted as a tree.
const MAX_SIZE: usize = 512;

/// A symbolic integer in normal form; see the [module](self) for what equality means.
///
/// Cloning is O(1) and constants do not allocate.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim(Repr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Const(i64),
    Sum(Arc<Sum>),
}

/// At least one term; terms in descending monomial order, no coefficient is 0 or `i64::MIN`.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Sum {
    terms: Vec<(Mono, i64)>,
    constant: i64,
    depth: u32,
    size: usize,
}

/// Terms under construction.
type Terms = BTreeMap<Mono, i64>;

fn accumulate(terms: &mut Terms, mono: Mono, coefficient: i64) -> Option<()> {
    let slot = terms.entry(mono).or_insert(0);
    *slot = slot.checked_add(coefficient)?;
    Some(())
}

/// The greatest common divisor of the coefficients; 0 for none.
fn content(coefficients: impl Iterator<Item = i64>) -> Option<i64> {
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    i64::try_from(coefficients.fold(0, |g, c| gcd(g, c.unsigned_abs()))).ok()
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim(Repr::Const(value))
    }
}

impl From<Symbol> for Dim {
    fn from(symbol: Symbol) -> Dim {
        let terms = vec![(Mono(vec![(Atom::Symbol(symbol), 1)]), 1)];
        Dim(Repr::Sum(Arc::new(Sum { terms, constant: 0, depth: 0, size: 2 })))
    }
}

impl Dim {
    /// The constant 0.
    pub const ZERO: Dim = Dim(Repr::Const(0));
    /// The constant 1.
    pub const ONE: Dim = Dim(Repr::Const(1));

    /// Whether the expression is a constant.
    pub fn is_const(&self) -> bool {
        self.as_const().is_some()
    }

    /// The value, if the expression is a constant.
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Const(value) => Some(value),
            Repr::Sum(_) => None,
        }
    }

    /// The symbol, if the expression is exactly one symbol.
    pub fn as_symbol(&self) -> Option<Symbol> {
        match self.as_atom() {
            Some(Atom::Symbol(symbol)) => Some(*symbol),
            _ => None,
        }
    }

    /// The sum.
    pub fn add(&self, other: &Dim) -> Option<Dim> {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return a.checked_add(b).map(Dim::from);
        }
        let mut terms = self.to_terms();
        for (mono, coefficient) in other.terms() {
            accumulate(&mut terms, mono.clone(), coefficient)?;
        }
        Dim::from_terms(terms)
    }

    /// The difference.
    pub fn sub(&self, other: &Dim) -> Option<Dim> {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return a.checked_sub(b).map(Dim::from);
        }
        self.add(&other.neg()?)
    }

    /// The negation.
    pub fn neg(&self) -> Option<Dim> {
        self.mul(&Dim::from(-1))
    }

    /// The product, distributed over sums.
    pub fn mul(&self, other: &Dim) -> Option<Dim> {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return a.checked_mul(b).map(Dim::from);
        }
        let mut terms = Terms::new();
        for (a, n) in self.terms() {
            for (b, m) in other.terms() {
                accumulate(&mut terms, a.mul(b)?, n.checked_mul(m)?)?;
            }
        }
        Dim::from_terms(terms)
    }

    /// The product of all factors; 1 for none.
    pub fn product<'a>(factors: impl IntoIterator<Item = &'a Dim>) -> Option<Dim> {
        factors.into_iter().try_fold(Dim::ONE, |product, factor| product.mul(factor))
    }

    /// The sum of all summands; 0 for none.
    pub fn sum<'a>(summands: impl IntoIterator<Item = &'a Dim>) -> Option<Dim> {
        summands.into_iter().try_fold(Dim::ZERO, |sum, summand| sum.add(summand))
    }

    /// `self` to a constant power.
    pub fn pow(&self, exponent: u32) -> Option<Dim> {
        if exponent > MAX_DEGREE && !self.is_const() {
            return None;
        }
        match self.as_const() {
            Some(base) => base.checked_pow(exponent).map(Dim::from),
            None => (0..exponent).try_fold(Dim::ONE, |power, _| power.mul(self)),
        }
    }

    /// The symbols that occur anywhere in the expression.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut found = BTreeSet::new();
        self.collect_symbols(&mut found);
        found
    }

    fn collect_symbols(&self, found: &mut BTreeSet<Symbol>) {
        for atom in self.terms().flat_map(|(mono, _)| &mono.0).map(|(atom, _)| atom) {
            match atom {
                Atom::Symbol(symbol) => {
                    found.insert(*symbol);
                }
                Atom::FloorDiv(x, b) => {
                    x.collect_symbols(found);
                    b.collect_symbols(found);
                }
                Atom::Extreme(_, members) => {
                    members.iter().for_each(|member| member.collect_symbols(found));
                }
            }
        }
    }

    /// The value under an assignment. `None` when a symbol is unassigned, a divisor is 0, or the
    /// value of a product, quotient or sum does not fit in `i64`.
    pub fn evaluate(&self, assign: &dyn Fn(Symbol) -> Option<i64>) -> Option<i64> {
        let (terms, constant) = self.parts();
        let mut total = i128::from(constant);
        for (mono, coefficient) in terms {
            let mut product = *coefficient;
            for (atom, exponent) in &mono.0 {
                let value = match atom {
                    Atom::Symbol(symbol) => assign(*symbol)?,
                    Atom::FloorDiv(x, b) => divide::floor(x.evaluate(assign)?, b.evaluate(assign)?)?,
                    Atom::Extreme(end, members) => {
                        let values: Option<Vec<i64>> =
                            members.iter().map(|member| member.evaluate(assign)).collect();
                        end.of(values?)?
                    }
                };
                product = product.checked_mul(value.checked_pow(*exponent)?)?;
            }
            total += i128::from(product);
        }
        i64::try_from(total).ok()
    }

    /// The expression with each symbol for which `replace` answers replaced, and simplified again.
    pub fn substitute(&self, replace: &dyn Fn(Symbol) -> Option<Dim>, symbols: &Symbols) -> Option<Dim> {
        let (terms, constant) = self.parts();
        let mut total = Dim::from(constant);
        for (mono, coefficient) in terms {
            let mut product = Dim::from(*coefficient);
            for (atom, exponent) in &mono.0 {
                let factor = match atom {
                    Atom::Symbol(symbol) => replace(*symbol).unwrap_or_else(|| Dim::from(*symbol)),
                    Atom::FloorDiv(x, b) => x
                        .substitute(replace, symbols)?
                        .floor_div(&b.substitute(replace, symbols)?, symbols)?,
                    Atom::Extreme(end, members) => {
                        let members: Option<Vec<Dim>> =
                            members.iter().map(|m| m.substitute(replace, symbols)).collect();
                        Dim::extreme(*end, &members?, symbols)?
                    }
                };
                product = product.mul(&factor.pow(*exponent)?)?;
            }
            total = total.add(&product)?;
        }
        Some(total)
    }

    fn from_atom(atom: Atom) -> Option<Dim> {
        Dim::from_terms(Terms::from([(Mono(vec![(atom, 1)]), 1)]))
    }

    /// The normal form of a sum, if it is within budget.
    fn from_terms(mut terms: Terms) -> Option<Dim> {
        let constant = terms.remove(&UNIT).unwrap_or(0);
        terms.retain(|_, coefficient| *coefficient != 0);
        if terms.is_empty() {
            return Some(Dim::from(constant));
        }
        if terms.len() > MAX_TERMS || constant == i64::MIN {
            return None;
        }
        let (mut depth, mut size) = (0, 0);
        for (mono, coefficient) in &terms {
            if *coefficient == i64::MIN {
                return None;
            }
            size += 1;
            for (atom, _) in &mono.0 {
                depth = depth.max(atom.depth());
                size += atom.size();
            }
        }
        if depth > MAX_DEPTH || size > MAX_SIZE {
            return None;
        }
        let terms = terms.into_iter().rev().collect();
        Some(Dim(Repr::Sum(Arc::new(Sum { terms, constant, depth, size }))))
    }

    fn parts(&self) -> (&[(Mono, i64)], i64) {
        match &self.0 {
            Repr::Const(value) => (&[], *value),
            Repr::Sum(sum) => (&sum.terms, sum.constant),
        }
    }

    /// Terms in descending order, the constant last and only if it is not 0.
    fn terms(&self) -> impl Iterator<Item = (&Mono, i64)> {
        let (terms, constant) = self.parts();
        let constant = (constant != 0).then_some((&UNIT, constant));
        terms.iter().map(|(mono, coefficient)| (mono, *coefficient)).chain(constant)
    }

    fn to_terms(&self) -> Terms {
        self.terms().map(|(mono, coefficient)| (mono.clone(), coefficient)).collect()
    }

    /// The distinct atoms of the outermost sum.
    fn atoms(&self) -> BTreeSet<&Atom> {
        self.terms().flat_map(|(mono, _)| &mono.0).map(|(atom, _)| atom).collect()
    }

    /// The atom, if the expression is exactly one atom.
    fn as_atom(&self) -> Option<&Atom> {
        match self.parts() {
            ([(Mono(factors), 1)], 0) => match factors.as_slice() {
                [(atom, 1)] => Some(atom),
                _ => None,
            },
            _ => None,
        }
    }

    fn depth(&self) -> u32 {
        match &self.0 {
            Repr::Const(_) => 0,
            Repr::Sum(sum) => sum.depth,
        }
    }

    fn size(&self) -> usize {
        match &self.0 {
            Repr::Const(_) => 1,
            Repr::Sum(sum) => sum.size,
        }
    }
}
