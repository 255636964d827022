//! Proofs about the value of an expression. "Provably" is one-sided: `false` means "not proved".
//!
//! Every answer holds for all assignments that respect the lower bounds in [`Symbols`] and under
//! which the expression is defined, so a divisor that is at least 0 counts as at least 1.
//!
//! A lower bound is the best of two methods. *Ranges*: each atom `a ≥ l` is replaced by `l + a'`
//! with `a' ≥ 0` and the terms are bounded one by one. *Relaxation*: one division, minimum or
//! maximum that occurs linearly is replaced by what it is known to be at least or at most, in terms
//! of its own operands. The bounds of `x - k·(x // k)` and of `n - min(n, k)` follow from the second.

use super::{Atom, Dim, Extreme, Symbols, Terms, accumulate, content, divide::floor};

/// Most expressions examined for one answer.
const FUEL: u32 = 48;

impl Dim {
    /// A constant that the value is never below, if one can be proved.
    pub fn lower_bound(&self, symbols: &Symbols) -> Option<i64> {
        Prover { symbols, fuel: FUEL }.lower(self)
    }

    /// A constant that the value is never above, if one can be proved.
    pub fn upper_bound(&self, symbols: &Symbols) -> Option<i64> {
        Prover { symbols, fuel: FUEL }.upper(self)
    }

    /// Whether the value is provably at least 0.
    pub fn provably_nonneg(&self, symbols: &Symbols) -> bool {
        self.lower_bound(symbols) >= Some(0)
    }

    /// Whether the value is provably at least 1.
    pub fn provably_positive(&self, symbols: &Symbols) -> bool {
        self.lower_bound(symbols) >= Some(1)
    }

    /// Whether the value is provably at most -1.
    pub fn provably_negative(&self, symbols: &Symbols) -> bool {
        self.upper_bound(symbols).is_some_and(|bound| bound < 0)
    }

    /// Whether `self ≤ other` provably.
    pub fn provably_le(&self, other: &Dim, symbols: &Symbols) -> bool {
        other.sub(self).is_some_and(|difference| difference.provably_nonneg(symbols))
    }

    /// Whether both are provably equal: by normal form, or because each is at most the other.
    pub fn provably_equal(&self, other: &Dim, symbols: &Symbols) -> bool {
        self == other || (self.provably_le(other, symbols) && other.provably_le(self, symbols))
    }

    /// Whether both provably differ: their difference has a known sign, or is never divisible by
    /// the common divisor of its coefficients.
    pub fn provably_different(&self, other: &Dim, symbols: &Symbols) -> bool {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return a != b;
        }
        self.sub(other).is_some_and(|difference| {
            let (terms, constant) = difference.parts();
            let step = content(terms.iter().map(|(_, coefficient)| *coefficient));
            step.is_some_and(|step| step > 1 && constant % step != 0)
                || difference.provably_positive(symbols)
                || difference.provably_negative(symbols)
        })
    }
}

/// An interval; `None` is infinite.
#[derive(Clone, Copy)]
struct Range {
    low: Option<i64>,
    high: Option<i64>,
}

impl Range {
    const ALL: Range = Range { low: None, high: None };

    fn exactly(value: i64) -> Range {
        Range { low: Some(value), high: Some(value) }
    }

    /// Ends beyond `i64` become infinite or, on the other side, are loosened to the nearest `i64`.
    fn of(low: i128, high: i128) -> Range {
        let clamp = |value: i128| {
            let end = if value < 0 { i64::MIN } else { i64::MAX };
            i64::try_from(value).unwrap_or(end)
        };
        Range {
            low: (low >= i128::from(i64::MIN)).then(|| clamp(low)),
            high: (high <= i128::from(i64::MAX)).then(|| clamp(high)),
        }
    }

    fn ends(self) -> (i128, i128) {
        let infinite = i128::from(u64::MAX);
        (self.low.map_or(-infinite, i128::from), self.high.map_or(infinite, i128::from))
    }

