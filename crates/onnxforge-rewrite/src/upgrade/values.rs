//! Attributes whose values have other names, defaults or consequences, and results of other types.

use super::adapter::{Adapted, Old, Refusal};
use onnxforge_ir::{Attr, AttrValue, DType};
use onnxforge_proto::blob::Blob;

/// An attribute that is a string.
pub fn text(name: &str, value: &str) -> Attr {
    Attr::new(name, AttrValue::String(Blob::from(value.as_bytes())))
}

/// Dropout 10. The mask was of the type of the tensor, all ones, and is boolean now.
pub fn mask(old: &Old<'_>) -> Adapted {
    let mask = old.cx.read_output(old.id, 1);
    if old.node().output(1).is_none() {
        return Ok(None);
    }
    let mut change = old.change();
    let count = if mask.is_some() { 2 } else { 1 };
    let new = old.remake(&mut change, "Dropout", old.inputs(), count, old.attrs_without(&[]));
    change.replace(old.output()?, new.output(0));
    if let Some(mask) = mask {
        let to = Attr::from(("to", i64::from(old.dtype(old.input(0)?)?.code())));
        let typed = change.op("Cast", [new.output(1)], [to]);
        change.replace(mask, typed);
    }
    Ok(Some(change))
}

/// RoiAlign 16. Coordinates were not shifted by half a pixel, and are by default now.
pub fn no_shift(old: &Old<'_>) -> Adapted {
    let mode = text("coordinate_transformation_mode", "output_half_pixel");
    old.becomes(old.change(), old.inputs(), old.attrs_with(mode))
}

/// Split 18. Without sizes the number of parts must be said.
pub fn num_outputs(old: &Old<'_>) -> Adapted {
    if old.node().input(1).is_some() {
        return Ok(None);
    }
    let count = Attr::from(("num_outputs", old.node().outputs().len() as i64));
    old.becomes(old.change(), old.inputs(), old.attrs_with(count))
}

/// GridSample 20. The modes are no longer named after two axes.
pub fn mode_names(old: &Old<'_>) -> Adapted {
    if old.node().attr("mode").is_none() {
        return Ok(None);
    }
    let name = match old.text("mode")?.as_str() {
        "bilinear" => "linear",
        "bicubic" => "cubic",
        "nearest" => return Ok(None),
        other => return Refusal::because(format!("the mode {other:?} does not exist")),
    };
    old.becomes(old.change(), old.inputs(), old.attrs_with(text("mode", name)))
}

/// QuantizeLinear 19. Tensor and scale have one type, until 23; before, only scales of 32 bits are there, and integers become
/// floats of 32 bits to be divided.
pub fn same_type(old: &Old<'_>) -> Adapted {
    let x = old.input(0)?;
    if old.known_dtype(x) != Some(DType::I32) {
        return Ok(None);
    }
    let mut change = old.change();
    let to = Attr::from(("to", i64::from(DType::F32.code())));
    let mut inputs = old.inputs();
    inputs[0] = change.op("Cast", [x.into()], [to]);
    old.becomes(change, inputs, old.attrs_without(&[]))
}

/// QuantizeLinear 23. Quotients are of the type of the scale unless the call says something else; before, of 32 bits.
pub fn precision(old: &Old<'_>) -> Adapted {
    if old.known_dtype(old.input(1)?) == Some(DType::F32) {
        return Ok(None);
    }
    let precision = Attr::from(("precision", i64::from(DType::F32.code())));
    old.becomes(old.change(), old.inputs(), old.attrs_with(precision))
}
