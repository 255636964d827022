//! fuse_log_softmax: Log of Softmax becomes LogSoftmax. Only on request, for results may differ by more than rounding.
//!
//! **Matches** Log of a Softmax that nothing else reads.
//! **Accuracy** `Approximate`: where a probability is less than the smallest number of its type, Softmax gives 0 and Log makes −∞ of it, or something
//! coarse just above; LogSoftmax gives the logarithm itself, of any size. Elsewhere they differ by rounding. Whoever relies on −∞, to hide something, must not
//! ask for this pass.
//! **Proof** This is the definition of the operator, with the same meaning of `axis` in each version.
//! **Never** numbers of 16 bits, whose probabilities vanish early; probabilities that something else reads.

use super::pass;
use crate::ir::{Accuracy, DType};
use crate::rewrite::{Fusion, Pattern, Reason, Skip};

pass!(fuse_log_softmax, &[&FUSE]);

static FUSE: Fusion<3> = Fusion {
    name: "fuse",
    accuracy: Accuracy::Approximate { rtol: 1e-2, atol: 1e-6 },
    from: Pattern::new(
        "p = Softmax<..>(x)
         y = Log(p)",
    ),
    vars: ["x", "p", "y"],
    to: |cx, change, [x, p, y]| {
        if !matches!(cx.dtype(x)?, DType::F32 | DType::F64) {
            return Err(Skip::at(Reason::Type, x));
        }
        let softmax = cx.model.value(p).node().ok_or(Skip::NOT_HERE)?;
        let one = change.op("LogSoftmax", [x.into()], cx.node(softmax).attrs().to_vec());
        change.replace(y, one);
        Ok(())
    },
};
