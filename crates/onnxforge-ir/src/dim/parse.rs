//! Expressions from text, as exporters write them into `dim_param`.

use super::{Dim, Extreme, Symbols};

/// Deepest nesting of parentheses, calls and signs that is read.
const MAX_NESTING: u32 = 32;
/// Longest text that is read, in bytes.
const MAX_TEXT: usize = 4096;

impl Dim {
    /// The meaning of an ONNX `dim_param`: an expression if it is one, a fresh symbol if it is
    /// empty, `?` or a negative number, and otherwise the symbol with that name.
    pub fn from_param(text: &str, symbols: &mut Symbols) -> Dim {
        let negative = |dim: &Dim| dim.as_const().is_some_and(|value| value < 0);
        match Dim::parse(text, symbols) {
            Some(dim) if negative(&dim) => Dim::from(symbols.fresh()),
            Some(dim) => dim,
            None if matches!(text.trim(), "" | "?") => Dim::from(symbols.fresh()),
            None => Dim::from(symbols.named(text)),
        }
    }

    /// Reads an expression: integers, names, `+ - * // % **`, parentheses, `min`, `max`, `floor`,
    /// `ceil` and the SymPy spellings of these. `/` is read only where it provably leaves no
    /// remainder and inside `floor` and `ceil`. `?7` and `'any text'` are names too. Names that the
    /// table does not know become symbols that are at least 0.
    ///
    /// `None`, with the table unchanged, for everything else. A hyphen between two word characters,
    /// as in `batch-size`, is taken as part of a name and so not as an expression.
    pub fn parse(text: &str, symbols: &mut Symbols) -> Option<Dim> {
        let known = symbols.len();
        let mut parser = Parser { text, at: 0, nesting: 0, rounding: 0, symbols };
        let dim = parser.whole();
        if dim.is_none() {
            symbols.truncate(known);
        }
        dim
    }
}

/// Whether the byte may stand inside a name that needs no quotes.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A quotient that need not be an integer until [`Ratio::whole`] or a rounding asks for one.
struct Ratio {
    over: Dim,
    under: Dim,
}

impl From<Dim> for Ratio {
    fn from(over: Dim) -> Ratio {
        Ratio { over, under: Dim::ONE }
    }
}

impl Ratio {
    fn whole(self) -> Option<Dim> {
        if self.under == Dim::ONE { Some(self.over) } else { self.over.divide_exact(&self.under) }
    }

    fn add(self, other: Ratio) -> Option<Ratio> {
        if self.under == other.under {
            return Some(Ratio { over: self.over.add(&other.over)?, under: self.under });
        }
        let over = self.over.mul(&other.under)?.add(&other.over.mul(&self.under)?)?;
        Some(Ratio { over, under: self.under.mul(&other.under)? })
    }

    fn mul(self, other: Ratio) -> Option<Ratio> {
        Some(Ratio { over: self.over.mul(&other.over)?, under: self.under.mul(&other.under)? })
    }

    fn inverse(self) -> Option<Ratio> {
        (self.over != Dim::ZERO).then_some(Ratio { over: self.under, under: self.over })
    }

    fn neg(self) -> Option<Ratio> {
        Some(Ratio { over: self.over.neg()?, under: self.under })
    }

    fn floor(self, symbols: &Symbols) -> Option<Dim> {
        self.over.floor_div(&self.under, symbols)
    }

    fn ceil(self, symbols: &Symbols) -> Option<Dim> {
        self.over.ceil_div(&self.under, symbols)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    nesting: u32,
    /// How many `floor` and `ceil` enclose the place.
    rounding: u32,
    symbols: &'a mut Symbols,
}

impl<'a> Parser<'a> {
    fn whole(&mut self) -> Option<Dim> {
        if self.text.len() > MAX_TEXT {
            return None;
        }
        let dim = self.sum()?.whole()?;
        self.rest().is_empty().then_some(dim)
    }

