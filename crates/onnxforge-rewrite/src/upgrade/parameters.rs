//! Attributes that became inputs. They become constants; what a caller gives becomes a Constant that refers to it.

use super::adapter::{Adapted, Old, Refusal};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{AttrValue, Tensor};
use onnxforge_ops::{Array, OpError};

/// Reductions 13 and 18, Squeeze 13, Unsqueeze 13. A list that is not given means all axes before and after.
pub fn axes(old: &Old<'_>) -> Adapted {
    list(old, "axes")
}

/// Split 13. Without sizes the parts are equal before and after.
pub fn split(old: &Old<'_>) -> Adapted {
    list(old, "split")
}

/// A list of integers becomes the second input.
fn list(old: &Old<'_>, name: &str) -> Adapted {
    if old.node().attr(name).is_none() {
        return Ok(None);
    }
    let mut change = old.change();
    let list = old.ints_operand(&mut change, name)?;
    old.becomes(change, vec![old.input(0)?.into(), list], old.attrs_without(&[name]))
}

/// Slice 10. Steps are 1. Axes that are not given are the first ones before, as many as there are starts, and all of them after.
pub fn slice(old: &Old<'_>) -> Adapted {
    let mut change = old.change();
    let starts = old.ints_operand(&mut change, "starts")?;
    let ends = old.ints_operand(&mut change, "ends")?;
    let axes = match old.node().attr("axes") {
        Some(_) => old.ints_operand(&mut change, "axes")?,
        None => change.ints("axes", &(0..old.call.ints("starts")?.len() as i64).collect::<Vec<_>>()),
    };
    let attrs = old.attrs_without(&["starts", "ends", "axes"]);
    old.becomes(change, vec![old.input(0)?.into(), starts, ends, axes], attrs)
}

/// TopK 10. The number becomes a vector of one element.
pub fn k(old: &Old<'_>) -> Adapted {
    let mut change = old.change();
    let k = change.ints("k", &[old.int("k")?]);
    old.becomes(change, vec![old.input(0)?.into(), k], old.attrs_without(&["k"]))
}

/// Upsample 9.
pub fn scales(old: &Old<'_>) -> Adapted {
    let mut change = old.change();
    let scales = old.floats("scales")?;
    let scales = Tensor::from_f32s([scales.len()], &scales).map_err(OpError::from)?;
    let scales = change.constant("scales", scales);
    old.becomes(change, vec![old.input(0)?.into(), scales], old.attrs_without(&["scales"]))
}

/// DFT 20. The axis was the second by default and is the last one of the signal now.
pub fn axis(old: &Old<'_>) -> Adapted {
    let mut change = old.change();
    let axis = match old.node().attr("axis") {
        Some(AttrValue::Reference { .. }) => old.reference(&mut change, "axis", "value_int")?,
        _ => change.constant("axis", Array::scalar(old.int("axis")?).to_tensor().map_err(OpError::from)?),
    };
    let inputs = vec![old.input(0)?.into(), old.node().input(1).into(), axis];
    old.becomes(change, inputs, old.attrs_without(&["axis"]))
}

/// Clip 11. The bounds are 32-bit floats before and of the type of the tensor after; those of old are given always, because
/// the new defaults are the limits of another type, and infinite ones for some runtimes.
pub fn bounds(old: &Old<'_>) -> Adapted {
    let mut change = old.change();
    let x = old.input(0)?;
    let mut inputs = vec![Operand::Value(x)];
    for name in ["min", "max"] {
        let bound = old.scalar(old.dtype(x)?, old.float(name)?)?;
        inputs.push(change.constant(name, bound));
    }
    old.becomes(change, inputs, old.attrs_without(&["min", "max"]))
}

/// Pad 11. The value is a 32-bit float before and of the type of the tensor after; zero is the default of both.
pub fn pads(old: &Old<'_>) -> Adapted {
    let mut change = old.change();
    let x = old.input(0)?;
    let pads = old.ints_operand(&mut change, "pads")?;
    let value = old.float("value")?;
    let value = match value.to_bits() {
        0 => Operand::Absent,
        _ => change.constant("value", old.scalar(old.dtype(x)?, value)?),
    };
    if pads == Operand::Absent {
        return Refusal::because("the attribute pads is missing");
    }
    old.becomes(change, vec![x.into(), pads, value], old.attrs_without(&["pads", "value"]))
}

/// Dropout 12. Outside of training, which is what versions before 12 do, nothing depends on the ratio; it is kept for those who
/// train the model later.
pub fn ratio(old: &Old<'_>) -> Adapted {
    let mut change = old.change();
    let ratio = match old.node().attr("ratio") {
        None => return Ok(None),
        Some(AttrValue::Reference { .. }) => old.reference(&mut change, "ratio", "value_float")?,
        Some(_) => change.constant("ratio", old.scalar(onnxforge_ir::DType::F32, old.float("ratio")?)?),
    };
    old.becomes(change, vec![old.input(0)?.into(), ratio], old.attrs_without(&["ratio"]))
}
