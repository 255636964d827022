//! Which dimensions of the inputs may be 0, while the others are taken for at least 1.
//!
//! A cache may start empty. It is recognized by what happens to it: an input, or what operators that only move or convert elements make of one, is
//! concatenated to something, or is what an attention operator puts before its keys and values. The axis on which it grows there may be empty.

use std::collections::{BTreeSet, HashSet};

use crate::Fact;
use onnxforge_ir::dim::{Dim, Symbol};
use onnxforge_ir::{Model, Node, ValueId};

/// Operators whose outputs have elements of their first input, and no others.
const MOVING: [&str; 11] = [
    "Identity",
    "Cast",
    "CastLike",
    "Transpose",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Gather",
    "Slice",
    "Split",
];

/// What attention operators take as a cache: inputs, and the axis of the length.
const CACHES: [(&str, &[usize], i64); 7] = [
    ("Attention", &[4, 5], 2),
    ("com.microsoft.Attention", &[4], 3),
    ("com.microsoft.MultiHeadAttention", &[6, 7], 2),
    ("com.microsoft.GroupQueryAttention", &[3, 4], 2),
    ("com.microsoft.SparseAttention", &[3, 4], 2),
    ("com.microsoft.DecoderMaskedSelfAttention", &[4], 3),
    ("com.microsoft.DecoderMaskedMultiHeadAttention", &[5, 6], 2),
];

/// What was seen of inputs that grow.
#[derive(Debug, Default)]
pub struct Growth {
    /// Inputs of the graph, and what is made of them by moving elements.
    moved: HashSet<ValueId>,
    /// Symbols of dimensions along which they grow.
    symbols: BTreeSet<Symbol>,
}

impl Growth {
    /// Follows the inputs of the model's graph.
    pub fn of_inputs(model: &Model) -> Self {
        let inputs = model.scope(model.main()).inputs().iter().map(|port| port.value);
        Self { moved: inputs.collect(), symbols: BTreeSet::new() }
    }

    /// The dimensions along which inputs were seen to grow.
    pub fn symbols(&self) -> &BTreeSet<Symbol> {
        &self.symbols
    }

    /// A value of a function is the argument of the call that is walked.
    pub fn bind(&mut self, parameter: ValueId, argument: Option<ValueId>) {
        if argument.is_some_and(|argument| self.moved.contains(&argument)) {
            self.moved.insert(parameter);
        } else {
            self.moved.remove(&parameter);
        }
    }

    /// Looks at a call. `fact` says what is known of a value that it reads.
    pub fn see<'f>(&mut self, node: &Node, fact: impl Fn(ValueId) -> &'f Fact) {
        if self.moved.is_empty() {
            return;
        }
        let is_moved = |value: &ValueId| self.moved.contains(value);
        for (index, axis) in growing(node) {
            let shape =
                node.input(index).filter(is_moved).and_then(|value| fact(value).tensor()?.shape.as_ref());
            let dim = shape.and_then(|shape| shape.get(crate::call::axis(axis, shape.len()).ok()?));
            self.symbols.extend(dim.and_then(Dim::as_symbol));
        }
        let is_moving =
            MOVING.iter().any(|op| node.op().is(op)) || node.op().is("Concat") && node.inputs().len() == 1;
        if is_moving && node.input(0).is_some_and(|value| self.moved.contains(&value)) {
            self.moved.extend(node.outputs().iter().flatten());
        }
    }
}

/// The inputs of a call that something is appended to, with the axis.
pub fn growing(node: &Node) -> impl Iterator<Item = (usize, i64)> {
    let is_joined = node.op().is("Concat") && node.inputs().len() > 1;
    let concatenated = node.attr_int("axis").filter(|_| is_joined);
    let all =
        concatenated.into_iter().flat_map(|axis| (0..node.inputs().len()).map(move |index| (index, axis)));
    let cache = CACHES.iter().find(|(op, ..)| node.op().is(op));
    let caches = cache.into_iter().flat_map(|(_, inputs, axis)| inputs.iter().map(|index| (*index, *axis)));
    all.chain(caches)
}
