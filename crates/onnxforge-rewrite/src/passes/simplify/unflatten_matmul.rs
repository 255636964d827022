//! unflatten_matmul: matmuls for which axes were made one, and taken apart behind them, keep their axes.
//!
//! **Matches** MatMul or Gemm, with what is added behind it, between a Reshape that lists the rows of a tensor and one that gives back its other axes, which becomes
//! MatMul, and Add for a bias (`rows`); MatMul of two lists of matrices whose Reshapes make one axis of several, which get them back behind it, with Transposes of
//! the matrices or without (`lists`); a constant that is added behind a Reshape of a product, and runs along all of its columns, which is added before it (`bias`). Flatten, Squeeze and Unsqueeze count as Reshapes.
//! **Accuracy** `BitExact` for `lists` and `bias`: the matrices and the sums are the same; `Rounding` for `rows`: a runtime may add the summand in another order.
//! **Proof** A Reshape keeps the order of elements, hence of rows and of matrices. MatMul multiplies each row of its first operand by a matrix, and each matrix
//! of a list by that at the same place, however many axes list them. Gemm with alpha = beta = 1 is A·B + C.
//! **Bound** `rows` sums the same n products and the bias: n + 1 roundings on the longest way, wherever in the sum the bias is added. None is added.
//! **Never** a constant that runs along some of the columns, or along rows; a Gemm with factors or a transposed first matrix; a bias that differs by row; lists that are not alike, which MatMul would broadcast.

use crate::passes::pass;
use crate::passes::recognize::reshape_target::reshaped;
use crate::passes::recognize::rows::{Listed, RESHAPES, RowProduct, list, reshape_of};
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, NodeId, ValueId};

pass!(unflatten_matmul { stage: Canonicalize, needs: ["MatMul", "Gemm"], rules: [ROWS, LISTS, BIAS] });

static ROWS: At = At { name: "rows", accuracy: Accuracy::Rounding { ulps: 2.0 }, ops: RESHAPES, apply: rows };

fn rows(cx: &Cx<'_>, reshape: NodeId) -> Result<Change, Skip> {
    let (flat, y) = (cx.input(reshape, 0)?, cx.output(reshape)?);
    let product = RowProduct::of(cx, flat, reshape)?;
    let columns = cx.shape(flat)?.last().ok_or(Skip::NOT_HERE)?;
    // Other axes are those of heads, for which a product of matrices takes fewer nodes.
    if !cx.same_shape(&product.shape(cx, columns)?, cx.shape(y)?) {
        return Err(Skip::NOT_HERE);
    }
    let mut change = cx.change(&[&[reshape], &*product.nodes].concat());
    let direct = product.build(cx, &mut change)?;
    change.replace(y, direct);
    Ok(change)
}

static LISTS: At = At { name: "lists", accuracy: Accuracy::BitExact, ops: &["MatMul"], apply: lists };

fn lists(cx: &Cx<'_>, product: NodeId) -> Result<Change, Skip> {
    let flat = cx.output(product)?;
    let [_, m, n] = cx.shape(flat)? else { return Err(Skip::NOT_HERE) };
    let (a, b) = (Listed::of(cx, product, 0)?, Listed::of(cx, product, 1)?);
    if a.list.len() < 2 || !cx.same_shape(&a.list, &b.list) {
        return Err(Skip::NOT_HERE);
    }
    let behind = cx.only_reader(flat).ok_or(Skip::NOT_HERE)?;
    let y = cx.output(behind)?;
    let apart = list(cx, cx.shape(y)?, [m, n]).is_some_and(|list| cx.same_shape(&list, &a.list));
    if !apart || reshape_of(cx, y, product) != Some(behind) {
        return Err(Skip::NOT_HERE);
    }
    let mut change = cx.change(&[&[product, behind], &*a.nodes, &*b.nodes].concat());
    let [left, right] = [&a, &b].map(|operand| with_all_axes(cx, &mut change, operand));
    let together = change.op("MatMul", [left?, right?], []);
    let whole = [&*a.list, &[m.clone(), n.clone()]].concat();
    let result = reshaped(cx, &mut change, together, &whole, cx.shape(y)?)?;
    change.replace(y, result);
    Ok(change)
}

/// The matrices of an operand, listed along several axes.
fn with_all_axes(cx: &Cx<'_>, change: &mut Change, operand: &Listed) -> Result<Operand, Skip> {
    let whole = [&*operand.list, &operand.matrix].concat();
    let shaped = reshaped(cx, change, operand.x.into(), cx.shape(operand.x)?, &whole)?;
    if !operand.transposed {
        return Ok(shaped);
    }
    let last = whole.len() as i64 - 1;
    let perm: Vec<i64> = (0..last - 1).chain([last, last - 1]).collect();
    Ok(change.op("Transpose", [shaped], [("perm", perm).into()]))
}

static BIAS: At = At { name: "bias", accuracy: Accuracy::BitExact, ops: &["Add"], apply: bias };

fn bias(cx: &Cx<'_>, sum: NodeId) -> Result<Change, Skip> {
    let (a, b, y) = (cx.input(sum, 0)?, cx.input(sum, 1)?, cx.output(sum)?);
    let found = [(a, b), (b, a)].into_iter().find_map(|(shaped, constant)| {
        let reshape = reshape_of(cx, shaped, sum)?;
        let flat = cx.node(reshape).input(0)?;
        let product = cx.producer(flat, "MatMul", reshape).or_else(|| cx.producer(flat, "Gemm", reshape));
        (cx.model.constant(constant).is_some() && product.is_some())
            .then_some((reshape, flat, shaped, constant))
    });
    let (reshape, flat, shaped, constant) = found.ok_or(Skip::NOT_HERE)?;
    if cx.call(sum)?.since() < 7 {
        return Err(Skip::NOT_HERE);
    }
    cx.read_only_by(shaped, sum)?;
    let tensor = cx.constant(constant)?;
    let along = tensor.shape().iter().position(|&size| size != 1).unwrap_or(tensor.shape().len());
    let sizes = &tensor.shape()[along..];
    let to = cx.shape(y)?;
    let columns = cx.shape(flat)?.last().and_then(Dim::as_const);
    let ends = |sizes: &[usize]| {
        let last = to.get(to.len().checked_sub(sizes.len())?..)?;
        last.iter().zip(sizes).all(|(dim, &size)| dim.as_const() == i64::try_from(size).ok()).then_some(())
    };
    let is_all = i64::try_from(tensor.len()).ok() == columns && ends(sizes).is_some();
    if !is_all || sizes.is_empty() || !cx.same_shape(cx.shape(shaped)?, to) {
        return Err(Skip::at(Reason::Broadcast, constant));
    }
    let vector = tensor.reshaped([tensor.len()]).map_err(|_| Skip::at(Reason::Type, constant))?;
    let mut change = cx.change(&[sum, reshape]);
    let vector = change.constant(cx.model.value(constant).name().clone(), vector);
    let added = change.remake(cx, sum, [flat.into(), vector]);
    let rest = cx.node(reshape).inputs()[1..].iter().map(|&input: &Option<ValueId>| input.into());
    let inputs: Vec<Operand> = [added].into_iter().chain(rest).collect();
    let again = change.remake(cx, reshape, inputs);
    change.replace(y, again);
    Ok(change)
}
