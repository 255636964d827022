//! Watching long work. The library reports; who calls it decides what to show.

/// Receives reports about work in progress.
pub trait Progress {
    /// Work of `total` units (bytes, nodes) begins.
    fn begin(&self, what: &str, total: u64);
    /// `units` more are done.
    fn advance(&self, units: u64);
    /// The work is done.
    fn end(&self);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _units: u64) {}
    fn end(&self) {}
}
