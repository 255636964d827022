//! tflite_activations: activations that TensorFlow Lite lacks become the formulas that they stand for.
//!
//! **Matches** HardSigmoid (`hard_sigmoid`), Reciprocal (`reciprocal`) and Swish (`swish`) of floats of 32 bits. For files of TensorFlow Lite.
//! **Accuracy** `Rounding`: the same formula, with a rounding after each of its steps.
//! **Proof** These are the definitions: max(0, min(1, α · x + β)), 1 / x and x · σ(α · x).
//! **Bound** HardSigmoid takes one product and one sum, before and after, where a kernel may fuse both: one rounding more. Reciprocal is one division. Swish takes
//! a product, σ and a product. The 4 ulps leave room for functions of other libraries.
//! **Never** other numbers.

use crate::passes::pass;
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, DType, NodeId};
use onnxforge_ops::{Array, OpError};

pass!(tflite_activations {
    stage: Target,
    needs: ["HardSigmoid", "Reciprocal", "Swish"],
    runs: Only(&[&TFLITE_FILE]),
    rules: [HARD_SIGMOID, RECIPROCAL, SWISH],
});

const ACCURACY: Accuracy = Accuracy::Rounding { ulps: 4.0 };

static HARD_SIGMOID: At = At {
    name: "hard_sigmoid",
    accuracy: ACCURACY,
    ops: &["HardSigmoid"],
    apply: |cx, id| {
        let x = floats(cx, id)?;
        let (alpha, beta) = (cx.call(id)?.float("alpha")?, cx.call(id)?.float("beta")?);
        let mut change = cx.change(&[id]);
        let [alpha, beta] =
            [("alpha", alpha), ("beta", beta)].map(|(name, it)| number(&mut change, name, it));
        let scaled = change.op("Mul", [x, alpha?], []);
        let moved = change.op("Add", [scaled, beta?], []);
        let [low, high] = [("low", 0.0), ("high", 1.0)].map(|(name, it)| number(&mut change, name, it));
        let y = change.op("Clip", [moved, low?, high?], []);
        change.replace(cx.output(id)?, y);
        Ok(change)
    },
};

static RECIPROCAL: At = At {
    name: "reciprocal",
    accuracy: ACCURACY,
    ops: &["Reciprocal"],
    apply: |cx, id| {
        let x = floats(cx, id)?;
        let mut change = cx.change(&[id]);
        let one = number(&mut change, "one", 1.0)?;
        let y = change.op("Div", [one, x], []);
        change.replace(cx.output(id)?, y);
        Ok(change)
    },
};

static SWISH: At = At {
    name: "swish",
    accuracy: ACCURACY,
    ops: &["Swish"],
    apply: |cx, id| {
        let x = floats(cx, id)?;
        let alpha = cx.call(id)?.float("alpha")?;
        let mut change = cx.change(&[id]);
        let scaled = match alpha {
            1.0 => x,
            _ => {
                let alpha = number(&mut change, "alpha", alpha)?;
                change.op("Mul", [x, alpha], [])
            }
        };
        let gate = change.op("Sigmoid", [scaled], []);
        let y = change.op("Mul", [x, gate], []);
        change.replace(cx.output(id)?, y);
        Ok(change)
    },
};

/// The operand, which must hold floats of 32 bits.
fn floats(cx: &Cx<'_>, id: NodeId) -> Result<Operand, Skip> {
    let x = cx.input(id, 0)?;
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    Ok(x.into())
}

/// A constant number.
fn number(change: &mut Change, name: &'static str, value: f32) -> Result<Operand, Skip> {
    Ok(change.constant(name, Array::scalar(value).to_tensor().map_err(OpError::from)?))
}
