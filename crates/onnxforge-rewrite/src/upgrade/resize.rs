//! Upsample and Resize.

use super::adapter::{Adapted, Old, Refusal};
use super::values::text;
use crate::Change;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Attr, Tensor};
use onnxforge_ops::{Array, OpError};

/// Upsample 10 has the name Resize.
pub fn upsample(old: &Old<'_>) -> Adapted {
    old.becomes_op(old.change(), "Resize", old.inputs(), old.attrs_without(&[]))
}

/// Resize 11. Places were divided by the scale and are shifted by half an element by default now. The nearest element was the one
/// below where an axis grows and the one above where it shrinks; now a call chooses one for all axes, so that a tensor that
/// may do both first grows and then shrinks. No axis is touched twice, and at a scale of 1 no place is between elements.
pub fn coordinates(old: &Old<'_>) -> Adapted {
    let (x, scales) = (Operand::from(old.input(0)?), old.input(1)?);
    let mut change = old.change();
    let plain = |nearest: Option<&str>| {
        let mut attrs = old.attrs_with(text("coordinate_transformation_mode", "asymmetric"));
        attrs.extend(nearest.map(|nearest| text("nearest_mode", nearest)));
        attrs
    };
    let nearest = match old.text("mode")?.as_str() {
        "nearest" => match old.numbers(scales) {
            Some(scales) if scales.iter().all(|&scale| scale >= 1.0) => Some("floor"),
            Some(scales) if scales.iter().all(|&scale| scale <= 1.0) => Some("ceil"),
            _ => {
                let grown = part(&mut change, "Max", scales.into())?;
                let roi = no_region(&mut change)?;
                let larger = change.op("Resize", [x, roi, grown], plain(Some("floor")));
                let shrunk = part(&mut change, "Min", scales.into())?;
                return old.becomes(change, vec![larger, roi, shrunk], plain(Some("ceil")));
            }
        },
        _ => None,
    };
    let roi = no_region(&mut change)?;
    old.becomes(change, vec![x, roi, scales.into()], plain(nearest))
}

/// The scales that grow a tensor (`Max`) or shrink it (`Min`); the others become 1.
fn part(change: &mut Change, op: &str, scales: Operand) -> Result<Operand, Refusal> {
    let one = change.constant("one", Array::scalar(1.0f32).to_tensor().map_err(OpError::from)?);
    Ok(change.op(op, [scales, one], []))
}

/// No region of interest, which version 11 needs all the same.
fn no_region(change: &mut Change) -> Result<Operand, Refusal> {
    Ok(change.constant("roi", Tensor::from_f32s([0], &[]).map_err(OpError::from)?))
}

/// Resize 13. Scales that are empty because sizes are given are left out, and so is a region that is empty. The transformation
/// `tf_half_pixel_for_nn`, `(x + 0.5) / scale`, is gone: it is `half_pixel` plus one half, which rounding can make up for.
pub fn choice(old: &Old<'_>) -> Adapted {
    let mut inputs = old.inputs();
    for index in [1, 2] {
        let is_empty = old
            .node()
            .input(index)
            .and_then(|value| old.cx.facts.shape(value))
            .is_some_and(|shape| shape.iter().any(|dim| dim.as_const() == Some(0)));
        if is_empty && (index == 1 || inputs.len() > 3) {
            inputs[index] = Operand::Absent;
        }
    }
    let attrs = match old.text("coordinate_transformation_mode")?.as_str() {
        "tf_half_pixel_for_nn" => {
            let nearest = match (old.text("mode")?.as_str(), old.text("nearest_mode")?.as_str()) {
                ("nearest", "floor") => "round_prefer_ceil",
                ("nearest", "round_prefer_floor") => "ceil",
                (mode, nearest) => {
                    return Refusal::because(format!(
                        "the coordinate transformation tf_half_pixel_for_nn is gone, and nothing stands for it with \
                         mode {mode:?} and nearest_mode {nearest:?}"
                    ));
                }
            };
            let mut attrs: Vec<Attr> = old.attrs_without(&["coordinate_transformation_mode", "nearest_mode"]);
            attrs.extend([
                text("coordinate_transformation_mode", "half_pixel"),
                text("nearest_mode", nearest),
            ]);
            attrs
        }
        _ if inputs == old.inputs() => return Ok(None),
        _ => old.attrs_without(&[]),
    };
    old.becomes(old.change(), inputs, attrs)
}
