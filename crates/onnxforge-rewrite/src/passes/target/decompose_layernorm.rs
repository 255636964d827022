//! decompose_layernorm: LayerNormalization becomes the primitive operators that it stands for.
//!
//! **Matches** LayerNormalization of a tensor of known rank whose statistics nothing reads. For targets without the operator, such as `tflite`.
//! **Accuracy** `Rounding`: the same terms, summed and divided in the order of the runtime.
//! **Proof** This is the definition of the operator.
//! **Bound** The operator is defined as D · (1 / √(V + ε)), two roundings behind the root, and becomes D / √(V + ε), one; mean, D, V, scale and bias take as many
//! as before. Halves are computed in 32 bits and rounded before they are scaled, as the definition says. One rounding fewer; the 16 ulps leave room for kernels that compute the variance in their own way.
//! **Never** where something reads the mean or the deviation; tensors of unknown rank; numbers of 64 bits, which the operator computes in 32;
//! halves that it computes in something else than 32.

use crate::passes::pass;
use crate::passes::targets::{TFLITE, TFLITE_FILE};
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::{Accuracy, DType, NodeId};
use onnxforge_ops::Array;

pass!(decompose_layernorm { stage: Target, runs: Only(&[&TFLITE, &TFLITE_FILE]), rules: [DECOMPOSE] });

static DECOMPOSE: At = At {
    name: "decompose",
    accuracy: Accuracy::Rounding { ulps: 16.0 },
    ops: &["LayerNormalization"],
    apply: decompose,
};

fn decompose(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, call) = (cx.input(id, 0)?, cx.call(id)?);
    let rank = cx.rank(x)?;
    let dtype = cx.dtype(x)?;
    let is_half = matches!(dtype, DType::F16 | DType::BF16);
    if dtype != DType::F32 && !is_half {
        return Err(Skip::at(Reason::Type, x));
    }
    if is_half && call.int("stash_type")? != i64::from(DType::F32.code()) {
        return Err(Reason::Attribute("stash_type").into());
    }
    if cx.read_output(id, 1).is_some() || cx.read_output(id, 2).is_some() {
        return Err(Skip::because("something reads its statistics"));
    }
    let first = cx.axis(id, rank)? as i64;
    let axes: Vec<i64> = (first - rank as i64..0).collect();
    let mut change = cx.change(&[id]);
    let epsilon = Array::scalar(call.float("epsilon")?).to_tensor().map_err(onnxforge_ops::OpError::from)?;
    let epsilon = change.constant("epsilon", epsilon);
    let listed = (cx.opset(id) >= 18).then(|| change.ints("axes", &axes));
    let mean = |change: &mut Change, of| match listed {
        Some(listed) => change.op("ReduceMean", [of, listed], [("keepdims", 1).into()]),
        None => change.op("ReduceMean", [of], [("axes", axes.clone()).into(), ("keepdims", 1).into()]),
    };
    let cast = |change: &mut Change, of, to: DType| match is_half {
        true => change.op("Cast", [of], [("to", i64::from(to.code())).into()]),
        false => of,
    };
    let wide = cast(&mut change, x.into(), DType::F32);
    let center = mean(&mut change, wide);
    let deviation = change.op("Sub", [wide, center], []);
    let square = change.op("Mul", [deviation, deviation], []);
    let variance = mean(&mut change, square);
    let sum = change.op("Add", [variance, epsilon], []);
    let root = change.op("Sqrt", [sum], []);
    let normalized = change.op("Div", [deviation, root], []);
    let mut y = cast(&mut change, normalized, dtype);
    let scale = cx.input(id, 1)?;
    if cx.uniform(scale) != Some(1.0) {
        y = change.op("Mul", [y, scale.into()], []);
    }
    if let Some(bias) = cx.node(id).input(2) {
        y = change.op("Add", [y, bias.into()], []);
    }
    change.replace(cx.output(id)?, y);
    Ok(change)
}
