//! Lists of texts as Python's `repr` writes them, which is how PyTorch's exporter stores module stacks.

use std::iter::Peekable;
use std::str::CharIndices;

/// Why a text is no list of texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no Python list of texts: {what} at character {at}")]
pub struct ReprError {
    /// What was expected or found.
    what: &'static str,
    /// Where, in bytes.
    at: usize,
}

/// The texts of a list such as `['a', "it's", 'b\n']`.
pub fn texts(source: &str) -> Result<Vec<String>, ReprError> {
    let mut reader = Reader { chars: source.char_indices().peekable(), end: source.len() };
    reader.skip_space();
    reader.expect('[', "'[' expected")?;
    let mut found = Vec::new();
    loop {
        reader.skip_space();
        if reader.take(']') {
            break;
        }
        found.push(reader.text()?);
        reader.skip_space();
        if !reader.take(',') {
            reader.expect(']', "',' or ']' expected")?;
            break;
        }
    }
    reader.skip_space();
    match reader.chars.next() {
        None => Ok(found),
        Some((at, _)) => Err(ReprError { what: "something follows the list", at }),
    }
}

struct Reader<'s> {
    chars: Peekable<CharIndices<'s>>,
    end: usize,
}

impl Reader<'_> {
    fn at(&mut self) -> usize {
        let end = self.end;
        self.chars.peek().map_or(end, |&(at, _)| at)
    }

    fn fail<T>(&mut self, what: &'static str) -> Result<T, ReprError> {
        Err(ReprError { what, at: self.at() })
    }

    fn take(&mut self, wanted: char) -> bool {
        self.chars.next_if(|&(_, found)| found == wanted).is_some()
    }

    fn expect(&mut self, wanted: char, what: &'static str) -> Result<(), ReprError> {
        if self.take(wanted) { Ok(()) } else { self.fail(what) }
    }

    fn skip_space(&mut self) {
        while self.chars.next_if(|(_, found)| found.is_whitespace()).is_some() {}
    }

    /// A text in either kind of quotes.
    fn text(&mut self) -> Result<String, ReprError> {
        let quote = match self.chars.next_if(|&(_, found)| found == '\'' || found == '"') {
            Some((_, quote)) => quote,
            None => return self.fail("a quoted text expected"),
        };
        let mut text = String::new();
        loop {
            match self.chars.next() {
                None => return self.fail("the text does not end"),
                Some((_, found)) if found == quote => return Ok(text),
                Some((_, '\\')) => text.push(self.escaped()?),
                Some((_, found)) => text.push(found),
            }
        }
    }

    /// What follows a backslash.
    fn escaped(&mut self) -> Result<char, ReprError> {
        match self.chars.next() {
            Some((_, 'n')) => Ok('\n'),
            Some((_, 't')) => Ok('\t'),
            Some((_, 'r')) => Ok('\r'),
            Some((_, 'x')) => self.code(2),
            Some((_, 'u')) => self.code(4),
            Some((_, 'U')) => self.code(8),
            Some((_, same @ ('\\' | '\'' | '"'))) => Ok(same),
            _ => self.fail("an unknown escape"),
        }
    }

    /// The character of a code in `digits` hexadecimal digits.
    fn code(&mut self, digits: usize) -> Result<char, ReprError> {
        let mut code = 0u32;
        for _ in 0..digits {
            let digit = self.chars.next().and_then(|(_, digit)| digit.to_digit(16));
            match digit {
                Some(digit) => code = (code << 4) | digit,
                None => return self.fail("a hexadecimal digit expected"),
            }
        }
        // Half of a pair has no character of its own; Python writes it all the same.
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}

#[cfg(test)]
mod tests {
    use super::texts;

    #[test]
    fn both_quotes_and_escapes() {
        assert_eq!(texts("[]").unwrap(), Vec::<String>::new());
        assert_eq!(texts("['']").unwrap(), [""]);
        assert_eq!(
            texts(r#"['', 'd1.x/y', "d2.it's", 'f.<locals>.M']"#).unwrap(),
            ["", "d1.x/y", "d2.it's", "f.<locals>.M"]
        );
        assert_eq!(texts(r#"[ 'a\'"b\\' , "\n\x41\u00e9\U0001f600", ]"#).unwrap(), ["a'\"b\\", "\nAé😀"]);
        assert_eq!(texts(r"['\ud800']").unwrap(), ["\u{fffd}"]);
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "[",
            "['a'",
            "['a",
            "[a]",
            "['a' 'b']",
            "['a'] x",
            "'a'",
            r"['\x4']",
            r"['\q']",
            "[,]",
            r"['\",
            "[['a']]",
            "[1]",
            "(['a'])",
            r"['\U0011000g']",
        ] {
            assert!(texts(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            texts("['a' b]").unwrap_err().to_string(),
            "no Python list of texts: ',' or ']' expected at character 5"
        );
    }
}
