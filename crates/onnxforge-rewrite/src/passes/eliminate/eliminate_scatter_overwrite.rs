//! eliminate_scatter_overwrite: a ScatterND or ScatterElements that overwrites everything in order becomes its updates.
//!
//! **Matches** ScatterND whose constant indices count through the leading axes of the data in row-major order, or whose indices are a Range through the
//! first axis, whatever its size; ScatterElements whose constant indices are, at every place, that place's own position along the axis, in the shape of the data; without a
//! reduction.
//! **Accuracy** `BitExact`.
//! **Proof** Every element of the data is overwritten by the update at the same place. The driver proves that updates and result have
//! the same shape and type.
//! **Trust** Updates of ScatterND have the shape of the places and of what lies at each: where these are all places of the first axis, that is the shape of the data, also
//! where nothing else says so.
//! **Never** with a reduction; indices in another order, or with gaps; updates that cover less than the data.

use crate::passes::pass;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Accuracy, NodeId, Tensor, Trust, ValueId};
use onnxforge_ops::call;

pass!(eliminate_scatter_overwrite {
    stage: Canonicalize,
    needs: ["ScatterND", "ScatterElements", "Scatter"],
    trusts: [Forwarded],
    rules: [OVERWRITE],
});

/// Most elements that indices may have.
const MOST: usize = 1 << 20;

static OVERWRITE: At = At {
    name: "overwrite",
    accuracy: Accuracy::BitExact,
    ops: &["ScatterND", "ScatterElements", "Scatter"],
    apply: overwrite,
};

fn overwrite(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (data, call) = (cx.input(id, 0)?, cx.call(id)?);
    if ranges_through(cx, id, data)? {
        let mut change = cx.forward(id, cx.input(id, 2)?)?;
        change.trust(Trust::Forwarded);
        return Ok(change);
    }
    let indices = cx.constant(cx.input(id, 1)?)?;
    let size = |dim: &Dim| usize::try_from(dim.as_const()?).ok();
    let sizes: Vec<Option<usize>> = cx.shape(data)?.iter().map(size).collect();
    if call.text_or("reduction", "none")? != "none" {
        return Err(Reason::Attribute("reduction").into());
    }
    if indices.len() > MOST {
        return Err(Reason::Time.into());
    }
    let in_order = if cx.node(id).op().is("ScatterND") {
        counts_through(indices, &sizes)?
    } else {
        let sizes: Option<Vec<usize>> = sizes.into_iter().collect();
        let sizes = sizes.ok_or_else(|| Skip::at(Reason::UnknownShape, data))?;
        is_own_position(indices, &sizes, call::axis(call.int("axis")?, sizes.len())?)?
    };
    if !in_order {
        return Err(Skip::because("the indices do not count through the data"));
    }
    cx.forward(id, cx.input(id, 2)?)
}

/// Whether the indices are a Range from the first to the last place of the first axis, as a column, and nothing is reduced.
fn ranges_through(cx: &Cx<'_>, id: NodeId, data: ValueId) -> Result<bool, Skip> {
    let column = cx.input(id, 1)?;
    let range = |unsqueeze: NodeId| cx.producer(cx.node(unsqueeze).input(0)?, "Range", id);
    let Some(range) = cx.producer(column, "Unsqueeze", id).and_then(range) else { return Ok(false) };
    if !cx.node(id).op().is("ScatterND") || cx.call(id)?.text_or("reduction", "none")? != "none" {
        return Ok(false);
    }
    let bound = |index: usize| cx.ints(cx.input(range, index)?);
    let counts = bound(0)? == [0] && bound(2)? == [1];
    let is_column = cx.rank(column)? == 2 && cx.shape(column)?[1].as_const() == Some(1);
    let limit = cx.fact(cx.input(range, 1)?)?.dims();
    let (Some([limit]), Some(size)) = (limit.as_deref(), cx.shape(data)?.first()) else { return Ok(false) };
    Ok(counts && is_column && cx.same_dim(limit, size))
}

/// Whether the rows of the indices are all places of the leading axes, in row-major order.
fn counts_through(indices: &Tensor, sizes: &[Option<usize>]) -> Result<bool, Skip> {
    let Some((&depth, counted)) = indices.shape().split_last() else { return Ok(false) };
    let same = depth == counted.len()
        && depth <= sizes.len()
        && counted.iter().zip(sizes).all(|(&count, &size)| Some(count) == size);
    if !same || depth == 0 {
        return Ok(false);
    }
    let places = to_ints(indices)?;
    let place = |(row, place): (usize, &[i64])| {
        let mut rest = row;
        counted.iter().zip(place).rev().all(|(&count, &index)| {
            let wanted = rest % count;
            rest /= count;
            index == wanted as i64 || index == wanted as i64 - count as i64
        })
    };
    Ok(places.chunks(depth).enumerate().all(place))
}

/// Whether each index is its own position along the axis.
fn is_own_position(indices: &Tensor, sizes: &[usize], axis: usize) -> Result<bool, Skip> {
    if indices.shape() != sizes {
        return Ok(false);
    }
    let inner: usize = sizes[axis + 1..].iter().product();
    let size = sizes[axis];
    let own = |(at, &index): (usize, &i64)| {
        let wanted = (at / inner.max(1) % size.max(1)) as i64;
        index == wanted || index == wanted - size as i64
    };
    Ok(to_ints(indices)?.iter().enumerate().all(own))
}

fn to_ints(indices: &Tensor) -> Result<Vec<i64>, Skip> {
    Ok(onnxforge_ops::Array::from_tensor(indices)?.to_i64s()?)
}
