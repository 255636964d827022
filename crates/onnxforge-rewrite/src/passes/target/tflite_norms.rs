//! tflite_norms: normalizations that TensorFlow Lite lacks become the primitive operators that they stand for.
//!
//! **Matches** InstanceNormalization (`instance`), BatchNormalization outside of training (`batch`) and RMSNormalization (`rms`) of floats of 32 bits. For files of
//! TensorFlow Lite; LayerNormalization has a pass of its own, which other converters want as well.
//! **Accuracy** `Rounding`: the same terms, summed and divided in the order of the runtime.
//! **Proof** These are the definitions: scale · (x − mean) / √(variance + ε) + bias, with statistics of each channel of each image or stored ones,
//! and scale · x / √(mean of x² + ε).
//! **Bound** Each step of the definition is one operator with one rounding; a root and a division take the place of a reciprocal root, or of a division by the
//! root, one rounding more. The 16 ulps leave room for kernels that compute a variance in their own way.
//! **Never** in training; other numbers; where the number of axes is not known.

use crate::passes::pass;
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, DType, NodeId};
use onnxforge_ops::{Array, OpError};

pass!(tflite_norms {
    stage: Target,
    needs: ["InstanceNormalization", "BatchNormalization", "RMSNormalization"],
    runs: Only(&[&TFLITE_FILE]),
    rules: [INSTANCE, BATCH, RMS],
});

const ACCURACY: Accuracy = Accuracy::Rounding { ulps: 16.0 };

static INSTANCE: At =
    At { name: "instance", accuracy: ACCURACY, ops: &["InstanceNormalization"], apply: instance };
static BATCH: At = At { name: "batch", accuracy: ACCURACY, ops: &["BatchNormalization"], apply: batch };
static RMS: At = At { name: "rms", accuracy: ACCURACY, ops: &["RMSNormalization"], apply: rms };

fn instance(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, rank) = image(cx, id)?;
    let axes: Vec<i64> = (2..rank as i64).collect();
    let mut change = cx.change(&[id]);
    let listed = change.ints("axes", &axes);
    let mean = change.op("ReduceMean", [x, listed], [("keepdims", 1).into()]);
    let deviation = change.op("Sub", [x, mean], []);
    let root = root(cx, &mut change, id, deviation, listed)?;
    let normalized = change.op("Div", [deviation, root], []);
    let scale = along_channels(&mut change, cx.input(id, 1)?.into(), rank);
    let scaled = change.op("Mul", [normalized, scale], []);
    let bias = along_channels(&mut change, cx.input(id, 2)?.into(), rank);
    let y = change.op("Add", [scaled, bias], []);
    change.replace(cx.output(id)?, y);
    Ok(change)
}

fn batch(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, rank) = image(cx, id)?;
    if cx.call(id)?.flag("training_mode")? {
        return Err(Reason::Training.into());
    }
    let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|index| cx.input(id, index).map(Operand::from));
    let mut change = cx.change(&[id]);
    let epsilon = number(&mut change, cx.call(id)?.float("epsilon")?)?;
    let sum = change.op("Add", [variance?, epsilon], []);
    let root = change.op("Sqrt", [sum], []);
    let factor = change.op("Div", [scale?, root], []);
    let [mean, factor, bias] = [mean?, factor, bias?].map(|it| along_channels(&mut change, it, rank));
    let deviation = change.op("Sub", [x, mean], []);
    let scaled = change.op("Mul", [deviation, factor], []);
    let y = change.op("Add", [scaled, bias], []);
    change.replace(cx.output(id)?, y);
    Ok(change)
}

fn rms(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let value = cx.input(id, 0)?;
    let rank = cx.rank(value)?;
    let x = floats(cx, id)?;
    let first = cx.axis(id, rank)? as i64;
    let mut change = cx.change(&[id]);
    let listed = change.ints("axes", &(first - rank as i64..0).collect::<Vec<_>>());
    let root = root(cx, &mut change, id, x, listed)?;
    let normalized = change.op("Div", [x, root], []);
    let y = change.op("Mul", [normalized, cx.input(id, 1)?.into()], []);
    change.replace(cx.output(id)?, y);
    Ok(change)
}

/// √(mean of x² + ε) along these axes.
fn root(cx: &Cx<'_>, change: &mut Change, id: NodeId, x: Operand, axes: Operand) -> Result<Operand, Skip> {
    let epsilon = number(change, cx.call(id)?.float("epsilon")?)?;
    let square = change.op("Mul", [x, x], []);
    let mean = change.op("ReduceMean", [square, axes], [("keepdims", 1).into()]);
    let sum = change.op("Add", [mean, epsilon], []);
    Ok(change.op("Sqrt", [sum], []))
}

/// The image of a normalization along channels, and the number of its axes.
fn image(cx: &Cx<'_>, id: NodeId) -> Result<(Operand, usize), Skip> {
    let x = floats(cx, id)?;
    let rank = cx.rank(cx.input(id, 0)?)?;
    // Axes of reductions and Unsqueeze are inputs from here on.
    if rank < 2 || cx.opset(id) < 18 {
        return Err(Skip::NOT_HERE);
    }
    Ok((x, rank))
}

fn floats(cx: &Cx<'_>, id: NodeId) -> Result<Operand, Skip> {
    let x = cx.input(id, 0)?;
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    Ok(x.into())
}

/// A vector along the second of so many axes.
fn along_channels(change: &mut Change, vector: Operand, rank: usize) -> Operand {
    if rank == 2 {
        return vector;
    }
    let axes = change.ints("axes", &(1..rank as i64 - 1).collect::<Vec<_>>());
    change.op("Unsqueeze", [vector, axes], [])
}

fn number(change: &mut Change, value: f32) -> Result<Operand, Skip> {
    Ok(change.constant("epsilon", Array::scalar(value).to_tensor().map_err(OpError::from)?))
}
