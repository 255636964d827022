//! A place in a token stream, with one token of look-ahead, and the errors that say what was expected there.

use super::lex::{Lexer, ParseError, Token};
use onnxforge_proto::Str;
use onnxforge_proto::wire::MAX_DEPTH;

type Result<T> = std::result::Result<T, ParseError>;

/// Reads tokens one by one.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    offset: usize,
    depth: u32,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(source: &'a str) -> Result<Self> {
        let mut lexer = Lexer::new(source);
        let (token, offset) = lexer.next()?;
        Ok(Self { lexer, token, offset, depth: 0 })
    }

    /// The token that comes next.
    pub(crate) fn peek(&self) -> &Token<'a> {
        &self.token
    }

    /// Where that token starts, in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Consumes the next token.
    pub(crate) fn advance(&mut self) -> Result<Token<'a>> {
        let (token, offset) = self.lexer.next()?;
        self.offset = offset;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// An error at byte `offset`.
    pub(crate) fn error_at(&self, offset: usize, message: impl Into<String>) -> ParseError {
        ParseError::at(self.lexer.source(), offset, message)
    }

    /// An error at the next token.
    pub(crate) fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_at(self.offset, message)
    }

    /// The error that `what` should come next.
    pub(crate) fn expected(&self, what: &str) -> ParseError {
        self.error(format!("expected {what}, found {}", self.token))
    }

    /// Whether `c` comes next.
    pub(crate) fn at(&self, c: char) -> bool {
        self.token == Token::Punct(c)
    }

    /// Consumes `token` if it comes next.
    pub(crate) fn eat_token(&mut self, token: &Token<'_>) -> Result<bool> {
        let found = self.token == *token;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Consumes `c` if it comes next.
    pub(crate) fn eat(&mut self, c: char) -> Result<bool> {
        self.eat_token(&Token::Punct(c))
    }

    /// Consumes `c`, which must come next.
    pub(crate) fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c)? { Ok(()) } else { Err(self.expected(&format!("`{c}`"))) }
    }

    /// Consumes `=>`, without a space in between.
    pub(crate) fn expect_arrow(&mut self) -> Result<()> {
        let start = self.offset;
        if self.eat('=')? && self.at('>') && self.offset == start + 1 {
            return self.expect('>');
        }
        Err(self.error_at(start, "expected `=>`"))
    }

    /// Consumes the next token if `pick` makes something of it.
    pub(crate) fn take_if<T>(&mut self, pick: impl FnOnce(&Token<'a>) -> Option<T>) -> Result<Option<T>> {
        let taken = pick(&self.token);
        if taken.is_some() {
            self.advance()?;
        }
        Ok(taken)
    }

    /// Consumes the next token, of which `pick` must make something.
    pub(crate) fn take<T>(&mut self, what: &str, pick: impl FnOnce(&Token<'a>) -> Option<T>) -> Result<T> {
        self.take_if(pick)?.ok_or_else(|| self.expected(what))
    }

    /// Consumes an identifier.
    pub(crate) fn ident(&mut self, what: &str) -> Result<&'a str> {
        self.take(what, |token| match *token {
            Token::Ident(word) => Some(word),
            _ => None,
        })
    }

    /// Consumes an identifier or a string, if one comes next.
    pub(crate) fn optional_name(&mut self) -> Result<Option<Str>> {
        self.take_if(|token| match token {
            Token::Ident(word) => Some((*word).into()),
            token => token.text(),
        })
    }

    /// Consumes an identifier or a string.
    pub(crate) fn name(&mut self, what: &str) -> Result<Str> {
        self.optional_name()?.ok_or_else(|| self.expected(what))
    }

    /// Consumes a string that is valid UTF-8.
    pub(crate) fn text(&mut self, what: &str) -> Result<Str> {
        self.take(what, Token::text)
    }

    /// Consumes an integer that fits 64 bits.
    pub(crate) fn int(&mut self, what: &str) -> Result<i64> {
        self.take(what, Token::int)
    }

    /// Counts `levels` more of nesting, until [`Cursor::shallower`]. Refuses what no protobuf reader accepts.
    pub(crate) fn deeper(&mut self, levels: u32) -> Result<()> {
        if self.depth + levels > MAX_DEPTH {
            return Err(self.error(format!("nested more than {MAX_DEPTH} messages deep")));
        }
        self.depth += levels;
        Ok(())
    }

    /// Takes back what [`Cursor::deeper`] counted.
    pub(crate) fn shallower(&mut self, levels: u32) {
        self.depth = self.depth.saturating_sub(levels);
    }
}
