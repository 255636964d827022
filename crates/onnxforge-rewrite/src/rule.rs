//! What a rule is.

use super::change::Change;
use super::cx::Cx;
use super::skip::Skip;
use onnxforge_ir::{Accuracy, NodeId};

/// Looks at a node and says what it may become.
pub trait Rule: Sync {
    /// Its name, unique within the pass.
    fn name(&self) -> &'static str;
    /// The most that the rule may change results.
    fn accuracy(&self) -> Accuracy;
    /// The operators at which it looks, named as [`Op::is`](onnxforge_ir::Op::is) does; empty for any node.
    fn roots(&self) -> &[&'static str];
    /// The change, or why there is none.
    fn apply(&self, cx: &Cx<'_>, node: NodeId) -> Result<Change, Skip>;
}

/// A rule that is a function of the node at its root.
pub struct At {
    /// Its name, unique within the pass.
    pub name: &'static str,
    /// The most that the rule may change results.
    pub accuracy: Accuracy,
    /// The operators at which it looks, named as [`Op::is`](onnxforge_ir::Op::is) does; empty for any node.
    pub ops: &'static [&'static str],
    /// The change, or why there is none.
    pub apply: fn(&Cx<'_>, NodeId) -> Result<Change, Skip>,
}

impl Rule for At {
    fn name(&self) -> &'static str {
        self.name
    }

    fn accuracy(&self) -> Accuracy {
        self.accuracy
    }

    fn roots(&self) -> &[&'static str] {
        self.ops
    }

    fn apply(&self, cx: &Cx<'_>, node: NodeId) -> Result<Change, Skip> {
        (self.apply)(cx, node)
    }
}
