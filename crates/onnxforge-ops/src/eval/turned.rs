//! Products with weights that a Transpose turns: computed with the weights as they are stored, without a copy of them.

use std::collections::{HashMap, HashSet};

use onnxforge_ir::value::{Def, Use};
use onnxforge_ir::{Model, NodeId, ValueId};

use crate::callee::{Callee, Functions};

/// Weights that only transposed take part in products.
#[derive(Default)]
pub struct Turned {
    /// The weights of a MatMul, one row for each column of the matrix that it asks for.
    pub weights: HashMap<NodeId, ValueId>,
    /// Transposes that nothing else reads.
    pub spared: HashSet<NodeId>,
}

impl Turned {
    /// Those of a graph, among the nodes that compute the same in every run.
    pub fn of(model: &Model, fixed: &HashSet<NodeId>, functions: &Functions) -> Self {
        let mut turned = Self::default();
        for (id, _) in model.nodes_in(model.main()).filter(|(id, _)| fixed.contains(id)) {
            let Some((weights, matrix)) = transpose(model, id, functions) else { continue };
            let uses = model.value(matrix).uses();
            let products = uses.iter().filter_map(|used| product(model, used, functions));
            let before = turned.weights.len();
            turned.weights.extend(products.map(|node| (node, weights)));
            if turned.weights.len() == before + uses.len() {
                turned.spared.insert(id);
            }
        }
        turned
    }
}

/// The constant matrix that a node transposes, and what comes out.
fn transpose(model: &Model, id: NodeId, functions: &Functions) -> Option<(ValueId, ValueId)> {
    let node = model.node(id);
    let Callee::Operator(call) = functions.callee(model, id, None) else { return None };
    let (weights, matrix) = (node.input(0)?, node.output(0)?);
    // An input with a default may be given another value.
    let is_fixed = matches!(model.value(weights).def(), Def::Constant { .. });
    let is_matrix = node.op().is("Transpose") && is_fixed && model.constant(weights)?.shape().len() == 2;
    let turns = call.opt_ints("perm").ok()?.is_none_or(|perm| perm == [1, 0]);
    (is_matrix && turns).then_some((weights, matrix))
}

/// The MatMul of the graph that a use is the second operand of.
fn product(model: &Model, used: &Use, functions: &Functions) -> Option<NodeId> {
    let Use::Input { node, index: 1 } = *used else { return None };
    let is_product = model.node(node).op().is("MatMul")
        && model.node(node).inputs().len() == 2
        && functions.get(model.node(node).op()).is_none();
    (is_product && model.node(node).scope() == model.main()).then_some(node)
}
