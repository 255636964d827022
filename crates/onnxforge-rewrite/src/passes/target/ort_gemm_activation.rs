//! ort_gemm_activation: an activation after a Gemm becomes part of ONNX Runtime's FusedGemm.
//!
//! **Matches** Relu, Sigmoid, Tanh, LeakyRelu and HardSigmoid of a Gemm that nothing else reads. For the target `ort`.
//! **Accuracy** `Rounding`: activations are computed by other code.
//! **Proof** This is the definition of the operator.
//! **Bound** The Gemm sums the same n products and the bias, and the activation is the same formula with the same parameters: no rounding is added. Libraries
//! are good to 2 ulps for each of the functions, before and after; the 8 leave room for both.
//! **Never** a Gemm whose result something else reads; other element types than 32 bits.

use crate::passes::pass;
use crate::passes::recognize::activations::parameters;
use crate::passes::targets::ORT;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, Attr, DType, NodeId};

pass!(ort_gemm_activation { stage: Target, runs: Only(&[&ORT]), rules: [FUSE] });

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Rounding { ulps: 8.0 },
    ops: &["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"],
    apply: fuse,
};

fn fuse(cx: &Cx<'_>, activation: NodeId) -> Result<Change, Skip> {
    let x = cx.input(activation, 0)?;
    let gemm = cx.producer(x, "Gemm", activation).ok_or(Skip::NOT_HERE)?;
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    cx.read_only_by(x, activation)?;
    let mut attrs: Vec<Attr> = cx.node(gemm).attrs().to_vec();
    attrs.retain(|attr| matches!(&*attr.name, "alpha" | "beta" | "transA" | "transB"));
    attrs.push(("activation", &*cx.node(activation).op().name).into());
    let parameters = parameters(cx, activation)?;
    let named = ["activation_alpha", "activation_beta"].into_iter().zip(parameters);
    attrs.extend(named.map(|(name, parameter)| Attr::from((name, parameter))));
    let mut change = cx.change(&[gemm, activation]);
    let inputs: Vec<_> = cx.node(gemm).inputs().iter().map(|&input| input.into()).collect();
    let fused = change.contrib("FusedGemm", inputs, 1, attrs);
    change.replace(cx.output(activation)?, fused.output(0));
    Ok(change)
}
