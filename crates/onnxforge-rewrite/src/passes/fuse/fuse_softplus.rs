//! fuse_softplus: the logarithm of 1 + exp(x) becomes Softplus. Only on request, for results may differ by more than rounding.
//!
//! **Matches** Log(Exp(x) + 1), of which nothing else reads a part.
//! **Accuracy** `Approximate`: where Exp overflows, beyond 88 in 32 bits, the decomposed form is infinite and Softplus is x; far below 0 the sum loses
//! what Exp gives, and Softplus does not. Elsewhere they differ by rounding.
//! **Proof** This is the definition of the operator.
//! **Never** another summand, or one that stretches x; numbers of 16 bits, whose Exp overflows early.

use crate::passes::pass;
use crate::{At, Reason, Skip, Trail};
use onnxforge_ir::{Accuracy, DType};

pass!(fuse_softplus { stage: Fuse, runs: OnRequest, rules: [FUSE] });

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Approximate { rtol: 1e-6, atol: 1e-6 },
    ops: &["Log"],
    apply: |cx, root| {
        let mut trail = Trail::new(cx, root);
        let found = trail.with_number(cx.input(root, 0)?, "Add").filter(|&(_, number)| number == 1.0);
        let (power, _) = found.ok_or(Skip::NOT_HERE)?;
        let x = trail.through(power, "Exp").ok_or(Skip::NOT_HERE)?;
        if !matches!(cx.dtype(x)?, DType::F32 | DType::F64) {
            return Err(Skip::at(Reason::Type, x));
        }
        let mut change = trail.change()?;
        let one = change.op("Softplus", [x.into()], []);
        change.replace(cx.output(root)?, one);
        Ok(change)
    },
};
