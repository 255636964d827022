//! Slice.

use super::numbered::follow;
use super::parameter::{Given, Parameter};
use crate::call;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::shape::strides;
use crate::kernel::strided::View;
use crate::value::Value;
use onnxforge_ir::dim::{Dim, Symbols};

static STARTS: Parameter = Parameter { name: "starts", input: 1, since: 10 };
static ENDS: Parameter = Parameter { name: "ends", input: 2, since: 10 };
static AXES: Parameter = Parameter { name: "axes", input: 3, since: 10 };
/// Never an attribute.
static STEPS: Parameter = Parameter { name: "steps", input: 4, since: 10 };

pub fn slice(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (Some(starts), Some(ends)) = (STARTS.evaluate(cx)?, ENDS.evaluate(cx)?) else {
        return invalid("starts and ends are needed");
    };
    let data = cx.array(0)?;
    let axes = axes(AXES.evaluate(cx)?.as_deref(), starts.len(), data.rank())?;
    let steps = STEPS.evaluate(cx)?.unwrap_or_else(|| vec![1; starts.len()]);
    if ends.len() != starts.len() || steps.len() != starts.len() {
        return invalid(format!("{} starts, {} ends and {} steps", starts.len(), ends.len(), steps.len()));
    }
    let own = strides(data.shape()).into_iter().map(|stride| stride as isize);
    let mut view = View { shape: data.shape().to_vec(), strides: own.collect(), offset: 0 };
    for (index, axis) in axes.into_iter().enumerate() {
        let (first, count) = range(data.shape()[axis], starts[index], ends[index], steps[index])?;
        view.offset = view.offset.saturating_add(first.saturating_mul(view.strides[axis].unsigned_abs()));
        view.shape[axis] = count;
        // With at most one element the step leads nowhere, and may be too large to count with.
        view.strides[axis] =
            if count > 1 { view.strides[axis].saturating_mul(steps[index] as isize) } else { 1 };
    }
    one(view.copy(data, cx.memory())?)
}

/// The axes that are cut: the first `count` where none are given.
fn axes(given: Option<&[i64]>, count: usize, rank: usize) -> Result<Vec<usize>, OpError> {
    let axes = match given {
        Some(axes) => call::axes(axes, rank)?,
        None if count <= rank => (0..count).collect(),
        None => return invalid(format!("{count} starts for {rank} axes")),
    };
    if axes.len() == count {
        Ok(axes)
    } else {
        invalid(format!("{count} starts for {} axes to cut", axes.len()))
    }
}

/// Whether `end` is one of the numbers that are taken for "to the end". Backwards, runtimes do not agree on what they mean:
/// by the standard, nothing is taken; onnxruntime goes on to the front.
fn is_endless(end: i64) -> bool {
    end == i64::MAX || end == i64::from(i32::MAX)
}

/// The first place that is taken from an axis of `dim` places, and how many are.
fn range(dim: usize, start: i64, end: i64, step: i64) -> Result<(usize, usize), OpError> {
    if step < 0 && is_endless(end) {
        return unsupported("a slice backwards to a largest integer");
    }
    let (size, step) = (dim as i128, i128::from(step));
    let from_front = |place: i64| if place < 0 { i128::from(place) + size } else { place.into() };
    let (start, end) = (from_front(start), from_front(end));
    let (first, distance) = match step {
        0 => return invalid("a step of 0"),
        1.. => {
            let first = start.clamp(0, size);
            (first, end.clamp(0, size) - first)
        }
        _ => {
            let first = start.min(size - 1).max(0);
            (first, first - end.clamp(-1, size))
        }
    };
    if distance <= 0 || dim == 0 {
        return Ok((0, 0));
    }
    let stride = step.abs();
    let count = (distance + stride - 1) / stride;
    Ok((usize::try_from(first).unwrap_or(0), usize::try_from(count).unwrap_or(0)))
}

pub fn infer_slice(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    if follow(cx, &[0]) {
        return Ok(());
    }
    let mut result = shape.to_vec();
    let count = STARTS.count(cx)?.or(ENDS.count(cx)?);
    let cut = match (AXES.ints(cx)?, count) {
        (Given::Known(given), _) => Some(axes(Some(&given), count.unwrap_or(given.len()), shape.len())?),
        (Given::Absent, Some(count)) => Some(axes(None, count, shape.len())?),
        _ => None,
    };
    let Some(cut) = cut else {
        let shape = cx.fresh_shape(shape.len());
        cx.set_shape(0, shape);
        return Ok(());
    };
    let (starts, ends) = (STARTS.dims(cx)?.known(), ENDS.dims(cx)?.known());
    let steps = match STEPS.dims(cx)? {
        Given::Absent => Some(vec![Dim::ONE; cut.len()]),
        given => given.known(),
    };
    for (index, axis) in cut.into_iter().enumerate() {
        let entry = |list: &Option<Vec<Dim>>| list.as_ref().and_then(|list| list.get(index)).cloned();
        let taken = match (entry(&starts), entry(&ends), entry(&steps)) {
            (Some(start), Some(end), Some(step)) => taken(&shape[axis], &start, &end, &step, cx.symbols),
            _ => None,
        };
        result[axis] = cx.or_fresh(taken);
    }
    cx.set_shape(0, result);
    Ok(())
}

