//! Which nodes compute floats of 32 bits in 16.

use std::collections::BTreeSet;

use half::f16;
use onnxforge_ir::{DType, Node, NodeId, Tensor, Use, ValueId};

use super::Writer;
use crate::view::View;

/// Constants of more elements are weights: one that is nearly 0 among them loses nothing.
const FEW: usize = 8;

/// Operators whose results are as large as what they read.
const KEEPS_SIZE: &[&str] = &[
    "Add",
    "Sub",
    "Mul",
    "Neg",
    "Abs",
    "Where",
    "Max",
    "Min",
    "Sum",
    "Expand",
    "Reshape",
    "Transpose",
    "Slice",
    "Concat",
    "Split",
    "Unsqueeze",
    "Squeeze",
    "Flatten",
    "Gather",
    "GatherND",
    "GatherElements",
    "Tile",
    "Pad",
    "Cast",
    "Identity",
    "ReduceMax",
    "ReduceMin",
    "ReduceSum",
    "ReduceMean",
];

/// Values that are, or may be, too large for 16 bits: constants, and what is made of those as they are.
pub fn large(view: &View<'_>) -> BTreeSet<ValueId> {
    let mut large = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (_, node) in view.model.nodes_in(view.model.main()) {
        let mut is_large = false;
        for &input in node.inputs().iter().flatten() {
            if seen.insert(input) && view.model.constant(input).is_some_and(exceeds) {
                large.insert(input);
            }
            is_large |= large.contains(&input);
        }
        if is_squared(view, node) {
            large.extend(node.outputs().iter().flatten());
        }
        if is_large && node.op().domain.is_empty() && KEEPS_SIZE.contains(&&*node.op().name) {
            large.extend(node.outputs().iter().flatten());
        }
    }
    large
}

/// Whether squares of a node are summed, as in a root mean square: those of numbers above 256 do not fit into 16 bits.
fn is_squared(view: &View<'_>, node: &Node) -> bool {
    let squares = match node.op().is("Mul") {
        true => node.input(0) == node.input(1),
        false => node.op().is("Pow"),
    };
    let is_sum = |used: &Use| {
        view.model.reader(used).is_some_and(|reader| {
            let op = view.node(reader).op();
            op.is("ReduceMean") || op.is("ReduceSum")
        })
    };
    squares && node.outputs().iter().flatten().any(|&value| view.model.value(value).uses().iter().any(is_sum))
}

/// Whether a constant of 32 bits is beyond what 16 hold.
fn exceeds(constant: &Tensor) -> bool {
    let most = f32::from(f16::MAX);
    any(constant, |x| x.is_finite() && x.abs() > most)
}

/// Whether a number of a constant would be lost in 16 bits.
fn vanishes(constant: &Tensor) -> bool {
    constant.len() <= FEW && any(constant, |x| x != 0.0 && f16::from_f32(x) == f16::ZERO)
}

/// Whether this holds of a float of 32 bits of a constant.
fn any(constant: &Tensor, holds: impl Fn(f32) -> bool) -> bool {
    constant.dtype() == DType::F32
        && constant
            .bytes()
            .is_ok_and(|bytes| bytes.as_chunks().0.iter().any(|&number| holds(f32::from_le_bytes(number))))
}

impl Writer<'_> {
    /// Whether a node has to compute in 32 bits, because numbers of its do not fit into 16.
    pub fn needs_single(&self, id: NodeId) -> bool {
        let node = self.node(id);
        let is_large = |value: &ValueId| self.large.contains(value);
        let vanishing = |value: &ValueId| self.model.constant(*value).is_some_and(vanishes);
        node.inputs().iter().chain(node.outputs()).flatten().any(is_large)
            || node.inputs().iter().flatten().any(vanishing)
    }
}
