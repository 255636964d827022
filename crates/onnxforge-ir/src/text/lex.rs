//! Tokens of the ONNX notation. Nothing in here knows the grammar, so other small languages can be built on
//! it.
//!
//! White space separates tokens and `#` starts a comment that ends with its line. The exception is `#@`,
//! which opens a note: the rest of that line is lexed, between [`Token::NoteStart`] and [`Token::NoteEnd`].

use std::borrow::Cow;
use std::fmt;

use onnxforge_proto::Str;

/// Why a text is not what it should be, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// What was expected and what was found.
    pub message: String,
}

impl ParseError {
    /// An error at byte `offset` of `source`.
    pub(crate) fn at(source: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = source.get(..offset).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.bytes().filter(|&byte| byte == b'\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            message: message.into(),
        }
    }
}

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// A letter or `_`, then letters, digits and `_`.
    Ident(&'a str),
    /// Digits, perhaps behind a minus.
    Int(&'a str),
    /// A number with a point or an exponent, `-inf` or `-nan`. Without a sign the latter two are identifiers.
    Float(&'a str),
    /// `0x…`: a bit pattern.
    Bits(u64),
    /// `"…"`, where a backslash stands for the character behind it.
    Text(Cow<'a, str>),
    /// `b"…"`, with the escapes of Rust.
    Bytes(Vec<u8>),
    /// `x"…"`: two hexadecimal digits per byte.
    Hex(Vec<u8>),
    /// `..`
    DotDot,
    /// `...`
    Ellipsis,
    /// Any other ASCII punctuation.
    Punct(char),
    /// `#@`
    NoteStart,
    /// The end of the line of a note.
    NoteEnd,
    /// The end of the text.
    End,
}

impl Token<'_> {
    /// The text of a string, if it is valid UTF-8.
    pub(crate) fn text(&self) -> Option<Str> {
        std::str::from_utf8(self.bytes()?).ok().map(Str::from)
    }

    /// The bytes of a string.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text.as_bytes()),
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// An integer, if it fits 64 bits.
    pub(crate) fn int(&self) -> Option<i64> {
        match *self {
            Self::Int(digits) => digits.parse().ok(),
            Self::Bits(bits) => bits.try_into().ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ident(word) => write!(f, "`{}`", start_of(word)),
            Self::Int(digits) | Self::Float(digits) => write!(f, "the number {}", start_of(digits)),
            Self::Bits(bits) => write!(f, "the bits {bits:#x}"),
            Self::Text(text) => write!(f, "the string {:?}", start_of(text)),
            Self::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => write!(f, "the string {:?}", start_of(text)),
                Err(_) => f.write_str("a string that is not UTF-8"),
            },
            Self::Hex(bytes) => write!(f, "{} encoded bytes", bytes.len()),
            Self::DotDot => f.write_str("`..`"),
            Self::Ellipsis => f.write_str("`...`"),
            Self::Punct(c) => write!(f, "`{c}`"),
            Self::NoteStart => f.write_str("a note (`#@`)"),
            Self::NoteEnd => f.write_str("the end of the note"),
            Self::End => f.write_str("the end of the text"),
        }
    }
}

/// As much of `text` as an error message can hold.
fn start_of(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

/// Whether `text` is a token of the kind [`Token::Ident`].
pub(crate) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether `word` names a float that has no digits: an infinity or NaN.
pub(crate) fn is_special_float(word: &str) -> bool {
    ["inf", "infinity", "nan"].iter().any(|special| word.eq_ignore_ascii_case(special))
}

/// Splits a text into tokens, on demand and in one pass.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    source: &'a str,
    position: usize,
    in_note: bool,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(source: &'a str) -> Self {
        Self { source, position: 0, in_note: false }
    }

    pub(crate) fn source(&self) -> &'a str {
        self.source
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.position..).unwrap_or_default()
    }

    fn error<T>(&self, offset: usize, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError::at(self.source, offset, message))
    }

    /// Moves past `length` bytes and returns them.
    fn take(&mut self, length: usize) -> &'a str {
        let taken = self.rest().get(..length).unwrap_or_default();
        self.position += taken.len();
        taken
    }

    /// Moves past white space and comments; stops at the newline that ends a note.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blank =
                |b: u8| matches!(b, b' ' | b'\t' | b'\r' | 0x0b | 0x0c) || (b == b'\n' && !self.in_note);
            let spaces = rest.bytes().take_while(|&b| blank(b)).count();
            let rest = rest.get(spaces..).unwrap_or_default();
            let comment = rest.starts_with('#') && (self.in_note || !rest.starts_with("#@"));
            self.position += spaces + if comment { rest.find('\n').unwrap_or(rest.len()) } else { 0 };
            if !comment {
                return;
            }
        }
    }

    /// The next token and the offset of its first byte.
    pub(crate) fn next(&mut self) -> Result<(Token<'a>, usize), ParseError> {
        self.skip();
        let start = self.position;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok((if std::mem::take(&mut self.in_note) { Token::NoteEnd } else { Token::End }, start));
        };
        let token = match first {
            '\n' => {
                self.take(1);
                self.in_note = false;
                Token::NoteEnd
            }
            '#' => {
                self.take(2);
                self.in_note = true;
                Token::NoteStart
            }
            '"' => Token::Text(self.text()?),
            '0'..='9' => self.number(0)?,
            '-' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => self.number(1)?,
            '-' => {
                let word =
                    rest.get(1..).unwrap_or_default().bytes().take_while(u8::is_ascii_alphabetic).count();
                if is_special_float(rest.get(1..=word).unwrap_or_default()) {
                    Token::Float(self.take(1 + word))
                } else {
                    self.punct(first)
                }
            }
            'a'..='z' | 'A'..='Z' | '_' => self.word()?,
            '.' if rest.starts_with("...") => {
                self.take(3);
                Token::Ellipsis
            }
            '.' if rest.starts_with("..") => {
                self.take(2);
                Token::DotDot
            }
            c if c.is_ascii_punctuation() => self.punct(c),
            c => return self.error(start, format!("unexpected character {c:?}")),
        };
        Ok((token, start))
    }

    fn punct(&mut self, c: char) -> Token<'a> {
        self.take(1);
        Token::Punct(c)
    }

    fn word(&mut self) -> Result<Token<'a>, ParseError> {
        let length = self.rest().bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let word = self.take(length);
        match word {
            "b" if self.rest().starts_with('"') => self.bytes(),
            "x" if self.rest().starts_with('"') => self.hex(),
            _ => Ok(Token::Ident(word)),
        }
    }

    /// A number whose sign takes `sign` bytes.
    fn number(&mut self, sign: usize) -> Result<Token<'a>, ParseError> {
        let start = self.position;
        let rest = self.rest();
        if let Some(digits) = rest.strip_prefix("0x") {
            let length = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
            self.take(2 + length);
            return match u64::from_str_radix(digits.get(..length).unwrap_or_default(), 16) {
                Ok(bits) => Ok(Token::Bits(bits)),
                Err(_) => self.error(start, "a bit pattern is 1 to 16 hexadecimal digits behind 0x"),
            };
        }
        let bytes = rest.as_bytes();
        let digits = |from: usize| bytes.iter().skip(from).take_while(|b| b.is_ascii_digit()).count();
        let mut length = sign + digits(sign);
        let mut float = false;
        if bytes.get(length) == Some(&b'.') && bytes.get(length + 1) != Some(&b'.') {
            float = true;
            length += 1 + digits(length + 1);
        }
        if matches!(bytes.get(length), Some(b'e' | b'E')) {
            float = true;
            length += 1 + usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
            let exponent = digits(length);
            if exponent == 0 {
                return self.error(start, "a number ends with an exponent that has no digits");
            }
            length += exponent;
        }
        let text = self.take(length);
        Ok(if float { Token::Float(text) } else { Token::Int(text) })
    }

    /// The part between the quotes of a string that starts here, and past it. Backslashes are still in it.
    fn quoted(&mut self) -> Result<&'a str, ParseError> {
        let start = self.position;
        let body = self.rest().get(1..).unwrap_or_default();
        let mut bytes = body.bytes().enumerate();
        while let Some((i, byte)) = bytes.next() {
            match byte {
                b'"' => {
                    self.position += i + 2;
                    return Ok(body.get(..i).unwrap_or_default());
                }
                b'\\' if !self.in_note => drop(bytes.next()),
                b'\\' if bytes.next().is_none_or(|(_, byte)| byte != b'\n') => {}
                b'\\' | b'\n' if self.in_note => {
                    return self.error(start, "a string in a note ends in the line where it starts");
                }
                _ => {}
            }
        }
        self.error(start, "a string is not closed")
    }

    fn text(&mut self) -> Result<Cow<'a, str>, ParseError> {
        let body = self.quoted()?;
        if !body.contains('\\') {
            return Ok(Cow::Borrowed(body));
        }
        let mut text = String::with_capacity(body.len());
        let mut chars = body.chars();
        while let Some(c) = chars.next() {
            text.extend(if c == '\\' { chars.next() } else { Some(c) });
        }
        Ok(Cow::Owned(text))
    }

    fn bytes(&mut self) -> Result<Token<'a>, ParseError> {
        let start = self.position;
        let body = self.quoted()?;
        let mut bytes = Vec::with_capacity(body.len());
        let mut rest = body.bytes();
        while let Some(byte) = rest.next() {
            let value = match byte {
                b'\\' => match rest.next() {
                    Some(b'n') => Some(b'\n'),
                    Some(b'r') => Some(b'\r'),
                    Some(b't') => Some(b'\t'),
                    Some(b'0') => Some(0),
                    Some(c @ (b'\\' | b'"' | b'\'')) => Some(c),
                    Some(b'x') => hex_byte(rest.next(), rest.next()),
                    _ => None,
                },
                other => Some(other),
            };
            match value {
                Some(value) => bytes.push(value),
                None => return self.error(start, "a byte string has an escape that does not exist"),
            }
        }
        Ok(Token::Bytes(bytes))
    }

    fn hex(&mut self) -> Result<Token<'a>, ParseError> {
        let start = self.position;
        let body = self.quoted()?;
        if body.ends_with("...") {
            return self.error(start, ELIDED);
        }
        let pairs = body.as_bytes().chunks(2);
        match pairs.map(|pair| hex_byte(pair.first().copied(), pair.get(1).copied())).collect() {
            Some(bytes) => Ok(Token::Hex(bytes)),
            None => self.error(start, "encoded bytes are written as two hexadecimal digits each"),
        }
    }
}

/// What is said about `...` where data should be.
pub(crate) const ELIDED: &str = "the data was left out when this was printed (`...`); print it in full";

fn hex_byte(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests;
