//! The reader of `signatures.txt`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use super::{AttrKind, AttributeDef, DefaultValue, ELEMENTS, FRAMES, Param, Presence, Signature, TypeSet};

/// The domain as the table keys it: ai.onnx is empty.
pub(super) fn canonical(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// The parsed `signatures.txt`. Lines that do not follow its grammar are left out.
#[derive(Default)]
pub(super) struct Table {
    /// Sorted by domain, name and version.
    pub signatures: Vec<Signature>,
    /// Where in `signatures` the versions of an operator are, by domain and name.
    pub versions: HashMap<(&'static str, &'static str), Range<usize>>,
    /// Each domain with its newest opset.
    pub domains: Vec<(&'static str, i64)>,
    /// The onnx releases, oldest first.
    pub releases: Vec<Release>,
    /// Named sets of element types, as the bits of a `TypeSet`.
    families: Vec<(&'static str, u32)>,
    malformed: Vec<&'static str>,
}

/// What an onnx release carried.
pub(super) struct Release {
    /// Its IR version.
    pub ir: i64,
    /// Each domain with its opset.
    pub opsets: Vec<(&'static str, i64)>,
}

/// The table, read at the first call.
pub(super) fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::parse(include_str!("../signatures.txt")))
}

impl Table {
    fn parse(text: &'static str) -> Self {
        let mut table = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if table.line(line).is_none() {
                table.malformed.push(line);
            }
        }
        table.signatures.sort_by_key(|s| (s.key(), s.since));
        for (index, signature) in table.signatures.iter().enumerate() {
            table.versions.entry(signature.key()).or_insert(index..index).end = index + 1;
        }
        table
    }

    fn line(&mut self, line: &'static str) -> Option<()> {
        let mut words = line.split_whitespace();
        match words.next()? {
            "@release" => {
                let ir = words.nth(1)?.strip_prefix("ir=")?.parse().ok()?;
                let opset = |word: &'static str| {
                    let (domain, opset) = word.split_once('=')?;
                    Some((canonical(domain), opset.parse().ok()?))
                };
                let opsets = words.map(opset).collect::<Option<_>>()?;
                self.releases.push(Release { ir, opsets });
            }
            "@domain" => {
                let (domain, newest) = (words.next()?, words.next()?.parse().ok()?);
                self.domains.push((canonical(domain), newest));
            }
            "@types" => {
                let (name, members) = words.next()?.split_once('=')?;
                self.families.push((name, self.elements(members)?));
            }
            _ => self.signatures.push(self.signature(line)?),
        }
        Some(())
    }

    fn signature(&self, line: &'static str) -> Option<Signature> {
        let fields: Vec<&str> = line.split('|').collect();
        let &[head, params, attributes, variables] = &fields[..] else {
            return None;
        };
        let mut head = head.split_whitespace();
        let path = head.next()?;
        let (domain, name) = path.rsplit_once('.').unwrap_or(("", path));
        let since = head.next()?.parse().ok()?;
        let (mut deprecated, mut deterministic) = (false, true);
        for flag in head {
            match flag {
                "deprecated" => deprecated = true,
                "random" => deterministic = false,
                _ => return None,
            }
        }
        let constraints = all(variables, |word| {
            let (name, types) = word.split_once('=')?;
            Some((name, self.types(types)?))
        })?;
        let (inputs, outputs) = params.split_once("->")?;
        Some(Signature {
            domain,
            name,
            since,
            deprecated,
            deterministic,
            inputs: all(inputs, |word| self.param(word, &constraints))?,
            outputs: all(outputs, |word| self.param(word, &constraints))?,
            attributes: all(attributes, attribute)?,
            constraints,
        })
    }

    fn param(&self, word: &'static str, variables: &[(&str, TypeSet)]) -> Option<Param> {
        let (name, ty) = word.split_once(':')?;
        let (ty, presence) = if let Some(ty) = ty.strip_suffix('?') {
            (ty, Presence::Optional)
        } else if let Some((variable, min)) = ty.split_once(['*', '~']) {
            let (min, homogeneous) = (min.parse().ok()?, ty.contains('*'));
            (variable, Presence::Variadic { min, homogeneous })
        } else {
            (ty, Presence::Required)
        };
        let variable = variables.iter().find(|variable| variable.0 == ty);
        let types = variable.map_or_else(|| self.types(ty), |variable| Some(variable.1))?;
        Some(Param { name, ty, types, presence })
    }

    fn types(&self, list: &str) -> Option<TypeSet> {
        let (mut set, mut depth) = (TypeSet::default(), 0);
        let outer_comma = |c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        };
        for item in list.split(outer_comma) {
            // The frames that nest deepest stand last and are tried first.
            let inside = |&(open, close)| item.strip_prefix(open)?.strip_suffix(close);
            let form = FRAMES.iter().rposition(|frame| inside(frame).is_some())?;
            set.0[form] |= self.elements(inside(&FRAMES[form])?)?;
        }
        Some(set)
    }

    fn elements(&self, list: &str) -> Option<u32> {
        list.split(',').try_fold(0, |bits, name| {
            let family = self.families.iter().find(|family| family.0 == name);
            let element = || ELEMENTS.split(' ').position(|e| e == name).map(|code| 1 << code);
            Some(bits | family.map(|family| family.1).or_else(element)?)
        })
    }
}

