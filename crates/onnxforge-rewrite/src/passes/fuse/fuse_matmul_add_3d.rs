//! fuse_matmul_add_3d: products of a batch with a matrix of weights lose their detours.
//!
//! **Matches** a MatMul of more than two axes whose second operand is a transposed constant matrix, which is transposed once and for all
//! (`weights`); and MatMul, Add of a vector and Reshape in a row, each read by nothing else, which become Reshape, Gemm and Reshape
//! (`heads`). Products of one value share the first Reshape, so that three projections take seven nodes instead of nine or twelve; where two sizes are known at run time only, a Shape and a
//! Concat tell them, which all products of a model can share. Not for `ort` and `tflite`, where MatMul and Add take as long or a little less (`cargo xtask bench products`).
//! **Accuracy** `BitExact` for `weights`; `Rounding` for `heads`: a runtime may add the summand in another order.
//! **Proof** A product of [B, S, K] with [K, N] multiplies B·S rows by the matrix, as the product of [B·S, K] does; Reshape keeps the rows in
//! order. Gemm is A·B + C by definition.
//! **Bound** `heads` sums the same n products and the bias: n + 1 roundings on the longest way, wherever in the sum the bias is added. None is added.
//! **Never** for a single product, which would gain nothing; where the last shape has sizes that are neither numbers nor those of the factor; without a Reshape behind it, which would have to
//! be added.

use crate::passes::pass;
use crate::passes::recognize::reshape_target::constant_target;
use crate::passes::targets::{ORT, TFLITE, TFLITE_FILE};
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, DType, NodeId, ValueId};

pass!(fuse_matmul_add_3d {
    stage: Cleanup,
    runs: Except(&[&ORT, &TFLITE, &TFLITE_FILE]),
    rules: [HEADS, WEIGHTS],
});

static WEIGHTS: At = At {
    name: "weights",
    accuracy: Accuracy::BitExact,
    ops: &["MatMul"],
    apply: |cx, product| {
        let (x, y) = (cx.input(product, 0)?, cx.output(product)?);
        let (weights, transpose) = transposed(cx, product).ok_or(Skip::NOT_HERE)?;
        let tensor = cx.constant(weights)?;
        if cx.rank(x)? < 3 {
            return Err(Skip::NOT_HERE);
        }
        let flipped = tensor.transposed(&[1, 0]).map_err(|_| Skip::at(Reason::Type, weights))?;
        let mut change = cx.change(&[product]);
        change.absorb(transpose);
        let constant = change.constant(cx.model.value(weights).name().clone(), flipped);
        let direct = change.op("MatMul", [x.into(), constant], []);
        change.replace(y, direct);
        Ok(change)
    },
};

static HEADS: At =
    At { name: "heads", accuracy: Accuracy::Rounding { ulps: 2.0 }, ops: &["Reshape"], apply: heads };

