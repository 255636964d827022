//! Linear models.

use super::scores::{Complement, Labels, Transform, argmax};
use super::{Examples, as_declared, example_count, floats_attr, set_scores};
use crate::Value;
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::gemm::{Matrix, gemm};
use crate::kernel::number::Float;

/// `examples · coefficientsᵀ + intercepts`, where each of `targets` has its coefficients in a row.
fn products<T: Float>(
    cx: &Eval<'_>,
    examples: &Examples<T>,
    coefficients: &[T],
    intercepts: &[T],
    targets: usize,
) -> Result<Vec<T>, OpError> {
    if targets.checked_mul(examples.features).is_none_or(|needed| coefficients.len() < needed) {
        return invalid(format!(
            "{} coefficients for {targets} targets and {} features",
            coefficients.len(),
            examples.features
        ));
    }
    let mut out = cx.zeros::<T>(&[examples.count, targets])?;
    let a = Matrix::new(&examples.data, examples.count, examples.features);
    gemm(&mut out, a, Matrix::transposed(coefficients, examples.features, targets), T::ONE, false, true);
    if !intercepts.is_empty() {
        out.iter_mut().zip(intercepts.iter().cycle()).for_each(|(out, &add)| *out += add);
    }
    Ok(out)
}

pub(super) fn infer_regressor(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let targets = usize::try_from(cx.call.int("targets")?).ok();
    set_scores(cx, 0, targets)
}

pub(super) fn regressor(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.wide { regress::<f64>(cx) } else { regress::<f32>(cx) }
}

fn regress<T: Float>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let given = cx.call.int("targets")?;
    let Some(targets) = usize::try_from(given).ok().filter(|&targets| targets > 0) else {
        return invalid(format!("{given} targets"));
    };
    let transform = Transform::named(&cx.call)?;
    if targets == 1 {
        transform.check_single()?;
    }
    let examples = Examples::<T>::new(cx, cx.array(0)?)?;
    let coefficients = floats_attr::<T>(&cx.call, "coefficients")?;
    let intercepts = floats_attr::<T>(&cx.call, "intercepts")?;
    if !intercepts.is_empty() && intercepts.len() != targets {
        return invalid(format!("{} intercepts for {targets} targets", intercepts.len()));
    }
    let mut out = products(cx, &examples, &coefficients, &intercepts, targets)?;
    out.chunks_mut(targets).for_each(|scores| transform.apply(scores));
    one(as_declared(cx, &[examples.count, targets], out)?)
}

/// How many rows of coefficients there are, if that is known: one for each intercept.
fn class_count(call: &Call<'_>, features: Option<usize>) -> Result<Option<usize>, OpError> {
    let intercepts = call.floats_or("intercepts", Vec::new())?.len();
    if intercepts > 0 {
        return Ok(Some(intercepts));
    }
    let coefficients = call.floats_or("coefficients", Vec::new())?.len();
    Ok(features.filter(|&features| features > 0).map(|features| coefficients / features))
}

pub(super) fn infer_classifier(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let labels = Labels::new(&cx.call, "classlabels_ints", "classlabels_strings")?;
    let features = cx.shape(0).and_then(|shape| usize::try_from(shape.last()?.as_const()?).ok());
    let width = match class_count(&cx.call, features)? {
        Some(1) if labels.len() == 2 => Some(2),
        count => count,
    };
    cx.set_dtype(0, labels.dtype());
    if let Some(examples) = example_count(cx)? {
        cx.set_shape(0, vec![examples]);
    }
    set_scores(cx, 1, width)
}

pub(super) fn classifier(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.wide { classify::<f64>(cx) } else { classify::<f32>(cx) }
}

fn classify<T: Float>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let labels = Labels::new(&cx.call, "classlabels_ints", "classlabels_strings")?;
    let transform = Transform::named(&cx.call)?;
    let examples = Examples::<T>::new(cx, cx.array(0)?)?;
    let coefficients = floats_attr::<T>(&cx.call, "coefficients")?;
    let intercepts = floats_attr::<T>(&cx.call, "intercepts")?;
    let count = class_count(&cx.call, Some(examples.features))?.unwrap_or(0);
    if count == 0 {
        return invalid("a classifier without classes");
    }
    let mut scores = products(cx, &examples, &coefficients, &intercepts, count)?;
    if count > 1 {
        let classes: Vec<usize> = scores.chunks_exact(count).map(argmax).collect();
        scores.chunks_exact_mut(count).for_each(|scores| transform.apply(scores));
        let scores = as_declared(cx, &[examples.count, count], scores)?;
        return Ok(vec![labels.pick(&classes)?.into(), scores.into()]);
    }
    let classes: Vec<usize> = scores.iter().map(|&score| usize::from(score > T::ZERO)).collect();
    if labels.len() == 2 {
        let both = scores.iter().map(|&score| transform.both(score, Complement::ToOne));
        let both = both.collect::<Result<Vec<_>, _>>()?.concat();
        let both = as_declared(cx, &[examples.count, 2], both)?;
        return Ok(vec![labels.pick(&classes)?.into(), both.into()]);
    }
    if labels.len() != 0 {
        return invalid(format!("{} labels for two classes", labels.len()));
    }
    transform.check_single()?;
    scores.iter_mut().for_each(|score| transform.apply(std::slice::from_mut(score)));
    let labels = Labels::Ints(vec![0, 1]).pick(&classes)?;
    Ok(vec![labels.into(), as_declared(cx, &[examples.count, 1], scores)?.into()])
}
