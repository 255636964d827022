//! Trilu: one triangle of every matrix.

use super::numbered::follow;
use crate::array::{Array, Elem, each_elem};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::{Infer, same_as_input};
use crate::value::Value;

pub fn trilu(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let upper = cx.call.flag("upper")?;
    let diagonal = cx.opt_array(1)?.map_or(Ok(0), Array::to_i64)?;
    let data = cx.take(0)?;
    each_elem!(&data, T => {
        cx.reserve::<T>(data.len())?;
        one(triangle::<T>(data, upper, diagonal)?)
    })
}

fn triangle<T: Elem>(data: Array, upper: bool, diagonal: i64) -> Result<Array, OpError> {
    let (dtype, shape) = (data.dtype(), data.shape().to_vec());
    let [.., rows, columns] = shape[..] else {
        return invalid(format!("a matrix is needed, not the shape {shape:?}"));
    };
    let mut elements = data.into_vec::<T>()?;
    if !elements.is_empty() {
        for (index, row) in elements.chunks_exact_mut(columns).enumerate() {
            // The first column of the row that lies right of the diagonal, or on it for the upper triangle.
            let on_diagonal = ((index % rows) as i64).saturating_add(diagonal);
            let border = if upper { on_diagonal } else { on_diagonal.saturating_add(1) };
            let border = usize::try_from(border).unwrap_or(0).min(columns);
            let zeros = if upper { &mut row[..border] } else { &mut row[border..] };
            zeros.fill(T::default());
        }
    }
    Array::with_dtype(dtype, shape, elements)
}

pub fn infer_trilu(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if cx.rank(0).is_some_and(|rank| rank < 2) {
        return invalid("a matrix is needed");
    }
    if follow(cx, &[0]) { Ok(()) } else { same_as_input(cx) }
}
