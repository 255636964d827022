//! Scores of classes: from sums to what is shown.

use crate::Array;
use crate::call::Call;
use crate::error::{OpError, invalid, unsupported};
use crate::kernel::number::{Float, Number};
use onnxforge_ir::DType;
use onnxforge_proto::blob::Blob;

/// What is done to the scores of an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
    Probit,
}

impl Transform {
    /// The one that the attribute names.
    pub fn named(call: &Call<'_>) -> Result<Self, OpError> {
        match call.text("post_transform")?.as_str() {
            "NONE" => Ok(Self::None),
            "SOFTMAX" => Ok(Self::Softmax),
            "LOGISTIC" => Ok(Self::Logistic),
            "SOFTMAX_ZERO" => Ok(Self::SoftmaxZero),
            "PROBIT" => Ok(Self::Probit),
            other => invalid(format!("the transform {other}")),
        }
    }

    /// The one with this number.
    pub fn numbered(number: i64) -> Result<Self, OpError> {
        match number {
            0 => Ok(Self::None),
            1 => Ok(Self::Softmax),
            2 => Ok(Self::Logistic),
            3 => Ok(Self::SoftmaxZero),
            4 => Ok(Self::Probit),
            _ => invalid(format!("the transform {number}")),
        }
    }

    /// Fails where a score stands alone and runtimes leave it as it is, although the transform would change it.
    pub fn check_single(self) -> Result<(), OpError> {
        match self {
            Self::None | Self::Probit => Ok(()),
            _ => unsupported(format!("the transform {self:?} of a single score")),
        }
    }

    /// Transforms the scores of one example.
    pub fn apply<T: Float>(self, scores: &mut [T]) {
        match self {
            Self::None => {}
            Self::Logistic => scores.iter_mut().for_each(|score| *score = logistic(*score)),
            Self::Probit => scores.iter_mut().for_each(|score| *score = probit(*score)),
            Self::Softmax => softmax(scores),
            Self::SoftmaxZero => softmax_zero(scores),
        }
    }

    /// The scores of both classes, from the score of the second one. `complement` is what the first one has without a
    /// transform: 1 minus the score or the negative score.
    pub fn both<T: Float>(self, score: T, complement: Complement) -> Result<[T; 2], OpError> {
        match (self, complement) {
            (Self::Probit, _) => unsupported("PROBIT of two classes with one score"),
            (Self::Logistic, _) => Ok([logistic(-score), logistic(score)]),
            (_, Complement::ToOne) => Ok([T::ONE - score, score]),
            (_, Complement::Negative) => Ok([-score, score]),
        }
    }
}

/// How the score of the first of two classes follows from the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complement {
    ToOne,
    Negative,
}

pub fn logistic<T: Float>(x: T) -> T {
    let positive = T::ONE / (T::ONE + num_traits::Float::exp(-Number::abs(x)));
    if x < T::ZERO { T::ONE - positive } else { positive }
}

/// The inverse of the normal distribution, by Winitzki's approximation of the inverse error function, which is what every
/// runtime uses.
fn probit<T: Float>(p: T) -> T {
    let (two, a) = (T::from_f64(2.0), T::from_f64(0.147));
    let x = two * p - T::ONE;
    let log = num_traits::Float::ln((T::ONE - x) * (T::ONE + x));
    let v = two / (T::PI() * a) + log / two;
    let root = num_traits::Float::sqrt(num_traits::Float::sqrt(v * v - log / a) - v);
    T::SQRT_2() * if x < T::ZERO { -root } else { root }
}

fn largest<T: Float>(scores: &[T]) -> T {
    scores.iter().fold(T::neg_infinity(), |max, &score| num_traits::Float::max(max, score))
}

fn softmax<T: Float>(scores: &mut [T]) {
    let max = largest(scores);
    scores.iter_mut().for_each(|score| *score = num_traits::Float::exp(*score - max));
    let sum = scores.iter().fold(T::ZERO, |sum, &score| sum + score);
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// The softmax of the scores that are not 0; those that are stay 0.
fn softmax_zero<T: Float>(scores: &mut [T]) {
    let (max, least) = (largest(scores), T::from_f64(1e-7));
    let (mut sum, scale) = (T::ZERO, num_traits::Float::exp(-max));
    for score in scores.iter_mut() {
        if Number::abs(*score) > least {
            *score = num_traits::Float::exp(*score - max);
            sum += *score;
        } else {
            *score *= scale;
        }
    }
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// The index of the largest score; the first of several.
pub fn argmax<T: PartialOrd + Copy>(scores: &[T]) -> usize {
    let best = scores.iter().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map_or(0, |(index, _)| index)
}

/// The names of the classes.
pub enum Labels {
    Ints(Vec<i64>),
    Strings(Vec<Blob>),
}

impl Labels {
    /// The labels in the attribute `strings`, or else in the attribute `ints`.
    pub fn new(call: &Call<'_>, ints: &str, strings: &str) -> Result<Self, OpError> {
        let texts = call.byte_strings_or(strings, Vec::new())?;
        if !texts.is_empty() {
            return Ok(Self::Strings(texts));
        }
        Ok(Self::Ints(call.ints_or(ints, Vec::new())?))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Ints(labels) => labels.len(),
            Self::Strings(labels) => labels.len(),
        }
    }

    pub fn dtype(&self) -> DType {
        match self {
            Self::Ints(_) => DType::I64,
            Self::Strings(_) => DType::String,
        }
    }

    /// The labels of the classes that were chosen.
    pub fn pick(&self, classes: &[usize]) -> Result<Array, OpError> {
        fn chosen<L: Clone>(labels: &[L], classes: &[usize]) -> Option<Vec<L>> {
            classes.iter().map(|&class| labels.get(class).cloned()).collect()
        }
        let array = match self {
            Self::Ints(labels) => chosen(labels, classes).map(Array::vector),
            Self::Strings(labels) => {
                chosen(labels, classes).map(|labels| Array::strings([labels.len()], labels)).transpose()?
            }
        };
        array.map_or_else(|| invalid(format!("a class of only {} labels", self.len())), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-3;
        assert!(close(probit(0.975), 1.96) && close(probit(0.025), -1.96));
        let mut scores = [0.0, 1.0, 1.0];
        Transform::SoftmaxZero.apply(&mut scores);
        assert_eq!(scores, [0.0, 0.5, 0.5]);
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(Transform::Softmax.both(0.25, Complement::ToOne).unwrap(), [0.75, 0.25]);
    }
}
