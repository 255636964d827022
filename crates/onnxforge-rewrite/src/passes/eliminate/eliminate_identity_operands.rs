//! eliminate_identity_operands: x + 0, x − 0, x · 1, x / 1 and x¹ become x; so do `x and true` and `x or false`.
//!
//! **Matches** the operators with a constant whose elements all are the identity element, on either side where that is the same (`neutral`); And and Or with such a
//! constant that an Expand repeats, which become an Expand of the other operand to the same shape (`spread`).
//! **Accuracy** `ValueExact` for sums and differences: −0 + 0 and −0 − (−0) are +0 and become −0; everything else stays to the bit.
//! **Proof** By IEEE 754, x · 1, x / 1 and x¹ are x for every x: NaN, infinities, denormals and both zeros; x + 0 and x − 0 are x but for the zeros that
//! are named above. Integers have the same identity elements modulo a power of two, and truth values those of And and Or. Expand broadcasts its operand and its shape
//! as both operators broadcast theirs.
//! **Trust** The result of And or Or has the shape to which that of the Expand and the other operand are broadcast, and so has an Expand of that operand to the same shape (`spread`).
//! **Never** where the constant would broadcast the other operand to a larger shape: the driver proves that it does not; the scale and the
//! shift of a normalization that is decomposed, by which runtimes recognise it.

use crate::passes::pass;
use crate::passes::recognize::norms;
use crate::{At, Change, Cx, Skip};
use onnxforge_ir::{Accuracy, NodeId, Trust, ValueId};

pass!(eliminate_identity_operands { stage: Canonicalize, trusts: [SameShapeRule], rules: [NEUTRAL, SPREAD] });

static NEUTRAL: At = At {
    name: "neutral",
    accuracy: Accuracy::ValueExact,
    ops: &["Add", "Sub", "Mul", "Div", "Pow", "And", "Or"],
    apply: neutral,
};

fn neutral(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (a, b) = (cx.input(id, 0)?, cx.input(id, 1)?);
    // Before that operands were broadcast by an attribute.
    if cx.call(id)?.since() < 7 {
        return Err(Skip::NOT_HERE);
    }
    let op = &*cx.node(id).op().name;
    let element = match op {
        "Add" | "Sub" | "Or" => 0.0,
        _ => 1.0,
    };
    let is_identity = |value: ValueId| cx.uniform(value) == Some(element);
    let kept = if is_identity(b) {
        a
    } else if matches!(op, "Add" | "Mul" | "And" | "Or") && is_identity(a) {
        b
    } else {
        return Err(Skip::NOT_HERE);
    };
    if norms::is_finish(cx, id, kept) {
        return Err(Skip::because("it belongs to a normalization"));
    }
    let mut change = cx.forward(id, kept)?;
    if !matches!(op, "Add" | "Sub") {
        change.promise(Accuracy::BitExact);
    }
    Ok(change)
}

static SPREAD: At = At { name: "spread", accuracy: Accuracy::BitExact, ops: &["And", "Or"], apply: spread };

fn spread(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (a, b) = (cx.input(id, 0)?, cx.input(id, 1)?);
    if cx.call(id)?.since() < 7 {
        return Err(Skip::NOT_HERE);
    }
    let element = f64::from(u8::from(cx.node(id).op().is("And")));
    let shape_of = |value: ValueId| {
        let expand = cx.producer(value, "Expand", id)?;
        let constant = cx.node(expand).input(0)?;
        let is_identity = cx.uniform(constant) == Some(element);
        // The sizes and the rank of the constant take part in the result of its Expand: they may add nothing.
        let adds_nothing = cx.model.constant(constant)?.shape().iter().all(|&size| size == 1)
            && cx.rank(constant).ok()? <= cx.rank(if value == a { b } else { a }).ok()?;
        Some((expand, cx.node(expand).input(1)?)).filter(|_| is_identity && adds_nothing)
    };
    let ((expand, shape), kept) = match (shape_of(a), shape_of(b)) {
        (Some(found), None) => (found, b),
        (None, Some(found)) => (found, a),
        _ => return Err(Skip::NOT_HERE),
    };
    let mut change = cx.change(&[id]);
    change.absorb(expand);
    let spread = change.op("Expand", [kept.into(), shape.into()], []);
    change.replace(cx.output(id)?, spread);
    change.trust(Trust::SameShapeRule);
    Ok(change)
}
