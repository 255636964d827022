//! Gelu, as exporters decompose it.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, SQRT_2};

use super::constant_math::nearest;
use crate::{Cx, Trail};
use onnxforge_ir::{DType, NodeId, ValueId};

/// The x of x · ½ · (1 + erf(x / √2)), if that is what the call `root` of Mul gives, with the nodes that compute it.
pub fn by_erf<'a>(cx: &Cx<'a>, root: NodeId) -> Option<(Trail<'a>, ValueId)> {
    find(cx, root, |trail, x, inner| {
        let scaled = trail.through(inner, "Erf")?;
        let is = |found: f64, number: f64| is(cx, x, found, number);
        let (base, factor) = match trail.with_number(scaled, "Div") {
            Some((base, divisor)) => (base, is(divisor, SQRT_2)),
            None => {
                trail.with_number(scaled, "Mul").map(|(base, factor)| (base, is(factor, FRAC_1_SQRT_2)))?
            }
        };
        (factor && base == x).then_some(())
    })
}

/// The x of x · ½ · (1 + tanh(√(2/π) · (x + 0.044715 · x³))), if that is what the call `root` of Mul gives, with the nodes that compute it.
pub fn by_tanh<'a>(cx: &Cx<'a>, root: NodeId) -> Option<(Trail<'a>, ValueId)> {
    find(cx, root, |trail, x, inner| {
        let argument = trail.through(inner, "Tanh")?;
        let is = |found: f64, number: f64| is(cx, x, found, number);
        let (sum, factor) = trail.with_number(argument, "Mul")?;
        let [a, b] = trail.pair(sum, "Add")?;
        let (cubic, coefficient) = trail.with_number(if a == x { b } else { a }, "Mul")?;
        let same = is(factor, FRAC_2_PI.sqrt()) && is(coefficient, 0.044_715) && (a == x || b == x);
        (same && cubes(trail, cubic, x)).then_some(())
    })
}

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
        let squared = super::norms::square(trail, square)?;
        (squared == x && (a == x || b == x)).then_some(())
    };
    trail.attempt(products).is_some()
}

/// The product of x, ½ and 1 plus something, of which `recognise` says whether it is the right function of x.
fn find<'a>(
    cx: &Cx<'a>,
    root: NodeId,
    recognise: impl Fn(&mut Trail<'_>, ValueId, ValueId) -> Option<()>,
) -> Option<(Trail<'a>, ValueId)> {
    let mut trail = Trail::new(cx, root);
    let factors = factors(cx, &mut trail, cx.output(root).ok()?)?;
    (0..3).find_map(|half| {
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
    })
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
