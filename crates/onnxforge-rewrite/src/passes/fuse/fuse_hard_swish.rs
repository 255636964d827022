//! fuse_hard_swish: x · HardSigmoid(x) becomes HardSwish.
//!
//! **Matches** Mul of a value and its HardSigmoid, which nothing else reads, with α = 1/6, as 32 bits have it, and β = 1/2. From operator set 14 on.
//! **Accuracy** `Rounding`: the same formula in one kernel.
//! **Proof** The standard defines HardSwish as this function.
//! **Bound** The same three roundings, of α · x, of the sum and of the product, at the scale |x| · (|α · x| + β): a kernel may round less often, not more. Where α was rounded
//! to another type first, that is one rounding, half an ulp.
//! **Never** another line; the HardSigmoid of another value; numbers of 64 bits, for which α is not 1/6.

use crate::passes::pass;
use crate::passes::targets::TFLITE;
use crate::{At, Reason, Skip};
use onnxforge_ir::{Accuracy, DType};

pass!(fuse_hard_swish { stage: Fuse, runs: Except(&[&TFLITE]), rules: [FUSE] });

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Rounding { ulps: 4.0 },
    ops: &["Mul"],
    apply: |cx, product| {
        let (a, b) = (cx.input(product, 0)?, cx.input(product, 1)?);
        let find = |gate| cx.producer(gate, "HardSigmoid", product);
        let (x, gate, sigmoid) = match (find(b), find(a)) {
            (Some(sigmoid), _) if cx.input(sigmoid, 0)? == a => (a, b, sigmoid),
            (_, Some(sigmoid)) if cx.input(sigmoid, 0)? == b => (b, a, sigmoid),
            _ => return Err(Skip::NOT_HERE),
        };
        let call = cx.call(sigmoid)?;
        let (alpha, beta) = (call.float("alpha")?, call.float("beta")?);
        if (alpha - 1.0 / 6.0).abs() > f32::EPSILON / 6.0 || beta != 0.5 {
            return Err(Skip::because("it is another line"));
        }
        if !matches!(cx.dtype(x)?, DType::F32 | DType::F16 | DType::BF16) {
            return Err(Skip::at(Reason::Type, x));
        }
        cx.read_only_by(gate, product)?;
        let mut change = cx.change(&[sigmoid, product]);
        let swish = change.op("HardSwish", [x.into()], []);
        change.replace(cx.output(product)?, swish);
        Ok(change)
    },
};
