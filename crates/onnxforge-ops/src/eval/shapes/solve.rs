//! Equations between sizes, solved as far as that takes no search.

use std::collections::{BTreeMap, BTreeSet};

use onnxforge_ir::dim::{Dim, Requirement, Symbol, Symbols};

/// Sizes in terms of each other.
#[derive(Clone, Debug)]
pub struct System<'a> {
    symbols: &'a Symbols,
    /// The symbols whose sizes are looked for. They are never bound to others: those stand for whatever a run makes of them.
    sought: BTreeSet<Symbol>,
    /// What symbols are, in terms of symbols that are free.
    bindings: BTreeMap<Symbol, Dim>,
}

impl<'a> System<'a> {
    /// Everything is free.
    pub fn new(symbols: &'a Symbols, sought: BTreeSet<Symbol>) -> Self {
        Self { symbols, sought, bindings: BTreeMap::new() }
    }

    /// An expression in terms of free symbols.
    pub fn resolved(&self, dim: &Dim) -> Dim {
        dim.substitute(&|symbol| self.bindings.get(&symbol).cloned(), self.symbols)
            .unwrap_or_else(|| dim.clone())
    }

    /// A requirement in terms of free symbols.
    pub fn resolved_requirement(&self, requirement: &Requirement) -> Requirement {
        let of = |dim| self.resolved(dim);
        match requirement {
            Requirement::Equal(a, b) => Requirement::Equal(of(a), of(b)),
            Requirement::Broadcast(a, b) => Requirement::Broadcast(of(a), of(b)),
            Requirement::Multiple(a, b) => Requirement::Multiple(of(a), of(b)),
            Requirement::Positive(dim) => Requirement::Positive(of(dim)),
        }
    }

    /// Makes two expressions equal by binding a symbol, preferably one that is not sought. Answers false where that is impossible or not
    /// seen how; then nothing is bound.
    pub fn equate(&mut self, a: &Dim, b: &Dim) -> bool {
        let Some(difference) = self.resolved(a).sub(&self.resolved(b)) else { return false };
        if let Some(constant) = difference.as_const() {
            return constant == 0;
        }
        let solutions = difference.symbols().into_iter().filter_map(|symbol| {
            let solution = self.solved_for(&difference, symbol)?;
            let is_sought = self.sought.contains(&symbol);
            let fits = match solution.as_const() {
                Some(size) => size >= self.symbols.lower(symbol).unwrap_or(0).max(0),
                None => !is_sought || solution.symbols().is_subset(&self.sought),
            };
            // Nothing at all makes most equations true: that is the last resort.
            let rank = (
                solution.as_const() == Some(0),
                is_sought,
                !solution.is_const(),
                !solution.provably_nonneg(self.symbols),
                std::cmp::Reverse(symbol),
            );
            fits.then_some((rank, symbol, solution))
        });
        let Some((_, symbol, solution)) = solutions.min_by(|a, b| a.0.cmp(&b.0)) else { return false };
        let bind = |other: Symbol| (other == symbol).then(|| solution.clone());
        let rebound: Option<BTreeMap<Symbol, Dim>> = self
            .bindings
            .iter()
            .map(|(&other, dim)| Some((other, dim.substitute(&bind, self.symbols)?)))
            .collect();
        let Some(rebound) = rebound else { return false };
        self.bindings = rebound;
        self.bindings.insert(symbol, solution);
        true
    }

    /// The symbol for which `difference`, linear in it, is 0.
    fn solved_for(&self, difference: &Dim, symbol: Symbol) -> Option<Dim> {
        let at = |size: i64| {
            difference.substitute(&|other| (other == symbol).then(|| Dim::from(size)), self.symbols)
        };
        let rest = at(0)?;
        let factor = at(1)?.sub(&rest)?;
        let is_linear = factor.mul(&Dim::from(symbol))?.add(&rest)? == *difference;
        let solution = rest.neg()?.divide_exact(&factor)?;
        (is_linear && !solution.symbols().contains(&symbol)).then_some(solution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products_are_solved() {
        let mut symbols = Symbols::default();
        let [total, past, seq, batch] = ["total", "past", "seq", "batch"].map(|name| symbols.named(name));
        let dim = |symbol: Symbol| Dim::from(symbol);
        let mut system = System::new(&symbols, [total, past, seq, batch].into());
        assert!(system.equate(&dim(total), &dim(past).add(&dim(seq)).unwrap()));
        assert_eq!(system.resolved(&dim(total)), dim(past).add(&dim(seq)).unwrap());
        // A reshape to [1, seq, 64] of [batch, seq, 64].
        let from = Dim::product(&[dim(batch), dim(seq), 64.into()]).unwrap();
        let to = Dim::product(&[dim(seq), 64.into()]).unwrap();
        assert!(system.equate(&from, &to));
        assert_eq!(system.resolved(&dim(batch)), Dim::ONE);
        assert!(!system.equate(&dim(batch), &Dim::from(2)));
    }

    #[test]
    fn nothing_is_the_last_resort() {
        let mut symbols = Symbols::default();
        let [batch, past] = ["batch", "past"].map(|name| symbols.named(name));
        symbols.raise_lower(batch, 1);
        symbols.raise_lower(past, 0);
        let mut system = System::new(&symbols, [batch, past].into());
        // A reshape to [1, past] of [batch, past] works for one sequence, or with an empty cache.
        assert!(system.equate(&Dim::product(&[batch.into(), past.into()]).unwrap(), &past.into()));
        assert_eq!(system.resolved(&batch.into()), Dim::ONE);
        assert_eq!(system.resolved(&past.into()), Dim::from(past));
        // Where there is no other way, it is empty.
        assert!(system.equate(&Dim::product(&[past.into(), 2.into()]).unwrap(), &Dim::ZERO));
        assert_eq!(system.resolved(&past.into()), Dim::ZERO);
    }
}
