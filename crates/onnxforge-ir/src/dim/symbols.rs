//! The table that hands out symbols and knows their names and lower bounds.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Dim, Requirement};

/// An unknown integer, valid in the [`Symbols`] table that handed it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(u32);

impl Symbol {
    /// The position in the table, for side tables and debug output.
    pub fn id(self) -> u32 {
        self.0
    }
}

#[derive(Clone, Debug)]
enum Name {
    /// Printed as `?` and this number, which no other symbol of the table has.
    Anonymous(u32),
    Given(Arc<str>),
}

#[derive(Clone, Debug)]
struct Entry {
    name: Name,
    lower: Option<i64>,
}

/// All symbols of one model.
///
/// Printed names are unique: a given name never looks like an anonymous symbol of the same table,
/// so writing names to a file and reading them back never makes two symbols equal.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    entries: Vec<Entry>,
    by_name: BTreeMap<Arc<str>, Symbol>,
    next_label: u32,
    requirements: Vec<Requirement>,
    /// Dimensions to which others are broadcast together.
    joins: BTreeMap<BTreeSet<Dim>, Symbol>,
}

impl Symbols {
    /// A new anonymous dimension, known to be at least 0 and equal only to itself.
    pub fn fresh(&mut self) -> Symbol {
        self.fresh_at_least(Some(0))
    }

    /// A new anonymous integer value of either sign, equal only to itself.
    pub fn fresh_value(&mut self) -> Symbol {
        self.fresh_at_least(None)
    }

    /// A new anonymous symbol with the given lower bound, `None` for unbounded.
    pub fn fresh_at_least(&mut self, lower: Option<i64>) -> Symbol {
        let name = Name::Anonymous(self.unused_label());
        self.push(Entry { name, lower })
    }

    /// The dimension with this name, at least 0. The same name gives the same symbol.
    pub fn named(&mut self, name: &str) -> Symbol {
        let symbol = self.named_value(name);
        self.raise_lower(symbol, 0);
        symbol
    }

    /// The integer value with this name, of either sign unless more is known.
    pub fn named_value(&mut self, name: &str) -> Symbol {
        if let Some(symbol) = self.by_name.get(name) {
            return *symbol;
        }
        let name: Arc<str> = name.into();
        let symbol = self.push(Entry { name: Name::Given(name.clone()), lower: None });
        self.by_name.insert(name.clone(), symbol);
        self.relabel_anonymous(&name);
        symbol
    }

    /// The symbol with this name, if there is one.
    pub fn get(&self, name: &str) -> Option<Symbol> {
        self.by_name.get(name).copied()
    }

    /// The name, or `?` and a number for an anonymous symbol.
    pub fn name(&self, symbol: Symbol) -> Cow<'_, str> {
        match self.entry(symbol).map(|entry| &entry.name) {
            Some(Name::Given(name)) => Cow::Borrowed(name),
            Some(Name::Anonymous(label)) => Cow::Owned(format!("?{label}")),
            None => Cow::Owned(format!("?foreign{}", symbol.0)),
        }
    }

    /// Whether the symbol has no name of its own.
    pub fn is_anonymous(&self, symbol: Symbol) -> bool {
        !matches!(self.entry(symbol), Some(Entry { name: Name::Given(_), .. }))
    }

    /// The known lower bound, `None` for unbounded.
    pub fn lower(&self, symbol: Symbol) -> Option<i64> {
        self.entry(symbol).and_then(|entry| entry.lower)
    }

    /// Records that the symbol is at least `bound`. A weaker bound than the known one has no effect.
    pub fn raise_lower(&mut self, symbol: Symbol, bound: i64) {
        if let Some(entry) = position(symbol).and_then(|at| self.entries.get_mut(at)) {
            entry.lower = entry.lower.max(Some(bound));
        }
    }

    /// The dimension to which `a` and `b` are broadcast together, at least 1 where both are. The same dimensions, in whichever order they come together, give the
    /// same one.
    pub fn join(&mut self, a: &Dim, b: &Dim) -> Dim {
        let (first, second) = (self.joined(a), self.joined(b));
        if first.is_superset(&second) {
            return a.clone();
        }
        if second.is_superset(&first) {
            return b.clone();
        }
        let together: BTreeSet<Dim> = first.union(&second).cloned().collect();
        if let Some(&known) = self.joins.get(&together) {
            return known.into();
        }
        let has_elements = a.provably_positive(self) && b.provably_positive(self);
        let symbol = self.fresh_at_least(Some(i64::from(has_elements)));
        if together.len() <= MOST_JOINED {
            self.joins.insert(together, symbol);
        }
        symbol.into()
    }

    /// The dimensions that are broadcast together to this one.
    fn joined(&self, dim: &Dim) -> BTreeSet<Dim> {
        let symbol = dim.as_symbol();
        let known = self.joins.iter().find(|(_, join)| Some(**join) == symbol);
        known.map_or_else(|| BTreeSet::from([dim.clone()]), |(members, _)| members.clone())
    }

    /// Records what must hold for the model to run at all. What always holds, and what is known already, is passed over.
    pub fn require(&mut self, requirement: Requirement) {
        let is_new = self.requirements.len() < MOST_REQUIREMENTS
            && !requirement.is_trivial()
            && !self.requirements.contains(&requirement);
        if is_new {
            self.requirements.push(requirement);
        }
    }

    /// What must hold for the model to run at all, in the order in which it was found.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Forgets every requirement past the first `count`: they were found where a run need not come by.
    pub fn forget_requirements(&mut self, count: usize) {
        self.requirements.truncate(count);
    }

    /// How many symbols there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no symbol.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets every symbol past the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        self.joins.retain(|_, symbol| position(*symbol).is_some_and(|at| at < len));
        for entry in self.entries.drain(len.min(self.entries.len())..) {
            if let Name::Given(name) = entry.name {
                self.by_name.remove(&name);
            }
        }
    }

    fn entry(&self, symbol: Symbol) -> Option<&Entry> {
        self.entries.get(position(symbol)?)
    }

    /// Ids saturate only past 2³² symbols, which the table cannot reach in memory.
    fn push(&mut self, entry: Entry) -> Symbol {
        let symbol = Symbol(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.push(entry);
        symbol
    }

    fn unused_label(&mut self) -> u32 {
        loop {
            let label = self.next_label;
            self.next_label = label.saturating_add(1);
            if !self.by_name.contains_key(format!("?{label}").as_str()) {
                return label;
            }
        }
    }

    /// Gives the anonymous symbol that prints like `name` another label.
    fn relabel_anonymous(&mut self, name: &str) {
        let Some(taken) = name.strip_prefix('?').and_then(|label| label.parse::<u32>().ok()) else {
            return;
        };
        let clash = |entry: &Entry| matches!(entry.name, Name::Anonymous(label) if label == taken);
        if let Some(at) = self.entries.iter().position(clash) {
            let label = self.unused_label();
            if let Some(entry) = self.entries.get_mut(at) {
                entry.name = Name::Anonymous(label);
            }
        }
    }
}

/// Most dimensions that are broadcast to one and remembered.
const MOST_JOINED: usize = 8;
/// Most requirements that are kept.
const MOST_REQUIREMENTS: usize = 1024;

fn position(symbol: Symbol) -> Option<usize> {
    usize::try_from(symbol.0).ok()
}
