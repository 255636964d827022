//! What a rewrite will make.

use std::collections::HashSet;

use super::{Operand, Rewrite, saturating_sum};
use crate::id::{NodeId, ValueId};
use crate::node::{Attr, AttrValue, Op};
use crate::tensor::Tensor;
use onnxforge_proto::Str;

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    pub op: Op,
    pub inputs: Vec<Operand>,
    /// Which outputs are there.
    pub outputs: Vec<bool>,
    pub attrs: Vec<Attr>,
    /// The node of a body that it is a copy of.
    pub copied: Option<Copied>,
    /// The consumed node that it is another version of.
    pub like: Option<NodeId>,
    /// The consumed node that it prepares something for.
    pub serves: Option<NodeId>,
}

impl Staged {
    /// Everything that it reads, itself or in its bodies.
    pub fn reads(&self) -> impl Iterator<Item = Operand> {
        self.inputs.iter().chain(self.copied.iter().flat_map(|copied| &copied.captured)).copied()
    }

    pub fn has_output(&self, index: usize) -> bool {
        self.outputs.get(index).copied().unwrap_or(false)
    }
}

/// What a staged node is a copy of.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    pub node: NodeId,
    /// Which of the splices it belongs to.
    pub splice: usize,
    /// What its bodies read of what is outside of them.
    pub captured: Vec<Operand>,
    /// The bytes of the constants in its bodies.
    pub bytes: u64,
}

/// A constant.
#[derive(Clone, Debug)]
pub(super) struct StagedConstant {
    pub hint: Str,
    pub tensor: Tensor,
    /// The constant of a body that it is a copy of.
    pub copied: Option<ValueId>,
}

impl Rewrite {
    /// The new constants that are made: with copied bodies only those that something reads.
    pub(super) fn made_constants(&self) -> HashSet<usize> {
        let operands = self.nodes.iter().flat_map(Staged::reads);
        let operands = operands.chain(self.redefined.iter().map(|&(_, by)| by));
        let constant = |operand| if let Operand::Constant(index) = operand { Some(index) } else { None };
        // What a caller adds is wanted, unless it is for copies of a body, which may not read it.
        let added = if self.splices.is_empty() { self.constants.len() } else { 0 };
        operands.filter_map(constant).chain(0..added).collect()
    }

    /// The bytes of new constants, those in copied bodies and in attributes of new nodes included.
    pub fn added_bytes(&self) -> i64 {
        let read = self.made_constants();
        let own = self.constants.iter().enumerate().filter(|(index, _)| read.contains(index));
        let own = own.map(|(_, constant)| constant.tensor.byte_len());
        let copied = self.nodes.iter().filter_map(|staged| Some(staged.copied.as_ref()?.bytes));
        let held =
            self.nodes.iter().filter(|staged| staged.copied.is_none()).flat_map(|staged| &staged.attrs);
        let held = held.filter_map(|attr| match &attr.value {
            AttrValue::Tensor(tensor) => Some(tensor.byte_len()),
            _ => None,
        });
        saturating_sum(own.chain(copied).chain(held))
    }
}
