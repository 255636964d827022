//! eliminate_idempotent_ops: an operator that does nothing the second time, or undoes itself, goes away.
//!
//! **Matches** Ceil, Floor or Round of a Ceil, Floor, Round or Sign; Sign of Sign, Abs of Abs, Relu of Relu (`again`); Neg of Neg, Not of
//! Not and BitwiseNot of BitwiseNot (`back`).
//! **Accuracy** `BitExact`.
//! **Proof** A whole number, an infinity and what is no number are left as they are by Ceil, Floor and Round; the other three give what they
//! leave alone. Neg flips a sign bit, or negates modulo a power of two, which maps the least integer to itself; both are their own inverse.
//! **Trust** These operators work on each element by itself, so that all values of the chain have one shape, of however many axes.
//! **Never** Reciprocal of Reciprocal, which rounds.

use crate::passes::pass;
use crate::{At, Skip};
use onnxforge_ir::{Accuracy, Trust};

pass!(eliminate_idempotent_ops { stage: Canonicalize, trusts: [Forwarded], rules: [AGAIN, BACK] });

/// Operators whose results are whole numbers.
const WHOLE: [&str; 4] = ["Ceil", "Floor", "Round", "Sign"];

static AGAIN: At = At {
    name: "again",
    accuracy: Accuracy::BitExact,
    ops: &["Ceil", "Floor", "Round", "Sign", "Abs", "Relu"],
    apply: |cx, outer| {
        let middle = cx.input(outer, 0)?;
        let name = &*cx.node(outer).op().name;
        let whole = if matches!(name, "Ceil" | "Floor" | "Round") { &WHOLE[..] } else { &[] };
        let before = |op: &str| cx.producer(middle, op, outer).is_some();
        if !before(name) && !whole.iter().any(|op| before(op)) {
            return Err(Skip::NOT_HERE);
        }
        let mut change = cx.forward(outer, middle)?;
        change.trust(Trust::Forwarded);
        Ok(change)
    },
};

static BACK: At = At {
    name: "back",
    accuracy: Accuracy::BitExact,
    ops: &["Neg", "Not", "BitwiseNot"],
    apply: |cx, outer| {
        let name = &*cx.node(outer).op().name;
        let inner = cx.producer(cx.input(outer, 0)?, name, outer).ok_or(Skip::NOT_HERE)?;
        let mut change = cx.forward(outer, cx.input(inner, 0)?)?;
        change.absorb(inner);
        change.trust(Trust::Forwarded);
        Ok(change)
    },
};