fn heads(cx: &Cx<'_>, reshape: NodeId) -> Result<Change, Skip> {
    let (sum, target, y) = (cx.input(reshape, 0)?, cx.input(reshape, 1)?, cx.output(reshape)?);
    let add = cx.producer(sum, "Add", reshape).ok_or(Skip::NOT_HERE)?;
    let (a, b) = (cx.input(add, 0)?, cx.input(add, 1)?);
    let (product, bias) = match (cx.producer(a, "MatMul", add), cx.producer(b, "MatMul", add)) {
        (Some(product), None) => (product, b),
        (None, Some(product)) => (product, a),
        _ => return Err(Skip::NOT_HERE),
    };
    let x = cx.input(product, 0)?;
    if cx.rank(x)? < 3 || cx.rank(cx.input(product, 1)?)? != 2 {
        return Err(Skip::NOT_HERE);
    }
    cx.read_only_by(sum, reshape)?;
    cx.read_only_by(cx.output(product)?, add)?;
    if !matches!(cx.dtype(x)?, DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    let columns =
        cx.shape(sum)?.last().and_then(Dim::as_const).ok_or_else(|| Skip::at(Reason::UnknownShape, sum))?;
    let inner =
        cx.shape(x)?.last().and_then(Dim::as_const).ok_or_else(|| Skip::at(Reason::UnknownShape, x))?;
    let along = cx.shape(bias)?.last().is_some_and(|dim| dim.as_const() == Some(columns));
    if cx.rank(bias)? != 1 || !along {
        return Err(Skip::at(Reason::Broadcast, bias));
    }
    if !cx.shape(x)?.iter().all(|dim| dim.provably_positive(cx.symbols())) {
        return Err(Skip::at(Reason::UnknownShape, x));
    }

    let mut change = cx.change(&[product, add, reshape]);
    let rows = cx.shape(x)?.split_last().and_then(|(_, rows)| Dim::product(rows));
    let flat_shape = [rows.ok_or(Skip::NOT_HERE)?, Dim::from(columns)];
    let new_target: Operand = match constant_target(cx, &flat_shape, cx.shape(y)?) {
        Some(numbers) => change.ints("shape", &numbers),
        // A target that is computed names every size, or it would mean something else for two axes.
        None if is_explicit(cx, target, y) => target.into(),
        None => sizes_at_run_time(cx, &mut change, reshape, x, y)
            .ok_or_else(|| Skip::at(Reason::UnknownShape, target))?,
    };
    let flat: Operand = match flattened(cx, x, inner, reshape) {
        Some(flat) => flat.into(),
        None if products_of(cx, x) < 2 => return Err(Reason::MoreNodes.into()),
        None => {
            let shape = change.ints("shape", &[-1, inner]);
            change.op("Reshape", [x.into(), shape], [])
        }
    };
    let gemm = match transposed(cx, product) {
        Some((weights, transpose)) => {
            change.absorb(transpose);
            change.op("Gemm", [flat, weights.into(), bias.into()], [("transB", 1).into()])
        }
        None => change.op("Gemm", [flat, cx.input(product, 1)?.into(), bias.into()], []),
    };
    let shaped = change.op("Reshape", [gemm, new_target], []);
    change.replace(y, shaped);
    Ok(change)
}

/// The sizes of `y`, of which the first are those of `x`, as a Shape of that tells them, and the others numbers.
fn sizes_at_run_time(
    cx: &Cx<'_>,
    change: &mut Change,
    reshape: NodeId,
    x: ValueId,
    y: ValueId,
) -> Option<Operand> {
    let (_, rows) = cx.shape(x).ok()?.split_last()?;
    let (first, others) = cx.shape(y).ok()?.split_at_checked(rows.len())?;
    let numbers: Vec<i64> = others.iter().map(Dim::as_const).collect::<Option<_>>()?;
    if !cx.same_shape(rows, first) {
        return None;
    }
    let count = i64::try_from(rows.len()).ok()?;
    // Before version 15 a Shape gives all sizes.
    let known = if cx.opset(reshape) < 15 {
        let all = change.op("Shape", [x.into()], []);
        let places = change.ints("places", &(0..count).collect::<Vec<_>>());
        change.op("Gather", [all, places], [])
    } else {
        change.op("Shape", [x.into()], [("end", count).into()])
    };
    let numbers = change.ints("sizes", &numbers);
    Some(change.op("Concat", [known, numbers], [("axis", 0).into()]))
}

/// How many products read a value first.
fn products_of(cx: &Cx<'_>, x: ValueId) -> usize {
    let product =
        |used: &&Use| matches!(used, Use::Input { node, index: 0 } if cx.node(*node).op().is("MatMul"));
    cx.model.value(x).uses().iter().filter(product).count()
}

/// The constant matrix whose transposition is the second operand of a product, and the Transpose.
fn transposed(cx: &Cx<'_>, product: NodeId) -> Option<(ValueId, NodeId)> {
    let transpose = cx.producer(cx.node(product).input(1)?, "Transpose", product)?;
    let weights = cx.node(transpose).input(0)?;
    let matrix = cx.model.constant(weights).is_some_and(|tensor| tensor.shape().len() == 2);
    let flips = crate::passes::recognize::orders::permutation(cx, transpose).ok()? == [1, 0];
    (matrix && flips).then_some((weights, transpose))
}

/// A Reshape of `x` to rows of `inner` elements that stands before `reader` already.
fn flattened(cx: &Cx<'_>, x: ValueId, inner: i64, reader: NodeId) -> Option<ValueId> {
    cx.model.value(x).uses().iter().find_map(|used| {
        let Use::Input { node, index: 0 } = *used else { return None };
        let found = cx.node(node);
        let target = found.input(1)?;
        let same = found.op().is("Reshape")
            && found.scope() == cx.scope(reader)
            && cx.model.is_before(node, reader)
            && cx.model.constant(target).is_some()
            && cx.ints(target).ok()? == [-1, inner];
        found.output(0).filter(|_| same)
    })
}

/// Whether the elements of a computed target are the sizes of the shape that it gives, or the −1 that follows from the others:
/// a target that means the same whatever shape is reshaped.
fn is_explicit(cx: &Cx<'_>, target: ValueId, y: ValueId) -> bool {
    let (Some(elements), Ok(shape)) =
        (cx.facts.tensor(target).and_then(onnxforge_ops::TensorFact::dims), cx.shape(y))
    else {
        return false;
    };
    let tells = |(element, dim): (&Dim, &Dim)| element.as_const() == Some(-1) || cx.same_dim(element, dim);
    cx.model.constant(target).is_none()
        && elements.len() == shape.len()
        && elements.iter().zip(shape).all(tells)
}