/// How many places are taken from an axis of `dim` places, if that can be told.
fn taken(dim: &Dim, start: &Dim, end: &Dim, step: &Dim, symbols: &Symbols) -> Option<Dim> {
    let step = step.as_const()?;
    let numbers = (dim.as_const(), start.as_const(), end.as_const());
    if let (Some(dim), Some(start), Some(end)) = numbers {
        let (_, count) = range(usize::try_from(dim).ok()?, start, end, step).ok()?;
        return i64::try_from(count).ok().map(Dim::from);
    }
    let distance = match step {
        0 => return None,
        ..0 if end.as_const().is_some_and(is_endless) => return None,
        // Clamping the start from above and the end from below is not needed: where it would change something, the
        // distance is negative without it, too.
        1.. => {
            let last = from_front(end, dim, symbols)?.minimum(dim, symbols)?;
            let distance = last.sub(&from_front(start, dim, symbols)?)?;
            // From a start before the front, only what lies behind the front counts.
            if start.provably_nonneg(symbols) { distance } else { distance.minimum(&last, symbols)? }
        }
        _ => {
            let last_place = dim.sub(&Dim::ONE)?;
            let first = from_front(start, dim, symbols)?.minimum(&last_place, symbols)?;
            // The start is raised to 0 only where there are places at all.
            let raised = start.provably_nonneg(symbols) || start.as_const() == Some(-1);
            if !raised && !dim.provably_positive(symbols) {
                return None;
            }
            let first = if raised { first } else { first.maximum(&Dim::ZERO, symbols)? };
            first.sub(&before_front(end, dim, symbols)?)?
        }
    };
    let stride = Dim::from(i64::try_from(step.unsigned_abs()).ok()?);
    distance.ceil_div(&stride, symbols)?.maximum(&Dim::ZERO, symbols)
}

/// The place counted from the front, if its sign is known.
fn from_front(place: &Dim, dim: &Dim, symbols: &Symbols) -> Option<Dim> {
    if place.provably_nonneg(symbols) {
        return Some(place.clone());
    }
    if place.provably_negative(symbols) { place.add(dim) } else { None }
}

/// The end of a slice that goes backwards: a place counted from the front, or -1 before it.
fn before_front(end: &Dim, dim: &Dim, symbols: &Symbols) -> Option<Dim> {
    // No axis has so many places that this would not lead before the front.
    if end.as_const().is_some_and(|end| end <= -i64::MAX) {
        return Some(Dim::from(-1));
    }
    from_front(end, dim, symbols)?.maximum(&Dim::from(-1), symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let range = |dim, start, end, step| range(dim, start, end, step).unwrap();
        assert_eq!(range(5, 1, i64::MAX, 2), (1, 2));
        assert_eq!(range(5, -3, -1, 1), (2, 2));
        assert_eq!(range(5, -1, i64::MIN, -1), (4, 5));
        assert_eq!(range(5, i64::MAX, -6, i64::MIN), (4, 1));
        assert_eq!(range(5, i64::MIN, i64::MAX, i64::MAX), (0, 1));
        assert_eq!(range(5, -100, -1000, -1), (0, 1));
        assert_eq!(range(5, 4, 2, 1), (0, 0));
        assert_eq!(range(0, -1, -1000, -1), (0, 0));
    }

    #[test]
    fn symbolic_ranges_agree_with_evaluation() {
        let mut symbols = Symbols::default();
        let n = symbols.named("n");
        let places: Vec<i64> = vec![i64::MIN, -i64::MAX, -7, -3, -1, 0, 1, 2, 6, i64::MAX];
        for (&start, &end) in places.iter().flat_map(|start| places.iter().map(move |end| (start, end))) {
            for step in [1, 2, 5, -1, -2] {
                let symbolic = taken(&n.into(), &start.into(), &end.into(), &step.into(), &symbols);
                let Some(symbolic) = symbolic else { continue };
                for dim in 0..9 {
                    let (_, count) = range(dim, start, end, step).unwrap();
                    let found = symbolic.evaluate(&|_| Some(dim as i64));
                    assert_eq!(found, Some(count as i64), "{dim} [{start}:{end}:{step}]");
                }
            }
        }
    }

    #[test]
    fn common_slices_are_simple() {
        let mut symbols = Symbols::default();
        let n = Dim::from(symbols.named("n"));
        let taken =
            |start: Dim, end: Dim, step: i64| taken(&n, &start, &end, &step.into(), &symbols).unwrap();
        assert_eq!(taken(0.into(), n.clone(), 1), n);
        assert_eq!(taken(0.into(), i64::MAX.into(), 1), n);
        assert_eq!(taken((-1).into(), i64::MIN.into(), -1), n);
        let all_but_one = n.sub(&Dim::ONE).unwrap().maximum(&Dim::ZERO, &symbols).unwrap();
        assert_eq!(taken(0.into(), (-1).into(), 1), all_but_one);
        assert_eq!(taken(1.into(), i64::MAX.into(), 1), all_but_one);
        assert_eq!(taken(0.into(), 3.into(), 1), n.minimum(&3.into(), &symbols).unwrap());
        assert_eq!(taken((-3).into(), i64::MAX.into(), 1), n.minimum(&3.into(), &symbols).unwrap());
    }
}
