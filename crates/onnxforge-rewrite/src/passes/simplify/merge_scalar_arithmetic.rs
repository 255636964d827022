//! merge_scalar_arithmetic: constants that are added or multiplied one after the other become one.
//!
//! **Matches** Mul or Div by a constant of a Mul or Div by a constant; Add or Sub of a constant of an Add or Sub of one; the value between
//! is read by nothing else. Constants may broadcast, but together they must be no larger than the larger one.
//! **Accuracy** `BitExact` for integers, whose sums and products wrap; `Rounding` for floats: one rounding of the constant instead of one of the
//! value between. Where that left the range of its type, the result is the one that it would have had without.
//! **Proof** Addition and multiplication are associative, modulo a power of two exactly, otherwise up to rounding.
//! **Bound** Two roundings before, one of each operation; after, one of the combined constant and one of the operation. None is added, and there is no sum,
//! so that the scale is the result.
//! **Never** sums of floats: a value that cancels the larger summand leaves the smaller one, which one rounded sum has lost; Div of integers;
//! factors that are 0, or constants that leave the normal range of their type; the ½ and √2 of Gelu.

use crate::passes::pass;
use crate::passes::recognize::activations::has_bracket;
use crate::passes::recognize::constant_math::{combine, is_normal};
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, DType, NodeId, Tensor, ValueId};
use onnxforge_ops::Array;

pass!(merge_scalar_arithmetic { stage: Cleanup, rules: [MERGE] });

static MERGE: At = At {
    name: "merge",
    accuracy: Accuracy::Rounding { ulps: 4.0 },
    ops: &["Add", "Sub", "Mul", "Div"],
    apply: merge,
};

/// An operation with a constant.
struct Step {
    x: ValueId,
    constant: ValueId,
    /// The constant is subtracted or divided by.
    inverse: bool,
}

fn merge(cx: &Cx<'_>, outer_id: NodeId) -> Result<Change, Skip> {
    let family = match &*cx.node(outer_id).op().name {
        "Add" | "Sub" => ["Add", "Sub"],
        _ => ["Mul", "Div"],
    };
    let outer = step(cx, outer_id)?;
    let inner_id = family.iter().find_map(|op| cx.producer(outer.x, op, outer_id)).ok_or(Skip::NOT_HERE)?;
    let inner = step(cx, inner_id)?;
    let y = cx.output(outer_id)?;
    let dtype = cx.dtype(inner.x)?;
    let is_float = match (dtype.kind(), family[0]) {
        (Kind::Float, "Mul") if matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16) => true,
        (Kind::Signed | Kind::Unsigned, _) if !(family[0] == "Mul" && (inner.inverse || outer.inverse)) => {
            false
        }
        _ => return Err(Skip::at(Reason::Type, inner.x)),
    };
    if is_float && is_gelu(cx, &inner, &outer, y) {
        return Err(Skip::because("it may be part of a Gelu"));
    }
    cx.read_only_by(outer.x, outer_id)?;
    let (a, b) = (cx.constant(inner.constant)?, cx.constant(outer.constant)?);
    // x−a−b = x−(a+b), x+a−b = x+(a−b), x−a+b = x+(b−a), and the same for products.
    let (op, first, second) = match (inner.inverse, outer.inverse) {
        (false, true) => (family[1], a, b),
        (true, false) => (family[1], b, a),
        _ => (family[0], a, b),
    };
    let together = combine(cx, outer_id, op, first, second)?;
    if together.len() > a.len().max(b.len()) {
        return Err(Skip::because("together the constants are larger"));
    }
    let fits =
        |tensor: &Tensor| is_normal(tensor, dtype) && numbers(tensor).is_ok_and(|all| !all.contains(&0.0));
    if is_float && ![a, b, &together].into_iter().all(fits) {
        return Err(Skip::because("a constant is out of range"));
    }
    let mut change = cx.change(&[inner_id, outer_id]);
    if !is_float {
        change.promise(Accuracy::BitExact);
    }
    let constant = change.constant(cx.model.value(outer.constant).name().clone(), together);
    let op = if inner.inverse && outer.inverse { family[1] } else { family[0] };
    let one = change.op(op, [inner.x.into(), constant], []);
    change.replace(y, one);
    Ok(change)
}

/// A node with one constant operand, from version 7 on, where operands broadcast; the constant of Sub and Div comes second.
fn step(cx: &Cx<'_>, id: NodeId) -> Result<Step, Skip> {
    let (a, b) = (cx.input(id, 0)?, cx.input(id, 1)?);
    let inverse = cx.node(id).op().is("Sub") || cx.node(id).op().is("Div");
    let is_constant = |value: ValueId| cx.model.constant(value).is_some();
    match (is_constant(a), is_constant(b)) {
        _ if cx.call(id)?.since() < 7 => Err(Skip::NOT_HERE),
        (false, true) => Ok(Step { x: a, constant: b, inverse }),
        (true, false) if !inverse => Ok(Step { x: b, constant: a, inverse }),
        _ => Err(Skip::NOT_HERE),
    }
}

/// Gelu divides by √2 before an Erf, and multiplies by ½ and by a bracket of Erf or Tanh; fusions look for them.
fn is_gelu(cx: &Cx<'_>, inner: &Step, outer: &Step, y: ValueId) -> bool {
    let half = |step: &Step| !step.inverse && cx.uniform(step.constant) == Some(0.5);
    let before_erf = cx.only_reader(y).is_some_and(|reader| cx.node(reader).op().is("Erf"));
    before_erf || (half(inner) || half(outer)) && (has_bracket(cx, inner.x) || meets_bracket(cx, y))
}

/// Whether a product with a sum with Erf or Tanh reads a value.
fn meets_bracket(cx: &Cx<'_>, value: ValueId) -> bool {
    let operands = |used: &Use| match *used {
        Use::Input { node, .. } if cx.node(node).op().is("Mul") => Some(cx.node(node).inputs()),
        _ => None,
    };
    let mut others = cx.model.value(value).uses().iter().filter_map(operands).flatten().flatten();
    others.any(|&other| has_bracket(cx, other))
}

fn numbers(tensor: &Tensor) -> Result<Vec<f64>, Skip> {
    Ok(Array::from_tensor(tensor)?.to_f64s()?)
}
