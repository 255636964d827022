//! Attention: a product of two computed values, a Softmax of it, and the product of that with a third; or an operator that is all of it.
//!
//! This sees more than [`fuse_attention`](onnxforge_rewrite::passes::fuse::fuse_attention) takes: any number of axes, masks before or behind scales, and whatever else is done element by
//! element on the way. What the pass makes of it is the pass's own answer.

use std::collections::{HashMap, HashSet, VecDeque};

use super::Scene;
use onnxforge_ir::value::Use;
use onnxforge_ir::{NodeId, ValueId};
use onnxforge_rewrite::passes::recognize::heads::repeated;

/// How far apart the parts of attention may be, in nodes.
const REACH: usize = 16;
/// How many nodes are looked at on the way.
const MOST: usize = 1024;

/// Attention that was recognised.
#[derive(Clone, Debug)]
pub struct Block {
    /// The last node: the product with the values, or the operator.
    pub root: NodeId,
    /// Nodes from the product of queries and keys to the root, both included.
    pub core: Vec<NodeId>,
    /// What the products read: queries, keys and values.
    pub operands: Vec<ValueId>,
    /// Nodes that multiply or divide by one number on the way.
    pub scales: Vec<NodeId>,
    /// What scores are combined with: masks and biases.
    pub masks: Vec<ValueId>,
    /// Nodes that move elements before and behind it: they split heads off and join them.
    pub layout: Vec<NodeId>,
    /// Nodes that repeat keys and values for groups of heads.
    pub groups: Vec<NodeId>,
    /// It is decomposed, not an operator.
    pub is_spelled_out: bool,
    /// The operator has fewer heads for keys and values than for queries.
    pub is_grouped: bool,
    /// The operator itself hides later keys.
    pub is_causal: bool,
}

/// All attention of a model, bodies and functions included.
pub fn blocks(scene: &Scene<'_>) -> Vec<Block> {
    let nodes = scene.model().nodes();
    let found = nodes.filter_map(|(id, node)| match &*node.op().name {
        "Softmax" => spelled_out(scene, id),
        name if name.ends_with("Attention") && is_operator(scene, id) => Some(operator(scene, id)),
        _ => None,
    });
    // Two Softmaxes may meet in one product; that is one place.
    let mut roots = HashSet::new();
    found.filter(|block| roots.insert(block.root)).collect()
}

fn is_operator(scene: &Scene<'_>, id: NodeId) -> bool {
    let op = scene.model().node(id).op();
    onnxforge_ops::find(&op.domain, &op.name).is_some()
}

fn operator(scene: &Scene<'_>, id: NodeId) -> Block {
    let node = scene.model().node(id);
    let int = |name: &str| node.attr_int(name).unwrap_or(0);
    let mut operands: Vec<ValueId> = node.inputs().iter().take(3).flatten().copied().collect();
    operands.retain(|&operand| !scene.is_weight(operand));
    let heads = |index: usize| {
        let shape = scene.facts().shape(node.input(index)?)?;
        (shape.len() == 4).then(|| shape[1].as_const()).flatten()
    };
    let grouped = match (int("q_num_heads"), int("kv_num_heads"), int("num_heads")) {
        (0, 0, _) => matches!((heads(0), heads(1)), (Some(q), Some(k)) if q > k),
        (0, of_keys, all) | (all, of_keys, _) => of_keys > 0 && of_keys < all,
    };
    Block {
        root: id,
        core: vec![id],
        operands,
        scales: Vec::new(),
        masks: node.inputs().get(3).copied().flatten().into_iter().collect(),
        layout: Vec::new(),
        groups: Vec::new(),
        is_spelled_out: false,
        is_grouped: grouped,
        is_causal: int("is_causal") == 1
            || int("unidirectional") == 1
            || node.op().name.starts_with("GroupQuery"),
    }
}

