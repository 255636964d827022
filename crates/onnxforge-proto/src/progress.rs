//! Watching long work. The library reports; who calls it decides what to show.

/// What work is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Unit {
    Bytes,
    Nodes,
    Passes,
    Blocks,
    Runs,
    Models,
    Sessions,
    Questions,
}

impl Unit {
    /// Its name, in small letters and plural.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Nodes => "nodes",
            Self::Passes => "passes",
            Self::Blocks => "blocks",
            Self::Runs => "runs",
            Self::Models => "models",
            Self::Sessions => "sessions",
            Self::Questions => "questions",
        }
    }
}

/// Receives reports about work in progress.
pub trait Progress {
    /// Work of `total` units begins.
    fn begin(&self, what: &str, total: u64, unit: Unit);
    /// `units` more are done.
    fn advance(&self, units: u64);
    /// The work is done.
    fn end(&self);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _what: &str, _total: u64, _unit: Unit) {}
    fn advance(&self, _units: u64) {}
    fn end(&self) {}
}
