//! Support vector machines.

use super::scores::{Complement, Labels, Transform, argmax, logistic};
use super::{Examples, as_declared, example_count, floats_attr, set_scores};
use crate::Value;
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::{Float, Number};

/// How alike two vectors are.
enum Likeness {
    Linear,
    Poly,
    Rbf,
    Sigmoid,
}

struct Kernel<T> {
    likeness: Likeness,
    gamma: T,
    coef0: T,
    degree: T,
}

impl<T: Float> Kernel<T> {
    fn new(call: &Call<'_>) -> Result<Self, OpError> {
        let likeness = match call.text("kernel_type")?.as_str() {
            "LINEAR" => Likeness::Linear,
            "POLY" => Likeness::Poly,
            "RBF" => Likeness::Rbf,
            "SIGMOID" => Likeness::Sigmoid,
            other => return invalid(format!("the kernel {other}")),
        };
        match floats_attr::<T>(call, "kernel_params")?[..] {
            [gamma, coef0, degree] => Ok(Self { likeness, gamma, coef0, degree }),
            [] => Ok(Self { likeness, gamma: T::ZERO, coef0: T::ZERO, degree: T::ZERO }),
            ref other => invalid(format!("{} kernel parameters", other.len())),
        }
    }

    fn of(&self, a: &[T], b: &[T]) -> T {
        use num_traits::Float;
        match self.likeness {
            Likeness::Linear => dot(a, b),
            Likeness::Poly => Float::powf(self.gamma * dot(a, b) + self.coef0, self.degree),
            Likeness::Sigmoid => Float::tanh(self.gamma * dot(a, b) + self.coef0),
            Likeness::Rbf => {
                let distance = a.iter().zip(b).fold(T::ZERO, |sum, (&a, &b)| sum + (a - b) * (a - b));
                Float::exp(-self.gamma * distance)
            }
        }
    }
}

fn dot<T: Float>(a: &[T], b: &[T]) -> T {
    a.iter().zip(b).fold(T::ZERO, |sum, (&a, &b)| sum + a * b)
}

pub(super) fn infer_regressor(cx: &mut Infer<'_>) -> Result<(), OpError> {
    set_scores(cx, 0, Some(1))
}

pub(super) fn regressor(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.wide { regress::<f64>(cx) } else { regress::<f32>(cx) }
}

fn regress<T: Float>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    if Transform::named(&cx.call)? != Transform::None {
        return unsupported("a transform of the result of a support vector regression");
    }
    let examples = Examples::<T>::new(cx, cx.array(0)?)?;
    let (kernel, coefficients) = (Kernel::<T>::new(&cx.call)?, floats_attr::<T>(&cx.call, "coefficients")?);
    let vectors = floats_attr::<T>(&cx.call, "support_vectors")?;
    let Some(&rho) = floats_attr::<T>(&cx.call, "rho")?.first() else { return invalid("rho is empty") };
    let count = cx.call.int("n_supports")?;
    let Ok(count) = usize::try_from(count) else { return invalid(format!("{count} support vectors")) };
    // Without support vectors the coefficients are those of the features.
    let weights = if count > 0 { count } else { examples.features };
    let complete = count == 0 || count.checked_mul(examples.features) == Some(vectors.len());
    if coefficients.len() != weights || !complete {
        return invalid(format!("{} coefficients, {count} vectors: {}", coefficients.len(), vectors.len()));
    }
    let score = |row: usize| {
        let x = examples.row(row);
        let sum = match count {
            0 => dot(x, &coefficients),
            _ => {
                let vectors = vectors.chunks_exact(examples.features.max(1));
                vectors.zip(&coefficients).fold(T::ZERO, |sum, (vector, &c)| sum + c * kernel.of(x, vector))
            }
        };
        sum + rho
    };
    cx.reserve::<T>(examples.count)?;
    let mut out: Vec<T> = (0..examples.count).map(score).collect();
    if cx.call.flag("one_class")? {
        out.iter_mut().for_each(|y| *y = if *y > T::ZERO { T::ONE } else { -T::ONE });
    }
    one(as_declared(cx, &[examples.count, 1], out)?)
}

/// The machine: one classifier for each pair of classes, or one linear score for each class.
struct Machine<T> {
    kernel: Kernel<T>,
    /// Support vectors in rows, those of a class together; none for a linear machine.
    vectors: Vec<T>,
    /// Where the vectors of each class begin and end.
    ranges: Vec<std::ops::Range<usize>>,
    coefficients: Vec<T>,
    rho: Vec<T>,
    prob_a: Vec<T>,
    prob_b: Vec<T>,
    classes: usize,
}

