//! Patterns of nodes in ONNX text.
//!
//! ```text
//! s = Sigmoid(x)
//! y = Mul(x, s)
//! ```
//!
//! The last line is the root. A name that stands twice is the same value. Beyond the ONNX notation there are
//!
//! | | |
//! |---|---|
//! | `$w` | a constant |
//! | `b?` | an input that may be absent; `_` one that nobody asks about |
//! | `2.0` | a constant whose elements all are that number |
//! | `Add\|Sub(a, b)` | one of several operators |
//! | `Gemm<alpha = 1.0, ..>(a, b)` | this value of an attribute, and any values of others |
//!
//! Without `..` attributes that are not written have their defaults. Inputs of commutative operators match in either order.
//! Nothing outside the pattern may read the values between its nodes.

use std::iter::Peekable;
use std::str::CharIndices;
use std::sync::OnceLock;

/// A pattern; it is read when it is first used.
#[derive(Debug)]
pub struct Pattern {
    text: &'static str,
    read: OnceLock<Result<Lines, PatternError>>,
}

/// What is wrong with a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {problem}")]
pub struct PatternError {
    /// Where.
    pub at: usize,
    /// What.
    pub problem: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct Lines {
    pub nodes: Vec<Line>,
    /// Operators of the root.
    roots: Vec<&'static str>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub outputs: Vec<&'static str>,
    pub ops: Vec<&'static str>,
    pub attrs: Vec<(&'static str, Literal)>,
    /// Attributes that are not listed may have any value.
    pub open: bool,
    pub inputs: Vec<Arg>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Literal {
    Int(i64),
    Float(f64),
    Ints(Vec<i64>),
    Text(&'static str),
}

#[derive(Debug)]
pub(super) enum Arg {
    Value { name: &'static str, constant: bool, optional: bool },
    Number(f64),
}

impl Pattern {
    /// The pattern that `text` describes.
    pub const fn new(text: &'static str) -> Self {
        Self { text, read: OnceLock::new() }
    }

    /// Whether the text is a pattern.
    pub fn check(&self) -> Result<(), PatternError> {
        self.read().as_ref().map(drop).map_err(Clone::clone)
    }

    /// Whether a value of the pattern has this name.
    pub fn binds(&self, name: &str) -> bool {
        let input = |arg: &Arg| matches!(arg, Arg::Value { name: of, optional: false, .. } if *of == name);
        self.lines().iter().any(|line| line.outputs.contains(&name) || line.inputs.iter().any(input))
    }

    pub(super) fn lines(&self) -> &[Line] {
        self.read().as_ref().map_or(&[], |lines| &lines.nodes)
    }

    pub(super) fn roots(&self) -> &[&'static str] {
        // A pattern that cannot be read matches nothing, not everything.
        self.read().as_ref().map_or(&[""], |lines| &lines.roots)
    }

    fn read(&self) -> &Result<Lines, PatternError> {
        self.read
            .get_or_init(|| Reader { text: self.text, chars: self.text.char_indices().peekable() }.lines())
    }
}

struct Reader {
    text: &'static str,
    chars: Peekable<CharIndices<'static>>,
}

impl Reader {
    fn lines(mut self) -> Result<Lines, PatternError> {
        let mut lines = Lines::default();
        self.space();
        while self.chars.peek().is_some() {
            lines.nodes.push(self.line()?);
        }
        let root = lines.nodes.last().ok_or(PatternError { at: 0, problem: "no node" })?;
        lines.roots = root.ops.clone();
        Ok(lines)
    }

    fn line(&mut self) -> Result<Line, PatternError> {
        let mut outputs = vec![self.name()?];
        while self.take(',') {
            outputs.push(self.name()?);
        }
        self.expect('=', "= is missing")?;
        let mut ops = vec![self.name()?];
        while self.take('|') {
            ops.push(self.name()?);
        }
        let (mut attrs, mut open) = (Vec::new(), false);
        if self.take('<') {
            loop {
                if self.take('.') {
                    self.expect('.', ".. is missing a dot")?;
                    open = true;
                } else {
                    let name = self.name()?;
                    self.expect('=', "= is missing")?;
                    attrs.push((name, self.literal()?));
                }
                if !self.take(',') {
                    break;
                }
            }
            self.expect('>', "> is missing")?;
        }
        self.expect('(', "( is missing")?;
        let mut inputs = Vec::new();
        while !self.take(')') {
            inputs.push(self.arg()?);
            if !self.take(',') {
                self.expect(')', ") is missing")?;
                break;
            }
        }
        Ok(Line { outputs, ops, attrs, open, inputs })
    }

    fn arg(&mut self) -> Result<Arg, PatternError> {
        if self.chars.peek().is_some_and(|&(_, c)| c == '-' || c.is_ascii_digit()) {
            return match self.literal()? {
                Literal::Int(number) => Ok(Arg::Number(number as f64)),
                Literal::Float(number) => Ok(Arg::Number(number)),
                _ => Err(self.error("a number is missing")),
            };
        }
        let constant = self.take('$');
        let name = self.name()?;
        Ok(Arg::Value { name, constant, optional: self.take('?') })
    }

    fn literal(&mut self) -> Result<Literal, PatternError> {
        if self.take('"') {
            let text = self.run(|c| c != '"');
            self.expect('"', "the text does not end")?;
            return Ok(Literal::Text(text));
        }
        if self.take('[') {
            let mut numbers = Vec::new();
            while !self.take(']') {
                match self.literal()? {
                    Literal::Int(number) => numbers.push(number),
                    _ => return Err(self.error("an integer is missing")),
                }
                self.take(',');
            }
            return Ok(Literal::Ints(numbers));
        }
        let text = self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.'));
        self.space();
        let float = || text.parse().map(Literal::Float);
        text.parse().map(Literal::Int).or_else(|_| float()).map_err(|_| self.error("a number is missing"))
    }

    fn name(&mut self) -> Result<&'static str, PatternError> {
        let name = self.run(|c| c.is_ascii_alphanumeric() || c == '_');
        self.space();
        if name.is_empty() { Err(self.error("a name is missing")) } else { Ok(name) }
    }

    fn run(&mut self, wanted: impl Fn(char) -> bool) -> &'static str {
        let start = self.at();
        while self.chars.next_if(|&(_, c)| wanted(c)).is_some() {}
        self.text.get(start..self.at()).unwrap_or_default()
    }

    fn take(&mut self, wanted: char) -> bool {
        let taken = self.chars.next_if(|&(_, c)| c == wanted).is_some();
        // Inside a text spaces count.
        if taken && wanted != '"' {
            self.space();
        }
        taken
    }

    fn expect(&mut self, wanted: char, problem: &'static str) -> Result<(), PatternError> {
        let taken = self.take(wanted);
        self.space();
        if taken { Ok(()) } else { Err(self.error(problem)) }
    }

    fn space(&mut self) {
        while self.chars.next_if(|&(_, c)| c.is_whitespace()).is_some() {}
    }

    fn at(&mut self) -> usize {
        self.chars.peek().map_or(self.text.len(), |&(at, _)| at)
    }

    fn error(&mut self, problem: &'static str) -> PatternError {
        PatternError { at: self.at(), problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read() {
        let pattern = Pattern::new(
            "c = Conv<auto_pad = \"NOT SET\", pads = [0, -1], ..>(x, $w, b?)
             y, _ = Add|Sub<alpha = 1.5>(c, 2.0)",
        );
        pattern.check().unwrap();
        assert_eq!(pattern.roots(), ["Add", "Sub"]);
        assert!(pattern.binds("w") && pattern.binds("y") && !pattern.binds("b") && !pattern.binds("z"));
        let [conv, add] = pattern.lines() else { panic!() };
        assert!(conv.open && !add.open);
        assert_eq!(conv.attrs[0].1, Literal::Text("NOT SET"));
        assert_eq!(conv.attrs[1].1, Literal::Ints(vec![0, -1]));
        assert!(matches!(add.inputs[1], Arg::Number(2.0)));
    }

    #[test]
    fn what_is_no_pattern_matches_nothing() {
        for text in ["", "y = ", "y = Add(", "y Add(x)", "y = Add<a>(x)", "y = Add(x) z", "y = Add(-)"] {
            let pattern = Pattern::new(text);
            assert!(pattern.check().is_err(), "{text}");
            assert_eq!(pattern.roots(), [""]);
        }
    }
}
