//! Elements chosen by a condition: Compress, NonZero.

use crate::array::{Array, Elem, each_elem};
use crate::call;
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::shape::around;
use crate::layout::numbered::follow;
use crate::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::Dim;

pub fn compress(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let condition = cx.array(1)?.slice::<bool>()?;
    let data = cx.array(0)?;
    let axis = cx.call.opt_int("axis")?.map(|axis| call::axis(axis, data.rank())).transpose()?;
    let (outer, dim, inner) = axis.map_or((1, data.len(), 1), |axis| around(data.shape(), axis));
    cx.reserve::<usize>(condition.len())?;
    let chosen: Vec<usize> = (0..condition.len().min(dim)).filter(|&place| condition[place]).collect();
    if condition.iter().skip(dim).any(|&chosen| chosen) {
        return invalid(format!("a condition chooses more than {dim} places"));
    }
    let mut shape = axis.map_or_else(|| vec![0], |_| data.shape().to_vec());
    shape[axis.unwrap_or(0)] = chosen.len();
    each_elem!(data, T => {
        cx.reserve::<T>(cx.count(&shape)?)?;
        one(Array::with_dtype(data.dtype(), shape, pick::<T>(data.slice()?, outer, inner, &chosen))?)
    })
}

/// For each of `outer` rows the runs of `inner` elements at `places`.
fn pick<T: Elem>(from: &[T], outer: usize, inner: usize, places: &[usize]) -> Vec<T> {
    if from.is_empty() || places.is_empty() {
        return Vec::new();
    }
    let row = from.len() / outer;
    let rows = from.chunks_exact(row);
    let runs = rows.flat_map(|row| places.iter().map(move |place| &row[place * inner..(place + 1) * inner]));
    runs.flatten().cloned().collect()
}

pub fn infer_compress(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if follow(cx, &[0]) {
        return Ok(());
    }
    let chosen = cx.ints(1).map(|condition| Dim::from(condition.iter().sum::<i64>()));
    let Some(axis) = cx.call.opt_int("axis")? else {
        let shape = vec![cx.or_fresh(chosen)];
        cx.set_shape(0, shape);
        return Ok(());
    };
    if let Some(shape) = cx.shape(0) {
        let mut result = shape.to_vec();
        result[call::axis(axis, shape.len())?] = cx.or_fresh(chosen);
        cx.set_shape(0, result);
    }
    Ok(())
}

/// A tensor without axes has no coordinates: the result has no rows, and a column if the element is not 0.
pub fn nonzero(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let data = cx.array(0)?;
    let found: Vec<usize> = each_elem!(data, T => {
        let elements = data.slice::<T>()?;
        let zero = T::default();
        let count = elements.iter().filter(|element| **element != zero).count();
        cx.reserve::<usize>(count)?;
        (0..elements.len()).filter(|&place| elements[place] != zero).collect()
    });
    let mut out = cx.zeros::<i64>(&[data.rank(), found.len()])?;
    let mut rest = found.clone();
    if !found.is_empty() {
        for (row, &dim) in out.chunks_exact_mut(found.len()).zip(data.shape()).rev() {
            for (coordinate, rest) in row.iter_mut().zip(&mut rest) {
                *coordinate = (*rest % dim) as i64;
                *rest /= dim;
            }
        }
    }
    one(Array::new([data.rank(), found.len()], out)?)
}

pub fn infer_nonzero(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.set_dtype(0, DType::I64);
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let rank = Dim::from(shape.len() as i64);
    // Where it is known of each element whether it is 0, the result is known, too.
    let is_nonzero = |dim: &Dim| match dim.as_const() {
        Some(number) => Some(number != 0),
        None => dim.provably_different(&Dim::ZERO, cx.symbols).then_some(true),
    };
    let decided = cx.dims(0).and_then(|dims| dims.iter().map(is_nonzero).collect::<Option<Vec<bool>>>());
    let (Some(decided), Some(shape)) = (decided, cx.tensor(0).static_shape()) else {
        let count = cx.fresh();
        cx.set_shape(0, vec![rank, count]);
        return Ok(());
    };
    let places: Vec<usize> = (0..decided.len()).filter(|&place| decided[place]).collect();
    let coordinate = |axis: usize, place: usize| {
        let (_, dim, inner) = around(&shape, axis);
        Dim::from((place / inner % dim) as i64)
    };
    let rows = (0..shape.len()).flat_map(|axis| places.iter().map(move |&place| (axis, place)));
    let dims = rows.map(|(axis, place)| coordinate(axis, place)).collect();
    cx.set_shape(0, vec![rank, Dim::from(places.len() as i64)]);
    cx.set_dims(0, dims);
    Ok(())
}
