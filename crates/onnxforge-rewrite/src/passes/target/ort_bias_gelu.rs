//! ort_bias_gelu: Gelu of the sum of a tensor and a bias becomes ONNX Runtime's BiasGelu, or its FastGelu.
//!
//! **Matches** Gelu, exact or by tanh, of the standard or of ONNX Runtime, of the sum of a tensor and a constant vector of its features that nothing else reads. For the
//! target `ort`.
//! **Accuracy** `Rounding`: the function is computed by other code.
//! **Proof** These are the definitions of the operators.
//! **Bound** One rounding of the sum and those of the same formula before and after. The constants that each kernel has for √2, or for √(2/π) and 0.044715,
//! are rounded once: they differ by at most 2 roundings each, 2 ulps together, at the scale |x| · (1 + |erf|) / 2 of the sum in the formula.
//! **Never** a sum that something else reads; a bias that is computed, or that is no vector of the features; numbers of 64 bits.

use crate::passes::pass;
use crate::passes::recognize::channels::features;
use crate::passes::targets::ORT;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, DType, NodeId};

pass!(ort_bias_gelu { stage: Target, runs: Only(&[&ORT]), rules: [FUSE] });

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Rounding { ulps: 8.0 },
    ops: &["Gelu", "com.microsoft.Gelu", "com.microsoft.FastGelu"],
    apply: fuse,
};

fn fuse(cx: &Cx<'_>, gelu: NodeId) -> Result<Change, Skip> {
    let (total, op) = (cx.input(gelu, 0)?, cx.node(gelu).op());
    let by_tanh = match &*op.name {
        "FastGelu" if cx.node(gelu).input(1).is_some() => return Err(Skip::NOT_HERE),
        "FastGelu" => true,
        _ => op.is("Gelu") && cx.call(gelu)?.text("approximate")? == "tanh",
    };
    let sum = cx.producer(total, "Add", gelu).ok_or(Skip::NOT_HERE)?;
    let (x, bias) =
        features(cx, sum).ok_or(Skip::because("what is added is no constant vector of the features"))?;
    if !matches!(cx.dtype(x)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    cx.read_only_by(total, gelu)?;
    let name = if by_tanh { "FastGelu" } else { "BiasGelu" };
    let mut change = cx.change(&[sum, gelu]);
    let fused = change.contrib(name, [x.into(), bias.into()], 1, []);
    change.replace(cx.output(gelu)?, fused.output(0));
    Ok(change)
}
