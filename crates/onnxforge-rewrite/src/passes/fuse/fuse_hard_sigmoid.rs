//! fuse_hard_sigmoid: a straight line that is held between 0 and 1 becomes HardSigmoid.
//!
//! **Matches** Clip(m · x + c, 0, 1) (`unit`) and Clip(m · x + c, 0, h) / h (`scaled`), also with another factor before the division, which
//! stays: x · Clip(x + 3, 0, 6) / 6 is x · HardSigmoid(x). The line may be m · x + c, m · (x + c) or x + c. Min, Max and Relu that
//! hold a value are Clip to `simplify_clips`. From operator set 6 on.
//! **Accuracy** `Rounding`: the line is computed in another order, at the size of 1. A product with x that overflows before the division does not overflow
//! any more.
//! **Proof** Dividing by h > 0 is monotone, so that it may come before the bounds: Clip(l, 0, h) / h = Clip(l / h, 0, 1). That is max(0, min(1, α · x + β))
//! with α = m / h and β = c / h. What is not a number both hand on, and infinities both hold.
//! **Bound** Before, up to three roundings (· m, + c, / h), two at least. After, α and β are rounded once each, and the product and the sum: three on the
//! way of x. Where the factor is h⁻¹ rounded, what was held at h times it is held at 1, 1 ulp away. At most 3 roundings are added, 1.5 ulps, at the scale
//! |α · x| + |β|, at most 3 where the line is not held.
//! **Never** other bounds; bounds or a line that are computed; an offset beyond ±1 after the division, where the line would cancel more than it keeps;
//! a Clip without a sum; numbers of 64 bits.

use crate::passes::pass;
use crate::passes::recognize::bounds::hold;
use crate::passes::targets::{TFLITE, TFLITE_FILE};
use crate::{At, Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, DType, NodeId, ValueId};

pass!(fuse_hard_sigmoid {
    stage: Canonicalize,
    runs: Except(&[&TFLITE, &TFLITE_FILE]),
    rules: [UNIT, SCALED]
});

const FEW: Accuracy = Accuracy::Rounding { ulps: 8.0 };

static UNIT: At = At {
    name: "unit",
    accuracy: FEW,
    ops: &["Clip"],
    apply: |cx, id| {
        let mut trail = Trail::new(cx, id);
        let found = held_line(cx, &mut trail, cx.output(id)?, 1.0);
        fuse(cx, id, trail, found.ok_or(Skip::NOT_HERE)?, None)
    },
};

static SCALED: At = At {
    name: "scaled",
    accuracy: FEW,
    ops: &["Div", "Mul"],
    apply: |cx, id| {
        let mut trail = Trail::new(cx, id);
        let (value, scale) = factor(&mut trail, cx.output(id)?).ok_or(Skip::NOT_HERE)?;
        if let Some(found) = held_line(cx, &mut trail, value, scale) {
            return fuse(cx, id, trail, found, None);
        }
        let [a, b] = trail.pair(value, "Mul").ok_or(Skip::NOT_HERE)?;
        let (found, other) = [(a, b), (b, a)]
            .into_iter()
            .find_map(|(held, other)| Some((held_line(cx, &mut trail, held, scale)?, other)))
            .ok_or(Skip::NOT_HERE)?;
        fuse(cx, id, trail, found, Some(other))
    },
};

/// The line alpha · x + beta.
struct Line {
    x: ValueId,
    alpha: f64,
    beta: f64,
}

/// The line that `value`, times `scale`, holds between 0 and 1.
fn held_line(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId, scale: f64) -> Option<Line> {
    trail.attempt(|trail| {
        let clip = trail.step(value, "Clip")?;
        let held = hold(cx, clip).ok()?;
        let Line { x, alpha, beta } = line(cx, trail, held.x)?;
        let is_unit = held.low == 0.0 && (held.high * scale - 1.0).abs() <= epsilon(cx.dtype(x).ok()?);
        let (alpha, beta) = (alpha * scale, beta * scale);
        let is_tame = (1e-6..=1e6).contains(&scale) && (1e-6..=1e6).contains(&alpha.abs());
        (is_unit && is_tame && beta.abs() <= 1.0).then_some(Line { x, alpha, beta })
    })
}

/// One unit in the last place of 1.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => f64::from(f32::EPSILON),
    }
}

/// The line that `value` is: m · x + c, m · (x + c) or x + c.
fn line(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<Line> {
    if let Some((x, beta)) = summand(trail, value) {
        // A product that something else reads stays, and is what the line is of.
        let scaled = cx.only_reader(x).and_then(|_| factor(trail, x));
        let (x, alpha) = scaled.unwrap_or((x, 1.0));
        return Some(Line { x, alpha, beta });
    }
    let (sum, alpha) = factor(trail, value)?;
    let (x, offset) = summand(trail, sum)?;
    Some(Line { x, alpha, beta: alpha * offset })
}

/// What a number is added to, and the number.
fn summand(trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, f64)> {
    let difference = |trail: &mut Trail<'_>| trail.with_number(value, "Sub").map(|(x, number)| (x, -number));
    trail.with_number(value, "Add").or_else(|| difference(trail))
}

/// What is multiplied by a number, and the number.
fn factor(trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, f64)> {
    let quotient =
        |trail: &mut Trail<'_>| trail.with_number(value, "Div").map(|(x, number)| (x, 1.0 / number));
    trail.with_number(value, "Mul").or_else(|| quotient(trail))
}

fn fuse(
    cx: &Cx<'_>,
    root: NodeId,
    trail: Trail<'_>,
    Line { x, alpha, beta }: Line,
    other: Option<ValueId>,
) -> Result<Change, Skip> {
    if !matches!(cx.dtype(x)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    let mut change = trail.change()?;
    let attrs = [("alpha", alpha as f32).into(), ("beta", beta as f32).into()];
    let mut y: Operand = change.op("HardSigmoid", [x.into()], attrs);
    if let Some(other) = other {
        y = change.op("Mul", [other.into(), y], []);
    }
    change.replace(cx.output(root)?, y);
    Ok(change)
}