/// How many support vectors each class has.
fn vectors_per_class(call: &Call<'_>) -> Result<Vec<usize>, OpError> {
    let counts = call.ints_or("vectors_per_class", Vec::new())?;
    let counts = counts.iter().map(|&count| usize::try_from(count)).collect::<Result<Vec<_>, _>>();
    counts.or_else(|_| invalid("vectors_per_class has a negative element"))
}

/// The number of pairs of classes.
fn pairs(classes: usize) -> Option<usize> {
    classes.checked_mul(classes.checked_sub(1)?).map(|twice| twice / 2)
}

impl<T: Float> Machine<T> {
    fn new(cx: &Eval<'_>, classes: usize, features: usize) -> Result<Self, OpError> {
        let call = &cx.call;
        let counts = vectors_per_class(call)?;
        let mut ranges = Vec::with_capacity(counts.len());
        let mut total = 0usize;
        for count in counts {
            let Some(end) = total.checked_add(count) else { return invalid("too many support vectors") };
            ranges.push(total..end);
            total = end;
        }
        let machine = Self {
            kernel: Kernel::new(call)?,
            vectors: floats_attr(call, "support_vectors")?,
            ranges: if total > 0 { ranges } else { Vec::new() },
            coefficients: floats_attr(call, "coefficients")?,
            rho: floats_attr(call, "rho")?,
            prob_a: floats_attr(call, "prob_a")?,
            prob_b: floats_attr(call, "prob_b")?,
            classes,
        };
        match machine.is_complete(total, features) {
            true => Ok(machine),
            false => invalid(format!("the parts do not fit {classes} classes and {features} features")),
        }
    }

    fn is_linear(&self) -> bool {
        self.ranges.is_empty()
    }

    fn has_probabilities(&self) -> bool {
        !self.is_linear() && !self.prob_a.is_empty()
    }

    fn is_complete(&self, vectors: usize, features: usize) -> bool {
        if self.classes == 0 || self.prob_a.len() != self.prob_b.len() {
            return false;
        }
        if self.is_linear() {
            let needed = self.classes.checked_mul(features);
            return needed == Some(self.coefficients.len()) && !self.rho.is_empty();
        }
        let (Some(pairs), Some(coefficients)) =
            (pairs(self.classes), (self.classes - 1).checked_mul(vectors))
        else {
            return false;
        };
        self.ranges.len() == self.classes
            && vectors.checked_mul(features) == Some(self.vectors.len())
            && self.coefficients.len() >= coefficients
            && self.rho.len() >= pairs
            && (self.prob_a.is_empty() || self.prob_a.len() >= pairs)
    }

    fn linear_scores(&self, x: &[T]) -> Vec<T> {
        let rows = self.coefficients.chunks_exact(x.len().max(1));
        let mut scores: Vec<T> = rows.map(|row| dot(x, row) + self.rho[0]).collect();
        scores.resize(self.classes, self.rho[0]);
        scores
    }

    /// The score of each pair of classes, and how many pairs each class wins.
    fn pair_scores(&self, x: &[T]) -> (Vec<T>, Vec<usize>) {
        let total = self.ranges.last().map_or(0, |range| range.end);
        let kernels: Vec<T> = match x.len() {
            0 => vec![self.kernel.of(x, x); total],
            features => self.vectors.chunks_exact(features).map(|vector| self.kernel.of(x, vector)).collect(),
        };
        let (mut scores, mut votes) = (Vec::new(), vec![0; self.classes]);
        for (i, first) in self.ranges.iter().enumerate() {
            for (j, second) in self.ranges.iter().enumerate().skip(i + 1) {
                // Row j - 1 has what the vectors of class i say about class j, row i what those of class j say about i.
                let part = |row: usize, range: &std::ops::Range<usize>| {
                    dot(&self.coefficients[row * total..][range.clone()], &kernels[range.clone()])
                };
                let score = part(j - 1, first) + part(i, second) + self.rho[scores.len()];
                scores.push(score);
                votes[if score > T::ZERO { i } else { j }] += 1;
            }
        }
        (scores, votes)
    }

    /// The probability of each class.
    fn probabilities(&self, scores: &[T]) -> Vec<T> {
        let classes = self.classes;
        let (least, most) = (T::from_f64(1e-7), T::from_f64(1.0 - 1e-7));
        let mut pairwise = vec![T::ZERO; classes * classes];
        let mut index = 0;
        for i in 0..classes {
            for j in i + 1..classes {
                let p = T::ONE - logistic(scores[index] * self.prob_a[index] + self.prob_b[index]);
                let p = num_traits::Float::min(num_traits::Float::max(p, least), most);
                pairwise[i * classes + j] = p;
                pairwise[j * classes + i] = T::ONE - p;
                index += 1;
            }
        }
        coupled(classes, &pairwise)
    }

