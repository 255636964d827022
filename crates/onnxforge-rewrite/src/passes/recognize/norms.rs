//! What normalizations have in common.

use super::constant_math::{cast, is_normal};
use super::reductions::reduced_axes;
use crate::{Change, Cx, Reason, Skip, Trail};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, DType, NodeId, ValueId};
use onnxforge_ops::{Array, OpError};

/// What is divided by a root in the call `root` of Div or Mul, and what the root is of: x / √v, or x · (1 / √v).
pub fn over_root(cx: &Cx<'_>, trail: &mut Trail<'_>, root: NodeId) -> Option<(ValueId, ValueId)> {
    let &[Some(a), Some(b)] = cx.node(root).inputs() else { return None };
    if cx.node(root).op().is("Div") {
        let radicand = trail.through(b, "Sqrt").or_else(|| power(trail, b, 0.5))?;
        return Some((a, radicand));
    }
    if let Some(radicand) = inverse_root(cx, trail, b) {
        return Some((a, radicand));
    }
    Some((b, inverse_root(cx, trail, a)?))
}

/// What `value` is one over the root of.
pub(super) fn inverse_root(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<ValueId> {
    let through = |trail: &mut Trail<'_>| {
        let root = match trail.through(value, "Reciprocal") {
            Some(root) => root,
            None => trail.pair(value, "Div").filter(|&[one, _]| cx.uniform(one) == Some(1.0))?[1],
        };
        trail.through(root, "Sqrt")
    };
    trail.attempt(through).or_else(|| power(trail, value, -0.5))
}

/// What is raised to the power `exponent`.
fn power(trail: &mut Trail<'_>, value: ValueId, exponent: f64) -> Option<ValueId> {
    trail.attempt(|trail| {
        let (base, found) = trail.with_number(value, "Pow")?;
        (found == exponent).then_some(base)
    })
}

/// What is squared: by Pow, or by Mul with itself.
pub fn square(trail: &mut Trail<'_>, value: ValueId) -> Option<ValueId> {
    if let Some(base) = power(trail, value, 2.0) {
        return Some(base);
    }
    trail.attempt(|trail| {
        let [a, b] = trail.pair(value, "Mul")?;
        (a == b).then_some(a)
    })
}

/// What ReduceMean, keeping its axes, or GlobalAveragePool is taken of, and over which axes, in order.
pub fn mean(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, Vec<usize>)> {
    trail.attempt(|trail| {
        if let Some(x) = trail.through(value, "GlobalAveragePool") {
            return Some((x, (2..cx.rank(x).ok()?).collect()));
        }
        let node = trail.step(value, "ReduceMean")?;
        if !cx.call(node).ok()?.flag("keepdims").ok()? {
            return None;
        }
        let mut axes = reduced_axes(cx, node).ok()?;
        axes.sort_unstable();
        Some((cx.node(node).input(0)?, axes))
    })
}

/// What `value` is the deviation of, from its mean over these axes.
pub fn deviation(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId, axes: &[usize]) -> Option<ValueId> {
    let [x, center] = trail.pair(value, "Sub")?;
    let (of, over) = mean(cx, trail, center)?;
    (of == x && over == axes).then_some(x)
}

/// Whether the call `node` of Mul scales, or of Add shifts, the normalization that is decomposed in `value`, of a type that fusions cover.
pub fn is_finish(cx: &Cx<'_>, node: NodeId, value: ValueId) -> bool {
    if cx.dtype(value).is_ok_and(|dtype| dtype == DType::F64) {
        return false;
    }
    let op = cx.node(node).op();
    let scaled = |value: ValueId| {
        let product = cx.producer(value, "Mul", node)?;
        cx.node(product).inputs().iter().flatten().find(|&&factor| is_spelled_out(cx, node, factor)).copied()
    };
    op.is("Mul") && is_spelled_out(cx, node, value)
        || op.is("Add") && (is_spelled_out(cx, node, value) || scaled(value).is_some())
}

/// Whether `value` is something over the root of a mean square and a little more.
fn is_spelled_out(cx: &Cx<'_>, beside: NodeId, value: ValueId) -> bool {
    let root = cx.producer(value, "Div", beside).or_else(|| cx.producer(value, "Mul", beside));
    let mean_square = |root: NodeId| {
        let mut trail = Trail::new(cx, root);
        let (_, radicand) = over_root(cx, &mut trail, root)?;
        let (mean_square, _) = trail.with_number(radicand, "Add")?;
        let (squares, _) = mean(cx, &mut trail, mean_square)?;
        square(&mut trail, squares)
    };
    root.and_then(mean_square).is_some()
}

