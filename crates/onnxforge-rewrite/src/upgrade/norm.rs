//! BatchNormalization and GroupNormalization.

use super::adapter::{Adapted, Old, Refusal};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Attr, DType};

const TRAINS: &str = "its outputs after the first say that it trains, and what that means was settled in opset 14 only; \
                      remove them if the model is not for training";

/// BatchNormalization 9 normalizes channels only. Where every place had a mean of its own, the tensor becomes a matrix with a
/// channel for each place, and the result gets the shape back (unless an axis after the first is empty: such a run fails).
pub fn spatial(old: &Old<'_>) -> Adapted {
    if old.node().attr("spatial").is_none() {
        return Ok(None);
    }
    let attrs = old.attrs_without(&["spatial"]);
    let x = old.input(0)?;
    let is_matrix = old.cx.facts.shape(x).is_some_and(|shape| shape.len() == 2);
    if old.int("spatial")? != 0 || is_matrix {
        return old.becomes(old.change(), old.inputs(), attrs);
    }
    if old.node().outputs().iter().skip(1).any(Option::is_some) {
        return Refusal::because(TRAINS);
    }
    let mut change = old.change();
    let shape = change.op("Shape", [x.into()], []);
    let all = change.ints("all", &[-1]);
    let mut inputs = vec![change.op("Flatten", [x.into()], [Attr::from(("axis", 1))])];
    for index in 1..5 {
        inputs.push(change.op("Reshape", [old.input(index)?.into(), all], []));
    }
    let new = old.remake(&mut change, "BatchNormalization", inputs, 1, attrs).output(0);
    let back = change.op("Reshape", [new, shape], []);
    change.replace(old.output()?, back);
    Ok(Some(change))
}

/// BatchNormalization 14 has other outputs for training, and an attribute that asks for it.
pub fn training(old: &Old<'_>) -> Adapted {
    let others = old.node().outputs().get(1..).unwrap_or_default();
    if others.iter().any(Option::is_some) {
        return Refusal::because(TRAINS);
    }
    if others.is_empty() {
        return Ok(None);
    }
    let mut change = old.change();
    let new = old.remake(&mut change, "BatchNormalization", old.inputs(), 1, old.attrs_without(&[]));
    change.replace(old.output()?, new.output(0));
    Ok(Some(change))
}

/// GroupNormalization 21. Scale and bias were those of a group and are those of a channel. Statistics were of the type of the tensor
/// and are of 32 bits unless the call says something else.
pub fn channels(old: &Old<'_>) -> Adapted {
    let (x, groups) = (old.input(0)?, old.int("num_groups")?);
    let mut change = old.change();
    let channels = old.cx.facts.shape(x).and_then(|shape| shape.get(1)?.as_const());
    let each = match channels {
        Some(channels) if groups > 0 && channels % groups == 0 => {
            change.ints("channels_of_groups", &[groups, channels / groups])
        }
        Some(channels) => return Refusal::because(format!("{groups} groups of {channels} channels")),
        None => {
            let channels = change.op("Shape", [x.into()], [Attr::from(("start", 1)), Attr::from(("end", 2))]);
            let groups = change.ints("groups", &[groups]);
            let of_group = change.op("Div", [channels, groups], []);
            change.op("Concat", [groups, of_group], [Attr::from(("axis", 0))])
        }
    };
    let (column, all) = (change.ints("column", &[-1, 1]), change.ints("all", &[-1]));
    let mut inputs = vec![Operand::Value(x)];
    for index in [1, 2] {
        let tall = change.op("Reshape", [old.input(index)?.into(), column], []);
        let repeated = change.op("Expand", [tall, each], []);
        inputs.push(change.op("Reshape", [repeated, all], []));
    }
    let attrs = match old.dtype(x)? {
        DType::F32 => old.attrs_without(&[]),
        dtype => old.attrs_with(Attr::from(("stash_type", i64::from(dtype.code())))),
    };
    old.becomes(change, inputs, attrs)
}
