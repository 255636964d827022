//! LayerNormalization that is decomposed as a factor and a summand.

use super::norms::{Recognised, fitted, inverse_root, mean, normalized_shape, ones, variance};
use crate::{Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::{DType, NodeId, Op, ValueId};

/// A normalization as a factor and a summand of what is normalized.
struct Affine {
    recognised: Recognised,
    scale: Option<ValueId>,
    bias: Option<ValueId>,
}

impl Affine {
    /// x · f + (b − mean(x) · f), where f is a scale over the root of the variance, in the call `root` of Add or Sub. There may be no scale or no bias.
    fn of(cx: &Cx<'_>, trail: &mut Trail<'_>, root: NodeId) -> Option<Self> {
        let &[Some(a), Some(b)] = cx.node(root).inputs() else { return None };
        let orders = if cx.node(root).op().is("Sub") { vec![[a, b]] } else { vec![[a, b], [b, a]] };
        orders.into_iter().find_map(|[product, rest]| {
            trail.attempt(|trail| {
                let factors = trail.pair(product, "Mul")?;
                let [[x, factor], [factor_, x_]] = [factors, factors];
                [(x, factor), (x_, factor_)].into_iter().find_map(|(x, factor)| {
                    trail.attempt(|trail| {
                        let (center, bias) = match cx.node(root).op().is("Sub") {
                            true => (factored(trail, rest, factor)?, None),
                            false => shift(trail, rest, factor)?,
                        };
                        let (scale, radicand) = scaled_inverse_root(cx, trail, factor)?;
                        let (spread, epsilon) = trail.with_number(radicand, "Add")?;
                        let (of, axes) = variance(cx, trail, spread)?;
                        let is_its = of == x && mean(cx, trail, center)? == (x, axes.clone());
                        is_its.then_some(Self { recognised: (x, axes, epsilon), scale, bias })
                    })
                })
            })
        })
    }
}

/// What is multiplied by `factor` in `value`.
fn factored(trail: &mut Trail<'_>, value: ValueId, factor: ValueId) -> Option<ValueId> {
    trail.attempt(|trail| match trail.pair(value, "Mul")? {
        [a, b] if b == factor => Some(a),
        [a, b] if a == factor => Some(b),
        _ => None,
    })
}

/// The number that `value` takes away `factor` times, and what it adds to that.
fn shift(trail: &mut Trail<'_>, value: ValueId, factor: ValueId) -> Option<(ValueId, Option<ValueId>)> {
    let negative = |trail: &mut Trail<'_>, value| {
        let center = factored(trail, value, factor)?;
        trail.through(center, "Neg")
    };
    if let Some(center) = trail.attempt(|trail| negative(trail, value)) {
        return Some((center, None));
    }
    let difference = |trail: &mut Trail<'_>| {
        let [bias, product] = trail.pair(value, "Sub")?;
        Some((factored(trail, product, factor)?, Some(bias)))
    };
    if let Some(found) = trail.attempt(difference) {
        return Some(found);
    }
    let [a, b] = trail.pair(value, "Add")?;
    if let Some(center) = trail.attempt(|trail| negative(trail, a)) {
        return Some((center, Some(b)));
    }
    Some((negative(trail, b)?, Some(a)))
}

/// The factor of one over a root that `value` is, if it has one, and what the root is of.
fn scaled_inverse_root(
    cx: &Cx<'_>,
    trail: &mut Trail<'_>,
    value: ValueId,
) -> Option<(Option<ValueId>, ValueId)> {
    if let Some(radicand) = inverse_root(cx, trail, value) {
        return Some((None, radicand));
    }
    let [a, b] = trail.pair(value, "Mul")?;
    match inverse_root(cx, trail, a) {
        Some(radicand) => Some((Some(b), radicand)),
        None => Some((Some(a), inverse_root(cx, trail, b)?)),
    }
}

/// LayerNormalization instead of an [`Affine`] of what is normalized in the call `root` of Add or Sub.
pub fn fuse(cx: &Cx<'_>, root: NodeId) -> Result<Change, Skip> {
    let mut trail = Trail::new(cx, root);
    let Affine { recognised: (x, axes, epsilon), scale, bias } =
        Affine::of(cx, &mut trail, root).ok_or(Skip::NOT_HERE)?;
    let shape = normalized_shape(cx, x, &axes)?;
    let dtype = cx.dtype(x)?;
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    let y = cx.output(root)?;
    let normalized = &cx.shape(x)?[axes[0]..];
    let mut change = trail.change()?;
    let scale = match scale {
        Some(scale) => fitted(cx, &mut change, scale, normalized)?,
        None => ones(&mut change, &shape, dtype)?,
    };
    let mut inputs = vec![x.into(), scale];
    if let Some(bias) = bias {
        inputs.push(fitted(cx, &mut change, bias, normalized)?);
    }
    let attrs = [("axis", -(shape.len() as i64)).into(), ("epsilon", epsilon as f32).into()];
    let normalization = change.call(Op::standard("LayerNormalization"), inputs, 1, attrs);
    change.replace(y, normalization.output(0));
    Ok(change)
}
