//! eliminate_optionals: what is known to be there, or not, is not asked for.
//!
//! **Matches** OptionalHasElement of something of which it is known whether it is there (`has`); OptionalGetElement of an Optional
//! that was made of something (`made`), or of something that is no optional (`plain`).
//! **Accuracy** `BitExact`.
//! **Proof** An optional that was made of an element holds that element. A tensor or sequence is always there, and an input that is
//! left out never.
//! **Trust** OptionalGetElement hands on the very thing that the optional was made of, or that is no optional (`made`, `plain`).
//! **Never** an optional that comes from outside, or from a branch that may make an empty one.

use crate::passes::pass;
use crate::{At, Skip};
use onnxforge_ir::{Accuracy, Trust};
use onnxforge_ops::{Array, Fact, OpError};

pass!(eliminate_optionals {
    stage: Canonicalize,
    needs: ["OptionalGetElement", "OptionalHasElement"],
    trusts: [Forwarded],
    rules: [HAS, MADE, PLAIN],
});

static HAS: At = At {
    name: "has",
    accuracy: Accuracy::BitExact,
    ops: &["OptionalHasElement"],
    apply: |cx, id| {
        let is_there = match cx.node(id).input(0) {
            None => false,
            Some(value) => match cx.facts.fact(value) {
                Fact::Optional { present: Some(present), .. } => *present,
                Fact::Tensor(_) | Fact::Sequence { .. } => true,
                _ => return Err(Skip::because("it is not known whether the optional is empty")),
            },
        };
        let mut change = cx.change(&[id]);
        let truth = Array::scalar(is_there).to_tensor().map_err(OpError::from)?;
        let constant = change.constant("is_there", truth);
        change.replace(cx.output(id)?, constant);
        Ok(change)
    },
};

static MADE: At = At {
    name: "made",
    accuracy: Accuracy::BitExact,
    ops: &["OptionalGetElement"],
    apply: |cx, id| {
        let made = cx.producer(cx.input(id, 0)?, "Optional", id).ok_or(Skip::NOT_HERE)?;
        let mut change = cx.forward(id, cx.input(made, 0)?)?;
        change.trust(Trust::Forwarded);
        Ok(change)
    },
};

static PLAIN: At = At {
    name: "plain",
    accuracy: Accuracy::BitExact,
    ops: &["OptionalGetElement"],
    apply: |cx, id| {
        let value = cx.input(id, 0)?;
        let (Fact::Tensor(_) | Fact::Sequence { .. }) = cx.facts.fact(value) else {
            return Err(Skip::NOT_HERE);
        };
        let mut change = cx.forward(id, value)?;
        change.trust(Trust::Forwarded);
        Ok(change)
    },
};
