//! Division: exact, floor, ceiling, truncating, and modulo.

use super::{Atom, Dim, MAX_TERMS, Mono, Symbols, Terms, UNIT, accumulate, content};

/// Most steps of one polynomial division or simplification.
const MAX_STEPS: usize = 128;

/// `a / b` rounded toward negative infinity; `None` for division by zero and overflow.
pub(super) fn floor(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let inexact = a.checked_rem(b)? != 0;
    if inexact && (a < 0) != (b < 0) { quotient.checked_sub(1) } else { Some(quotient) }
}

impl Dim {
    /// The `q` with `q · divisor = self` as an identity of polynomials, if there is one.
    ///
    /// Wherever `divisor` is not 0, `q` is the one and only quotient. Where it is 0, so is `self` and
    /// any quotient would do: a caller to whom that case matters must rule it out with
    /// [`Dim::provably_positive`].
    pub fn divide_exact(&self, divisor: &Dim) -> Option<Dim> {
        let (quotient, remainder) = self.divide_polynomial(divisor)?;
        (remainder == Dim::ZERO).then_some(quotient)
    }

    /// Division rounded toward negative infinity.
    ///
    /// A factor is cancelled only when it is known not to be 0: `(n·b) // b` is `n` for `b ≥ 1` but
    /// stays as it is for `b ≥ 0`.
    pub fn floor_div(&self, divisor: &Dim, symbols: &Symbols) -> Option<Dim> {
        if let (Some(a), Some(b)) = (self.as_const(), divisor.as_const()) {
            return floor(a, b).map(Dim::from);
        }
        if *divisor == Dim::ZERO {
            return None;
        }
        if divisor.provably_positive(symbols) {
            let plain = || Dim::from_atom(Atom::FloorDiv(self.clone(), divisor.clone()));
            return Quotient::of(self, divisor).simplify(symbols).or_else(plain);
        }
        if divisor.provably_negative(symbols) {
            return self.neg()?.floor_div(&divisor.neg()?, symbols);
        }
        if divisor.provably_different(&Dim::ZERO, symbols)
            && let Some(quotient) = self.divide_exact(divisor)
        {
            return Some(quotient);
        }
        let (x, b) = match divisor.terms().next() {
            Some((_, lead)) if lead < 0 => (self.neg()?, divisor.neg()?),
            _ => (self.clone(), divisor.clone()),
        };
        Dim::from_atom(Atom::FloorDiv(x, b))
    }

    /// Division rounded toward positive infinity, as `-((-self) // divisor)`.
    pub fn ceil_div(&self, divisor: &Dim, symbols: &Symbols) -> Option<Dim> {
        if let (Some(a), Some(b)) = (self.as_const(), divisor.as_const()) {
            let up = i64::from(a.checked_rem(b)? != 0);
            return floor(a, b)?.checked_add(up).map(Dim::from);
        }
        self.neg()?.floor_div(divisor, symbols)?.neg()
    }

    /// The remainder of [`Dim::floor_div`], which has the sign of the divisor, as
    /// `self - divisor·(self // divisor)`. This is ONNX `Mod` with `fmod = 0`.
    pub fn modulo(&self, divisor: &Dim, symbols: &Symbols) -> Option<Dim> {
        if let (Some(_), Some(-1)) = (self.as_const(), divisor.as_const()) {
            return Some(Dim::ZERO);
        }
        self.sub(&divisor.mul(&self.floor_div(divisor, symbols)?)?)
    }

    /// Division rounded toward zero, as ONNX `Div` does on integers. `None` also when the sign of
    /// the quotient is not known and the division is not exact.
    pub fn trunc_div(&self, divisor: &Dim, symbols: &Symbols) -> Option<Dim> {
        if let (Some(a), Some(b)) = (self.as_const(), divisor.as_const()) {
            return a.checked_div(b).map(Dim::from);
        }
        let [x, b] = [self, divisor].map(|dim| {
            let nonpositive = || dim.provably_le(&Dim::ZERO, symbols);
            if dim.provably_nonneg(symbols) { Some(true) } else { nonpositive().then_some(false) }
        });
        match (x, b) {
            (Some(x), Some(b)) if x == b => self.floor_div(divisor, symbols),
            (Some(_), Some(_)) => self.ceil_div(divisor, symbols),
            _ if divisor.provably_different(&Dim::ZERO, symbols) => self.divide_exact(divisor),
            _ => None,
        }
    }

