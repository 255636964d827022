//! fuse_attention_qkv: three products of one value with constant weights become one product and a Split. On request, and for decoders with a cache: it saves time where there is one row only.
//!
//! **Matches** exactly three MatMul of one value with constant matrices, of any widths, or the three of more of which heads are made, by a Reshape that cuts the last axis into two or by an
//! operator that does so itself (`products`), with the constant vectors that are added behind
//! them where all three have one, or three Gemm that have a bias each or none (`gemms`). Weights and biases are put side by side while they are
//! written.
//! **Accuracy** `Rounding`: a runtime may sum in another order for a wider matrix.
//! **Proof** Each column of a product depends on the same column of the second matrix alone.
//! **Bound** Each element is the sum of the same n products, and of the same bias, in an order that the kernel chooses by the width: n roundings on the
//! way of a product before and after, one more with a bias. None is added.
//! **Never** two products; more of which not just three make heads; weights or biases that are computed; a Gemm with a factor, or with a transposed first matrix.

use crate::passes::pass;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, Attr, DType, NodeId, Op, Tensor, ValueId};

pass!(fuse_attention_qkv { stage: Cleanup, runs: OnRequest, rules: [PRODUCTS, GEMMS] });

const FEW: Accuracy = Accuracy::Rounding { ulps: 4.0 };

static PRODUCTS: At = At { name: "products", accuracy: FEW, ops: &["MatMul"], apply: products };
static GEMMS: At = At { name: "gemms", accuracy: FEW, ops: &["Gemm"], apply: gemms };

fn products(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let (x, nodes) = three(cx, root)?;
    let weights = side_by_side(cx, &nodes, 1, 1)?;
    let outputs = outputs(cx, &nodes)?;
    let sums: Option<Vec<(NodeId, ValueId)>> = outputs.iter().map(|&product| summand(cx, product)).collect();
    // Where not all have a summand, the sums stay behind.
    let sums = sums.unwrap_or_default();
    let (nodes_of_sums, biases): (Vec<NodeId>, Vec<ValueId>) = sums.into_iter().unzip();
    let mut change = cx.change(&[nodes, nodes_of_sums.clone()].concat());
    let weights = change.constant("weights", weights);
    let wide = change.op("MatMul", [x.into(), weights], []);
    if biases.is_empty() {
        return parted(cx, change, root, wide, &outputs);
    }
    let biases: Vec<Tensor> =
        biases.iter().map(|&bias| cx.constant(bias).cloned()).collect::<Result<_, _>>()?;
    let together = Tensor::concatenated(&biases, 0).map_err(|_| Skip::from(Reason::Type))?;
    let bias = change.constant("biases", together);
    let shifted = change.op("Add", [wide, bias], []);
    let outputs = self::outputs(cx, &nodes_of_sums)?;
    parted(cx, change, root, shifted, &outputs)
}

fn gemms(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let (x, nodes) = three(cx, root)?;
    let transposed = cx.call(root)?.flag("transB")?;
    // Before that an attribute said whether the bias is stretched.
    if cx.call(root)?.since() < 7 {
        return Err(Skip::NOT_HERE);
    }
    for &node in &nodes {
        let call = cx.call(node)?;
        let is_plain = call.float("alpha")? == 1.0 && call.float("beta")? == 1.0 && !call.flag("transA")?;
        if !is_plain || call.flag("transB")? != transposed {
            return Err(Skip::because("a Gemm does more than the others, or less"));
        }
    }
    let weights = side_by_side(cx, &nodes, 1, usize::from(!transposed))?;
    let outputs = outputs(cx, &nodes)?;
    let biased = nodes.iter().filter(|&&node| cx.node(node).input(2).is_some()).count();
    let bias = match biased {
        0 => None,
        3 => Some(side_by_side(cx, &nodes, 2, 0)?),
        _ => return Err(Skip::because("a Gemm does more than the others, or less")),
    };
    let mut change = cx.change(&nodes);
    let mut inputs: Vec<Operand> = vec![x.into(), change.constant("weights", weights)];
    inputs.extend(bias.map(|bias| change.constant("biases", bias)));
    let attrs: Vec<Attr> = if transposed { vec![("transB", 1).into()] } else { Vec::new() };
    let wide = change.call(Op::standard("Gemm"), inputs, 1, attrs).output(0);
    parted(cx, change, root, wide, &outputs)
}

