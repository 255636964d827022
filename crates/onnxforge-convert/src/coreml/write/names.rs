//! Names that programs take: letters, digits and underscores, and no digit in front.

use std::collections::{HashMap, HashSet};

use onnxforge_ir::ValueId;
use onnxforge_proto::Str;

use crate::coreml::schema::Elem;

/// Words that mean something in programs.
const TAKEN: &[&str] =
    &["any", "bool", "program", "func", "tensor", "list", "dict", "tuple", "true", "false"];

/// Who is called how.
#[derive(Debug, Default)]
pub struct Names {
    used: HashSet<Str>,
    /// How often each name was wanted.
    wanted: HashMap<String, usize>,
    /// Outputs whose value may have their name, if it has this element type.
    reserved: HashMap<ValueId, (Str, Elem)>,
}

impl Names {
    /// A name like this that nothing has.
    pub fn fresh(&mut self, name: &str) -> Str {
        let base = sane(name);
        let count = self.wanted.entry(base.clone()).or_insert(0);
        let mut candidate: Str = base.as_str().into();
        while !self.used.insert(candidate.clone()) {
            candidate = format!("{base}_{count}").as_str().into();
            *count += 1;
        }
        candidate
    }

    /// Keeps the name of an output for a value that is computed in its element type.
    pub fn keep(&mut self, value: ValueId, name: Str, elem: Elem) {
        self.reserved.insert(value, (name, elem));
    }

    /// The name of a value that is computed.
    pub fn of(&mut self, value: ValueId, name: &str, elem: Elem) -> Str {
        match self.reserved.get(&value) {
            Some((kept, wanted)) if *wanted == elem => kept.clone(),
            _ => self.fresh(name),
        }
    }
}

/// The same name without what programs do not take.
fn sane(name: &str) -> String {
    let mut sane: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if sane.is_empty() || sane.starts_with(|c: char| c.is_ascii_digit()) || TAKEN.contains(&&*sane) {
        sane.insert(0, '_');
    }
    sane
}
