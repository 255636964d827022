//! Notes: what follows `#@`, both ways. A note is a list of `key: value`; each key is a field of the message
//! beside it.

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};
use std::io;

use super::cursor::Cursor;
use super::lex::{ParseError, Token};
use super::literal::InLine;
use super::options::PrintOptions;
use onnxforge_proto::Str;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::StringStringEntryProto;
use onnxforge_proto::wire::{self, Message, Reader};

/// The value of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// A bare word, such as `unset`.
    Word(&'a str),
    Int(i64),
    Text(Cow<'a, str>),
    Bytes(Vec<u8>),
    /// An encoded message.
    Hex(Vec<u8>),
    /// Values, or pairs of a key and a value.
    List(Vec<(Value<'a>, Option<Value<'a>>)>),
}

/// What applying an entry comes to; an error is a sentence without its place.
pub(super) type Applied = Result<(), String>;

impl Value<'_> {
    /// Whether it is written as `text`.
    pub(super) fn is(&self, text: &str) -> bool {
        match self {
            Self::Word(word) => *word == text,
            Self::Int(value) => value.to_string() == text,
            Self::Text(value) => InLine(value).to_string() == text,
            _ => false,
        }
    }

    /// A string, or `unset`.
    pub(super) fn text(self) -> Result<Option<Str>, String> {
        match self {
            Self::Word("unset") => Ok(None),
            Self::Text(text) => Ok(Some(text.into())),
            Self::Bytes(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Some(text.into())),
                Err(_) => Err("this string must be valid UTF-8".into()),
            },
            _ => Err("this must be a string or `unset`".into()),
        }
    }

    /// An integer, or `unset`.
    pub(super) fn int32(self) -> Result<Option<i32>, String> {
        match self {
            Self::Word("unset") => Ok(None),
            Self::Int(value) => {
                i32::try_from(value).map(Some).map_err(|_| format!("{value} does not fit 32 bits"))
            }
            _ => Err("this must be an integer or `unset`".into()),
        }
    }

    /// Nothing but `unset`.
    pub(super) fn unset(self) -> Applied {
        if self == Self::Word("unset") { Ok(()) } else { Err("this can only be `unset`".into()) }
    }

    /// A list of pairs.
    pub(super) fn pairs(self) -> Result<Vec<(Self, Self)>, String> {
        let pairs = match self {
            Self::List(list) => list.into_iter().map(|(key, value)| Some((key, value?))).collect(),
            _ => None,
        };
        pairs.ok_or_else(|| "this must be a list of `key: value`".into())
    }

    /// A list of pairs of strings.
    pub(super) fn entries(self) -> Result<Vec<StringStringEntryProto>, String> {
        let entry = |(key, value): (Self, Self)| {
            Ok(StringStringEntryProto { key: key.text()?, value: value.text()?, ..Default::default() })
        };
        self.pairs()?.into_iter().map(entry).collect()
    }

    /// The further fields of a message, encoded.
    pub(super) fn merge<M: Message>(self, into: &mut M) -> Applied {
        match self {
            Self::Hex(bytes) => merge(bytes, into),
            _ => Err("this must be an encoded message, x\"…\"".into()),
        }
    }
}

/// Merges encoded fields into a message.
fn merge<M: Message>(bytes: Vec<u8>, into: &mut M) -> Applied {
    Reader::new(&Blob::from(bytes))
        .message(into)
        .map_err(|error| format!("the encoded message is damaged: {error}"))
}

/// The answer to a key that the message does not have.
pub(super) fn unknown_key(key: &str, of: &str) -> Applied {
    Err(format!("the note of {of} has no key `{key}`"))
}

/// Reads an encoded message into `into`, if one comes next.
pub(super) fn encoded<M: Message>(cursor: &mut Cursor<'_>, into: &mut M) -> Result<bool, ParseError> {
    let offset = cursor.offset();
    let bytes = cursor.take_if(|token| match token {
        Token::Hex(bytes) => Some(bytes.clone()),
        _ => None,
    })?;
    match bytes {
        Some(bytes) => merge(bytes, into).map(|()| true).map_err(|message| cursor.error_at(offset, message)),
        None => Ok(false),
    }
}

/// Reads the notes that come next, and hands every entry to `apply`.
pub(super) fn read<'a>(
    cursor: &mut Cursor<'a>,
    mut apply: impl FnMut(&str, Value<'a>) -> Applied,
) -> Result<(), ParseError> {
    while cursor.eat_token(&Token::NoteStart)? {
        while *cursor.peek() != Token::NoteEnd {
            let offset = cursor.offset();
            let mut key = cursor.ident("a key")?.to_owned();
            while cursor.eat('.')? {
                key.push('.');
                key.push_str(cursor.ident("a key")?);
            }
            cursor.expect(':')?;
            let value = value(cursor)?;
            apply(&key, value).map_err(|message| cursor.error_at(offset, message))?;
            if !cursor.eat(',')? {
                break;
            }
        }
        if !cursor.eat_token(&Token::NoteEnd)? {
            return Err(cursor.expected("`,` or the end of the note"));
        }
    }
    Ok(())
}

