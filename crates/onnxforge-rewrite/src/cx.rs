//! What a rule sees.

use super::author::Author;
use super::change::Change;
use super::driver::Budget;
use super::skip::{Reason, Skip};
use onnxforge_ir::dim::{Dim, Symbols};
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, DType, Model, Node, NodeId, ScopeId, Tensor, ValueId};
use onnxforge_ops::TensorFact;
use onnxforge_ops::call::{Call, axis};
use onnxforge_ops::callee::{Callee, Functions};
use onnxforge_ops::error::OpError;
use onnxforge_ops::infer::Inference;
use onnxforge_ops::signature::latest_opset;

/// The model, what is known of it, and the rule that looks at it.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    /// The model.
    pub model: &'a Model,
    /// What is known of its values.
    pub facts: &'a Inference,
    /// What changes may cost.
    pub budget: &'a Budget,
    pub(super) functions: &'a Functions,
    pub(super) author: Author,
    pub(super) rule: &'static str,
    pub(super) accuracy: Accuracy,
}

impl<'a> Cx<'a> {
    /// A change by this rule that consumes the nodes.
    pub fn change(&self, consumed: &[NodeId]) -> Change {
        Change::new(self.author, self.rule, self.accuracy, consumed)
    }

    /// A change that consumes `node` and lets everything read `by` instead of its first output.
    pub fn forward(&self, node: NodeId, by: ValueId) -> Result<Change, Skip> {
        let mut change = self.change(&[node]);
        change.replace(self.output(node)?, by);
        Ok(change)
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &'a Node {
        self.model.node(id)
    }

    /// The call that a node makes. Nodes of operators that the table does not know are nothing that rules are about.
    pub fn call(&self, id: NodeId) -> Result<Call<'a>, Skip> {
        match self.functions.callee(self.model, id, None) {
            // What an operator means in a version that the table does not have yet, nobody here knows.
            Callee::Operator(call)
                if latest_opset(call.def.domain).is_none_or(|latest| call.opset <= latest) =>
            {
                Ok(call)
            }
            _ => Err(Skip::NOT_HERE),
        }
    }

    /// The version of the standard operators that holds at a node.
    pub fn opset(&self, id: NodeId) -> i64 {
        self.model.opset(self.node(id).scope(), "").unwrap_or(0)
    }

    /// The axis that a node names, of so many.
    pub fn axis(&self, id: NodeId, rank: usize) -> Result<usize, Skip> {
        Ok(axis(self.call(id)?.int("axis")?, rank)?)
    }

    /// The first output of a node.
    pub fn output(&self, id: NodeId) -> Result<ValueId, Skip> {
        self.node(id).output(0).ok_or(Skip::NOT_HERE)
    }

    /// Input `index` of a node, which must be there.
    pub fn input(&self, id: NodeId, index: usize) -> Result<ValueId, Skip> {
        self.node(id).input(index).ok_or(Skip::NOT_HERE)
    }

    /// The node that computes a value, when it calls the standard operator `op` and stands in the same scope as `beside`.
    pub fn producer(&self, value: ValueId, op: &str, beside: NodeId) -> Option<NodeId> {
        let id = self.model.value(value).node()?;
        let node = self.model.node(id);
        (node.op().is(op) && node.scope() == self.node(beside).scope()).then_some(id)
    }

    /// The only node that reads a value, which is no output either.
    pub fn only_reader(&self, value: ValueId) -> Option<NodeId> {
        let value = self.model.value(value);
        match value.uses() {
            [Use::Input { node, .. }] if !value.is_pinned() => Some(*node),
            _ => None,
        }
    }

    /// Whether something reads the value, or refers to it by name.
    pub fn is_read(&self, value: ValueId) -> bool {
        let value = self.model.value(value);
        !value.uses().is_empty() || value.is_pinned()
    }

    /// Output `index` of a node, if something reads it.
    pub fn read_output(&self, id: NodeId, index: usize) -> Option<ValueId> {
        self.node(id).output(index).filter(|&value| self.is_read(value))
    }

    /// Fails unless `node` alone reads the value.
    pub fn read_only_by(&self, value: ValueId, node: NodeId) -> Result<(), Skip> {
        let here = |used: &Use| matches!(used, Use::Input { node: by, .. } if *by == node);
        let reader = self.model.value(value);
        if reader.uses().iter().all(here) && !reader.is_pinned() {
            return Ok(());
        }
        Err(Skip::at(Reason::ReadElsewhere, value))
    }

    /// The scope of a node.
    pub fn scope(&self, id: NodeId) -> ScopeId {
        self.node(id).scope()
    }

    /// What is known of a tensor.
    pub fn fact(&self, value: ValueId) -> Result<&'a TensorFact, Skip> {
        self.facts.tensor(value).ok_or_else(|| Skip::at(Reason::UnknownShape, value))
    }

    /// The shape of a value, which must have a known rank.
    pub fn shape(&self, value: ValueId) -> Result<&'a [Dim], Skip> {
        self.facts.shape(value).ok_or_else(|| Skip::at(Reason::UnknownShape, value))
    }

    /// The number of axes of a value, which must be known.
    pub fn rank(&self, value: ValueId) -> Result<usize, Skip> {
        self.shape(value).map(<[Dim]>::len)
    }

    /// The element type of a value, which must be known.
    pub fn dtype(&self, value: ValueId) -> Result<DType, Skip> {
        self.fact(value)?.dtype.ok_or_else(|| Skip::at(Reason::UnknownType, value))
    }

    /// The constant that a value always is.
    pub fn constant(&self, value: ValueId) -> Result<&'a Tensor, Skip> {
        self.model.constant(value).ok_or_else(|| Skip::at(Reason::NotConstant, value))
    }

    /// The integers that a value always holds, whether it is a constant or that follows from shapes.
    pub fn ints(&self, value: ValueId) -> Result<Vec<i64>, Skip> {
        if let Some(ints) = self.facts.tensor(value).and_then(TensorFact::ints) {
            return Ok(ints);
        }
        self.constant(value)?.to_i64s().map_err(|_| Skip::at(Reason::NotConstant, value))
    }

    /// The numbers of a constant of floats.
    pub fn floats(&self, value: ValueId) -> Result<Vec<f64>, Skip> {
        let tensor = self.constant(value)?;
        let array = onnxforge_ops::Array::from_tensor(tensor).map_err(|_| Skip::at(Reason::Type, value))?;
        array.to_f64s().map_err(|_| Skip::at(Reason::Type, value))
    }

    /// The number that every element of a constant is.
    pub fn uniform(&self, value: ValueId) -> Option<f64> {
        let tensor = self.model.constant(value)?;
        if tensor.is_empty() || tensor.byte_len() > 1 << 20 {
            return None;
        }
        let numbers = self.floats(value).ok()?;
        let first = *numbers.first()?;
        numbers.iter().all(|&number| number == first).then_some(first)
    }

    /// Whether two dimensions are provably equal.
    pub fn same_dim(&self, a: &Dim, b: &Dim) -> bool {
        a.provably_equal(b, self.symbols())
    }

    /// Whether two shapes are provably equal.
    pub fn same_shape(&self, a: &[Dim], b: &[Dim]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.same_dim(a, b))
    }

    /// The symbols that facts are about.
    pub fn symbols(&self) -> &'a Symbols {
        self.facts.symbols()
    }
}

/// What contradicts an operator's definition is left alone, and so is what refers to a caller's attributes.
impl From<OpError> for Skip {
    fn from(error: OpError) -> Self {
        Reason::Evaluation(error).into()
    }
}