/// What each word of a field stands for; none when one of them is malformed.
fn all<T>(field: &'static str, read: impl Fn(&'static str) -> Option<T>) -> Option<Vec<T>> {
    field.split_whitespace().map(read).collect()
}

fn attribute(word: &'static str) -> Option<AttributeDef> {
    let (name, rest) = word.split_once(':')?;
    let word = rest.split(['=', '!']).next()?;
    let mut kinds = (1..).map_while(AttrKind::from_code);
    let kind = kinds.find(|kind| kind.name() == word)?;
    let (required, default) = match rest.split_at(word.len()).1 {
        "" => (false, None),
        "!" => (true, None),
        default => (false, Some(default_value(kind, default.strip_prefix('=')?)?)),
    };
    Some(AttributeDef { name, kind, required, default })
}

fn default_value(kind: AttrKind, text: &'static str) -> Option<DefaultValue> {
    let string = |text: &'static str| text.strip_prefix('"')?.strip_suffix('"');
    Some(match kind {
        AttrKind::Int => DefaultValue::Int(text.parse().ok()?),
        AttrKind::Float => DefaultValue::Float(text.parse().ok()?),
        AttrKind::String => DefaultValue::String(string(text)?),
        AttrKind::Ints => DefaultValue::Ints(list(text, |item| item.parse().ok())?),
        AttrKind::Floats => DefaultValue::Floats(list(text, |item| item.parse().ok())?),
        AttrKind::Strings => DefaultValue::Strings(list(text, string)?),
        _ => return None,
    })
}

fn list<T>(text: &'static str, read: impl Fn(&'static str) -> Option<T>) -> Option<Vec<T>> {
    let items = text.strip_prefix('[')?.strip_suffix(']')?;
    items.split_terminator(',').map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let table = table();
        assert_eq!(table.malformed, [""; 0]);
        let signatures = &table.signatures;
        assert!(signatures.len() > 600);
        assert!(signatures.is_sorted_by(|a, b| (a.key(), a.since) < (b.key(), b.since)));
        for signature in signatures {
            assert!(table.domains.iter().any(|domain| domain.0 == signature.domain));
            for param in signature.inputs.iter().chain(&signature.outputs) {
                assert_ne!(param.types, TypeSet::default(), "{} of {signature:?}", param.name);
            }
        }
    }

    #[test]
    fn a_malformed_line_is_left_out() {
        let good = Table::parse("Op 1 | A:T -> B:T*2 | a:ints=[1,2] b:int! | T=float,seq(float)");
        assert_eq!((good.signatures.len(), good.malformed.len()), (1, 0));
        for line in [
            "Op",
            "Op x | -> | |",
            "Op 1 | -> |",
            "Op 1 odd | -> | |",
            "Op 1 | A:T B:T | | T=float",
            "Op 1 | A:T -> B:U | | T=float",
            "Op 1 | A:T -> B:T* | | T=float",
            "Op 1 | -> | | T=flaot",
            "Op 1 | -> | | T=seq(float",
            "Op 1 | -> | a:integer |",
            "Op 1 | -> | a:int=one |",
            "Op 1 | -> | a:int!1 |",
            "Op 1 | -> | a:string=open |",
            "@domain d",
            "@release 1 ai.onnx=1",
            "@types T",
        ] {
            assert_eq!(Table::parse(line).malformed.len(), 1, "{line}");
        }
    }
}
