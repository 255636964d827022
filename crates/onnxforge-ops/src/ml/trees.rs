//! Ensembles of decision trees.

mod build;
mod walk;

use super::scores::{Complement, Labels, Transform, argmax};
use super::{Examples, as_declared, example_count, floats_attr, set_scores};
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::Float;
use crate::{Array, Value};
use onnxforge_ir::DType;
use walk::{Aggregate, Ensemble, Score};

fn target_count(call: &Call<'_>) -> Result<Option<usize>, OpError> {
    Ok(call.opt_int("n_targets")?.and_then(|count| usize::try_from(count).ok()))
}

pub(super) fn infer_regressor(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let targets = target_count(&cx.call)?;
    set_scores(cx, 0, targets)
}

pub(super) fn infer_classifier(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let labels = Labels::new(&cx.call, "classlabels_int64s", "classlabels_strings")?;
    cx.set_dtype(0, labels.dtype());
    if let Some(examples) = example_count(cx)? {
        cx.set_shape(0, vec![examples]);
    }
    set_scores(cx, 1, Some(labels.len()))
}

/// Numbers that a list or a tensor gives.
fn numbers<T: Float>(call: &Call<'_>, name: &str) -> Result<Vec<T>, OpError> {
    match call.opt_tensor(&format!("{name}_as_tensor"))? {
        Some(tensor) if !tensor.is_empty() => crate::quant::floats(&Array::from_tensor(&tensor)?),
        _ => floats_attr(call, name),
    }
}

/// The scores of every example; what it does with them is up to the caller.
fn scores<T: Float>(
    cx: &Eval<'_>,
    ensemble: &Ensemble<T>,
    targets: usize,
    aggregate: Aggregate,
) -> Result<(usize, Vec<Score<T>>), OpError> {
    let examples = Examples::<T>::new(cx, cx.array(0)?)?;
    let Some(total) = examples.count.checked_mul(targets) else {
        return invalid(format!("{targets} targets"));
    };
    cx.reserve::<Score<T>>(total)?;
    let scores = ensemble.scores(&examples.data, examples.features, examples.count, targets, aggregate)?;
    Ok((examples.count, scores))
}

/// The number of targets, at least one.
fn checked_targets(call: &Call<'_>) -> Result<usize, OpError> {
    match target_count(call)? {
        Some(targets) if targets > 0 => Ok(targets),
        _ => invalid("n_targets is not positive"),
    }
}

pub(super) fn regressor(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let aggregate = Aggregate::named(&cx.call.text("aggregate_function")?)?;
    let (targets, transform) = (checked_targets(&cx.call)?, Transform::named(&cx.call)?);
    if cx.array(0)?.dtype() == DType::F64 {
        regress::<f64>(cx, build::listed(&cx.call, "target", targets)?, targets, aggregate, transform)
    } else {
        regress::<f32>(cx, build::listed(&cx.call, "target", targets)?, targets, aggregate, transform)
    }
}

pub(super) fn ensemble(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let aggregate = Aggregate::numbered(cx.call.int("aggregate_function")?)?;
    let (targets, transform) =
        (checked_targets(&cx.call)?, Transform::numbered(cx.call.int("post_transform")?)?);
    if cx.array(0)?.dtype() == DType::F64 {
        regress::<f64>(cx, build::linked(&cx.call, targets)?, targets, aggregate, transform)
    } else {
        regress::<f32>(cx, build::linked(&cx.call, targets)?, targets, aggregate, transform)
    }
}

fn regress<T: Float>(
    cx: &Eval<'_>,
    ensemble: Ensemble<T>,
    targets: usize,
    aggregate: Aggregate,
    transform: Transform,
) -> Result<Vec<Value>, OpError> {
    if targets == 1 {
        transform.check_single()?;
    }
    let base = numbers::<T>(&cx.call, "base_values")?;
    if !base.is_empty() && base.len() != targets {
        return invalid(format!("{} base values for {targets} targets", base.len()));
    }
    let (count, scores) = scores(cx, &ensemble, targets, aggregate)?;
    let mut out: Vec<T> = scores.iter().map(|score| score.value).collect();
    if !base.is_empty() {
        out.iter_mut().zip(base.iter().cycle()).for_each(|(out, &base)| *out += base);
    }
    out.chunks_exact_mut(targets).for_each(|scores| transform.apply(scores));
    // The newest form computes in the type of its input, the others declare 32 bits.
    match cx.call.def.name {
        "TreeEnsemble" => one(Array::new([count, targets], out)?),
        _ => one(as_declared(cx, &[count, targets], out)?),
    }
}

pub(super) fn classifier(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.array(0)?.dtype() == DType::F64 { classify::<f64>(cx) } else { classify::<f32>(cx) }
}

