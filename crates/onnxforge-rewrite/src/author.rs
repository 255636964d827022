//! Who changes a model.

use onnxforge_ir::Trust;

/// Who makes a change: a pass, or whatever else works on a model as passes do.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    /// The name in the journal.
    pub name: &'static str,
    /// The arguments that its changes may give where types and shapes are not known. A change that gives another one is refused.
    pub trusts: &'static [Trust],
}

impl Author {
    /// One whose changes are proved or refused.
    pub const fn new(name: &'static str) -> Self {
        Self { name, trusts: &[] }
    }
}