    /// The class that is chosen without a vote by pairs, or with probabilities.
    fn top(&self, scores: &[T], votes: Option<&[usize]>) -> Result<usize, OpError> {
        let class = votes.map_or_else(|| argmax(scores), argmax);
        if self.classes != 2 || self.has_probabilities() {
            return Ok(class);
        }
        // Two classes without probabilities: a positive weight means the second one.
        let weight = if votes.is_some() { T::ZERO } else { scores[class] };
        let positive = self.coefficients.iter().all(|&c| c >= T::ZERO);
        let second = if positive { weight >= T::from_f64(0.5) } else { weight > T::ZERO };
        Ok(if second { 1 } else { class })
    }
}

/// The probabilities of classes that fit probabilities of pairs best: the second method of Wu, Lin and Weng (2004).
fn coupled<T: Float>(classes: usize, pairwise: &[T]) -> Vec<T> {
    let at = |i: usize, j: usize| pairwise[i * classes + j];
    let mut q = vec![T::ZERO; classes * classes];
    for i in 0..classes {
        for j in 0..classes {
            if i == j {
                let others = (0..classes).filter(|&other| other != i);
                q[i * classes + i] = others.fold(T::ZERO, |sum, other| sum + at(other, i) * at(other, i));
            } else {
                q[i * classes + j] = -at(j, i) * at(i, j);
            }
        }
    }
    let mut p = vec![T::ONE / T::from_f64(classes as f64); classes];
    let tolerance = T::from_f64(0.005 / classes as f64);
    for _ in 0..100 {
        let mut qp: Vec<T> = q.chunks_exact(classes).map(|row| dot(row, &p)).collect();
        let mut pqp = dot(&p, &qp);
        if qp.iter().all(|&value| Number::abs(value - pqp) < tolerance) {
            break;
        }
        for i in 0..classes {
            let own = q[i * classes + i];
            let step = (pqp - qp[i]) / own;
            let scale = T::ONE + step;
            p[i] += step;
            pqp = (pqp + step * (step * own + T::from_f64(2.0) * qp[i])) / scale / scale;
            for j in 0..classes {
                qp[j] = (qp[j] + step * q[i * classes + j]) / scale;
                p[j] /= scale;
            }
        }
    }
    p
}

/// How many scores an example gets.
fn score_count(call: &Call<'_>, classes: usize) -> Result<Option<usize>, OpError> {
    let has_vectors = vectors_per_class(call)?.iter().any(|&count| count > 0);
    let has_probabilities = !call.floats_or("prob_a", Vec::new())?.is_empty();
    Ok(match classes {
        3.. if has_vectors && !has_probabilities => pairs(classes),
        _ => Some(classes),
    })
}

pub(super) fn infer_classifier(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let labels = Labels::new(&cx.call, "classlabels_ints", "classlabels_strings")?;
    cx.set_dtype(0, labels.dtype());
    if let Some(examples) = example_count(cx)? {
        cx.set_shape(0, vec![examples]);
    }
    let width = score_count(&cx.call, labels.len())?;
    set_scores(cx, 1, width)
}

pub(super) fn classifier(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.wide { classify::<f64>(cx) } else { classify::<f32>(cx) }
}

fn classify<T: Float>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let labels = Labels::new(&cx.call, "classlabels_ints", "classlabels_strings")?;
    let transform = Transform::named(&cx.call)?;
    let examples = Examples::<T>::new(cx, cx.array(0)?)?;
    let machine = Machine::<T>::new(cx, labels.len(), examples.features)?;
    if machine.classes < 2 {
        return unsupported("a support vector machine of a single class");
    }
    let width = score_count(&cx.call, machine.classes)?.unwrap_or(usize::MAX);
    cx.reserve::<T>(examples.count.saturating_mul(width))?;
    cx.reserve::<T>(machine.classes.saturating_mul(machine.classes).saturating_mul(4))?;
    let complement = match transform {
        Transform::None => Complement::Negative,
        _ => Complement::ToOne,
    };
    let (mut classes, mut out) = (Vec::new(), Vec::new());
    for row in 0..examples.count {
        cx.check_time()?;
        let x = examples.row(row);
        if machine.is_linear() {
            let mut scores = machine.linear_scores(x);
            classes.push(machine.top(&scores, None)?);
            transform.apply(&mut scores);
            out.extend(scores);
            continue;
        }
        let (mut scores, votes) = machine.pair_scores(x);
        if machine.has_probabilities() {
            scores = machine.probabilities(&scores);
        }
        classes.push(machine.top(&scores, Some(&votes))?);
        if let [score] = scores[..] {
            out.extend(transform.both(score, complement)?);
        } else {
            transform.apply(&mut scores);
            out.extend(scores);
        }
    }
    Ok(vec![labels.pick(&classes)?.into(), as_declared(cx, &[examples.count, width], out)?.into()])
}
