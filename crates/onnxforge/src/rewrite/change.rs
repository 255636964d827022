//! A change that a rule proposes.

use super::cx::Cx;
use crate::ir::edit::{NewNode, Operand, Rewrite};
use crate::ir::{Accuracy, Attr, NodeId, Op, Tensor, ValueId};
use crate::proto::Str;

/// What a rule wants to be done. The driver checks it and adds what nothing reads any more.
#[derive(Clone, Debug)]
pub struct Change {
    pub(super) rewrite: Rewrite,
    pub(super) absorbed: Vec<NodeId>,
    pub(super) keeps_shapes: bool,
}

impl Change {
    pub(super) fn new(
        pass: impl Into<Str>,
        rule: impl Into<Str>,
        accuracy: Accuracy,
        consumed: &[NodeId],
    ) -> Self {
        Self {
            rewrite: Rewrite::new(pass, rule, accuracy, consumed),
            absorbed: Vec::new(),
            keeps_shapes: false,
        }
    }

    /// This change promises more than the rule does in general.
    pub fn promise(&mut self, accuracy: Accuracy) {
        self.rewrite.promise(accuracy);
    }

    /// A node whose work the change takes over. It goes away unless somebody else still reads its results.
    pub fn absorb(&mut self, node: NodeId) {
        self.absorbed.push(node);
    }

    /// The rule itself is the proof that types and shapes stay, also where inference does not know them.
    pub fn keeps_shapes(&mut self) {
        self.keeps_shapes = true;
    }

    /// A new call of a standard operator with one output, which is the answer.
    pub fn op<const N: usize>(
        &mut self,
        name: &str,
        inputs: [Operand; N],
        attrs: impl IntoIterator<Item = Attr>,
    ) -> Operand {
        self.call(Op::standard(name), inputs, 1, attrs).output(0)
    }

    /// A new call of any operator.
    pub fn call(
        &mut self,
        op: Op,
        inputs: impl IntoIterator<Item = Operand>,
        outputs: usize,
        attrs: impl IntoIterator<Item = Attr>,
    ) -> NewNode {
        self.rewrite.node(op, inputs, outputs, attrs.into_iter().collect())
    }

    /// Another version of a consumed node: the same call with other inputs. Its first output is the answer.
    pub fn remake(
        &mut self,
        cx: &Cx<'_>,
        node: NodeId,
        inputs: impl IntoIterator<Item = Operand>,
    ) -> Operand {
        let old = cx.node(node);
        let new = self.call(old.op().clone(), inputs, old.outputs().len(), old.attrs().to_vec());
        self.rewrite.inherit(new, node);
        new.output(0)
    }

    /// A new constant; its name starts with `hint`.
    pub fn constant(&mut self, hint: impl Into<Str>, tensor: Tensor) -> Operand {
        self.rewrite.constant(hint, tensor)
    }

    /// A new constant vector of integers.
    pub fn ints(&mut self, hint: impl Into<Str>, values: &[i64]) -> Operand {
        self.constant(hint, Tensor::from_i64s(values))
    }

    /// Removes a constant that nothing reads.
    pub fn drop_constant(&mut self, value: ValueId) {
        self.rewrite.drop_constant(value);
    }

    /// Everything that reads `value` reads this instead.
    pub fn replace(&mut self, value: ValueId, by: impl Into<Operand>) {
        self.rewrite.redefine(value, by);
    }
}
