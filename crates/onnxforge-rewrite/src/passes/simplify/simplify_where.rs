//! simplify_where: a Where that need not choose goes away, and one that reads a negation reads the original.
//!
//! **Matches** Where(Not(c), a, b) where nothing but such conditions read the negation (`not`); a condition that is the same constant
//! everywhere, or equal choices (`decided`); a Where of a Where of the same condition, which nothing else reads (`nested`);
//! integers that are chosen by arithmetic, Cast(c) · a + Cast(Not(c)) · b (`select`).
//! **Accuracy** `BitExact`: no element is computed, and sums of an integer and 0 are that integer.
//! **Proof** By the definition of Where, which hands on one of two elements as it is. Not swaps the cases; a constant condition takes one side everywhere; of
//! equal choices either is the result; where the outer condition takes the inner Where, the same condition takes the same side within. The driver proves that a chosen operand has the shape of the result (`decided`, `nested`).
//! Of c and its negation, one is 1 and the other 0 (`select`).
//! **Trust** A Where whose condition is negated takes its shape from the three shapes that the other one takes it from (`not`): a negation has
//! the shape of what it negates, and all three are broadcast alike.
//! **Never** floats that are chosen by arithmetic, which makes NaN of an infinity that is not chosen; where the condition or the other choice broadcasts the chosen one; a condition that a caller may override.

use crate::passes::pass;
use crate::passes::recognize::selections::Selection;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Accuracy, DType, NodeId, Trust};

pass!(simplify_where { stage: Canonicalize, trusts: [SameShapeRule], rules: [NOT, DECIDED, NESTED, SELECT] });

static NOT: At = At {
    name: "not",
    accuracy: Accuracy::BitExact,
    ops: &["Where"],
    apply: |cx, id| {
        let condition = cx.input(id, 0)?;
        let not = cx.producer(condition, "Not", id).ok_or(Skip::NOT_HERE)?;
        let chooses = |used: &Use| {
            matches!(used, Use::Input { node, .. }
                if cx.node(*node).op().is("Where") && cx.node(*node).input(0) == Some(condition)
                    && cx.node(*node).inputs().iter().skip(1).all(|&other| other != Some(condition)))
        };
        if cx.model.value(condition).is_pinned() || !cx.model.value(condition).uses().iter().all(chooses) {
            return Err(Skip::at(Reason::ReadElsewhere, condition));
        }
        let inputs = [cx.input(not, 0)?, cx.input(id, 2)?, cx.input(id, 1)?].map(Operand::from);
        let mut change = cx.change(&[id]);
        change.absorb(not);
        let chosen = change.remake(cx, id, inputs);
        change.replace(cx.output(id)?, chosen);
        change.trust(Trust::SameShapeRule);
        Ok(change)
    },
};

static DECIDED: At = At {
    name: "decided",
    accuracy: Accuracy::BitExact,
    ops: &["Where"],
    apply: |cx, id| {
        let (condition, yes, no) = (cx.input(id, 0)?, cx.input(id, 1)?, cx.input(id, 2)?);
        let chosen = match cx.uniform(condition) {
            _ if yes == no => yes,
            Some(0.0) => no,
            Some(_) => yes,
            None => return Err(Skip::NOT_HERE),
        };
        cx.forward(id, chosen)
    },
};

static NESTED: At = At { name: "nested", accuracy: Accuracy::BitExact, ops: &["Where"], apply: nested };

fn nested(cx: &Cx<'_>, outer: NodeId) -> Result<Change, Skip> {
    let condition = cx.input(outer, 0)?;
    // Where the outer one takes its operand `side`, the inner one does so, too.
    let inner = |side: usize| {
        let middle = cx.node(outer).input(side)?;
        let node = cx.producer(middle, "Where", outer)?;
        (cx.node(node).input(0) == Some(condition)).then_some((side, middle, node))
    };
    let (side, middle, node) = inner(1).or_else(|| inner(2)).ok_or(Skip::NOT_HERE)?;
    cx.read_only_by(middle, outer)?;
    let mut inputs = [condition, cx.input(outer, 1)?, cx.input(outer, 2)?].map(Operand::from);
    inputs[side] = cx.input(node, side)?.into();
    let mut change = cx.change(&[outer, node]);
    let chosen = change.remake(cx, outer, inputs);
    change.replace(cx.output(outer)?, chosen);
    Ok(change)
}

static SELECT: At = At { name: "select", accuracy: Accuracy::BitExact, ops: &["Add"], apply: select };

fn select(cx: &Cx<'_>, sum: NodeId) -> Result<Change, Skip> {
    let selection = Selection::of(cx, sum).ok_or(Skip::NOT_HERE)?;
    let y = cx.output(sum)?;
    // Of integers, only types for which ONNX Runtime has a Where.
    if !matches!(cx.dtype(y)?, DType::U8 | DType::I8 | DType::I32 | DType::U32 | DType::I64) {
        return Err(Skip::at(Reason::Type, y));
    }
    let mut change = cx.change(&[sum]);
    let [condition, yes, no] = [selection.condition, selection.yes, selection.no].map(Operand::from);
    let chosen = change.op("Where", [condition, yes, no], []);
    change.replace(y, chosen);
    Ok(change)
}
