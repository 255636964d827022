//! NonMaxSuppression.

use super::order::Ordered;
use crate::array::{Array, each_float};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::Float;
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;

pub fn suppress(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let boxes = cx.array(0)?;
    each_float!(boxes, T => suppress_boxes::<T>(cx))
}

/// Up to so many boxes of a class are kept, best first.
struct Limits<T> {
    most: usize,
    overlap: T,
    score: Option<T>,
}

fn suppress_boxes<T: Float + Ordered>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (boxes, scores) = (cx.array(0)?, cx.array(1)?);
    let (&[batches, count, 4], &[score_batches, classes, score_count]) = (boxes.shape(), scores.shape())
    else {
        return invalid(format!(
            "boxes of shape {:?} with scores of shape {:?}",
            boxes.shape(),
            scores.shape()
        ));
    };
    if batches != score_batches || count != score_count {
        return invalid(format!("{batches} x {count} boxes and {score_batches} x {score_count} scores"));
    }
    let number = |index: usize| cx.opt_array(index).map(|array| array.filter(|array| !array.is_empty()));
    let threshold = |index: usize| -> Result<Option<T>, OpError> {
        number(index)?.map(|array| Ok(T::from_f64(array.to_f64()?))).transpose()
    };
    let limits = Limits {
        most: usize::try_from(number(2)?.map_or(Ok(0), Array::to_i64)?).unwrap_or(0),
        overlap: threshold(3)?.unwrap_or(T::ZERO),
        score: threshold(4)?,
    };
    cx.reserve::<(Area<T>, [usize; 2])>(count)?;
    let centered = cx.call.flag("center_point_box")?;
    let (boxes, scores) = (boxes.slice::<T>()?, scores.slice::<T>()?);
    let mut selected = Vec::<i64>::new();
    for batch in 0..if count == 0 { 0 } else { batches } {
        let areas: Vec<Area<T>> = boxes[batch * count * 4..(batch + 1) * count * 4]
            .chunks_exact(4)
            .map(|corners| Area::new([corners[0], corners[1], corners[2], corners[3]], centered))
            .collect();
        for class in 0..classes {
            let start = (batch * classes + class) * count;
            let kept = best_boxes(cx, &areas, &scores[start..start + count], &limits)?;
            cx.reserve::<[i64; 3]>(kept.len())?;
            selected.extend(kept.into_iter().flat_map(|index| [batch as i64, class as i64, index as i64]));
        }
    }
    one(Array::new([selected.len() / 3, 3], selected)?)
}

/// The boxes that are kept, best first: those that overlap no better one too much. Of equal ones the first is better.
fn best_boxes<T: Float + Ordered>(
    cx: &Eval<'_>,
    areas: &[Area<T>],
    scores: &[T],
    limits: &Limits<T>,
) -> Result<Vec<usize>, OpError> {
    let above = |index: &usize| limits.score.is_none_or(|score| scores[*index] > score);
    let mut candidates: Vec<usize> = (0..areas.len()).filter(above).collect();
    candidates.sort_by(|&a, &b| scores[b].order(&scores[a]));
    let mut kept = Vec::new();
    for index in candidates {
        if kept.len() >= limits.most {
            break;
        }
        cx.check_time()?;
        if !kept.iter().any(|&other: &usize| areas[index].overlap(&areas[other]) > limits.overlap) {
            kept.push(index);
        }
    }
    Ok(kept)
}

/// A box by its sides.
struct Area<T> {
    low: [T; 2],
    high: [T; 2],
}

impl<T: Float> Area<T> {
    /// A box of two opposite corners, or of its center and its size.
    fn new([a, b, c, d]: [T; 4], centered: bool) -> Self {
        if centered {
            let half = T::from_f64(0.5);
            let (width, height) = (c * half, d * half);
            return Self { low: [a - width, b - height], high: [a + width, b + height] };
        }
        let ordered = |x: T, y: T| if x > y { (y, x) } else { (x, y) };
        let ((low_a, high_a), (low_b, high_b)) = (ordered(a, c), ordered(b, d));
        Self { low: [low_a, low_b], high: [high_a, high_b] }
    }

    fn size(&self) -> T {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// The part of both that is common to both; 0 where there is no area.
    fn overlap(&self, other: &Self) -> T {
        let side = |axis: usize| {
            let (low, high) = (self.low[axis], self.high[axis]);
            let low = if low > other.low[axis] { low } else { other.low[axis] };
            let high = if high < other.high[axis] { high } else { other.high[axis] };
            high - low
        };
        let (width, height) = (side(1), side(0));
        let common = width * height;
        let (own, others) = (self.size(), other.size());
        let all = own + others - common;
        let is_area = |size: T| size > T::ZERO;
        if [width, height, common, own, others, all].into_iter().all(is_area) {
            common / all
        } else {
            T::ZERO
        }
    }
}

pub fn infer_suppress(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.set_dtype(0, DType::I64);
    let count = cx.fresh();
    cx.set_shape(0, vec![count, Dim::from(3)]);
    Ok(())
}
