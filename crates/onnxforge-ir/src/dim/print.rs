//! Expressions as text: `2*seq + 1`, `(n + 1)//2`, `max(n, 1)`.

use std::fmt::{self, Display, Formatter};

use super::parse::is_word;
use super::{Atom, Dim, Extreme, Mono, Symbol, Symbols};

impl Dim {
    /// The expression as text with the names of the table.
    ///
    /// [`Dim::parse`] with the same table reads it back as the same `Dim` if all symbols are named;
    /// an anonymous `?7` is read as a symbol *named* `?7`. A name that is not an identifier is
    /// written in single quotes, a quote in it doubled.
    pub fn display<'a>(&'a self, symbols: &'a Symbols) -> impl Display + 'a {
        Shown { dim: self, symbols: Some(symbols) }
    }

    /// The text for an ONNX `dim_param`: as [`Dim::display`], but a lone name is written without
    /// quotes wherever [`Dim::from_param`] reads that back as the same name.
    pub fn to_param(&self, symbols: &Symbols) -> String {
        if let Some(symbol) = self.as_symbol() {
            let name = symbols.name(symbol);
            let mut probe = Symbols::default();
            let read = Dim::from_param(&name, &mut probe).as_symbol();
            if read.is_some_and(|read| probe.name(read) == name) {
                return name.into_owned();
            }
        }
        self.display(symbols).to_string()
    }
}

/// Symbols as `?` and their id.
impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Shown { dim: self, symbols: None }.fmt(f)
    }
}

struct Shown<'a> {
    dim: &'a Dim,
    symbols: Option<&'a Symbols>,
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.dim.terms().next().is_none() {
            return f.write_str("0");
        }
        for (place, (mono, coefficient)) in self.dim.terms().enumerate() {
            f.write_str(match (place, coefficient < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            })?;
            self.term(f, mono, coefficient)?;
        }
        Ok(())
    }
}

impl Shown<'_> {
    fn of(&self, dim: &Dim) -> String {
        Shown { dim, symbols: self.symbols }.to_string()
    }

    /// A term without its sign.
    fn term(&self, f: &mut Formatter<'_>, mono: &Mono, coefficient: i64) -> fmt::Result {
        let magnitude = coefficient.unsigned_abs();
        if magnitude != 1 || mono.0.is_empty() {
            write!(f, "{magnitude}")?;
        }
        let alone = coefficient == 1 && mono.degree() == 1;
        for (place, (atom, exponent)) in mono.0.iter().enumerate() {
            if magnitude != 1 || place > 0 {
                f.write_str("*")?;
            }
            self.atom(f, atom, alone)?;
            if *exponent > 1 {
                write!(f, "**{exponent}")?;
            }
        }
        Ok(())
    }

    fn atom(&self, f: &mut Formatter<'_>, atom: &Atom, alone: bool) -> fmt::Result {
        match atom {
            Atom::Symbol(symbol) => self.symbol(f, *symbol),
            Atom::FloorDiv(x, b) => {
                let (x, b) = (self.operand(x), self.operand(b));
                if alone { write!(f, "{x}//{b}") } else { write!(f, "({x}//{b})") }
            }
            Atom::Extreme(end, members) => {
                f.write_str(if *end == Extreme::Min { "min(" } else { "max(" })?;
                for (place, member) in members.iter().rev().enumerate() {
                    let comma = if place > 0 { ", " } else { "" };
                    write!(f, "{comma}{}", self.of(member))?;
                }
                f.write_str(")")
            }
        }
    }

    fn operand(&self, dim: &Dim) -> String {
        let plain = dim.as_symbol().is_some() || dim.as_const().is_some_and(|value| value >= 0);
        if plain { self.of(dim) } else { format!("({})", self.of(dim)) }
    }

    fn symbol(&self, f: &mut Formatter<'_>, symbol: Symbol) -> fmt::Result {
        let Some(symbols) = self.symbols else {
            return write!(f, "?{}", symbol.id());
        };
        let name = symbols.name(symbol);
        let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        let starts = |b: u8| b.is_ascii_alphabetic() || b == b'_';
        let identifier = name.bytes().next().is_some_and(starts) && name.bytes().all(is_word);
        if identifier || name.strip_prefix('?').is_some_and(digits) {
            f.write_str(&name)
        } else {
            write!(f, "'{}'", name.replace('\'', "''"))
        }
    }
}
