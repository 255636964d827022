//! merge_reduces: reductions in a row become one, and they keep or drop their axes themselves.
//!
//! **Matches** a reduction without kept axes and an Unsqueeze of the same axes, or one with kept axes and a Squeeze of them (`axes`);
//! ReduceSum, ReduceMean, ReduceMax, ReduceMin or ReduceProd of one of the same kind (`merge`); such a reduction of axes of size 1, which
//! becomes a Squeeze (`squeeze`). Nothing else may read what is between the two.
//! **Accuracy** `BitExact` for `axes`; `ValueExact` for maxima, minima and single elements; `BitExact` for sums of integers, which wrap; sums,
//! means and products of floats are `Rounding`: the same terms are added or multiplied in another order, and in one longer sum.
//! **Proof** Kept axes of size 1 are what Unsqueeze inserts. Sums, products and extremes are associative; all groups of a mean are of one
//! size, so that the mean of means is the mean.
//! **Bound** A sum of m sums of n terms has n − 1 and m − 1 additions on the way of a term, the one sum n·m − 1 if they are added one after the other:
//! (n − 1)·(m − 1) roundings more, so that (n − 1)·(m − 1) / 2 ulps are promised, and 4 at least; a mean has one division less. Where a size is open, so is
//! the number, and the promise is infinite. Products have n·m − 1 roundings in each result either way. Scale: the sum of the magnitudes.
//! **Never** means and products of integers, which runtimes round or widen differently; kinds that are not associative, such as L2; pairs
//! of which one keeps its axes and the other does not.

use crate::passes::pass;
use crate::passes::recognize::reductions::reduced_axes;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Attr, NodeId, Op, ValueId};
use onnxforge_ops::call;

/// Reductions that are the same in one step or two.
const ASSOCIATIVE: &[&str] = &["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"];
/// Reductions that may keep their axes.
const REDUCTIONS: &[&str] = &[
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
    "ArgMax",
    "ArgMin",
];

pass!(merge_reduces { stage: Canonicalize, rules: [AXES, MERGE, SQUEEZE] });

static AXES: At =
    At { name: "axes", accuracy: Accuracy::BitExact, ops: &["Unsqueeze", "Squeeze"], apply: axes };

fn axes(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (middle, y) = (cx.input(id, 0)?, cx.output(id)?);
    let reduction = REDUCTIONS.iter().find_map(|op| cx.producer(middle, op, id)).ok_or(Skip::NOT_HERE)?;
    let keeps = cx.node(id).op().is("Unsqueeze");
    let (node, call) = (cx.node(reduction), cx.call(reduction)?);
    if call.flag("keepdims")? == keeps {
        return Err(Skip::NOT_HERE);
    }
    let moved = match cx.node(id).input(1) {
        Some(axes) => cx.ints(axes)?,
        None => cx.call(id)?.opt_ints("axes")?.ok_or(Skip::NOT_HERE)?,
    };
    let x = cx.input(reduction, 0)?;
    let mut moved = call::axes(&moved, cx.rank(x)?)?;
    moved.sort_unstable();
    if moved != reduced_axes(cx, reduction)? {
        return Err(Skip::because("the axes are not those that are reduced"));
    }
    cx.read_only_by(middle, id)?;
    let mut attrs: Vec<Attr> =
        node.attrs().iter().filter(|attr| &*attr.name != "keepdims").cloned().collect();
    attrs.push(("keepdims", i64::from(keeps)).into());
    let inputs: Vec<Operand> = node.inputs().iter().map(|&input| input.into()).collect();
    let mut change = cx.change(&[reduction, id]);
    let one = change.call(node.op().clone(), inputs, 1, attrs);
    change.replace(y, one.output(0));
    Ok(change)
}

/// Units in the last place for another order of as many operations.
const FEW: f64 = 4.0;

static MERGE: At = At {
    name: "merge",
    accuracy: Accuracy::Rounding { ulps: f64::INFINITY },
    ops: ASSOCIATIVE,
    apply: merge,
};