    /// What is left, after white space.
    fn rest(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default().trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// The longest prefix of bytes that satisfy `wanted`.
    fn take(&mut self, wanted: fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.bytes().take_while(|byte| wanted(*byte)).count();
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.nesting >= MAX_NESTING {
            return None;
        }
        self.nesting += 1;
        let result = read(self);
        self.nesting -= 1;
        result
    }

    /// Whether the next byte is a hyphen inside a word.
    fn at_hyphen(&mut self) -> bool {
        let next = self.rest().as_bytes().get(1).copied();
        let previous = self.at.checked_sub(1).and_then(|at| self.text.as_bytes().get(at)).copied();
        previous.is_some_and(is_word) && next.is_some_and(is_word)
    }

    fn sum(&mut self) -> Option<Ratio> {
        let mut sum = self.product()?;
        loop {
            if self.eat("+") {
                sum = sum.add(self.product()?)?;
            } else if self.rest().starts_with('-') && !self.at_hyphen() {
                self.at += 1;
                sum = sum.add(self.product()?.neg()?)?;
            } else {
                return Some(sum);
            }
        }
    }

    fn product(&mut self) -> Option<Ratio> {
        let mut product = self.signed()?;
        loop {
            if self.eat("//") {
                let quotient = product.mul(self.signed()?.inverse()?)?;
                product = quotient.floor(self.symbols)?.into();
            } else if self.eat("/") {
                product = product.mul(self.signed()?.inverse()?)?;
                if self.rounding == 0 {
                    product = product.whole()?.into();
                }
            } else if self.eat("%") {
                let divisor = self.signed()?.whole()?;
                product = product.whole()?.modulo(&divisor, self.symbols)?.into();
            } else if self.eat("*") {
                product = product.mul(self.signed()?)?;
            } else {
                return Some(product);
            }
        }
    }

    fn signed(&mut self) -> Option<Ratio> {
        if self.eat("-") {
            let lowest = i64::MIN.unsigned_abs().to_string();
            if self.eat(&lowest) {
                return Some(Dim::from(i64::MIN).into());
            }
            return self.nested(Self::signed)?.neg();
        }
        let base = self.primary()?;
        if self.eat("**") {
            let exponent = self.take(|byte| byte.is_ascii_digit()).parse().ok()?;
            return Some(base.whole()?.pow(exponent)?.into());
        }
        Some(base)
    }

    fn primary(&mut self) -> Option<Ratio> {
        let first = self.rest().bytes().next()?;
        if first.is_ascii_digit() {
            let value: i64 = self.take(|byte| byte.is_ascii_digit()).parse().ok()?;
            return Some(Dim::from(value).into());
        }
        if first == b'(' {
            self.at += 1;
            let inner = self.nested(Self::sum)?;
            return self.eat(")").then_some(inner);
        }
        if first == b'\'' {
            self.at += 1;
            let name = self.quoted()?;
            return Some(self.symbol(&name));
        }
        if first == b'?' {
            let start = self.at;
            self.at += 1;
            let unspaced = self.text.as_bytes().get(self.at).is_some_and(u8::is_ascii_digit);
            if !unspaced || self.take(|byte| byte.is_ascii_digit()).is_empty() {
                return None;
            }
            let name = self.text.get(start..self.at)?;
            return Some(self.symbol(name));
        }
        let name = self.take(is_word);
        if name.is_empty() {
            return None;
        }
        if !self.eat("(") {
            return Some(self.symbol(name));
        }
        let rounds = u32::from(matches!(name, "floor" | "ceil" | "ceiling"));
        self.rounding += rounds;
        let mut arguments = vec![self.nested(Self::sum)?];
        while self.eat(",") {
            arguments.push(self.nested(Self::sum)?);
        }
        self.rounding -= rounds;
        if !self.eat(")") {
            return None;
        }
        self.call(name, arguments)
    }

    fn symbol(&mut self, name: &str) -> Ratio {
        let known = self.symbols.get(name);
        Dim::from(known.unwrap_or_else(|| self.symbols.named(name))).into()
    }

    fn call(&mut self, name: &str, arguments: Vec<Ratio>) -> Option<Ratio> {
        let symbols = &*self.symbols;
        let mut arguments = arguments.into_iter();
        let first = arguments.next()?;
        let dim = match name {
            "min" | "Min" | "max" | "Max" => {
                let end = if name.eq_ignore_ascii_case("min") { Extreme::Min } else { Extreme::Max };
                let rest = arguments.by_ref().map(Ratio::whole);
                let members: Option<Vec<Dim>> = std::iter::once(first.whole()).chain(rest).collect();
                Dim::extreme(end, &members?, symbols)
            }
            "floor" => first.floor(symbols),
            "ceil" | "ceiling" => first.ceil(symbols),
            "FloorDiv" => first.mul(arguments.next()?.inverse()?)?.floor(symbols),
            "CeilDiv" => first.mul(arguments.next()?.inverse()?)?.ceil(symbols),
            "Mod" | "PythonMod" => first.whole()?.modulo(&arguments.next()?.whole()?, symbols),
            _ => None,
        }?;
        arguments.next().is_none().then(|| dim.into())
    }

    /// A quoted name, the opening quote already read.
    fn quoted(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            let rest = self.text.get(self.at..)?;
            let len = rest.find('\'')?;
            name.push_str(rest.get(..len)?);
            self.at += len + 1;
            if !self.text.get(self.at..)?.starts_with('\'') {
                return Some(name);
            }
            name.push('\'');
            self.at += 1;
        }
    }
}
