//! Regular expressions in the syntax of RE2.

use regex::bytes::{Regex, RegexBuilder};

use crate::error::{OpError, unsupported};
use crate::eval_call::{Eval, one};
use crate::{Array, Value};
use onnxforge_proto::blob::Blob;

pub(super) fn full_match(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let regex = compile(&cx.call.text("pattern")?)?;
    let matches: Vec<bool> = x.slice::<Blob>()?.iter().map(|text| regex.is_match(text)).collect();
    one(Array::new(x.shape(), matches)?)
}

/// The pattern as one that matches whole texts only.
fn compile(pattern: &str) -> Result<Regex, OpError> {
    let Some(translated) = translate(pattern) else {
        return unsupported(format!("the pattern {pattern:?}"));
    };
    let built = RegexBuilder::new(&format!(r"\A(?:{translated})\z")).size_limit(1 << 24).build();
    // On its own the pattern must be one too: a lone parenthesis could close the group around it.
    match (built, Regex::new(&translated)) {
        (Ok(regex), Ok(_)) => Ok(regex),
        _ => unsupported(format!("the pattern {pattern:?}")),
    }
}

/// A pattern of RE2 in the syntax of the regex crate. The syntaxes differ in that classes like `\d` are of ASCII
/// characters in RE2, and that classes in brackets have no operators there. `None` where a translation is not worth it.
fn translate(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'd' => out.push_str("[0-9]"),
                'D' => out.push_str("[^0-9]"),
                'w' => out.push_str("[0-9A-Za-z_]"),
                'W' => out.push_str("[^0-9A-Za-z_]"),
                's' => out.push_str(r"[\t\n\x0C\r ]"),
                'S' => out.push_str(r"[^\t\n\x0C\r ]"),
                'b' if !in_class => out.push_str(r"(?-u:\b)"),
                'B' if !in_class => out.push_str(r"(?-u:\B)"),
                'Q' | 'E' | 'C' | '0'..='9' => return None,
                other => out.extend(['\\', other]),
            },
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket that comes first stands for itself.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str(r"\]");
                }
            }
            '[' if chars.peek() == Some(&':') => {
                // A class by name: up to its end it is the same.
                out.push('[');
                loop {
                    let c = chars.next()?;
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' => out.push_str(r"\["),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => out.extend(['\\', c]),
            '-' if in_class && chars.peek() == Some(&'-') => return None,
            other => out.push(other),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().is_match(text.as_bytes())
    }

    #[test]
    fn classes_are_ascii_and_brackets_have_no_operators() {
        assert!(matches(r"\d+", "123") && !matches(r"\d+", "١٢٣"));
        assert!(matches(r"[\w.-]+@[\w]+\.com", "a.b-c@d.com"));
        assert!(matches(r"[^\d]é", "xé"));
        assert!(matches(r"[[a]+", "[a[") && !matches(r"[[a]", "]"));
        assert!(matches(r"[]a]+", "]a") && matches(r"[^]a]", "b"));
        assert!(matches("[a&&b]+", "&b"));
        assert!(matches("[[:alpha:]1]+", "ab1"));
        assert!(matches("a|bc", "bc") && !matches("a|bc", "abc"));
        assert!(matches("", "") && !matches("", "x"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for pattern in ["(", ")", ")(", "[", "a)|(b", r"\1", r"\", "a{2000}{2000}"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