    /// `(q, r)` with `self = q · divisor + r`, where no term of `r` holds a whole multiple of the
    /// leading term of `divisor`. Coefficients are divided toward zero.
    fn divide_polynomial(&self, divisor: &Dim) -> Option<(Dim, Dim)> {
        let (lead, lead_coefficient) = divisor.terms().next()?;
        let (mut quotient, mut remainder, mut rest) = (Terms::new(), Terms::new(), self.to_terms());
        let mut steps = 0;
        while let Some((mono, coefficient)) = rest.pop_last() {
            steps += 1;
            if steps > MAX_STEPS || rest.len() > 2 * MAX_TERMS {
                return None;
            }
            let times = coefficient.checked_div(lead_coefficient)?;
            match mono.div(lead) {
                Some(factor) if times != 0 => {
                    for (m, c) in divisor.terms().skip(1) {
                        let change = times.checked_mul(c)?.checked_neg()?;
                        accumulate(&mut rest, factor.mul(m)?, change)?;
                    }
                    accumulate(&mut quotient, factor, times)?;
                    accumulate(&mut remainder, mono, coefficient % lead_coefficient)?;
                }
                _ => accumulate(&mut remainder, mono, coefficient)?,
            }
        }
        Some((Dim::from_terms(quotient)?, Dim::from_terms(remainder)?))
    }
}

/// `whole + sign · (x // b)` with `b ≥ 1`, under simplification.
struct Quotient {
    whole: Dim,
    sign: i64,
    x: Dim,
    b: Dim,
}

impl Quotient {
    fn of(x: &Dim, b: &Dim) -> Quotient {
        Quotient { whole: Dim::ZERO, sign: 1, x: x.clone(), b: b.clone() }
    }

    /// Applies the steps until none changes anything. Each keeps the value.
    fn simplify(mut self, symbols: &Symbols) -> Option<Dim> {
        for _ in 0..MAX_STEPS {
            if let Some(value) = self.settled(symbols) {
                return self.finish(&value);
            }
            let changed = self.extract()?
                || self.cancel_content()?
                || self.cancel_factors(symbols)?
                || self.flip()?
                || self.merge_nested(symbols);
            if !changed {
                break;
            }
        }
        self.finish(&Dim::from_atom(Atom::FloorDiv(self.x.clone(), self.b.clone()))?)
    }

    fn finish(&self, value: &Dim) -> Option<Dim> {
        self.whole.add(&value.mul(&Dim::from(self.sign))?)
    }

    /// The quotient, if it needs no division atom.
    fn settled(&self, symbols: &Symbols) -> Option<Dim> {
        if self.b == Dim::ONE {
            return Some(self.x.clone());
        }
        let (low, high) = (self.x.lower_bound(symbols), self.x.upper_bound(symbols));
        if let (Some(k), Some(low), Some(high)) = (self.b.as_const(), low, high) {
            let value = floor(low, k)?;
            return (value == floor(high, k)?).then(|| Dim::from(value));
        }
        let below = |x: &Dim| x.add(&Dim::ONE).is_some_and(|x| x.provably_le(&self.b, symbols));
        if low >= Some(0) && below(&self.x) {
            return Some(Dim::ZERO);
        }
        let above = || self.x.neg().is_some_and(|x| x.provably_le(&self.b, symbols));
        (high.is_some_and(|high| high < 0) && above()).then(|| Dim::from(-1))
    }

