//! Symbols that follow from what must hold.

use std::collections::BTreeMap;

use super::bounds::split;
use super::mono::Atom;
use super::{Dim, Requirement, Symbol, Symbols};

/// What symbols are in every run that succeeds, in terms of others.
#[derive(Clone, Debug, Default)]
pub struct Solution {
    solved: BTreeMap<Symbol, Dim>,
    /// The first symbols of the table, which stay as they are.
    given: usize,
    /// How many requirements of the table were looked at.
    seen: usize,
}

impl Solution {
    /// Nothing yet, about all symbols but the first `given`.
    pub fn new(given: usize) -> Self {
        Self { given, ..Self::default() }
    }

    /// Learns what the requirements say that are new since the last time.
    pub fn update(&mut self, symbols: &Symbols) {
        let new = symbols.requirements().get(self.seen..).unwrap_or_default();
        self.seen = symbols.requirements().len();
        for requirement in new {
            if let Requirement::Equal(a, b) = requirement {
                self.learn(a, b, symbols);
            }
        }
    }

    /// Passes over the requirements that are new since the last time: they were found where a run need not come by.
    pub fn skip(&mut self, symbols: &Symbols) {
        self.seen = symbols.requirements().len();
    }

    /// Whether nothing follows.
    pub fn is_empty(&self) -> bool {
        self.solved.is_empty()
    }

    /// The expression without the symbols that are solved; `None` where it has none of them.
    pub fn apply(&self, dim: &Dim, symbols: &Symbols) -> Option<Dim> {
        if dim.is_const() || !dim.symbols().iter().any(|symbol| self.solved.contains_key(symbol)) {
            return None;
        }
        dim.substitute(&|symbol| self.solved.get(&symbol).cloned(), symbols)
    }

    /// Takes note of what follows from `a = b` for the youngest symbol that it determines.
    fn learn(&mut self, a: &Dim, b: &Dim, symbols: &Symbols) {
        let current = |dim: &Dim| self.apply(dim, symbols).unwrap_or_else(|| dim.clone());
        let Some(difference) = current(a).sub(&current(b)) else { return };
        let is_open = |symbol: &Symbol| symbol.id() as usize >= self.given;
        let open = difference.symbols().into_iter().rev().filter(is_open);
        let found = open.filter_map(|symbol| Some((symbol, solved(&difference, symbol, symbols)?))).next();
        let Some(found) = found else { return };
        // What is known of others in terms of this one is known in other terms now.
        let only = Self { solved: BTreeMap::from([found]), ..Self::default() };
        for known in self.solved.values_mut() {
            if let Some(now) = only.apply(known, symbols) {
                *known = now;
            }
        }
        self.solved.extend(only.solved);
    }
}

/// What `symbol` is where `zero` is 0: with `zero = rest + factor · symbol`, `-rest / factor`, if that is an expression.
fn solved(zero: &Dim, symbol: Symbol, symbols: &Symbols) -> Option<Dim> {
    let (rest, factor) = split(zero, &Atom::Symbol(symbol))?;
    let is_elsewhere = rest.symbols().contains(&symbol) || factor.symbols().contains(&symbol);
    if is_elsewhere || !factor.provably_different(&Dim::ZERO, symbols) {
        return None;
    }
    rest.neg()?.divide_exact(&factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equalities_determine_symbols() {
        let mut symbols = Symbols::default();
        let [a, b] = ["a", "b"].map(|name| Dim::from(symbols.named(name)));
        let [x, y, z] = [(); 3].map(|()| Dim::from(symbols.fresh()));
        let four = Dim::from(4);
        symbols.require(Requirement::Equal(y.mul(&b).unwrap(), z.mul(&b).unwrap()));
        symbols.require(Requirement::Equal(x.mul(&four).unwrap(), a.mul(&four).unwrap()));
        symbols.require(Requirement::Equal(x.clone(), y.clone()));
        symbols.require(Requirement::Equal(a.clone(), b.clone()));
        let solved = |symbols: &Symbols, given| {
            let mut solution = Solution::new(given);
            solution.update(symbols);
            solution
        };
        let solution = solved(&symbols, 2);
        assert_eq!(solution.apply(&x, &symbols), Some(a.clone()));
        assert_eq!(solution.apply(&y.add(&b).unwrap(), &symbols), a.add(&b));
        // b may be 0, and a and b are given.
        assert_eq!((solution.apply(&z, &symbols), solution.apply(&a, &symbols)), (None, None));
        symbols.raise_lower(b.as_symbol().unwrap(), 1);
        assert_eq!(solved(&symbols, 2).apply(&z, &symbols), Some(a));
    }

    #[test]
    fn what_is_no_expression_stays() {
        let mut symbols = Symbols::default();
        let a = Dim::from(symbols.named("a"));
        let x = Dim::from(symbols.fresh());
        let squared = x.mul(&x).unwrap();
        symbols.require(Requirement::Equal(squared, a.clone()));
        symbols.require(Requirement::Equal(x.mul(&Dim::from(2)).unwrap(), a.clone()));
        symbols.require(Requirement::Equal(x.maximum(&a, &symbols).unwrap(), x.clone()));
        let mut solution = Solution::new(1);
        solution.update(&symbols);
        assert!(solution.is_empty());
    }
}
