//! ort_attention: attention that is decomposed becomes ONNX Runtime's MultiHeadAttention, which splits heads off and joins them itself, or its Attention, which multiplies with the weights, too.
//!
//! **Matches** softmax(q · kᵀ) · v between the Transposes and Reshapes that split heads off and join them, where the Softmax is of MatMul(q, kᵀ), scaled on either side or
//! behind it, and masked by a sum (`heads`); constant vectors that are added to queries, keys and values in front of it (`bias`), and a number that queries are multiplied with
//! (`scale`); three products of one value with constant matrices in front of it, which become Attention of `com.microsoft` (`packed`). For the target `ort`, at any operator
//! set: what `fuse_attention` makes of it from operator set 23 on is not rewritten.
//! **Accuracy** `Rounding`: the same operations in another kernel, which may sum in another order.
//! **Proof** This is the definition of the operator: it adds the mask to the scores as the Add did, and knows no numbers that hide keys.
//! **Bound** `heads`: before, the scores have one rounding of their scale, unless that is 1, or one for queries and one for keys; the operator multiplies scores
//! once. None is added; the sums of n products are as long as before. `bias` moves a sum into the operator: none is added. `scale` takes one rounding of each query away,
//! and adds one of the combined number. `packed`: each column of a product depends on the same column of the matrix alone; n roundings before and after, in another order.
//! **Never** numbers of 16 and 64 bits, for which ONNX Runtime has no such operator on CPUs; heads that are repeated for groups; masks that do not have a row and a column for each
//! score, unless one row serves all queries; low numbers that take the place of scores; bounds by tanh; NaN that becomes 0.

use crate::passes::pass;
use crate::passes::recognize::channels::features;
use crate::passes::recognize::heads::{SWAPPED, Together};
use crate::passes::recognize::masks::Masking;
use crate::passes::recognize::orders::permutation;
use crate::passes::recognize::reshape_target::behind_joined_heads;
use crate::passes::recognize::scores::Decomposed;
use crate::passes::targets::ORT;
use crate::{At, Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Attr, DType, NodeId, Tensor, ValueId};

pass!(ort_attention {
    stage: Target,
    needs: ["Softmax", "MultiHeadAttention"],
    runs: Only(&[&ORT]),
    rules: [HEADS, BIAS, SCALE, PACKED]
});

const OP: &str = "MultiHeadAttention";

static HEADS: At =
    At { name: "heads", accuracy: Accuracy::Rounding { ulps: 8.0 }, ops: &["Reshape"], apply: heads };
static BIAS: At = At {
    name: "bias",
    accuracy: Accuracy::Rounding { ulps: 2.0 },
    ops: &["com.microsoft.MultiHeadAttention"],
    apply: bias,
};
static SCALE: At = At {
    name: "scale",
    accuracy: Accuracy::Rounding { ulps: 2.0 },
    ops: &["com.microsoft.MultiHeadAttention"],
    apply: scale,
};
static PACKED: At = At {
    name: "packed",
    accuracy: Accuracy::Rounding { ulps: 4.0 },
    ops: &["com.microsoft.MultiHeadAttention"],
    apply: packed,
};

fn heads(cx: &Cx<'_>, join: NodeId) -> Result<Change, Skip> {
    let (turned, y) = (cx.input(join, 0)?, cx.output(join)?);
    let mut trail = Trail::new(cx, join);
    let back = trail.step(turned, "Transpose").ok_or(Skip::NOT_HERE)?;
    let product = trail.step(cx.input(back, 0)?, "MatMul").ok_or(Skip::NOT_HERE)?;
    let found = Decomposed::of(cx, trail, product)?;
    if permutation(cx, back)? != SWAPPED {
        return Err(Skip::NOT_HERE);
    }
    let types = [found.q, found.v, cx.output(found.softmax)?].map(|value| cx.dtype(value).ok());
    if types != [Some(DType::F32); 3] {
        return Err(Skip::at(Reason::Type, found.q));
    }
    let scale = found.scale as f32;
    if !scale.is_normal() {
        return Err(Skip::because("the scale is 0, very small, very large or no number"));
    }
    if found.softcap.is_some() || found.guarded {
        return Err(Skip::because("ONNX Runtime's operator has no bound for scores, and keeps NaN"));
    }
    let [rows, columns] = found.scores(cx)?;
    let [queries, keys, values] = [
        Together::of(cx, found.q, reader(cx, found.q, product))?,
        match found.keys {
            [0, 1, 2, 3] => Together::of(cx, found.k, reader(cx, found.k, product))?,
            _ => Together::behind(cx, found.k, reader(cx, found.k, product))?,
        },
        Together::of(cx, found.v, product)?,
    ];
    if queries.heads != keys.heads || keys.heads != values.heads {
        return Err(Skip::at(Reason::Broadcast, found.k));
    }
    let mask = match found.mask {
        None => None,
        Some(Masking::Choice { condition, .. }) => {
            return Err(Skip::at(Reason::Rule("low numbers take the place of scores"), condition));
        }
        Some(Masking::Sum(mask)) => Some(Bias::of(cx, mask, cx.shape(found.q)?, [&rows, &columns], join)?),
    };
    let rest = behind_joined_heads(cx, turned, y)?;

    let mut change = found.trail.change()?;
    let mut inputs = Vec::new();
    for operand in [&queries, &keys, &values] {
        inputs.push(operand.operand(cx, &mut change)?);
    }
    if let Some(mask) = mask {
        inputs.extend([Operand::Absent, Operand::Absent, mask.operand(&mut change, inputs[0])]);
    }
    let attrs: [Attr; 2] = [("num_heads", queries.heads).into(), ("scale", scale).into()];
    let attention = change.contrib(OP, inputs, 1, attrs);
    let mut joined = attention.output(0);
    if let Some(target) = rest {
        let target = change.ints("shape", &target);
        joined = change.op("Reshape", [joined, target], []);
    }
    change.replace(y, joined);
    Ok(change)
}