    /// `(q·b + r) // b = q + r // b`.
    fn extract(&mut self) -> Option<bool> {
        let (mut quotient, mut rest) = self.x.divide_polynomial(&self.b)?;
        if let Some(k) = self.b.as_const() {
            let (_, constant) = rest.parts();
            let times = Dim::from(floor(constant, k)?);
            rest = rest.sub(&times.mul(&self.b)?)?;
            quotient = quotient.add(&times)?;
        }
        self.whole = self.finish(&quotient)?;
        self.x = rest;
        Some(quotient != Dim::ZERO)
    }

    /// `(g·x + c) // (g·b) = (x + c // g) // b` for the largest common `g`.
    fn cancel_content(&mut self) -> Option<bool> {
        let (terms, constant) = self.x.parts();
        let coefficients = terms.iter().map(|(_, c)| *c).chain(self.b.terms().map(|(_, c)| c));
        let g = content(coefficients)?;
        if g <= 1 {
            return Some(false);
        }
        let offset = Dim::from(constant.checked_sub(floor(constant, g)?.checked_mul(g)?)?);
        self.x = self.x.sub(&offset)?.divide_exact(&Dim::from(g))?;
        self.b = self.b.divide_exact(&Dim::from(g))?;
        Some(true)
    }

    /// `(f·x) // (f·b) = x // b` for atoms `f ≥ 1`.
    fn cancel_factors(&mut self, symbols: &Symbols) -> Option<bool> {
        let mut common = UNIT.clone();
        for atom in self.b.atoms() {
            let powers = self.x.terms().chain(self.b.terms()).map(|(mono, _)| mono.exponent(atom));
            let power = powers.min().unwrap_or(0);
            if power > 0 && Dim::from_atom(atom.clone())?.provably_positive(symbols) {
                common = common.mul(&Mono(vec![(atom.clone(), power)]))?;
            }
        }
        if common == UNIT {
            return Some(false);
        }
        let common = Dim::from_terms(Terms::from([(common, 1)]))?;
        self.x = self.x.divide_exact(&common)?;
        self.b = self.b.divide_exact(&common)?;
        Some(true)
    }

    /// `x // b = -1 - (-1 - x) // b`, so that the leading coefficient is positive.
    fn flip(&mut self) -> Option<bool> {
        if self.x.terms().next().is_none_or(|(_, lead)| lead > 0) {
            return Some(false);
        }
        self.whole = self.whole.sub(&Dim::from(self.sign))?;
        self.sign = -self.sign;
        self.x = Dim::from(-1).sub(&self.x)?;
        Some(true)
    }

    /// `(y // a + z) // b = (y + a·z) // (a·b)` and
    /// `(z - y // a) // b = (a·z - y + a - 1) // (a·b)` for `a ≥ 1`, if there is just one `y // a`.
    fn merge_nested(&mut self, symbols: &Symbols) -> bool {
        let merged = || {
            let atoms = self.x.atoms();
            let mut divisions = atoms.iter().filter(|atom| matches!(atom, Atom::FloorDiv(..)));
            let (Some(Atom::FloorDiv(y, a)), None) = (divisions.next(), divisions.next()) else {
                return None;
            };
            let division = Dim::from_atom(Atom::FloorDiv(y.clone(), a.clone()))?;
            let (only, _) = division.terms().next()?;
            let mut holders = self.x.terms().filter(|(mono, _)| mono.div(only).is_some());
            let (Some((mono, sign @ (1 | -1))), None) = (holders.next(), holders.next()) else {
                return None;
            };
            if mono != only {
                return None;
            }
            let others = self.x.sub(&division.mul(&Dim::from(sign))?)?;
            let round = if sign < 0 { a.sub(&Dim::ONE)? } else { Dim::ZERO };
            let x = others.mul(a)?.add(&y.mul(&Dim::from(sign))?)?.add(&round)?;
            // With b ≥ 1, a·b ≥ 1 says that a ≥ 1.
            let b = self.b.mul(a)?;
            b.provably_positive(symbols).then_some((x, b))
        };
        match merged() {
            Some((x, b)) => {
                (self.x, self.b) = (x, b);
                true
            }
            None => false,
        }
    }
}
