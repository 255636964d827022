//! merge_transposes: two Transposes with only a Reshape between them become one.
//!
//! **Matches** a Transpose of a Reshape, Flatten, Squeeze or Unsqueeze of a Transpose, each read by the next alone, where all sizes are known, or axes of an
//! unknown size stand alike before and after the Reshape. Each axis is cut into parts that are an axis, or a part of one, on both sides; the new
//! Transpose moves those, between Reshapes that cut and join them. A Reshape in front is taken along.
//! **Accuracy** `BitExact`.
//! **Proof** A Reshape keeps the order of the elements, in which the parts of its axes and of its operand's axes are the same. So both Transposes move parts, and
//! a Transpose of a Transpose is one. Parts that stay side by side are moved as one.
//! **Never** where the parts of an axis are no whole numbers; a Transpose of the last two axes in front of a product of computed matrices, which
//! belongs to it.

use crate::passes::layout::views::belongs_to_product;
use crate::passes::pass;
use crate::passes::recognize::orders::{as_ints, inverse, is_identity, permutation};
use crate::passes::recognize::reshape_target;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Accuracy, NodeId};

const RESHAPES: &[&str] = &["Reshape", "Flatten", "Squeeze", "Unsqueeze"];

pass!(merge_transposes { stage: Layout, rules: [ACROSS_RESHAPE] });

static ACROSS_RESHAPE: At =
    At { name: "across_reshape", accuracy: Accuracy::BitExact, ops: &["Transpose"], apply: merge };

/// A part of an axis: its size, and the axis to which it belongs before the Reshape and after it.
struct Part {
    size: Dim,
    before: usize,
    after: usize,
}

fn merge(cx: &Cx<'_>, last: NodeId) -> Result<Change, Skip> {
    let reshape_of = |value, node| RESHAPES.iter().find_map(|op| cx.producer(value, op, node));
    let (reshaped, y) = (cx.input(last, 0)?, cx.output(last)?);
    let reshape = reshape_of(reshaped, last).ok_or(Skip::NOT_HERE)?;
    let turned = cx.input(reshape, 0)?;
    let first = cx.producer(turned, "Transpose", reshape).ok_or(Skip::NOT_HERE)?;
    let (inner, outer) = (permutation(cx, first)?, permutation(cx, last)?);
    if belongs_to_product(cx, y, &outer) || cx.opset(last) < 5 {
        return Err(Skip::NOT_HERE);
    }
    cx.read_only_by(reshaped, last)?;
    cx.read_only_by(turned, reshape)?;
    let parts = parts(cx, cx.shape(turned)?, cx.shape(reshaped)?)
        .ok_or_else(|| Skip::at(Reason::UnknownShape, reshaped))?;
    // The parts in the order of the first operand, and in that of the result.
    let of = |axis: usize, side: fn(&Part) -> usize| {
        (0..parts.len()).filter(|&part| side(&parts[part]) == axis).collect::<Vec<_>>()
    };
    let from: Vec<usize> = inverse(&inner).iter().flat_map(|&axis| of(axis, |part| part.before)).collect();
    let to: Vec<usize> = outer.iter().flat_map(|&axis| of(axis, |part| part.after)).collect();
    let blocks = blocks(&from, &to);
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&block| to.iter().position(|part| blocks[block].first() == Some(part)));
    let sizes = blocks.iter().map(|block| Dim::product(block.iter().map(|&part| &parts[part].size)));
    let cut: Vec<Dim> = sizes.collect::<Option<_>>().ok_or(Skip::NOT_HERE)?;
    let moved: Vec<Dim> = order.iter().map(|&block| cut[block].clone()).collect();

    let mut change = cx.change(&[first, reshape, last]);
    let mut x = cx.input(first, 0)?;
    if let Some(before) = reshape_of(x, first).filter(|_| cx.read_only_by(x, first).is_ok()) {
        change.absorb(before);
        x = cx.input(before, 0)?;
    }
    let (given, wanted) = (cx.shape(x)?, cx.shape(y)?);
    let result = if is_identity(&order) {
        reshape_target::reshaped(cx, &mut change, x.into(), given, wanted)?
    } else {
        let parted = reshape_target::reshaped(cx, &mut change, x.into(), given, &cut)?;
        let turned = change.op("Transpose", [parted], [("perm", as_ints(&order)).into()]);
        reshape_target::reshaped(cx, &mut change, turned, &moved, wanted)?
    };
    change.replace(y, result);
    Ok(change)
}

/// The parts of which the axes of both shapes consist; axes of size 1 have none.
fn parts(cx: &Cx<'_>, from: &[Dim], to: &[Dim]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let (mut before, mut after) = (0, 0);
    // What is left of the axes at which we are.
    let (mut left, mut right) = (from.first().cloned(), to.first().cloned());
    while left.is_some() || right.is_some() {
        let [a, b] = [&left, &right].map(|dim| dim.as_ref().and_then(Dim::as_const));
        let (size, more, more_after) = match (a, b) {
            (Some(1), _) => (None, None, right.clone()),
            (_, Some(1)) => (None, left.clone(), None),
            (Some(a @ 2..), Some(b @ 2..)) if a != b && a % b == 0 => {
                (Some(Dim::from(b)), Some(Dim::from(a / b)), None)
            }
            (Some(a @ 2..), Some(b @ 2..)) if a != b && b % a == 0 => {
                (Some(Dim::from(a)), None, Some(Dim::from(b / a)))
            }
            _ if cx.same_dim(left.as_ref()?, right.as_ref()?) => (left.clone(), None, None),
            _ => return None,
        };
        parts.extend(size.map(|size| Part { size, before, after }));
        before += usize::from(more.is_none());
        after += usize::from(more_after.is_none());
        left = more.or_else(|| from.get(before).cloned());
        right = more_after.or_else(|| to.get(after).cloned());
    }
    Some(parts)
}

/// The parts of `from` in groups that follow each other in `to` as well.
fn blocks(from: &[usize], to: &[usize]) -> Vec<Vec<usize>> {
    let place = |part: usize| to.iter().position(|&other| other == part);
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    for &part in from {
        match blocks.last_mut() {
            Some(block) if block.last().and_then(|&last| place(last)).map(|at| at + 1) == place(part) => {
                block.push(part);
            }
            _ => blocks.push(vec![part]),
        }
    }
    blocks
}