/// What `root` multiplies, and the three calls of its operator that multiply it with constants.
fn three(cx: &Cx<'_>, root: NodeId) -> Result<(ValueId, Vec<NodeId>), Skip> {
    let x = cx.input(root, 0)?;
    let is_product = |node: NodeId| {
        cx.node(node).op() == cx.node(root).op()
            && cx.scope(node) == cx.scope(root)
            && cx.node(node).input(1).is_some_and(|weights| cx.model.constant(weights).is_some())
    };
    let reads = |used: &Use| match *used {
        Use::Input { node, index: 0 } if is_product(node) => Some(node),
        _ => None,
    };
    let mut nodes: Vec<NodeId> = cx.model.value(x).uses().iter().filter_map(reads).collect();
    nodes.sort_unstable();
    if nodes.len() < 3 || cx.model.constant(x).is_some() {
        return Err(Skip::NOT_HERE);
    }
    if nodes.len() > 3 {
        let is_first = nodes.first() == Some(&root);
        // One that is no part of attention, as the first product of a perceptron, stays by itself.
        nodes.retain(|&node| becomes_heads(cx, node));
        if nodes.len() != 3 && is_first {
            return Err(Skip::because("of more than three products of the value, not just three make heads"));
        }
    }
    // The first of them is the root of all.
    if nodes.len() != 3 || nodes.first() != Some(&root) {
        return Err(Skip::NOT_HERE);
    }
    if !matches!(cx.dtype(x)?, DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    Ok((x, nodes))
}

/// Whether heads are made of the result of a product, with or without a bias: a Reshape cuts its last axis into two, or it goes into an operator that does so.
fn becomes_heads(cx: &Cx<'_>, product: NodeId) -> bool {
    /// Operators that take heads side by side.
    const TAKES_HEADS: [&str; 4] =
        ["Attention", "RotaryEmbedding", "MultiHeadAttention", "GroupQueryAttention"];
    let Ok(mut y) = cx.output(product) else { return false };
    if let Some((sum, _)) = summand(cx, y) {
        let Ok(shifted) = cx.output(sum) else { return false };
        y = shifted;
    }
    let width = cx.shape(y).ok().and_then(|shape| shape.last()?.as_const());
    let makes_heads = |node: NodeId| match &*cx.node(node).op().name {
        "Reshape" => {
            let sizes = cx.output(node).ok().and_then(|heads| cx.shape(heads).ok());
            let last = sizes.and_then(|sizes| sizes.last_chunk::<2>());
            last.and_then(|[count, size]| count.as_const()?.checked_mul(size.as_const()?)) == width
                && width.is_some()
        }
        op => TAKES_HEADS.contains(&op),
    };
    let mut readers = cx.model.value(y).uses().iter();
    readers.any(|used| matches!(used, Use::Input { node, .. } if makes_heads(*node)))
}

fn outputs(cx: &Cx<'_>, nodes: &[NodeId]) -> Result<Vec<ValueId>, Skip> {
    nodes.iter().map(|&node| cx.output(node)).collect()
}

/// Input `index` of the nodes, one behind the other: matrices along `axis`, or vectors.
fn side_by_side(cx: &Cx<'_>, nodes: &[NodeId], index: usize, axis: usize) -> Result<Tensor, Skip> {
    let mut parts = Vec::new();
    for &node in nodes {
        let value = cx.input(node, index)?;
        let part = cx.constant(value)?;
        let width = cx.shape(cx.output(node)?)?.last().and_then(onnxforge_ir::dim::Dim::as_const);
        let fits = part.shape().len() == if index == 1 { 2 } else { 1 };
        if !fits || part.shape().get(axis).copied() != width.and_then(|width| usize::try_from(width).ok()) {
            return Err(Skip::at(Reason::Broadcast, value));
        }
        parts.push(part.clone());
    }
    Tensor::concatenated(&parts, axis).map_err(|_| Reason::Type.into())
}

/// The sum of a product, which nothing else reads, with a constant vector.
fn summand(cx: &Cx<'_>, product: ValueId) -> Option<(NodeId, ValueId)> {
    let sum = cx.only_reader(product).filter(|&node| cx.node(node).op().is("Add"))?;
    let &[Some(a), Some(b)] = cx.node(sum).inputs() else { return None };
    let bias = if a == product { b } else { a };
    let width = cx.shape(product).ok()?.last()?.as_const()?;
    let is_vector = cx.model.constant(bias)?.shape() == [usize::try_from(width).ok()?];
    let beside = cx.scope(sum) == cx.scope(cx.model.value(product).node()?);
    (is_vector && beside && cx.call(sum).ok()?.since() >= 7).then_some((sum, bias))
}

/// The change that cuts `wide` along its last axis into the values.
fn parted(
    cx: &Cx<'_>,
    mut change: Change,
    root: NodeId,
    wide: Operand,
    values: &[ValueId],
) -> Result<Change, Skip> {
    let mut sizes = Vec::new();
    for &value in values {
        let width = cx.shape(value)?.last().and_then(onnxforge_ir::dim::Dim::as_const);
        sizes.push(width.ok_or_else(|| Skip::at(Reason::UnknownShape, value))?);
    }
    let axis = cx.rank(values[0])? as i64 - 1;
    let mut attrs: Vec<Attr> = vec![("axis", axis).into()];
    let mut inputs = vec![wide];
    // From version 13 on the sizes are an input.
    match cx.opset(root) {
        ..2 => return Err(Skip::NOT_HERE),
        2..13 => attrs.push(("split", sizes).into()),
        _ => inputs.push(change.ints("split", &sizes)),
    }
    let parts = change.call(Op::standard("Split"), inputs, values.len(), attrs);
    for (index, &value) in values.iter().enumerate() {
        change.replace(value, parts.output(index));
    }
    Ok(change)
}