fn spelled_out(scene: &Scene<'_>, softmax: NodeId) -> Option<Block> {
    let (model, cx) = (scene.model(), scene.cx());
    let scores = backward(scene, softmax)?;
    let mixed = forward(scene, softmax)?;
    let (product, root) = (*scores.last()?, *mixed.last()?);
    let mut core = scores.clone();
    core.extend(mixed.iter().filter(|node| !scores.contains(node)));
    let inside: HashSet<NodeId> = core.iter().copied().collect();
    let computed_inside =
        |value: &ValueId| model.value(*value).node().is_some_and(|node| inside.contains(&node));

    let mut operands: Vec<ValueId> = model.node(product).inputs().iter().flatten().copied().collect();
    operands.extend(model.node(root).inputs().iter().flatten().filter(|value| !computed_inside(value)));
    let mut scales = Vec::new();
    let mut masks = Vec::new();
    for &node in core.iter().filter(|&&node| node != product && node != root && node != softmax) {
        let call = model.node(node);
        let by_number = call.inputs().iter().flatten().any(|&input| cx.uniform(input).is_some());
        match &*call.op().name {
            "Mul" | "Div" if by_number => scales.push(node),
            "Add" | "Sub" | "Where" | "Mul" => {
                let others = call.inputs().iter().flatten().copied();
                masks.extend(others.filter(|&other| !computed_inside(&other) && cx.uniform(other).is_none()));
            }
            _ => {}
        }
    }
    let mut layout = Vec::new();
    let mut groups = Vec::new();
    for (place, &operand) in operands.iter().enumerate() {
        let mut value = operand;
        for _ in 0..REACH {
            let Some(id) = model.value(value).node() else { break };
            if place > 0
                && groups.len() < 6
                && let Some((source, repeats)) = repeated(&cx, value, root)
            {
                groups.extend(repeats);
                value = source;
                continue;
            }
            let node = model.node(id);
            let Some(source) = node.input(0) else { break };
            let by_number = matches!(&*node.op().name, "Mul" | "Div")
                && node.input(1).is_some_and(|factor| cx.uniform(factor).is_some());
            if by_number && !scales.contains(&id) {
                scales.push(id);
            } else if is_move(&node.op().name) && !layout.contains(&id) {
                layout.push(id);
            } else if !by_number && !is_move(&node.op().name) {
                break;
            }
            value = source;
        }
    }
    let mut value = model.node(root).output(0)?;
    for _ in 0..REACH {
        let &[Use::Input { node, index: 0 }] = model.value(value).uses() else { break };
        if !is_move(&model.node(node).op().name) {
            break;
        }
        layout.push(node);
        let Some(output) = model.node(node).output(0) else { break };
        value = output;
    }
    Some(Block {
        root,
        core,
        operands,
        scales,
        masks,
        layout,
        groups,
        is_spelled_out: true,
        is_grouped: false,
        is_causal: false,
    })
}

fn is_move(op: &str) -> bool {
    matches!(op, "Transpose" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten")
}

/// Whether a node is a product of two computed values, or one with weights.
fn product(scene: &Scene<'_>, id: NodeId) -> Option<bool> {
    let node = scene.model().node(id);
    let is_product =
        matches!(&*node.op().name, "MatMul" | "Einsum" | "Gemm" | "FusedMatMul" | "TransposeMatMul");
    let &[Some(a), Some(b), ..] = node.inputs() else { return None };
    is_product.then(|| !scene.is_weight(a) && !scene.is_weight(b))
}

/// The way from a Softmax back to the product of which it is taken, both included.
fn backward(scene: &Scene<'_>, softmax: NodeId) -> Option<Vec<NodeId>> {
    let sources = |id: NodeId| {
        let inputs = scene.model().node(id).inputs().iter().flatten();
        inputs.filter_map(|&input| scene.model().value(input).node()).collect()
    };
    way(scene, softmax, &sources)
}

/// The way from a Softmax on to the product with it.
fn forward(scene: &Scene<'_>, softmax: NodeId) -> Option<Vec<NodeId>> {
    let readers = |id: NodeId| {
        let outputs = scene.model().node(id).outputs().iter().flatten();
        outputs.flat_map(|&output| scene.readers(output)).collect()
    };
    way(scene, softmax, &readers)
}

/// The shortest way over nodes that keep elements apart to a product of computed values.
fn way(scene: &Scene<'_>, from: NodeId, next: &dyn Fn(NodeId) -> Vec<NodeId>) -> Option<Vec<NodeId>> {
    let mut came: HashMap<NodeId, (NodeId, usize)> = HashMap::new();
    let mut open = VecDeque::from([(from, 0)]);
    while let Some((id, steps)) = open.pop_front() {
        for neighbour in next(id) {
            if neighbour == from || came.contains_key(&neighbour) || steps >= REACH || came.len() >= MOST {
                continue;
            }
            came.insert(neighbour, (id, steps));
            match product(scene, neighbour) {
                Some(true) => return Some(trace(&came, from, neighbour)),
                Some(false) => {}
                None if scene.keeps_elements(scene.model().node(neighbour)) => {
                    open.push_back((neighbour, steps + 1));
                }
                None => {}
            }
        }
    }
    None
}

fn trace(came: &HashMap<NodeId, (NodeId, usize)>, from: NodeId, to: NodeId) -> Vec<NodeId> {
    let mut nodes = vec![to];
    let mut at = to;
    while let Some(&(before, _)) = came.get(&at) {
        nodes.push(before);
        at = before;
        if at == from {
            break;
        }
    }
    nodes.reverse();
    nodes
}
