//! simplify_shape_chains: shapes that are computed at run time become constants, with batch and sequence unknown.
//!
//! **Matches** integers that follow from shapes (`known_value`); targets of Reshape that can be written as numbers, kept axes and one
//! open size (`reshape_target`); targets of Expand whose symbolic sizes the input has already (`expand_target`); bounds of Slice at
//! the end of an axis (`slice_end`); integers that another value holds already (`same_elements`).
//! **Accuracy** `BitExact`.
//! **Proof** Inference proves the elements of shape arithmetic as expressions of the inputs' dimensions; equal expressions are equal
//! numbers in every run. A 0 in a Reshape copies an axis that is proved to be the wanted one; −1 stands where all other sizes are proved
//! to be above 0, so that the number of elements leaves one possibility.
//! **Never** where inference does not know; where two sizes are open.

use crate::passes::pass;
use crate::passes::recognize::reshape_target::target_between;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, DType, NodeId, Tensor};
use onnxforge_ops::Array;

pass!(simplify_shape_chains {
    stage: Canonicalize,
    rules: [KNOWN_VALUE, RESHAPE_TARGET, EXPAND_TARGET, SLICE_END],
});

static KNOWN_VALUE: At =
    At { name: "known_value", accuracy: Accuracy::BitExact, ops: &[], apply: known_value };

/// A node whose integers follow from shapes.
fn known_value(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let node = cx.node(id);
    let [Some(output)] = *node.outputs() else { return Err(Skip::NOT_HERE) };
    let fact = cx.facts.tensor(output).ok_or(Skip::NOT_HERE)?;
    let integers = matches!(fact.dtype, Some(DType::I64 | DType::I32 | DType::Bool));
    let array = fact.array().filter(|_| integers).ok_or(Skip::NOT_HERE)?;
    // Constants are somebody else's business.
    if node.inputs().is_empty() || cx.call(id)?.def.random {
        return Err(Skip::NOT_HERE);
    }
    let mut change = cx.change(&[id]);
    change.replace_by_constant(cx, output, tensor(array)?);
    Ok(change)
}

fn tensor(array: &Array) -> Result<Tensor, Skip> {
    Ok(array.to_tensor().map_err(onnxforge_ops::OpError::from)?)
}

static RESHAPE_TARGET: At = At {
    name: "reshape_target",
    accuracy: Accuracy::BitExact,
    ops: &["Reshape"],
    apply: |cx, id| {
        let (x, y) = (cx.input(id, 0)?, cx.output(id)?);
        // From version 5 on the target is an input.
        let target = cx.node(id).input(1).ok_or(Skip::NOT_HERE)?;
        if cx.model.constant(target).is_some() {
            return Err(Skip::NOT_HERE);
        }
        let numbers = target_between(cx, x, y)?;
        let mut change = cx.change(&[id]);
        let shape = change.ints("shape", &numbers);
        let reshaped = change.op("Reshape", [x.into(), shape], []);
        change.replace(y, reshaped);
        Ok(change)
    },
};

static EXPAND_TARGET: At = At {
    name: "expand_target",
    accuracy: Accuracy::BitExact,
    ops: &["Expand"],
    apply: |cx, id| {
        let (x, target, y) = (cx.input(id, 0)?, cx.input(id, 1)?, cx.output(id)?);
        if cx.model.constant(target).is_some() {
            return Err(Skip::NOT_HERE);
        }
        let (from, to) = (cx.shape(x)?, cx.shape(y)?);
        let missing = to.len().checked_sub(from.len()).ok_or(Skip::NOT_HERE)?;
        let size = |(axis, dim): (usize, &onnxforge_ir::dim::Dim)| {
            let kept = axis >= missing && cx.same_dim(&from[axis - missing], dim);
            if kept { Some(1) } else { dim.as_const() }
        };
        let sizes: Option<Vec<i64>> = to.iter().enumerate().map(size).collect();
        let sizes = sizes.ok_or_else(|| Skip::at(Reason::UnknownShape, target))?;
        let mut change = cx.change(&[id]);
        let shape = change.ints("shape", &sizes);
        let expanded = change.op("Expand", [x.into(), shape], []);
        change.replace(y, expanded);
        Ok(change)
    },
};

static SLICE_END: At =
    At { name: "slice_end", accuracy: Accuracy::BitExact, ops: &["Slice"], apply: slice_end };

/// A Slice forward whose ends are computed, where each is a number or lies at the end of its axis.
fn slice_end(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let node = cx.node(id);
    let (x, ends, y) = (cx.input(id, 0)?, cx.input(id, 2)?, cx.output(id)?);
    let symbolic = cx.fact(ends)?.dims().ok_or_else(|| Skip::at(Reason::UnknownShape, ends))?;
    if cx.model.constant(ends).is_some() || symbolic.iter().all(onnxforge_ir::dim::Dim::is_const) {
        return Err(Skip::NOT_HERE);
    }
    let shape = cx.shape(x)?;
    let axes = match node.input(3) {
        Some(axes) => onnxforge_ops::call::axes(&cx.ints(axes)?, shape.len())?,
        None => (0..symbolic.len()).collect(),
    };
    if let Some(steps) = node.input(4)
        && cx.ints(steps)?.iter().any(|&step| step < 1)
    {
        return Err(Skip::because("it steps backwards"));
    }
    let number = |(end, &axis): (&onnxforge_ir::dim::Dim, &usize)| match end.as_const() {
        Some(end) => Some(end),
        // Ends beyond the axis mean its end.
        None => shape[axis].provably_le(end, cx.symbols()).then_some(i64::MAX),
    };
    let numbers: Option<Vec<i64>> = symbolic.iter().zip(&axes).map(number).collect();
    let numbers = numbers.ok_or_else(|| Skip::at(Reason::UnknownShape, ends))?;
    let mut change = cx.change(&[id]);
    let dtype = cx.dtype(ends)?;
    let ends = match dtype {
        DType::I64 => change.ints("ends", &numbers),
        _ => return Err(Reason::Type.into()),
    };
    let mut inputs: Vec<_> = node.inputs().iter().map(|&input| input.into()).collect();
    inputs[2] = ends;
    let sliced = change.remake(cx, id, inputs);
    change.replace(y, sliced);
    Ok(change)
}
