//! Softmax, LogSoftmax and Hardmax 13: what counted together was everything from an axis on, and is one axis now.

use super::adapter::{Adapted, Old};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Attr, AttrValue};
use onnxforge_ops::call;

/// The tensor becomes a matrix, and the result gets the shape back; unless all axes from the given one on but one are of size 1.
/// That also covers an axis past the last: every element counts alone.
///
/// The axis of a caller stays one: Flatten takes it too, with the same default. Reshape takes a 0 for the size of the same axis of the matrix,
/// so that a tensor that is empty along a later axis than the first cannot get its shape back: such a run fails.
pub fn one_axis(old: &Old<'_>) -> Adapted {
    let x = old.input(0)?;
    let op = old.node().op().name.clone();
    if let Some(axis) = same_axis(old)? {
        if old.node().attr_int("axis") == Some(axis) {
            return Ok(None);
        }
        return old.becomes(old.change(), old.inputs(), old.attrs_with(Attr::from(("axis", axis))));
    }
    let mut change = old.change();
    let axis = old.node().attr("axis").cloned().unwrap_or(AttrValue::Int(1));
    let shape = change.op("Shape", [x.into()], []);
    let rows = change.op("Flatten", [x.into()], [Attr::new("axis", axis)]);
    let last = old.attrs_with(Attr::from(("axis", -1)));
    let new = old.remake(&mut change, &op, vec![rows], 1, last).output(0);
    let back = change.op("Reshape", [new, shape], []);
    change.replace(old.output()?, back);
    Ok(Some(change))
}

/// The axis that alone counts, if there is one and it is known.
fn same_axis(old: &Old<'_>) -> Result<Option<i64>, super::adapter::Refusal> {
    if matches!(old.node().attr("axis"), Some(AttrValue::Reference { .. })) {
        return Ok(None);
    }
    let axis = old.int("axis")?;
    let Some(shape) = old.cx.facts.shape(old.input(0)?) else {
        return Ok((axis == -1).then_some(axis));
    };
    let Ok(first) = call::axis(axis, shape.len()) else { return Ok(None) };
    let mut larger = (first..shape.len()).filter(|&axis| shape[axis] != Dim::ONE);
    let only = larger.next().unwrap_or(first);
    Ok(match larger.next() {
        // As it was given, where it can stay.
        None if only == first => Some(axis),
        None => Some(only as i64),
        Some(_) => None,
    })
}