/// Who reads a value, if that is one node; otherwise another one of its scope.
fn reader(cx: &Cx<'_>, value: ValueId, other: NodeId) -> NodeId {
    cx.only_reader(value).unwrap_or(other)
}

/// What is added to scores.
struct Bias {
    value: ValueId,
    /// It has one row for all queries.
    one_row: bool,
}

impl Bias {
    /// A bias of four axes, as ONNX Runtime wants it: for all sequences or each, for all heads or each, and for every score.
    fn of(
        cx: &Cx<'_>,
        value: ValueId,
        queries: &[Dim],
        [rows, columns]: [&Dim; 2],
        root: NodeId,
    ) -> Result<Self, Skip> {
        let misfit = || Skip::at(Reason::Broadcast, value);
        let [batch, heads, own_rows, own_columns] = cx.shape(value)? else { return Err(misfit()) };
        let is_one = |dim: &Dim| dim.as_const() == Some(1);
        let serves = |dim: &Dim, all: &Dim| is_one(dim) || cx.same_dim(dim, all);
        let one_row = is_one(own_rows) && !is_one(rows);
        let fits = serves(batch, &queries[0])
            && serves(heads, &queries[1])
            && (one_row || cx.same_dim(own_rows, rows))
            && cx.same_dim(own_columns, columns);
        // Before version 15 a Shape gives all sizes.
        match fits && (!one_row || cx.opset(root) >= 15) {
            true => Ok(Self { value, one_row }),
            false => Err(misfit()),
        }
    }

    /// The bias with a row for each of the queries, [batch, sequence, width].
    fn operand(&self, change: &mut Change, queries: Operand) -> Operand {
        if !self.one_row {
            return self.value.into();
        }
        let rows = change.op("Shape", [queries], [("start", 1).into(), ("end", 2).into()]);
        let one = change.ints("one", &[1]);
        let shape = change.op("Concat", [rows, one], [("axis", 0).into()]);
        change.op("Expand", [self.value.into(), shape], [])
    }
}

/// Constant vectors that are added to queries, keys or values become the operator's own.
fn bias(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let node = cx.node(id);
    if node.input(3).is_some() || node.input(6).is_some() || cx.dtype(cx.input(id, 0)?)? != DType::F32 {
        return Err(Skip::NOT_HERE);
    }
    let mut inputs: Vec<Operand> = node.inputs().iter().map(|&input| input.into()).collect();
    let (mut sums, mut biases, mut longest) = (Vec::new(), Vec::new(), 0);
    for (index, input) in inputs.iter_mut().enumerate().take(3) {
        let value = cx.input(id, index)?;
        let sum = cx.producer(value, "Add", id).filter(|_| cx.read_only_by(value, id).is_ok());
        let found = sum.and_then(|sum| Some((sum, features(cx, sum)?)));
        if let Some((sum, (x, bias))) = found {
            *input = x.into();
            longest = longest.max(cx.constant(bias)?.len());
            sums.push(sum);
        }
        biases.push((value, found.map(|(_, (_, bias))| bias)));
    }
    if sums.is_empty() {
        return Err(Skip::NOT_HERE);
    }
    let vector = |(value, bias): (ValueId, Option<ValueId>)| {
        // Keys and values of four axes have their heads apart.
        let [_, _, width] = cx.shape(value)? else { return Err(Skip::NOT_HERE) };
        if let Some(bias) = bias {
            return cx.constant(bias).cloned();
        }
        let width = width.as_const().and_then(|width| usize::try_from(width).ok());
        // A size that only a declaration knows takes no memory.
        let width =
            width.filter(|&width| width <= longest).ok_or_else(|| Skip::at(Reason::UnknownShape, value))?;
        Tensor::from_f32s([width], &vec![0.0; width]).map_err(|_| Skip::at(Reason::Type, value))
    };
    let biases: Vec<Tensor> = biases.into_iter().map(vector).collect::<Result<_, _>>()?;
    let together = Tensor::concatenated(&biases, 0).map_err(|_| Skip::from(Reason::Type))?;
    sums.sort_unstable();
    sums.dedup();
    let mut change = cx.change(&[id]);
    sums.iter().for_each(|&sum| change.absorb(sum));
    inputs.resize(inputs.len().max(4), Operand::Absent);
    inputs[3] = change.constant("biases", together);
    change.recall(cx, id, inputs);
    Ok(change)
}