    fn plus(self, other: Range) -> Range {
        let ((a, b), (c, d)) = (self.ends(), other.ends());
        let low = self.low.and(other.low).map_or(i128::MIN, |_| a + c);
        let high = self.high.and(other.high).map_or(i128::MAX, |_| b + d);
        Range::of(low, high)
    }

    fn times(self, other: Range) -> Range {
        let ((a, b), (c, d)) = (self.ends(), other.ends());
        let products = [a, b].map(|x| [c, d].map(|y| x.saturating_mul(y)));
        let (low, high) = products
            .as_flattened()
            .iter()
            .fold((i128::MAX, i128::MIN), |(low, high), product| (low.min(*product), high.max(*product)));
        Range::of(low, high)
    }

    fn power(self, exponent: u32) -> Range {
        let mut power = (0..exponent).fold(Range::exactly(1), |power, _| power.times(self));
        if exponent.is_multiple_of(2) {
            power.low = power.low.max(Some(0));
        }
        power
    }
}

/// A search for bounds that examines at most `fuel` expressions.
struct Prover<'a> {
    symbols: &'a Symbols,
    fuel: u32,
}

impl Prover<'_> {
    fn upper(&mut self, dim: &Dim) -> Option<i64> {
        match dim.as_const() {
            Some(value) => Some(value),
            None => self.lower(&dim.neg()?)?.checked_neg(),
        }
    }

    fn lower(&mut self, dim: &Dim) -> Option<i64> {
        if let Some(value) = dim.as_const() {
            return Some(value);
        }
        self.fuel = self.fuel.checked_sub(1)?;
        let atoms = dim.atoms();
        let ranges: Vec<(&Atom, Range)> = atoms.iter().map(|atom| (*atom, self.range(atom))).collect();
        let mut best = by_ranges(dim, &ranges).max(by_shifted_ranges(dim, &ranges));
        for atom in atoms {
            best = best.max(self.by_relaxing(dim, atom));
        }
        best
    }

    fn range(&mut self, atom: &Atom) -> Range {
        match atom {
            Atom::Symbol(symbol) => Range { low: self.symbols.lower(*symbol), high: None },
            Atom::FloorDiv(x, b) => {
                let Some(least) = self.lower(b).filter(|least| *least >= 0) else {
                    return Range::ALL;
                };
                let (least, most) = (least.max(1), self.upper(b));
                let (low, high) = (self.lower(x), self.upper(x));
                // A larger divisor moves the quotient toward 0 or, from below, toward -1.
                let shrunk = |end, limit| most.map_or(Some(limit), |most| floor(end, most));
                Range {
                    low: low.and_then(|x| if x < 0 { floor(x, least) } else { shrunk(x, 0) }),
                    high: high.and_then(|x| if x < 0 { shrunk(x, -1) } else { floor(x, least) }),
                }
            }
            Atom::Extreme(end, members) => {
                let lows: Vec<Option<i64>> = members.iter().map(|m| self.lower(m)).collect();
                let highs: Vec<Option<i64>> = members.iter().map(|m| self.upper(m)).collect();
                let all = |ends: Vec<Option<i64>>| ends.into_iter().collect::<Option<Vec<i64>>>();
                match end {
                    Extreme::Min => Range {
                        low: all(lows).and_then(|lows| end.of(lows)),
                        high: end.of(highs.into_iter().flatten()),
                    },
                    Extreme::Max => Range {
                        low: end.of(lows.into_iter().flatten()),
                        high: all(highs).and_then(|highs| end.of(highs)),
                    },
                }
            }
        }
    }

    /// With `dim = rest + factor·atom` and `factor` of known sign, bounds `dim` by replacing `atom`.
    fn by_relaxing(&mut self, dim: &Dim, atom: &Atom) -> Option<i64> {
        if matches!(atom, Atom::Symbol(_)) {
            return None;
        }
        let (rest, factor) = split(dim, atom)?;
        let rising = self.lower(&factor) >= Some(0);
        if !rising && self.upper(&factor).is_none_or(|bound| bound > 0) {
            return None;
        }
        match atom {
            Atom::Symbol(_) => None,
            Atom::FloorDiv(x, b) => {
                let least = self.lower(b).filter(|least| *least >= 0)?.max(1);
                // b·atom is at most x and at least x - b + 1.
                let x = if rising { x.sub(b)?.add(&Dim::ONE)? } else { x.clone() };
                // b·dim ≥ scaled
                let scaled = self.lower(&rest.mul(b)?.add(&factor.mul(&x)?)?)?;
                match b.as_const() {
                    Some(k) => floor(scaled.checked_add(k.checked_sub(1)?)?, k),
                    None if scaled > 0 => Some(1),
                    None => floor(scaled.checked_add(least.checked_sub(1)?)?, least),
                }
            }
            Atom::Extreme(end, members) => {
                let mut bounds = Vec::new();
                for member in members {
                    let replaced = factor.mul(member).and_then(|product| rest.add(&product));
                    bounds.push(replaced.and_then(|dim| self.lower(&dim)));
                }
                // The atom equals one member and lies beyond every member on its own side.
                if rising == (*end == Extreme::Max) {
                    bounds.into_iter().max().flatten()
                } else {
                    bounds.into_iter().min().flatten()
                }
            }
        }
    }
}

