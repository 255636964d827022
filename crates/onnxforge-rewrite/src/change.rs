//! A change that a rule proposes.

use super::author::Author;
use super::cx::Cx;
use super::skip::{Reason, Skip};
use onnxforge_ir::edit::{NewNode, Operand, Rewrite};
use onnxforge_ir::{Accuracy, Attr, AttrValue, NodeId, Op, ScopeId, Tensor, Trust, ValueId};
use onnxforge_ops::call::Bindings;
use onnxforge_ops::{contrib, tflite};
use onnxforge_proto::Str;

/// What a rule wants to be done. The driver checks it and adds what nothing reads any more.
#[derive(Clone, Debug)]
pub struct Change {
    pub(super) rewrite: Rewrite,
    pub(super) absorbed: Vec<NodeId>,
    pub(super) author: Author,
    pub(super) trust: Option<Trust>,
}

impl Change {
    pub(super) fn new(author: Author, rule: impl Into<Str>, accuracy: Accuracy, consumed: &[NodeId]) -> Self {
        Self {
            rewrite: Rewrite::new(author.name, rule, accuracy, consumed),
            absorbed: Vec::new(),
            author,
            trust: None,
        }
    }

    /// The nodes that it is about: those that it consumes or takes the work of.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.rewrite.consumed().iter().chain(&self.absorbed).copied()
    }

    /// This change promises more than the rule does in general.
    pub fn promise(&mut self, accuracy: Accuracy) {
        self.rewrite.promise(accuracy);
    }

    /// A node whose work the change takes over. It goes away unless somebody else still reads its results.
    pub fn absorb(&mut self, node: NodeId) {
        self.absorbed.push(node);
    }

    /// Where inference does not know whether types and shapes stay, they do for this reason. The driver proves what it can, refuses
    /// what inference contradicts, and journals the reason where it had to take it; the pass must declare it.
    pub fn trust(&mut self, trust: Trust) {
        self.trust = Some(trust);
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

    /// A new call of an operator of ONNX Runtime's own domain, which the model imports from now on.
    pub fn contrib(
        &mut self,
        name: &str,
        inputs: impl IntoIterator<Item = Operand>,
        outputs: usize,
        attrs: impl IntoIterator<Item = Attr>,
    ) -> NewNode {
        self.rewrite.import(contrib::DOMAIN, 1);
        self.call(Op::new(contrib::DOMAIN, name), inputs, outputs, attrs)
    }

    /// A new call of an operator of TensorFlow Lite, whose domain the model imports from now on.
    pub fn tflite(
        &mut self,
        name: &str,
        inputs: impl IntoIterator<Item = Operand>,
        attrs: impl IntoIterator<Item = Attr>,
    ) -> Operand {
        self.rewrite.import(tflite::DOMAIN, 1);
        self.call(Op::new(tflite::DOMAIN, name), inputs, 1, attrs).output(0)
    }

    /// Leaves an optional output of a new node out.
    pub fn leave_out(&mut self, node: NewNode, output: usize) {
        self.rewrite.leave_out(node, output);
    }

    /// Another version of a consumed node: the same call with other inputs. Its first output is the answer.
    pub fn remake(
        &mut self,
        cx: &Cx<'_>,
        node: NodeId,
        inputs: impl IntoIterator<Item = Operand>,
    ) -> Operand {
        self.again(cx, node, inputs).output(0)
    }

    /// A node like `node`, with other inputs; absent ones at the end are left away. The outputs of `node` become its own.
    pub fn recall(&mut self, cx: &Cx<'_>, node: NodeId, mut inputs: Vec<Operand>) {
        while inputs.last() == Some(&Operand::Absent) {
            inputs.pop();
        }
        let new = self.again(cx, node, inputs);
        self.take_outputs(cx, node, new);
    }

    /// The outputs of `node` become those of `new`, which has as many.
    pub fn take_outputs(&mut self, cx: &Cx<'_>, node: NodeId, new: NewNode) {
        for (index, output) in cx.node(node).outputs().iter().enumerate() {
            match *output {
                Some(output) => self.replace(output, new.output(index)),
                None => self.rewrite.leave_out(new, index),
            }
        }
    }

    fn again(&mut self, cx: &Cx<'_>, node: NodeId, inputs: impl IntoIterator<Item = Operand>) -> NewNode {
        let old = cx.node(node);
        let new = self.call(old.op().clone(), inputs, old.outputs().len(), old.attrs().to_vec());
        self.inherit(new, node);
        new
    }

    /// Says that a new node is another version of a consumed one. See [`Rewrite::inherit`].
    pub fn inherit(&mut self, new: NewNode, node: NodeId) {
        self.rewrite.inherit(new, node);
    }

    /// Says that a new node only prepares something for a consumed one. See [`Rewrite::serve`].
    pub fn serve(&mut self, new: NewNode, node: NodeId) {
        self.rewrite.serve(new, node);
    }

    /// Says that nothing new comes from a consumed node. See [`Rewrite::leave_no_trace`].
    pub fn leave_no_trace(&mut self, node: NodeId) {
        self.rewrite.leave_no_trace(node);
    }

    /// Says that a node that stays computes what a consumed one computed. See [`Rewrite::substitute`].
    pub fn substitute(&mut self, stays: NodeId, gone: NodeId) {
        self.rewrite.substitute(stays, gone);
    }

    /// The nodes of `body`, which the consumed node `holder` holds, or calls with these attributes. The answer is what the
    /// outputs of the body become. See [`Rewrite::splice`].
    pub fn splice(
        &mut self,
        cx: &Cx<'_>,
        holder: NodeId,
        body: ScopeId,
        inputs: &[Operand],
        attributes: Option<Bindings>,
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Operand>, Skip> {
        let spliced = self.rewrite.splice(cx.model, holder, body, inputs, attributes, wanted);
        spliced.map_err(|error| Reason::Edit(error).into())
    }

    /// A new constant; its name starts with `hint`.
    pub fn constant(&mut self, hint: impl Into<Str>, tensor: Tensor) -> Operand {
        self.rewrite.constant(hint, tensor)
    }

    /// `value` becomes a constant; where it leaves its scope, a Constant node computes it.
    pub fn replace_by_constant(&mut self, cx: &Cx<'_>, value: ValueId, tensor: Tensor) {
        let constant = if cx.model.value(value).is_exposed() {
            self.op("Constant", [], [Attr::new("value", AttrValue::Tensor(tensor))])
        } else {
            self.constant(cx.model.value(value).name().clone(), tensor)
        };
        self.replace(value, constant);
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

    /// Everything that reads `value` reads this instead. An output keeps its name: where it cannot take over the name of
    /// what it becomes, an Identity stands between them.
    pub fn hand_over(&mut self, cx: &Cx<'_>, value: ValueId, by: Operand) {
        let exposed = |value: ValueId| cx.model.value(value).is_exposed();
        let fixed = matches!(by, Operand::Value(to) if !cx.model.can_take_over(value, to));
        let taken = |(other, same): (ValueId, Operand)| same == by && exposed(other);
        if exposed(value) && (fixed || self.rewrite.redefinitions().any(taken)) {
            let copy = self.op("Identity", [by], []);
            return self.replace(value, copy);
        }
        self.replace(value, by);
    }
}
