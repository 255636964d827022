//! eliminate_zero_bias: a bias that is zero everywhere goes away.
//!
//! **Matches** Conv, ConvTranspose, Gemm (from version 11 on, where C may be missing) and QLinearConv with a constant bias of zeros.
//! **Accuracy** `ValueExact`: −0 + 0 is +0 and becomes −0; `BitExact` for QLinearConv, which adds integers.
//! **Proof** x + 0 is x for every x but −0: for NaN, infinities and denormals too. beta · 0 is 0 for every finite beta. A bias does not decide about the shape of the result.
//! **Trust** The shape of the result follows from the other operands and the attributes, which stay; a bias is broadcast to it.
//! **Never** a Gemm whose beta is not finite; a bias that a caller may override.

use crate::passes::pass;
use crate::{At, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Trust};

pass!(eliminate_zero_bias { stage: Canonicalize, trusts: [SameShapeRule], rules: [ZERO] });

static ZERO: At = At {
    name: "zero",
    accuracy: Accuracy::ValueExact,
    ops: &["Conv", "ConvTranspose", "Gemm", "QLinearConv"],
    apply: |cx, id| {
        let (node, call) = (cx.node(id), cx.call(id)?);
        let position = if node.op().is("QLinearConv") { 8 } else { 2 };
        let bias = node.input(position).ok_or(Skip::NOT_HERE)?;
        if cx.uniform(bias) != Some(0.0) {
            return Err(Skip::NOT_HERE);
        }
        if node.op().is("Gemm") {
            if call.since() < 11 {
                return Err(Reason::Opset { op: "Gemm without C".to_owned(), opset: cx.opset(id) }.into());
            }
            if !call.float("beta")?.is_finite() {
                return Err(Reason::Attribute("beta").into());
            }
        }
        let inputs = node.inputs()[..position].iter().map(|&input| Operand::from(input));
        let mut change = cx.change(&[id]);
        if position == 8 {
            change.promise(Accuracy::BitExact);
        }
        let bare = change.remake(cx, id, inputs);
        change.replace(cx.output(id)?, bare);
        change.trust(Trust::SameShapeRule);
        Ok(change)
    },
};