/// The variance that `value` is, and where: the mean square of the deviations from the mean, or the mean square less the square of the mean, which some exporters
/// keep from falling below 0. Answers what has the variance, along which axes.
pub(super) fn variance(cx: &Cx<'_>, trail: &mut Trail<'_>, value: ValueId) -> Option<(ValueId, Vec<usize>)> {
    let of_deviations = |trail: &mut Trail<'_>| {
        let (squares, axes) = mean(cx, trail, value)?;
        let deviations = square(trail, squares)?;
        Some((deviation(cx, trail, deviations, &axes)?, axes))
    };
    let of_squares = |trail: &mut Trail<'_>| {
        let difference = match trail.through(value, "Relu") {
            Some(difference) => difference,
            None => match trail.with_number(value, "Max") {
                Some((difference, number)) => (number == 0.0).then_some(difference)?,
                None => value,
            },
        };
        let [of_squares, squared] = trail.pair(difference, "Sub")?;
        let (squares, axes) = mean(cx, trail, of_squares)?;
        let (center, x) = (square(trail, squared)?, square(trail, squares)?);
        (mean(cx, trail, center)? == (x, axes.clone())).then_some((x, axes))
    };
    trail.attempt(of_deviations).or_else(|| trail.attempt(of_squares))
}

/// What a normalization was recognised as: of what, along which axes, and what is added to the mean square.
pub type Recognised = (ValueId, Vec<usize>, f64);

/// Deviations from the mean, divided by the root of the variance in the call `root` of Div or Mul.
pub fn standardized(cx: &Cx<'_>, trail: &mut Trail<'_>, root: NodeId) -> Option<Recognised> {
    let (value, radicand) = over_root(cx, trail, root)?;
    let (spread, epsilon) = trail.with_number(radicand, "Add")?;
    let (x, axes) = variance(cx, trail, spread)?;
    (deviation(cx, trail, value, &axes)? == x).then_some((x, axes, epsilon))
}

/// A scale without effect.
pub(super) fn ones(change: &mut Change, shape: &[usize], dtype: DType) -> Result<Operand, Skip> {
    let ones = Array::new(shape, vec![1.0f32; shape.iter().product()])?;
    Ok(change.constant("scale", cast(&ones.to_tensor().map_err(OpError::from)?, dtype)?))
}

/// A scale or a bias of the shape that is normalized: the value itself, or a constant that has axes of size 1 in front of that.
pub(super) fn fitted(
    cx: &Cx<'_>,
    change: &mut Change,
    value: ValueId,
    shape: &[Dim],
) -> Result<Operand, Skip> {
    let misfit = || Skip::at(Reason::Broadcast, value);
    let own = cx.shape(value)?;
    if cx.same_shape(shape, own) {
        return Ok(value.into());
    }
    let more = own.len().checked_sub(shape.len()).ok_or_else(misfit)?;
    let is_same =
        own[..more].iter().all(|dim| dim.as_const() == Some(1)) && cx.same_shape(shape, &own[more..]);
    let constant = cx.model.constant(value).filter(|_| is_same).ok_or_else(misfit)?;
    let reshaped = constant.reshaped(&constant.shape()[more..]).map_err(|_| misfit())?;
    Ok(change.constant(cx.model.value(value).name().clone(), reshaped))
}

/// The call of the normalization `op`, without an effective scale, instead of what `recognise` finds at `root`.
pub fn fuse(
    cx: &Cx<'_>,
    root: NodeId,
    op: &str,
    recognise: fn(&Cx<'_>, &mut Trail<'_>, NodeId) -> Option<Recognised>,
) -> Result<Change, Skip> {
    let mut trail = Trail::new(cx, root);
    let (x, axes, epsilon) = recognise(cx, &mut trail, root).ok_or(Skip::NOT_HERE)?;
    let shape = normalized_shape(cx, x, &axes)?;
    let dtype = cx.dtype(x)?;
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Skip::at(Reason::Type, x));
    }
    let y = cx.output(root)?;
    let mut change = trail.change()?;
    let scale = ones(&mut change, &shape, dtype)?;
    let (axis, epsilon) = (-(shape.len() as i64), epsilon as f32);
    let plain = change.op(op, [x.into(), scale], [("axis", axis).into(), ("epsilon", epsilon).into()]);
    change.replace(y, plain);
    Ok(change)
}

/// The sizes of the axes that a normalization runs along, which must be the last ones.
pub(super) fn normalized_shape(cx: &Cx<'_>, x: ValueId, axes: &[usize]) -> Result<Vec<usize>, Skip> {
    let shape = cx.shape(x)?;
    if axes.is_empty() || !axes.iter().copied().eq(shape.len() - axes.len()..shape.len()) {
        return Err(Skip::because("it does not run along the last axes"));
    }
    let size = |dim: &Dim| dim.as_const().and_then(|size| usize::try_from(size).ok());
    let sizes: Option<Vec<usize>> = shape[axes[0]..].iter().map(size).collect();
    sizes.ok_or_else(|| Skip::at(Reason::UnknownShape, x))
}

