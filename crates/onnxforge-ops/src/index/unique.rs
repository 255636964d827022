//! Unique.

use std::cmp::Ordering;

use super::order::Ordered;
use crate::array::{Array, each_elem};
use crate::call;
use crate::error::OpError;
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::shape::around;
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;

pub fn unique(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    let axis = cx.call.opt_int("axis")?.map(|axis| call::axis(axis, data.rank())).transpose()?;
    let sorted = cx.call.flag("sorted")?;
    each_elem!(data, T => distinct::<T>(cx, data, axis, sorted))
}

/// The distinct slices along `axis` (or elements, without an axis), where each stands first, which of them every slice is,
/// and how often each occurs.
fn distinct<T: Ordered>(
    cx: &Eval<'_>,
    data: &Array,
    axis: Option<usize>,
    sorted: bool,
) -> Result<Vec<Value>, OpError> {
    let (outer, dim, inner) = axis.map_or((1, data.len(), 1), |axis| around(data.shape(), axis));
    let from = data.slice::<T>()?;
    let run = |slice: usize, row: usize| {
        let start = (row * dim + slice) * inner;
        &from[start..start + inner]
    };
    // Slices without elements are all the same.
    let rows = if data.is_empty() { 0 } else { outer };
    let compare = |a: usize, b: usize| -> Ordering {
        let elements = |slice: usize| (0..rows).flat_map(move |row| run(slice, row));
        let pairs = elements(a).zip(elements(b)).map(|(a, b)| a.order(b));
        pairs.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    cx.reserve::<[usize; 4]>(dim)?;
    let groups = Groups::new(dim, compare, sorted);
    let mut shape = axis.map_or_else(|| vec![0], |_| data.shape().to_vec());
    shape[axis.unwrap_or(0)] = groups.first.len();
    cx.reserve::<T>(cx.count(&shape)?)?;
    let chosen = (0..rows).flat_map(|row| groups.first.iter().flat_map(move |&slice| run(slice, row)));
    let chosen = Array::with_dtype(data.dtype(), shape, chosen.cloned().collect::<Vec<T>>())?;
    let vector =
        |numbers: Vec<usize>| Array::vector(numbers.into_iter().map(|n| n as i64).collect::<Vec<_>>());
    Ok(vec![
        chosen.into(),
        vector(groups.first).into(),
        vector(groups.of).into(),
        vector(groups.count).into(),
    ])
}

/// Equal things put together.
struct Groups {
    /// The first member of each group.
    first: Vec<usize>,
    /// The group of each thing.
    of: Vec<usize>,
    /// How many members each group has.
    count: Vec<usize>,
}

impl Groups {
    /// Groups of `len` things: in ascending order when `sorted`, else in the order of their first members.
    fn new(len: usize, compare: impl Fn(usize, usize) -> Ordering, sorted: bool) -> Self {
        let mut order: Vec<usize> = (0..len).collect();
        order.sort_by(|&a, &b| compare(a, b));
        let mut first: Vec<usize> = Vec::new();
        let mut of = vec![0; len];
        for &thing in &order {
            if first.last().is_none_or(|&last| compare(last, thing).is_ne()) {
                first.push(thing);
            }
            of[thing] = first.len() - 1;
        }
        if !sorted {
            let mut by_first: Vec<usize> = (0..first.len()).collect();
            by_first.sort_unstable_by_key(|&group| first[group]);
            let mut renamed = vec![0; first.len()];
            by_first.iter().enumerate().for_each(|(new, &old)| renamed[old] = new);
            of.iter_mut().for_each(|group| *group = renamed[*group]);
            first.sort_unstable();
        }
        let mut count = vec![0; first.len()];
        of.iter().for_each(|&group| count[group] += 1);
        Self { first, of, count }
    }
}

pub fn infer_unique(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let axis = cx.call.opt_int("axis")?;
    let distinct = cx.fresh();
    match (axis, cx.shape(0)) {
        (None, shape) => {
            cx.set_shape(0, vec![distinct.clone()]);
            let all = cx.or_fresh(shape.and_then(Dim::product));
            cx.set_shape(2, vec![all]);
        }
        (Some(axis), Some(shape)) => {
            let axis = call::axis(axis, shape.len())?;
            let mut result = shape.to_vec();
            let all = std::mem::replace(&mut result[axis], distinct.clone());
            cx.set_shape(0, result);
            cx.set_shape(2, vec![all]);
        }
        (Some(_), None) => {
            let all = cx.fresh();
            cx.set_shape(2, vec![all]);
        }
    }
    for index in [1, 3] {
        cx.set_shape(index, vec![distinct.clone()]);
    }
    (1..4).for_each(|index| cx.set_dtype(index, DType::I64));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups() {
        let things = [3, 1, 3, 2, 1];
        let of = |sorted| Groups::new(things.len(), |a, b| things[a].cmp(&things[b]), sorted);
        let (ascending, by_first) = (of(true), of(false));
        assert_eq!(
            (ascending.first, ascending.of, ascending.count),
            (vec![1, 3, 0], vec![2, 0, 2, 1, 0], vec![2, 1, 2])
        );
        assert_eq!(
            (by_first.first, by_first.of, by_first.count),
            (vec![0, 1, 3], vec![0, 1, 0, 2, 1], vec![2, 2, 1])
        );
    }
}