fn value<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>, ParseError> {
    if cursor.at('[') {
        return list(cursor);
    }
    cursor.take("a value", |token| match token {
        Token::Ident(word) => Some(Value::Word(word)),
        Token::Text(text) => Some(Value::Text(text.clone())),
        Token::Bytes(bytes) => Some(Value::Bytes(bytes.clone())),
        Token::Hex(bytes) => Some(Value::Hex(bytes.clone())),
        token => token.int().map(Value::Int),
    })
}

fn list<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>, ParseError> {
    cursor.expect('[')?;
    cursor.deeper(1)?;
    let mut list = Vec::new();
    while !cursor.at(']') {
        let first = value(cursor)?;
        let second = if cursor.eat(':')? { Some(value(cursor)?) } else { None };
        list.push((first, second));
        if !cursor.eat(',')? {
            break;
        }
    }
    cursor.shallower(1);
    cursor.expect(']')?;
    Ok(Value::List(list))
}

/// A note in the making. One that is switched off stays empty.
#[derive(Debug)]
pub(super) struct Note<'a> {
    options: &'a PrintOptions,
    text: String,
}

impl<'a> Note<'a> {
    pub(super) fn new(options: &'a PrintOptions) -> Self {
        Self { options, text: String::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The entries, without `#@`.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn entry(&mut self, key: &str, value: impl Display) {
        if self.options.notes {
            let separator = if self.text.is_empty() { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(self.text, "{separator}{key}: {value}");
        }
    }

    /// An entry for a string that the notation has no place for.
    pub(super) fn text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.entry(key, InLine(text));
        }
    }

    /// An entry for a field that the notation always sets, if it `is_missing`.
    pub(super) fn missing(&mut self, key: &str, is_missing: bool) {
        if is_missing {
            self.entry(key, "unset");
        }
    }

    /// An entry where a field is not `usual`, which is what it is without an entry.
    pub(super) fn unusual(&mut self, key: &str, text: Option<&str>, usual: Option<&str>) {
        match text {
            _ if text == usual => {}
            Some(text) => self.entry(key, InLine(text)),
            None => self.entry(key, "unset"),
        }
    }

    /// An entry for metadata that [`are_plain`].
    pub(super) fn entries(&mut self, key: &str, entries: &[StringStringEntryProto]) {
        if !entries.is_empty() && are_plain(entries) {
            self.entry(key, Entries(entries, |text, f| InLine(text).fmt(f)));
        }
    }

    /// An entry for the fields that have no notation of their own.
    pub(super) fn rest<M: Message>(&mut self, key: &str, rest: &M) {
        let encoded = Encoded { message: rest, options: self.options };
        if wire::encode(rest).byte_len() > 0 {
            self.entry(key, encoded);
        }
    }
}

/// Whether all entries have a key and a value and nothing else, so that they can be written as pairs.
pub(super) fn are_plain(entries: &[StringStringEntryProto]) -> bool {
    entries.iter().all(|entry| entry.key.is_some() && entry.value.is_some() && entry.unknown.0.is_empty())
}

/// Entries that are not [`are_plain`]; they are left to the encoded rest.
pub(super) fn not_plain(entries: &[StringStringEntryProto]) -> Vec<StringStringEntryProto> {
    if are_plain(entries) { Vec::new() } else { entries.to_vec() }
}

/// How a string is written.
type Write = fn(&str, &mut fmt::Formatter<'_>) -> fmt::Result;

/// Pairs of strings.
pub(super) struct Entries<'a>(pub &'a [StringStringEntryProto], pub Write);

impl Display for Entries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(entries, write) = self;
        f.write_char('[')?;
        for (i, entry) in entries.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            write(entry.key.as_deref().unwrap_or_default(), f)?;
            f.write_str(": ")?;
            write(entry.value.as_deref().unwrap_or_default(), f)?;
        }
        f.write_char(']')
    }
}

/// An encoded message, or `x"..."` where that is too long for the options.
pub(super) struct Encoded<'a, M> {
    pub(super) message: &'a M,
    pub(super) options: &'a PrintOptions,
}

impl<M: Message> Display for Encoded<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoder = wire::encode(self.message);
        let limit = self.options.max_elements.map(|elements| (elements as u64).saturating_mul(8));
        if limit.is_some_and(|limit| encoder.byte_len() > limit) {
            return f.write_str("x\"...\"");
        }
        f.write_str("x\"")?;
        // Data that cannot be read makes the text one that is refused.
        let is_complete = encoder.write_to(&mut HexDigits(f)).is_ok();
        f.write_str(if is_complete { "\"" } else { "...\"" })
    }
}

struct HexDigits<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl io::Write for HexDigits<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            write!(self.0, "{byte:02x}").map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
