//! fuse_log_softmax: Log of Softmax becomes LogSoftmax. Only on request, for results may differ by more than rounding.
//!
//! **Matches** Log of a Softmax that nothing else reads.
//! **Accuracy** `Approximate`: where a probability is less than the smallest number of its type, Softmax gives 0 and Log makes −∞ of it, or something
//! coarse just above; LogSoftmax gives the logarithm itself, of any size. Elsewhere they differ by rounding. Whoever relies on −∞, to hide something, must not
//! ask for this pass.
//! **Proof** This is the definition of the operator, with the same meaning of `axis` in each version.
//! **Never** numbers of 16 bits, whose probabilities vanish early; probabilities that something else reads.

use crate::passes::pass;
use crate::{At, Reason, Skip};
use onnxforge_ir::{Accuracy, DType};

pass!(fuse_log_softmax { stage: Fuse, runs: OnRequest, rules: [FUSE] });

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Approximate { rtol: 1e-2, atol: 1e-6 },
    ops: &["Log"],
    apply: |cx, log| {
        let p = cx.input(log, 0)?;
        let softmax = cx.producer(p, "Softmax", log).ok_or(Skip::NOT_HERE)?;
        let x = cx.input(softmax, 0)?;
        cx.call(softmax)?;
        cx.read_only_by(p, log)?;
        if !matches!(cx.dtype(x)?, DType::F32 | DType::F64) {
            return Err(Skip::at(Reason::Type, x));
        }
        let mut change = cx.change(&[softmax, log]);
        let one = change.op("LogSoftmax", [x.into()], cx.node(softmax).attrs().to_vec());
        change.replace(cx.output(log)?, one);
        Ok(change)
    },
};