/// A normalization between two casts, Cast(norm(Cast(x))), normalizes halves itself: it computes in 32 bits (`stash_type`), rounds that,
/// and scales and shifts in 16 bits.
pub fn of_halves(cx: &Cx<'_>, cast: NodeId, op: &str) -> Result<Change, Skip> {
    let mut trail = Trail::new(cx, cast);
    let norm = trail.step(cx.input(cast, 0)?, op).ok_or(Skip::NOT_HERE)?;
    let wide = cx.input(norm, 0)?;
    let x = trail.through(wide, "Cast").ok_or(Skip::NOT_HERE)?;
    let y = cx.output(cast)?;
    let dtype = cx.dtype(x)?;
    if !matches!(dtype, DType::F16 | DType::BF16) || cx.dtype(y)? != dtype || cx.dtype(wide)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    if cx.call(norm)?.int("stash_type")? != i64::from(DType::F32.code()) {
        return Err(Reason::Attribute("stash_type").into());
    }
    // The first Cast may have other readers.
    let mut change = cx.change(&[norm, cast]);
    cx.read_only_by(cx.output(norm)?, cast)?;
    let scale = cx.input(norm, 1)?;
    if cx.uniform(scale) == Some(1.0) && cx.node(norm).input(2).is_none() {
        change.promise(Accuracy::Rounding { ulps: 1.0 });
    }
    let mut inputs = vec![x.into(), narrow(cx, &mut change, scale, norm, dtype)?];
    if let Some(bias) = cx.node(norm).input(2) {
        inputs.push(narrow(cx, &mut change, bias, norm, dtype)?);
    }
    let call = cx.node(norm);
    let narrow = change.call(call.op().clone(), inputs, 1, call.attrs().to_vec());
    change.replace(y, narrow.output(0));
    Ok(change)
}

/// A scale or a bias of 32 bits in 16: what it was before a Cast, or a constant, rounded.
fn narrow(
    cx: &Cx<'_>,
    change: &mut Change,
    value: ValueId,
    norm: NodeId,
    dtype: DType,
) -> Result<Operand, Skip> {
    let source = cx.producer(value, "Cast", norm).and_then(|cast| cx.node(cast).input(0));
    if let Some(source) = source.filter(|&source| cx.dtype(source).is_ok_and(|of| of == dtype)) {
        return Ok(source.into());
    }
    let constant = cx.constant(value)?;
    if !is_normal(constant, dtype) {
        return Err(Skip::at(Reason::Rule("16 bits do not have the range of the constant"), value));
    }
    Ok(change.constant(cx.model.value(value).name().clone(), cast(constant, dtype)?))
}

/// The product of a normalization without effective scale and bias with something of the shape that it normalizes.
pub fn scaled(cx: &Cx<'_>, product: NodeId, op: &str) -> Result<Change, Skip> {
    let (norm, scale) = operand_of(cx, product, op)?;
    if cx.uniform(cx.input(norm, 1)?) != Some(1.0) || cx.node(norm).input(2).is_some() {
        return Err(Skip::NOT_HERE);
    }
    let inputs = [cx.input(norm, 0)?].map(Operand::from);
    absorbing(cx, norm, product, scale, inputs.to_vec())
}

/// The sum of a normalization without bias with something of the shape that it normalizes.
pub fn shifted(cx: &Cx<'_>, sum: NodeId, op: &str) -> Result<Change, Skip> {
    let (norm, bias) = operand_of(cx, sum, op)?;
    if cx.node(norm).input(2).is_some() {
        return Err(Skip::NOT_HERE);
    }
    let inputs = [cx.input(norm, 0)?, cx.input(norm, 1)?].map(Operand::from);
    absorbing(cx, norm, sum, bias, inputs.to_vec())
}

/// The normalization that `node` reads, and its other operand.
fn operand_of(cx: &Cx<'_>, node: NodeId, op: &str) -> Result<(NodeId, ValueId), Skip> {
    let (a, b) = (cx.input(node, 0)?, cx.input(node, 1)?);
    match (cx.producer(a, op, node), cx.producer(b, op, node)) {
        (Some(norm), None) => Ok((norm, b)),
        (None, Some(norm)) => Ok((norm, a)),
        _ => Err(Skip::NOT_HERE),
    }
}

/// The normalization with these inputs and `operand` behind them instead of `after`, which applies `operand` to it.
fn absorbing(
    cx: &Cx<'_>,
    norm: NodeId,
    after: NodeId,
    operand: ValueId,
    mut inputs: Vec<Operand>,
) -> Result<Change, Skip> {
    let shape = cx.shape(cx.input(norm, 0)?)?;
    let axis = cx.axis(norm, shape.len())?;
    let y = cx.output(norm)?;
    cx.read_only_by(y, after)?;
    let mut change = cx.change(&[norm, after]);
    inputs.push(fitted(cx, &mut change, operand, &shape[axis..])?);
    let with = change.remake(cx, norm, inputs);
    change.replace(cx.output(after)?, with);
    Ok(change)
}
