//! simplify_clips: Relu, Clip, Min and Max that hold a value between numbers, in a row, become one.
//!
//! **Matches** two in a row of Relu, Clip with constant bounds, and Min or Max of a value and one constant number. Where the second changes
//! nothing any more it goes away (`merge`); otherwise, when nothing else reads the first, both become one Relu, Min, Max or Clip.
//! **Accuracy** `ValueExact`: the operators choose among numbers, and which of −0 and +0 they choose is left open.
//! **Proof** A value held within [a, b] and then within [c, d], where a ≤ b and c ≤ d, is held within the images of a and b under the second:
//! between the bounds both are the identity, and beyond them both are monotone. What is not a number all four hand on.
//! **Never** with bounds that are computed, infinite or in the wrong order, for which runtimes differ; with a constant that varies along an
//! axis; a Clip that lacks a bound never goes away for an operator that is no Clip: it may turn infinities into the largest number.

use crate::passes::pass;
use crate::passes::recognize::bounds::hold;
use crate::passes::recognize::constant_math::scalar;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, NodeId, Op, ValueId};

const FAMILY: &[&str] = &["Relu", "Clip", "Min", "Max"];

pass!(simplify_clips { stage: Canonicalize, rules: [MERGE] });

static MERGE: At = At { name: "merge", accuracy: Accuracy::ValueExact, ops: FAMILY, apply: merge };

fn merge(cx: &Cx<'_>, outer_id: NodeId) -> Result<Change, Skip> {
    let first = |value: Option<ValueId>| {
        let value = value?;
        FAMILY.iter().find_map(|op| cx.producer(value, op, outer_id)).map(|node| (value, node))
    };
    let node = cx.node(outer_id);
    let (middle, inner_id) = first(node.input(0)).or_else(|| first(node.input(1))).ok_or(Skip::NOT_HERE)?;
    let (inner, outer) = (hold(cx, inner_id)?, hold(cx, outer_id)?);
    if outer.x != middle {
        return Err(Skip::NOT_HERE);
    }
    if inner.low > inner.high || outer.low > outer.high {
        return Err(Skip::because("a lower bound lies above the upper one"));
    }
    let within = |number: f64| number.max(outer.low).min(outer.high);
    let (low, high) = (within(inner.low), within(inner.high));
    let is_open = low.is_infinite() || high.is_infinite();
    if (low, high) == (inner.low, inner.high) && (inner.is_clip || !outer.is_clip || !is_open) {
        return cx.forward(outer_id, middle);
    }
    cx.read_only_by(middle, outer_id)?;
    let mut change = cx.change(&[inner_id, outer_id]);
    let dtype = cx.dtype(inner.x)?;
    let is_clip = inner.is_clip || outer.is_clip || !is_open;
    let mut inputs = vec![inner.x.into()];
    let mut attrs = Vec::new();
    let name = match (is_clip, low.is_finite()) {
        (true, _) => "Clip",
        (false, true) => "Max",
        (false, false) => "Min",
    };
    if is_clip && cx.opset(outer_id) < 11 {
        for (name, bound) in [("min", low), ("max", high)] {
            if bound.is_finite() {
                if f64::from(bound as f32) != bound {
                    return Err(Reason::Type.into());
                }
                attrs.push((name, bound as f32).into());
            }
        }
    } else {
        for (name, bound) in [("min", low), ("max", high)] {
            if bound.is_finite() {
                inputs.push(change.constant(name, scalar(dtype, bound)?));
            } else if is_clip && name == "min" {
                inputs.push(onnxforge_ir::edit::Operand::Absent);
            }
        }
    }
    let one = change.call(Op::standard(name), inputs, 1, attrs);
    change.replace(cx.output(outer_id)?, one.output(0));
    Ok(change)
}