/// `(rest, factor)` with `dim = rest + factor·atom`, if `atom` occurs to no higher power than 1.
pub(super) fn split(dim: &Dim, atom: &Atom) -> Option<(Dim, Dim)> {
    let (mut rest, mut factor) = (Terms::new(), Terms::new());
    for (mono, coefficient) in dim.terms() {
        let mut mono = mono.clone();
        match mono.exponent(atom) {
            0 => accumulate(&mut rest, mono, coefficient)?,
            1 => {
                mono.0.retain(|(a, _)| a != atom);
                accumulate(&mut factor, mono, coefficient)?;
            }
            _ => return None,
        }
    }
    Some((Dim::from_terms(rest)?, Dim::from_terms(factor)?))
}

/// Bounds each term by the ranges of its atoms.
fn by_ranges(dim: &Dim, ranges: &[(&Atom, Range)]) -> Option<i64> {
    let mut total = Range::exactly(0);
    for (mono, coefficient) in dim.terms() {
        let mut product = Range::exactly(coefficient);
        for (atom, exponent) in &mono.0 {
            let range = ranges.iter().find(|(a, _)| *a == atom).map_or(Range::ALL, |(_, r)| *r);
            product = product.times(range.power(*exponent));
        }
        total = total.plus(product);
    }
    total.low
}

/// As [`by_ranges`], after moving every known lower bound to 0.
fn by_shifted_ranges(dim: &Dim, ranges: &[(&Atom, Range)]) -> Option<i64> {
    let offset = |atom: &Atom| {
        let range = ranges.iter().find(|(a, _)| *a == atom).map(|(_, range)| range);
        range.and_then(|range| range.low).unwrap_or(0)
    };
    if ranges.iter().all(|(atom, _)| offset(atom) == 0) {
        return None;
    }
    let mut total = Dim::ZERO;
    for (mono, coefficient) in dim.terms() {
        let mut product = Dim::from(coefficient);
        for (atom, exponent) in &mono.0 {
            let shifted = Dim::from_atom(atom.clone())?.add(&Dim::from(offset(atom)))?;
            product = product.mul(&shifted.pow(*exponent)?)?;
        }
        total = total.add(&product)?;
    }
    let moved: Vec<(&Atom, Range)> = ranges
        .iter()
        .map(|(atom, range)| {
            let by = -i128::from(offset(atom));
            (*atom, range.plus(Range::of(by, by)))
        })
        .collect();
    by_ranges(&total, &moved)
}
