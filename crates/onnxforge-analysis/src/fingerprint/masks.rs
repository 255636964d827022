//! Whether attention hides what comes later.

use std::collections::HashSet;

use crate::scene::Scene;
use crate::scene::attention::Block;
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Node, NodeId, ValueId};
use onnxforge_ops::Array;

/// How many nodes before the masks of all attention are looked at.
const REACH: usize = 4096;
/// Constants with more elements are not looked at.
const MOST: usize = 1 << 22;

/// Whether attention hides later keys: by itself, by a triangle, or by comparing the positions of queries and keys.
pub(super) fn is_causal(scene: &Scene<'_>, blocks: &[Block]) -> bool {
    if blocks.iter().any(|block| block.is_causal) {
        return true;
    }
    let model = scene.model();
    let mut open: Vec<ValueId> = blocks.iter().flat_map(|block| block.masks.iter().copied()).collect();
    let mut seen: HashSet<NodeId> = HashSet::new();
    let mut constants: HashSet<ValueId> = HashSet::new();
    while let Some(value) = open.pop() {
        if model.constant(value).is_some() {
            if constants.insert(value) && is_triangle(scene, value) {
                return true;
            }
            continue;
        }
        let Some(id) = model.value(value).node() else { continue };
        if seen.len() >= REACH || !seen.insert(id) {
            continue;
        }
        let node = model.node(id);
        if node.op().is("Trilu") || compares_positions(scene, node) {
            return true;
        }
        // What products, normalizations and lookups of weights give is no mask any more.
        let is_layer = matches!(
            &*node.op().name,
            "MatMul"
                | "Gemm"
                | "Conv"
                | "LayerNormalization"
                | "RMSNormalization"
                | "Softmax"
                | "Einsum"
                | "Shape"
        );
        if !is_layer {
            open.extend(node.inputs().iter().flatten());
        }
    }
    false
}

/// Whether a node compares a row of integers with a column of them.
fn compares_positions(scene: &Scene<'_>, node: &Node) -> bool {
    if !matches!(&*node.op().name, "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual") {
        return false;
    }
    let &[Some(a), Some(b)] = node.inputs() else { return false };
    let (Some(a), Some(b)) = (scene.facts().shape(a), scene.facts().shape(b)) else { return false };
    let one = |dim: Option<&Dim>| dim.is_none_or(|dim| dim.as_const() == Some(1));
    let back =
        |shape: &[Dim], steps: usize| shape.len().checked_sub(steps).and_then(|at| shape.get(at)).cloned();
    let is_column =
        |shape: &[Dim]| shape.len() >= 2 && one(back(shape, 1).as_ref()) && !one(back(shape, 2).as_ref());
    let is_row = |shape: &[Dim]| !one(back(shape, 1).as_ref()) && one(back(shape, 2).as_ref());
    is_row(a) && is_column(b) || is_column(a) && is_row(b)
}

/// Whether a constant is a square, or several, with one number above the diagonal and others on and below it.
fn is_triangle(scene: &Scene<'_>, value: ValueId) -> bool {
    let Some(tensor) = scene.model().constant(value) else { return false };
    let &[.., rows, columns] = tensor.shape() else { return false };
    if rows != columns || rows < 2 || tensor.is_empty() || tensor.len() > MOST {
        return false;
    }
    let Ok(numbers) = Array::from_tensor(tensor).and_then(|array| array.to_f64s()) else { return false };
    let Some(square) = numbers.get(..rows * columns) else { return false };
    let Some(&hidden) = square.get(columns - 1) else { return false };
    square.iter().enumerate().all(|(place, &number)| {
        let (row, column) = (place / columns, place % columns);
        (number == hidden) == (column > row)
    })
}
