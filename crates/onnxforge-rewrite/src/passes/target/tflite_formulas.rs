//! tflite_formulas: operators that TensorFlow Lite lacks, and that are short formulas of others, become these.
//!
//! **Matches** Elu with a factor, Selu and Celu (`exponential`); Softplus, Softsign, ThresholdedRelu and Mish (`activation`); Mean (`mean`); ReduceL1, ReduceL2,
//! ReduceSumSquare, ReduceLogSum and ReduceLogSumExp along known axes (`reduction`); Trilu of known sizes (`triangle`). Floats of 32 bits, but for the last. For
//! files of TensorFlow Lite.
//! **Accuracy** `Rounding`: the same formula, with a rounding after each of its steps.
//! **Proof** These are the definitions. Exponentials are taken of numbers that are not positive, so that none overflows where the result does not: α · (exp(min(x, 0)) − 1) +
//! max(x, 0), and max(x, 0) + log(1 + exp(−|x|)). The largest number of a row is taken out of the logarithm of its sum, limited to finite ones, so that infinite rows
//! stay what they are. A triangle is chosen by a mask of the last two axes.
//! **Bound** Up to six steps with a rounding each, where a kernel may round once; logarithms and exponentials of other libraries differ by two more. Relative to the scale of
//! the result, which is at least that of each term: 16 ulps.
//! **Never** other numbers; axes, sizes or factors that are not known.

use crate::passes::pass;
use crate::passes::recognize::reductions::reduced_axes;
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, DType, NodeId};
use onnxforge_ops::{Array, OpError};

pass!(tflite_formulas {
    stage: Target,
    needs: [
        "Elu",
        "Selu",
        "Celu",
        "Softplus",
        "Softsign",
        "ThresholdedRelu",
        "Mish",
        "Mean",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "Trilu",
    ],
    runs: Only(&[&TFLITE_FILE]),
    rules: [EXPONENTIAL, ACTIVATION, MEAN, REDUCTION, TRIANGLE],
});

const ACCURACY: Accuracy = Accuracy::Rounding { ulps: 16.0 };
/// The largest mask of a triangle.
const LARGEST: i64 = 1 << 22;

static EXPONENTIAL: At = At {
    name: "exponential",
    accuracy: ACCURACY,
    ops: &["Elu", "Selu", "Celu"],
    apply: |cx, id| {
        let x = floats(cx, id)?;
        let (op, call) = (&*cx.node(id).op().name, cx.call(id)?);
        let alpha = call.float("alpha")?;
        // The format has the one with a factor of 1.
        if op == "Elu" && alpha == 1.0 || op == "Celu" && alpha == 0.0 {
            return Err(Skip::NOT_HERE);
        }
        let mut change = cx.change(&[id]);
        let zero = number(&mut change, 0.0)?;
        let factor = number(&mut change, alpha)?;
        let mut low = change.op("Min", [x, zero], []);
        if op == "Celu" {
            low = change.op("Div", [low, factor], []);
        }
        let power = change.op("Exp", [low], []);
        let one = number(&mut change, 1.0)?;
        let below = change.op("Sub", [power, one], []);
        let scaled = change.op("Mul", [below, factor], []);
        let above = change.op("Max", [x, zero], []);
        let mut y = change.op("Add", [above, scaled], []);
        if op == "Selu" {
            let gamma = number(&mut change, call.float("gamma")?)?;
            y = change.op("Mul", [y, gamma], []);
        }
        change.replace(cx.output(id)?, y);
        Ok(change)
    },
};

static ACTIVATION: At = At {
    name: "activation",
    accuracy: ACCURACY,
    ops: &["Softplus", "Softsign", "ThresholdedRelu", "Mish"],
    apply: |cx, id| {
        let x = floats(cx, id)?;
        let mut change = cx.change(&[id]);
        let y = match &*cx.node(id).op().name {
            "Softplus" => softplus(&mut change, x)?,
            "Mish" => {
                let gate = softplus(&mut change, x)?;
                let gate = change.op("Tanh", [gate], []);
                change.op("Mul", [x, gate], [])
            }
            "Softsign" => {
                let size = change.op("Abs", [x], []);
                let one = number(&mut change, 1.0)?;
                let size = change.op("Add", [size, one], []);
                change.op("Div", [x, size], [])
            }
            _ => {
                let alpha = number(&mut change, cx.call(id)?.float("alpha")?)?;
                let zero = number(&mut change, 0.0)?;
                let above = change.op("Greater", [x, alpha], []);
                change.op("Where", [above, x, zero], [])
            }
        };
        change.replace(cx.output(id)?, y);
        Ok(change)
    },
};

static MEAN: At = At {
    name: "mean",
    accuracy: ACCURACY,
    ops: &["Mean"],
    apply: |cx, id| {
        floats(cx, id)?;
        let inputs: Vec<Operand> = cx.node(id).inputs().iter().flatten().map(|&value| value.into()).collect();
        let mut change = cx.change(&[id]);
        let count = number(&mut change, inputs.len() as f32)?;
        let sum = inputs.iter().copied().reduce(|sum, next| change.op("Add", [sum, next], []));
        let sum = sum.ok_or(Skip::NOT_HERE)?;
        let y = change.op("Div", [sum, count], []);
        change.replace(cx.output(id)?, y);
        Ok(change)
    },
};

