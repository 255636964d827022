//! ort_conv_activation: an activation after a Conv becomes part of ONNX Runtime's FusedConv.
//!
//! **Matches** Relu, Sigmoid, Tanh, LeakyRelu, HardSigmoid and Clip with constant bounds, of a Conv that nothing else reads. For the target `ort`.
//! **Accuracy** `Rounding`: activations are computed by other code.
//! **Proof** This is the definition of the operator.
//! **Bound** The Conv sums the same n products and the bias, and the activation is the same formula with the same parameters: no rounding is added. Libraries
//! are good to 2 ulps for each of the functions, before and after; the 8 leave room for both.
//! **Never** a Conv whose result something else reads; other element types than 32 bits; a Clip with computed bounds. A sum between the two stays,
//! although the operator could add it: ONNX Runtime gives convolutions its fastest layout only where they do not, and adds the sum itself there.

use crate::passes::pass;
use crate::passes::recognize::activations::parameters;
use crate::passes::targets::ORT;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, Attr, DType, NodeId};

pass!(ort_conv_activation { stage: Target, needs: ["Conv"], runs: Only(&[&ORT]), rules: [FUSE] });

static FUSE: At = At {
    name: "fuse",
    accuracy: Accuracy::Rounding { ulps: 8.0 },
    ops: &["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip"],
    apply: fuse,
};

fn fuse(cx: &Cx<'_>, activation: NodeId) -> Result<Change, Skip> {
    let x = cx.input(activation, 0)?;
    let conv = cx.producer(x, "Conv", activation).ok_or(Skip::NOT_HERE)?;
    let parameters = parameters(cx, activation)?;
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    cx.read_only_by(x, activation)?;
    let mut attrs: Vec<Attr> = cx.node(conv).attrs().to_vec();
    attrs.push(("activation", &*cx.node(activation).op().name).into());
    if !parameters.is_empty() {
        attrs.push(("activation_params", parameters).into());
    }
    let mut change = cx.change(&[conv, activation]);
    let inputs: Vec<_> = cx.node(conv).inputs().iter().map(|&input| input.into()).collect();
    let fused = change.contrib("FusedConv", inputs, 1, attrs);
    change.replace(cx.output(activation)?, fused.output(0));
    Ok(change)
}