fn classify<T: Float>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let labels = Labels::new(&cx.call, "classlabels_int64s", "classlabels_strings")?;
    let jury = Jury::<T>::new(&cx.call, labels.len())?;
    let ensemble = build::listed::<T>(&cx.call, "class", jury.classes)?;
    let (count, scores) = scores(cx, &ensemble, jury.classes, Aggregate::Sum)?;
    let (mut classes, mut out) = (Vec::with_capacity(count), Vec::with_capacity(scores.len()));
    for row in scores.chunks_exact(jury.classes) {
        classes.push(jury.decide(row, &mut out)?);
    }
    let labels = match (&labels, jury.classes) {
        // The only class is told from no class by 1 and 0.
        (Labels::Ints(_), 1) => Labels::Ints(vec![0, 1]),
        (Labels::Strings(_), 1) => return unsupported("a single class that is a string"),
        _ => labels,
    };
    Ok(vec![labels.pick(&classes)?.into(), as_declared(cx, &[count, jury.classes], out)?.into()])
}

/// How votes of leaves become a class and its scores.
struct Jury<T> {
    classes: usize,
    transform: Transform,
    base: Vec<T>,
    /// Two classes, and all votes are for one of them: the other gets what is left.
    one_sided: bool,
    /// No vote is negative.
    positive: bool,
}

impl<T: Float> Jury<T> {
    fn new(call: &Call<'_>, classes: usize) -> Result<Self, OpError> {
        let mut voted = call.ints_or("class_ids", Vec::new())?;
        voted.sort_unstable();
        voted.dedup();
        let base = numbers::<T>(call, "base_values")?;
        let weights = numbers::<T>(call, "class_weights")?;
        match (classes, base.len()) {
            (0, _) => return invalid("a classifier without classes"),
            (_, 0) | (2, 1) | (1, 1) => {}
            (3.., count) if count == classes => {}
            (1 | 2, 2) => return unsupported("two base values for at most two classes"),
            (_, count) => return invalid(format!("{count} base values for {classes} classes")),
        }
        Ok(Self {
            classes,
            transform: Transform::named(call)?,
            base,
            one_sided: classes == 2 && voted.len() == 1,
            positive: weights.iter().all(|&weight| weight >= T::ZERO),
        })
    }

    /// The class of an example by its votes. Its scores are appended to `out`.
    fn decide(&self, votes: &[Score<T>], out: &mut Vec<T>) -> Result<usize, OpError> {
        match self.classes {
            1 => self.decide_alone(votes[0].value, out),
            2 => self.decide_between_two(votes, out),
            _ => self.decide_among_many(votes, out),
        }
    }

    fn decide_alone(&self, score: T, out: &mut Vec<T>) -> Result<usize, OpError> {
        self.transform.check_single()?;
        let mut score = score + self.base.first().copied().unwrap_or(T::ZERO);
        let class = usize::from(score > T::ZERO);
        self.transform.apply(std::slice::from_mut(&mut score));
        out.push(score);
        Ok(class)
    }

    fn decide_between_two(&self, votes: &[Score<T>], out: &mut Vec<T>) -> Result<usize, OpError> {
        let (first, second) = (votes[0].value, votes[1].value);
        if !votes[1].given {
            if !self.one_sided {
                return unsupported("an example whose leaves vote for the first of two classes alone");
            }
            let score = first + self.base.first().copied().unwrap_or(T::ZERO);
            let (class, complement) = self.one_sided_class(score);
            out.extend(self.transform.both(score, complement)?);
            return Ok(class);
        }
        if !self.base.is_empty() {
            return unsupported("a single base value with votes for the second class");
        }
        let class = match self.one_sided {
            true => self.one_sided_class(second).0,
            false => argmax(&[first, second]),
        };
        // Some runtimes choose by the sign of the second score.
        if !self.one_sided && class != usize::from(second > T::ZERO) {
            return unsupported("votes for two classes whose top class runtimes do not agree on");
        }
        let mut scores = [first, second];
        self.transform.apply(&mut scores);
        out.extend(scores);
        Ok(class)
    }

    /// The class when all votes are for one of two, by its score, and how the other one's score follows.
    fn one_sided_class(&self, score: T) -> (usize, Complement) {
        match self.positive {
            true => (usize::from(score > T::from_f64(0.5)), Complement::ToOne),
            false => (usize::from(score > T::ZERO), Complement::Negative),
        }
    }

    fn decide_among_many(&self, votes: &[Score<T>], out: &mut Vec<T>) -> Result<usize, OpError> {
        let mut scores: Vec<T> = votes.iter().map(|vote| vote.value).collect();
        scores.iter_mut().zip(&self.base).for_each(|(score, &base)| *score += base);
        // Only classes that have a vote or a base value can win.
        let candidates = votes.iter().enumerate().filter(|(_, vote)| vote.given || !self.base.is_empty());
        let best = candidates
            .map(|(class, _)| class)
            .reduce(|best, class| if scores[class] > scores[best] { class } else { best });
        let Some(class) = best else { return invalid("an example that no leaf votes for") };
        self.transform.apply(&mut scores);
        out.extend(scores);
        Ok(class)
    }
}
