//! What origins are known from, and how much that is worth.

use super::module::ModuleId;

/// What the origin of a node is known from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The stack of modules that the exporter left at the node.
    Exporter,
    /// What somebody recorded while exporting, or this program earlier.
    Recorded,
    /// The scope in the node's name, which only one module of the table fits.
    Scope,
    /// The same, where more than one could be meant, or where there is no table but the names themselves; or levels for viewers, which anybody may
    /// have written.
    ScopeGuess,
    /// The node that holds the body, or calls the function, that it stands in.
    Enclosing,
    /// The module that all neighbours belong to that are known, a few steps far, or the one around theirs.
    Neighbours,
    /// The owner of a parameter that it reads.
    Owner,
    /// Nothing: it belongs to the model, as all nodes do.
    Root,
}

/// How much an origin is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// Written down by whoever made the node.
    Exact,
    /// Concluded from what is around it.
    Inferred,
    /// Not known; the model itself stands in. Never counts as covered.
    Root,
}

impl Evidence {
    const ALL: [Self; 8] = [
        Self::Exporter,
        Self::Recorded,
        Self::Scope,
        Self::ScopeGuess,
        Self::Enclosing,
        Self::Neighbours,
        Self::Owner,
        Self::Root,
    ];

    /// How much it is worth.
    pub fn certainty(self) -> Certainty {
        match self {
            Self::Exporter | Self::Recorded | Self::Scope => Certainty::Exact,
            Self::ScopeGuess | Self::Enclosing | Self::Neighbours | Self::Owner => Certainty::Inferred,
            Self::Root => Certainty::Root,
        }
    }

    /// The share of nodes with this evidence whose module is the right one, at least, as `tests/torch/strategies.py` measures it (docs/strategies.md).
    /// `by_names`: names are all that tells of modules. What never occurred in one of the two ways has the number of the other.
    pub fn confidence(self, by_names: bool) -> f64 {
        let (known, from_names) = match self {
            Self::Exporter => (0.99, 0.99),
            Self::Recorded => (0.99, 0.99),
            Self::Scope => (0.96, 0.96),
            Self::ScopeGuess => (0.74, 0.95),
            Self::Enclosing => (0.42, 0.42),
            Self::Neighbours => (0.80, 0.18),
            Self::Owner => (0.82, 0.83),
            Self::Root => (0.0, 0.0),
        };
        if by_names { from_names } else { known }
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exporter => "exporter",
            Self::Recorded => "recorded",
            Self::Scope => "scope",
            Self::ScopeGuess => "scope_guess",
            Self::Enclosing => "enclosing",
            Self::Neighbours => "neighbours",
            Self::Owner => "owner",
            Self::Root => "root",
        }
    }

    /// The evidence of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|evidence| evidence.name() == name)
    }

    /// What it is, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Exporter => "exporter's metadata",
            Self::Recorded => "recorded",
            Self::Scope => "scope in its name",
            Self::ScopeGuess => "scope in its name, not certain",
            Self::Enclosing => "enclosing node",
            Self::Neighbours => "neighbours",
            Self::Owner => "owner of its parameter",
            Self::Root => "nothing; the model stands in",
        }
    }
}

/// Where a node comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// The modules, the one that it stands for first. Never empty.
    pub modules: Vec<ModuleId>,
    /// What that is known from.
    pub evidence: Evidence,
}

impl Attribution {
    /// One module.
    pub fn new(module: ModuleId, evidence: Evidence) -> Self {
        Self { modules: vec![module], evidence }
    }

    /// The one that it stands for.
    pub fn primary(&self) -> ModuleId {
        self.modules.first().copied().unwrap_or(ModuleId::ROOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_is_what_was_measured() {
        let page = include_str!("../../../docs/strategies.md");
        for evidence in Evidence::ALL {
            let start = format!("| {} |", evidence.name());
            let Some(row) = page.lines().find(|line| line.starts_with(&start)) else {
                assert_eq!(evidence, Evidence::Root);
                continue;
            };
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            for (cell, by_names) in [(4, false), (7, true)] {
                // What did not occur has the other number.
                let measured = if cells[cell].is_empty() { cells[11 - cell] } else { cells[cell] };
                assert_eq!(Ok(evidence.confidence(by_names)), measured.parse(), "{row}");
            }
        }
    }
}
