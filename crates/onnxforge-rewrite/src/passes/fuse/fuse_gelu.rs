//! fuse_gelu: a product that spells Gelu out becomes Gelu.
//!
//! **Matches** x · ½ · (1 + erf(x / √2)) (`erf`) and x · ½ · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) (`tanh`), the factors in any order, the
//! constants as exact as 32 bits are, or in float16 and bfloat16 as they are rounded to 16. From operator set 20 on.
//! **Accuracy** `Rounding`: the same terms, multiplied in another order. Numbers so large that a product overflows on the way do not overflow in the
//! operator.
//! **Proof** These are the two definitions of the operator.
//! **Bound** The same products and sums, and one function. The constants of the model are within 1 ulp of the true ones, those of the operator within a half: each
//! moves the argument by up to 3 roundings, of the type of x. `erf` has one such constant, `tanh` two: at most 6 roundings, 3 ulps, at the scale |x| · (1 + |erf|) / 2 of
//! the sum, which for x far below 0 is much more than the result.
//! **Never** other constants; numbers of 64 bits; products that something else reads in part.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, SQRT_2};

use crate::passes::pass;
use crate::passes::recognize::constant_math::nearest;
use crate::passes::targets::TFLITE;
use crate::{At, Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::{Accuracy, DType, NodeId, ValueId};

pass!(fuse_gelu { stage: Fuse, needs: ["Erf", "Tanh"], runs: Except(&[&TFLITE]), rules: [ERF, TANH] });

const FEW: Accuracy = Accuracy::Rounding { ulps: 8.0 };

static ERF: At = At {
    name: "erf",
    accuracy: FEW,
    ops: &["Mul"],
    apply: |cx, id| {
        fuse(cx, id, "none", |trail, x, inner| {
            let scaled = trail.through(inner, "Erf")?;
            let is = |found: f64, number: f64| is(cx, x, found, number);
            let (base, factor) = match trail.with_number(scaled, "Div") {
                Some((base, divisor)) => (base, is(divisor, SQRT_2)),
                None => trail
                    .with_number(scaled, "Mul")
                    .map(|(base, factor)| (base, is(factor, FRAC_1_SQRT_2)))?,
            };
            (factor && base == x).then_some(())
        })
    },
};

static TANH: At = At {
    name: "tanh",
    accuracy: FEW,
    ops: &["Mul"],
    apply: |cx, id| {
        fuse(cx, id, "tanh", |trail, x, inner| {
            let argument = trail.through(inner, "Tanh")?;
            let is = |found: f64, number: f64| is(cx, x, found, number);
            let (sum, factor) = trail.with_number(argument, "Mul")?;
            let [a, b] = trail.pair(sum, "Add")?;
            let (cubic, coefficient) = trail.with_number(if a == x { b } else { a }, "Mul")?;
            let same = is(factor, FRAC_2_PI.sqrt()) && is(coefficient, 0.044_715) && (a == x || b == x);
            (same && cubes(trail, cubic, x)).then_some(())
        })
    },
};

/// Whether a constant beside `x` is this number, as exactly as 32 bits can say it; in 16 bits it is the nearest one.
fn is(cx: &Cx<'_>, x: ValueId, found: f64, number: f64) -> bool {
    match cx.dtype(x) {
        Ok(dtype @ (DType::F16 | DType::BF16)) => {
            nearest(dtype, number).is_ok_and(|nearest| found == nearest)
        }
        _ => (found - number).abs() <= number.abs() * f64::from(f32::EPSILON),
    }
}

/// Whether `value` is x³: by Pow, or by two products.
fn cubes(trail: &mut Trail<'_>, value: ValueId, x: ValueId) -> bool {
    if let Some((base, exponent)) = trail.with_number(value, "Pow") {
        return base == x && exponent == 3.0;
    }
    let products = |trail: &mut Trail<'_>| {
        let [a, b] = trail.pair(value, "Mul")?;
        let square = if a == x { b } else { a };
        let squared = crate::passes::recognize::norms::square(trail, square)?;
        (squared == x && (a == x || b == x)).then_some(())
    };
    trail.attempt(products).is_some()
}

/// The product of x, ½ and 1 plus something, of which `recognise` says whether it is the right function of x.
fn fuse(
    cx: &Cx<'_>,
    root: NodeId,
    approximate: &'static str,
    recognise: impl Fn(&mut Trail<'_>, ValueId, ValueId) -> Option<()>,
) -> Result<Change, Skip> {
    let mut trail = Trail::new(cx, root);
    let y = cx.output(root)?;
    let factors = factors(cx, &mut trail, y).ok_or(Skip::NOT_HERE)?;
    let found = (0..3).find_map(|half| {
        let mut rest = factors.to_vec();
        if cx.uniform(rest.remove(half)) != Some(0.5) {
            return None;
        }
        [(rest[0], rest[1]), (rest[1], rest[0])].into_iter().find_map(|(x, bracket)| {
            let mut trail = trail.clone();
            let (inner, one) = trail.with_number(bracket, "Add")?;
            recognise(&mut trail, x, inner).filter(|()| one == 1.0)?;
            Some((trail, x))
        })
    });
    let (trail, x) = found.ok_or(Skip::NOT_HERE)?;
    if !matches!(cx.dtype(x)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    let mut change = trail.change()?;
    let gelu = change.op("Gelu", [x.into()], [("approximate", approximate).into()]);
    change.replace(y, gelu);
    Ok(change)
}

/// The three factors of a product of products.
fn factors(cx: &Cx<'_>, trail: &mut Trail<'_>, y: ValueId) -> Option<[ValueId; 3]> {
    let [a, b] = trail.pair(y, "Mul")?;
    let is_product =
        |value: ValueId| cx.model.value(value).node().is_some_and(|node| cx.node(node).op().is("Mul"));
    // x · (x · …) is no Gelu; of two products only the one with the constant or the bracket is taken apart.
    for (inner, other) in [(b, a), (a, b)] {
        if is_product(inner) && cx.only_reader(inner).is_some() {
            let [c, d] = trail.pair(inner, "Mul")?;
            return Some([other, c, d]);
        }
    }
    None
}
