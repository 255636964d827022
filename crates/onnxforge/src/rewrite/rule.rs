//! What a rule is.

use super::change::Change;
use super::cx::Cx;
use super::matcher;
use super::pattern::Pattern;
use super::skip::Skip;
use crate::ir::{Accuracy, NodeId, ValueId};

/// Looks at a node and says what it may become.
pub trait Rule: Sync {
    /// Its name, unique within the pass.
    fn name(&self) -> &'static str;
    /// The most that the rule may change results.
    fn accuracy(&self) -> Accuracy;
    /// The operators at which it looks, named as [`Op::is`](crate::ir::Op::is) does; empty for any node.
    fn roots(&self) -> &[&'static str];
    /// The change, or why there is none.
    fn apply(&self, cx: &Cx<'_>, node: NodeId) -> Result<Change, Skip>;
    /// Whether the rule is written correctly; a test asks every rule.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A rule that is a function of the node at its root.
pub struct At {
    /// Its name, unique within the pass.
    pub name: &'static str,
    /// The most that the rule may change results.
    pub accuracy: Accuracy,
    /// The operators at which it looks, named as [`Op::is`](crate::ir::Op::is) does; empty for any node.
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

/// A rule that starts from a pattern in ONNX text; see [`Pattern`].
pub struct Fusion<const N: usize> {
    /// Its name, unique within the pass.
    pub name: &'static str,
    /// The most that the rule may change results.
    pub accuracy: Accuracy,
    /// The pattern.
    pub from: Pattern,
    /// The values of the pattern that `to` gets, in this order.
    pub vars: [&'static str; N],
    /// The change, or why there is none. All nodes of the pattern are consumed.
    pub to: fn(&Cx<'_>, &mut Change, [ValueId; N]) -> Result<(), Skip>,
}

impl<const N: usize> Rule for Fusion<N> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn accuracy(&self) -> Accuracy {
        self.accuracy
    }

    fn roots(&self) -> &[&'static str] {
        self.from.roots()
    }

    fn apply(&self, cx: &Cx<'_>, node: NodeId) -> Result<Change, Skip> {
        let found = matcher::find(&self.from, cx, node)?;
        let mut values = [cx.output(node)?; N];
        for (value, var) in values.iter_mut().zip(self.vars) {
            *value = found.value(var).ok_or(Skip::NOT_HERE)?;
        }
        let mut change = cx.change(&found.nodes);
        (self.to)(cx, &mut change, values)?;
        Ok(change)
    }

    fn check(&self) -> Result<(), String> {
        self.from.check().map_err(|error| error.to_string())?;
        match self.vars.iter().find(|var| !self.from.binds(var)) {
            Some(var) => Err(format!("the pattern has no {var}")),
            None => Ok(()),
        }
    }
}