/// A number that queries are multiplied with, or divided by, is one that scores are.
fn scale(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (node, queries) = (cx.node(id), cx.input(id, 0)?);
    let product = ["Mul", "Div"].iter().find_map(|op| cx.producer(queries, op, id)).ok_or(Skip::NOT_HERE)?;
    let mut trail = Trail::new(cx, id);
    let divides = cx.node(product).op().is("Div");
    let (x, factor) =
        trail.with_number(queries, if divides { "Div" } else { "Mul" }).ok_or(Skip::NOT_HERE)?;
    // A bias is added behind the factor.
    if node.input(3).is_some() {
        return Err(Skip::NOT_HERE);
    }
    let [_, _, width] = cx.shape(queries)? else { return Err(Skip::NOT_HERE) };
    let (call, unknown) = (cx.call(id)?, || Skip::at(Reason::UnknownShape, queries));
    let heads = call.int("num_heads")?;
    let size = width.as_const().filter(|_| heads > 0).ok_or_else(unknown)? / heads;
    let own = match call.float_or("scale", 0.0)? {
        0.0 => (size as f64).sqrt().recip(),
        own => f64::from(own),
    };
    let scale = (own * if divides { factor.recip() } else { factor }) as f32;
    if !scale.is_normal() {
        return Err(Skip::because("the scale is 0, very small, very large or no number"));
    }
    if cx.dtype(x)? != DType::F32 || !cx.same_shape(cx.shape(x)?, cx.shape(queries)?) {
        return Err(Skip::at(Reason::Type, x));
    }
    let mut change = trail.change()?;
    let inputs = std::iter::once(x.into()).chain(node.inputs()[1..].iter().map(|&input| input.into()));
    let mut attrs = node.attrs().to_vec();
    attrs.retain(|attr| &*attr.name != "scale");
    attrs.push(("scale", scale).into());
    let scaled =
        change.call(node.op().clone(), inputs.collect::<Vec<Operand>>(), node.outputs().len(), attrs);
    change.take_outputs(cx, id, scaled);
    Ok(change)
}

/// Products with weights in front of it, which the operator for packed weights makes itself.
fn packed(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let node = cx.node(id);
    let is_plain =
        [4, 6, 7, 8, 9].iter().all(|&index| node.input(index).is_none()) && node.outputs().len() == 1;
    if !is_plain {
        return Err(Skip::NOT_HERE);
    }
    let (mut products, mut weights) = (Vec::new(), Vec::new());
    for index in 0..3 {
        let value = cx.input(id, index)?;
        let product = cx.producer(value, "MatMul", id).ok_or(Skip::NOT_HERE)?;
        cx.read_only_by(value, id)?;
        let matrix = cx.constant(cx.input(product, 1)?)?;
        if matrix.dtype() != DType::F32 || matrix.shape().len() != 2 {
            return Err(Skip::at(Reason::Type, value));
        }
        products.push(product);
        weights.push(matrix.clone());
    }
    let x = cx.input(products[0], 0)?;
    if products.iter().any(|&product| cx.node(product).input(0) != Some(x)) || cx.rank(x)? != 3 {
        return Err(Skip::because("queries, keys and values are not products of one value"));
    }
    let widths: Vec<i64> = weights.iter().map(|matrix| matrix.shape()[1] as i64).collect();
    let bias = node.input(3).map(|bias| cx.constant(bias).map(|_| bias)).transpose()?;
    let together = Tensor::concatenated(&weights, 1).map_err(|_| Skip::from(Reason::Type))?;
    products.sort_unstable();
    products.dedup();
    let mut change = cx.change(&[id]);
    products.iter().for_each(|&product| change.absorb(product));
    // ONNX Runtime 1.31 crashes where there is no bias.
    let bias = match bias {
        Some(bias) => bias.into(),
        None => {
            let zeros = vec![0.0; widths.iter().sum::<i64>() as usize];
            let zeros = Tensor::from_f32s([zeros.len()], &zeros).map_err(|_| Skip::from(Reason::Type))?;
            change.constant("biases", zeros)
        }
    };
    let mut inputs = vec![x.into(), change.constant("weights", together), bias];
    if let Some(mask) = node.input(5) {
        inputs.extend([Operand::Absent, Operand::Absent, mask.into()]);
    }
    let mut attrs = node.attrs().to_vec();
    if widths[2] != widths[0] {
        attrs.push(("qkv_hidden_sizes", widths).into());
    }
    let attention = change.contrib("Attention", inputs, 1, attrs);
    change.take_outputs(cx, id, attention);
    Ok(change)
}