fn merge(cx: &Cx<'_>, outer: NodeId) -> Result<Change, Skip> {
    let middle = cx.input(outer, 0)?;
    let name = &*cx.node(outer).op().name;
    let inner = cx.producer(middle, name, outer).ok_or(Skip::NOT_HERE)?;
    let (x, y) = (cx.input(inner, 0)?, cx.output(outer)?);
    let keeps = cx.call(outer)?.flag("keepdims")?;
    let (first, second) = (reduced_axes(cx, inner)?, reduced_axes(cx, outer)?);
    if cx.call(inner)?.flag("keepdims")? != keeps {
        return Err(Reason::Attribute("keepdims").into());
    }
    cx.read_only_by(middle, outer)?;
    // Without kept axes, those of the second are counted among the ones that the first left.
    let left: Vec<usize> = (0..cx.rank(x)?).filter(|axis| keeps || !first.contains(axis)).collect();
    let second = second.iter().map(|&axis| left.get(axis).copied().ok_or(Skip::NOT_HERE));
    let second: Vec<usize> = second.collect::<Result<_, _>>()?;
    let accuracy = match (name, cx.dtype(x)?.kind()) {
        ("ReduceMax" | "ReduceMin", _) => Accuracy::ValueExact,
        ("ReduceSum", Kind::Signed | Kind::Unsigned) => Accuracy::BitExact,
        ("ReduceProd", Kind::Float) => Accuracy::Rounding { ulps: FEW },
        (_, Kind::Float) => Accuracy::Rounding { ulps: longer(cx, x, &first, &second)? },
        _ => return Err(Skip::at(Reason::Type, x)),
    };
    let mut all: Vec<i64> = first.iter().chain(&second).map(|&axis| axis as i64).collect();
    all.sort_unstable();
    all.dedup();
    let mut change = cx.change(&[inner, outer]);
    change.promise(accuracy);
    let as_input = cx.opset(outer) >= if name == "ReduceSum" { 13 } else { 18 };
    let reduced =
        with_axes(&mut change, name, x, &all, as_input, vec![("keepdims", i64::from(keeps)).into()]);
    change.replace(y, reduced);
    Ok(change)
}

/// Units in the last place by which one long sum may be worse than sums over the second axes of sums over the first.
fn longer(cx: &Cx<'_>, x: ValueId, first: &[usize], second: &[usize]) -> Result<f64, Skip> {
    let shape = cx.shape(x)?;
    let size = |&axis: &usize| shape[axis].as_const().map_or(f64::INFINITY, |size| size as f64);
    let inner: f64 = first.iter().map(size).product();
    // Kept axes are of size 1 for the second.
    let outer: f64 = second.iter().filter(|axis| !first.contains(axis)).map(size).product();
    let roundings = if inner == 1.0 || outer == 1.0 { 0.0 } else { (inner - 1.0) * (outer - 1.0) };
    Ok((roundings / 2.0).max(FEW))
}

static SQUEEZE: At = At {
    name: "squeeze",
    accuracy: Accuracy::ValueExact,
    ops: ASSOCIATIVE,
    apply: |cx, id| {
        let axes = reduced_axes(cx, id)?;
        let x = cx.input(id, 0)?;
        let shape = cx.shape(x)?;
        let ones = axes.iter().all(|&axis| shape[axis].as_const() == Some(1));
        if cx.call(id)?.flag("keepdims")? || axes.is_empty() || !ones {
            return Err(Skip::NOT_HERE);
        }
        let axes: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
        let mut change = cx.change(&[id]);
        let squeezed = with_axes(&mut change, "Squeeze", x, &axes, cx.opset(id) >= 13, Vec::new());
        change.replace(cx.output(id)?, squeezed);
        Ok(change)
    },
};

/// A call with axes, which are an input or an attribute.
fn with_axes(
    change: &mut Change,
    op: &str,
    x: ValueId,
    axes: &[i64],
    as_input: bool,
    mut attrs: Vec<Attr>,
) -> Operand {
    let mut inputs: Vec<Operand> = vec![x.into()];
    if as_input {
        inputs.push(change.ints("axes", axes));
    } else {
        attrs.push(("axes", axes.to_vec()).into());
    }
    change.call(Op::standard(op), inputs, 1, attrs).output(0)
}