static REDUCTION: At = At {
    name: "reduction",
    accuracy: ACCURACY,
    ops: &["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"],
    apply: |cx, id| {
        let x = floats(cx, id)?;
        if cx.opset(id) < 18 {
            return Err(Skip::NOT_HERE);
        }
        let axes: Vec<i64> = reduced_axes(cx, id)?.into_iter().map(|axis| axis as i64).collect();
        let keeps = i64::from(cx.call(id)?.flag("keepdims")?);
        let mut change = cx.change(&[id]);
        let listed = change.ints("axes", &axes);
        let reduce = |change: &mut Change, op: &str, x: Operand, keeps: i64| {
            change.op(op, [x, listed], [("keepdims", keeps).into()])
        };
        let y = match &*cx.node(id).op().name {
            "ReduceL1" => {
                let sizes = change.op("Abs", [x], []);
                reduce(&mut change, "ReduceSum", sizes, keeps)
            }
            "ReduceLogSum" => {
                let sum = reduce(&mut change, "ReduceSum", x, keeps);
                change.op("Log", [sum], [])
            }
            "ReduceLogSumExp" => {
                let [low, high] = [number(&mut change, f32::MIN)?, number(&mut change, f32::MAX)?];
                let largest = reduce(&mut change, "ReduceMax", x, 1);
                let largest = change.op("Clip", [largest, low, high], []);
                let rest = change.op("Sub", [x, largest], []);
                let powers = change.op("Exp", [rest], []);
                let sum = reduce(&mut change, "ReduceSum", powers, 1);
                let logarithm = change.op("Log", [sum], []);
                let whole = change.op("Add", [logarithm, largest], []);
                match keeps {
                    0 => change.op("Squeeze", [whole, listed], []),
                    _ => whole,
                }
            }
            op => {
                let squares = change.op("Mul", [x, x], []);
                let sum = reduce(&mut change, "ReduceSum", squares, keeps);
                if op == "ReduceL2" { change.op("Sqrt", [sum], []) } else { sum }
            }
        };
        change.replace(cx.output(id)?, y);
        Ok(change)
    },
};

static TRIANGLE: At = At {
    name: "triangle",
    accuracy: Accuracy::BitExact,
    ops: &["Trilu"],
    apply: |cx, id| {
        let x = cx.input(id, 0)?;
        let dtype = cx.dtype(x)?;
        if !matches!(dtype, DType::F32 | DType::I64 | DType::I32) {
            return Err(Skip::at(Reason::Type, x));
        }
        let [.., rows, columns] = cx.shape(x)? else { return Err(Skip::NOT_HERE) };
        let (Some(rows), Some(columns)) = (rows.as_const(), columns.as_const()) else {
            return Err(Skip::at(Reason::UnknownShape, x));
        };
        if rows.saturating_mul(columns) > LARGEST {
            return Err(Skip::because("its mask would be large"));
        }
        let k = match cx.node(id).input(1) {
            Some(k) => cx.ints(k)?.first().copied().unwrap_or(0),
            None => 0,
        };
        let upper = cx.call(id)?.flag("upper")?;
        let place = |row: i64, column: i64| {
            let along = column.saturating_sub(row);
            if upper { along >= k } else { along <= k }
        };
        let mask: Vec<bool> = (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(row, column)| place(row, column))
            .collect();
        let mut change = cx.change(&[id]);
        let mask = Array::new([rows as usize, columns as usize], mask)?;
        let mask = change.constant("mask", mask.to_tensor().map_err(OpError::from)?);
        let zero = match dtype {
            DType::F32 => Array::scalar(0.0f32),
            DType::I32 => Array::scalar(0i32),
            _ => Array::scalar(0i64),
        };
        let zero = change.constant("zero", zero.to_tensor().map_err(OpError::from)?);
        let y = change.op("Where", [mask, x.into(), zero], []);
        change.replace(cx.output(id)?, y);
        Ok(change)
    },
};

/// max(x, 0) + log(1 + exp(−|x|)).
fn softplus(change: &mut Change, x: Operand) -> Result<Operand, Skip> {
    let size = change.op("Abs", [x], []);
    let below = change.op("Neg", [size], []);
    let power = change.op("Exp", [below], []);
    let one = number(change, 1.0)?;
    let sum = change.op("Add", [power, one], []);
    let logarithm = change.op("Log", [sum], []);
    let above = change.op("Relu", [x], []);
    Ok(change.op("Add", [above, logarithm], []))
}

/// The first operand, which must hold floats of 32 bits.
fn floats(cx: &Cx<'_>, id: NodeId) -> Result<Operand, Skip> {
    let x = cx.input(id, 0)?;
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    Ok(x.into())
}

fn number(change: &mut Change, value: f32) -> Result<Operand, Skip> {
    Ok(change.constant("number", Array::scalar(value).to_tensor().map_err(OpError::from)?))
}
