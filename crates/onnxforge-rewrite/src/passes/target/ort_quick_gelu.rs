//! ort_quick_gelu: x · sigmoid(α · x) becomes ONNX Runtime's QuickGelu. With α = 1 it is SiLU.
//!
//! **Matches** Mul of x and a Sigmoid of x, or of x times one number, in any order. For the target `ort`.
//! **Accuracy** `Rounding`: the function is computed by other code.
//! **Proof** This is the definition of the operator.
//! **Bound** One rounding of α · x, those of the logistic function and one of the product, before and after; α is the number of the model. None is
//! added. Libraries are good to 2 ulps for the function, before and after; the 8 leave room for both.
//! **Never** a Sigmoid of something else, or one that something else reads; numbers of 64 bits.

use crate::passes::pass;
use crate::passes::targets::ORT;
use crate::{At, Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::{Accuracy, DType, NodeId};

pass!(ort_quick_gelu { stage: Target, runs: Only(&[&ORT]), rules: [FUSE] });

static FUSE: At = At { name: "fuse", accuracy: Accuracy::Rounding { ulps: 8.0 }, ops: &["Mul"], apply: fuse };

fn fuse(cx: &Cx<'_>, product: NodeId) -> Result<Change, Skip> {
    let (a, b) = (cx.input(product, 0)?, cx.input(product, 1)?);
    let found = [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        let mut trail = Trail::new(cx, product);
        let argument = trail.through(gate, "Sigmoid")?;
        let alpha = match argument == x {
            true => 1.0,
            false => trail.with_number(argument, "Mul").filter(|&(of, _)| of == x)?.1,
        };
        Some((x, alpha, trail))
    });
    let (x, alpha, trail) = found.ok_or(Skip::NOT_HERE)?;
    if !matches!(cx.dtype(x)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    let mut change = trail.change()?;
    let fused = change.contrib("QuickGelu", [x.into()], 1, [("alpha", alpha as f32).into()]);
    change.replace(cx.output(product)?, fused.output(0));
    Ok(change)
}
