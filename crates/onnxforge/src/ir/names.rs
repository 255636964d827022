//! Names for new values: readable, and never one that is taken anywhere in the model.

use std::collections::HashSet;

use crate::proto::Str;

/// Every name that a value of the model has or had.
#[derive(Clone, Debug, Default)]
pub struct Names {
    taken: HashSet<Str>,
}

impl Names {
    /// Marks `name` as taken.
    pub fn take(&mut self, name: Str) {
        self.taken.insert(name);
    }

    /// A name that starts with `hint` and is not taken; it is taken now.
    pub fn fresh(&mut self, hint: &str) -> Str {
        let mut name: Str = hint.into();
        let mut suffix = 1u64;
        while name.is_empty() || self.taken.contains(&name) {
            name = format!("{hint}_{suffix}").into();
            suffix += 1;
        }
        self.taken.insert(name.clone());
        name
    }
}
