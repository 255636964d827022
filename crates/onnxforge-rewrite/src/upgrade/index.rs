//! OneHot and Scatter.

use super::adapter::{Adapted, Old};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::{Attr, DType};
use onnxforge_ops::{Array, OpError};

/// OneHot 11. Negative indices light nothing before and count from the end after: where there may be some, they become the
/// greatest number there is, which is beyond any depth.
pub fn negative(old: &Old<'_>) -> Adapted {
    let indices = old.input(0)?;
    let dtype = old.known_dtype(indices);
    let is_unsigned = dtype.is_some_and(|dtype| dtype.kind() == Kind::Unsigned);
    if is_unsigned || old.numbers(indices).is_some_and(|known| known.iter().all(|&index| index >= 0.0)) {
        return Ok(None);
    }
    let mut change = old.change();
    let whole = match dtype {
        Some(DType::I64) => indices.into(),
        _ => change.op("Cast", [indices.into()], [Attr::from(("to", i64::from(DType::I64.code())))]),
    };
    let number = |number: i64| Array::scalar(number).to_tensor().map_err(OpError::from);
    let (zero, beyond) = (change.constant("zero", number(0)?), change.constant("beyond", number(i64::MAX)?));
    let below = change.op("Less", [whole, zero], []);
    let mut inputs = old.inputs();
    inputs[0] = change.op("Where", [below, beyond, whole], []);
    old.becomes(change, inputs, old.attrs_without(&[]))
}

/// Scatter 11 has the name ScatterElements.
pub fn scatter(old: &Old<'_>) -> Adapted {
    old.becomes_op(old.change(), "ScatterElements", old.inputs(), old.attrs_without(&[]))
}
