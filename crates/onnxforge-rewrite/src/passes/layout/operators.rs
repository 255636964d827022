//! The operators that can have their axes in another order.

use super::reshaped::reshaped;
use super::spelling::{Axes, Side, Spelling, Told};
use crate::passes::recognize::reductions::reduced_axes;
use crate::passes::recognize::slice_cuts::cuts;
use crate::{Cx, Skip};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::{Accuracy, DType, NodeId};
use onnxforge_ops::call;

/// Sums of floats, which kernels may compute in another order at another place.
const SUMS: Accuracy = Accuracy::Rounding { ulps: 4.0 };

/// The axes of a node, what names them, and how accurate another order is.
pub fn spelled(cx: &Cx<'_>, id: NodeId) -> Result<(Spelling, Told, Accuracy), Skip> {
    let (node, call) = (cx.node(id), cx.call(id)?);
    if node.outputs().iter().any(Option::is_none) || node.bodies().next().is_some() {
        return Err(Skip::NOT_HERE);
    }
    if call.def.elementwise {
        return Ok((elementwise(cx, id)?, Told::Nothing, Accuracy::BitExact));
    }
    if !node.op().domain.is_empty() {
        return Err(Skip::NOT_HERE);
    }
    let (x, y) = (cx.input(id, 0)?, cx.output(id)?);
    let (rank, out) = (cx.rank(x)?, cx.rank(y)?);
    let all = || Axes::of(0..rank);
    // The first input has all letters, the others stay.
    let first = |output: Axes| Spelling { inputs: vec![Some(all())], output, broadcasts: false };
    let without = |axes: &[usize]| Axes::of((0..rank).filter(|axis| !axes.contains(axis)));
    let axis = || Ok::<_, Skip>(call::axis(call.int("axis")?, rank)?);
    let name = &*node.op().name;
    let mut found = match name {
        "Softmax" | "LogSoftmax" | "Hardmax" if call.since() >= 13 => {
            (first(all()), Told::Axis(axis()?), SUMS)
        }
        "Split" | "TopK" => (first(all()), Told::Axis(axis()?), Accuracy::BitExact),
        "Concat" => {
            let inputs = vec![Some(all()); node.inputs().len()];
            (Spelling { inputs, output: all(), broadcasts: false }, Told::Axis(axis()?), Accuracy::BitExact)
        }
        "ArgMax" | "ArgMin" => {
            let axis = axis()?;
            let output = if call.flag("keepdims")? { all() } else { without(&[axis]) };
            (first(output), Told::Axis(axis), Accuracy::BitExact)
        }
        _ if name.starts_with("Reduce") => {
            let axes = reduced_axes(cx, id)?;
            let output = if call.flag("keepdims")? { all() } else { without(&axes) };
            let accuracy = match name {
                _ if axes.len() == 1 && matches!(name, "ReduceMax" | "ReduceMin") => Accuracy::BitExact,
                "ReduceMax" | "ReduceMin" => Accuracy::ValueExact,
                "ReduceSum" | "ReduceProd" if cx.dtype(y)?.kind() != Kind::Float => Accuracy::BitExact,
                _ => SUMS,
            };
            let told = if axes.len() == rank { Told::Nothing } else { Told::Axes(axes, 1, Side::Input(0)) };
            (first(output), told, accuracy)
        }
        "GlobalAveragePool" => (first(all()), Told::Pooled("ReduceMean"), SUMS),
        "GlobalMaxPool" => (first(all()), Told::Pooled("ReduceMax"), Accuracy::ValueExact),
        "Squeeze" | "Unsqueeze" => {
            let axes = match node.input(1) {
                Some(axes) => cx.ints(axes)?,
                None => call.opt_ints("axes")?.ok_or(Skip::NOT_HERE)?,
            };
            if name == "Squeeze" {
                let axes = call::axes(&axes, rank)?;
                (first(without(&axes)), Told::Axes(axes, 1, Side::Input(0)), Accuracy::BitExact)
            } else {
                let axes = call::axes(&axes, out)?;
                let input = Axes::of((0..out).filter(|axis| !axes.contains(axis)));
                let spelling =
                    Spelling { inputs: vec![Some(input)], output: Axes::of(0..out), broadcasts: false };
                (spelling, Told::Axes(axes, 1, Side::Output), Accuracy::BitExact)
            }
        }
        "Reshape" | "Flatten" if cx.opset(id) >= 5 => {
            let (input, output) = reshaped(cx, cx.shape(x)?, cx.shape(y)?).ok_or(Skip::NOT_HERE)?;
            (
                Spelling { inputs: vec![Some(input)], output, broadcasts: false },
                Told::Target,
                Accuracy::BitExact,
            )
        }
        "Gather" => {
            let axis = axis()?;
            match cx.rank(cx.input(id, 1)?)? {
                0 => (first(without(&[axis])), Told::Axis(axis), Accuracy::BitExact),
                1 => (first(all()), Told::Axis(axis), Accuracy::BitExact),
                _ => return Err(Skip::NOT_HERE),
            }
        }
        "Slice" => {
            let axes = cuts(cx, id)?.iter().map(|cut| cut.axis).collect();
            let as_input = call.since() >= 10;
            if as_input && cx.dtype(cx.input(id, 1)?)? != DType::I64
                || !as_input && node.attr("axes").is_none()
            {
                return Err(Skip::NOT_HERE);
            }
            (first(all()), Told::Axes(axes, 3, Side::Input(0)), Accuracy::BitExact)
        }
        "Pad" => {
            let told = match (call.since(), node.input(3)) {
                (1, _) => return Err(Skip::NOT_HERE),
                (..11, _) => Told::EachAttr("pads", call.ints("pads")?),
                (_, Some(axes)) => Told::Axes(call::axes(&cx.ints(axes)?, rank)?, 3, Side::Input(0)),
                (_, None) => Told::Each(1, cx.ints(cx.input(id, 1)?)?),
            };
            (first(all()), told, Accuracy::BitExact)
        }
        "Tile" if call.since() >= 6 => {
            (first(all()), Told::Each(1, cx.ints(cx.input(id, 1)?)?), Accuracy::BitExact)
        }
        "Expand" => {
            let mut shape = vec![1; out];
            let given = cx.ints(cx.input(id, 1)?)?;
            let missing = out.checked_sub(given.len()).ok_or(Skip::NOT_HERE)?;
            shape[missing..].copy_from_slice(&given);
            let missing = out.checked_sub(rank).ok_or(Skip::NOT_HERE)?;
            let inputs = vec![Some(Axes::of(missing..out))];
            let spelling = Spelling { inputs, output: Axes::of(0..out), broadcasts: true };
            (spelling, Told::Each(1, shape), Accuracy::BitExact)
        }
        "Resize" => {
            let (told, accuracy) = resize(cx, id)?;
            (first(all()), told, accuracy)
        }
        "QuantizeLinear" | "DequantizeLinear" => {
            let told = match cx.rank(cx.input(id, 1)?)? {
                0 => Told::Nothing,
                1 if call.since() >= 13 => Told::Axis(axis()?),
                _ => return Err(Skip::NOT_HERE),
            };
            if call.opt_int("block_size")?.is_some_and(|size| size != 0) {
                return Err(Skip::NOT_HERE);
            }
            (first(all()), told, Accuracy::BitExact)
        }
        "LayerNormalization" | "RMSNormalization" if node.outputs().len() == 1 => {
            let free = axis()?;
            for &parameter in node.inputs()[1..].iter().flatten() {
                if cx.rank(parameter)? > rank - free {
                    return Err(Skip::NOT_HERE);
                }
            }
            let axes = Axes::of(0..free).and(rank - free);
            let mut spelling = first(axes.clone());
            spelling.inputs[0] = Some(axes);
            (spelling, Told::Nothing, SUMS)
        }
        "MatMul" => {
            let other = cx.rank(cx.input(id, 1)?)?;
            if rank < 2 || other < 2 {
                return Err(Skip::NOT_HERE);
            }
            // Rows of the first operand are alike where the second has no other axes.
            let tail = if other == 2 { 1 } else { 2 };
            let free = |rank: usize| Axes::of(out - rank..out - tail).and(tail);
            let second = if other == 2 { None } else { Some(free(other)) };
            let output = Axes::of(0..out - tail).and(tail);
            (
                Spelling { inputs: vec![Some(free(rank)), second], output, broadcasts: true },
                Told::Nothing,
                SUMS,
            )
        }
        _ => return Err(Skip::NOT_HERE),
    };
    found.0.inputs.resize(node.inputs().len(), None);
    Ok(found)
}

/// The axes of an operator that does the same at every place.
fn elementwise(cx: &Cx<'_>, id: NodeId) -> Result<Spelling, Skip> {
    let (node, call) = (cx.node(id), cx.call(id)?);
    let along_axis = |name: &str| matches!(name, "axis" | "broadcast" | "block_size");
    let known = call.signature.map_or(&[][..], |signature| &signature.attributes);
    let along = node.attrs().iter().any(|attr| along_axis(&attr.name))
        || known.iter().any(|attr| along_axis(attr.name));
    // Older PRelus have a slope for each channel.
    let by_channel = node.op().is("PRelu") && call.since() < 7;
    if along || by_channel || call.def.random || node.outputs().len() != 1 {
        return Err(Skip::NOT_HERE);
    }
    let rank = cx.rank(cx.output(id)?)?;
    let mut inputs = Vec::new();
    for input in node.inputs() {
        inputs.push(match *input {
            None => None,
            Some(value) => {
                let missing = rank.checked_sub(cx.rank(value)?).ok_or(Skip::NOT_HERE)?;
                match cx.model.constant(value) {
                    Some(constant) if constant.len() == 1 => None,
                    // Missing axes can be added to a constant.
                    Some(_) => Some(Axes::of(0..rank)),
                    None => Some(Axes::of(missing..rank)),
                }
            }
        });
    }
    Ok(Spelling { inputs, output: Axes::of(0..rank), broadcasts: true })
}

/// What names the axes of a Resize, and how accurate another order is.
fn resize(cx: &Cx<'_>, id: NodeId) -> Result<(Told, Accuracy), Skip> {
    let (node, call) = (cx.node(id), cx.call(id)?);
    if call.since() < 11 || call.text("coordinate_transformation_mode")? == "tf_crop_and_resize" {
        return Err(Skip::NOT_HERE);
    }
    let accuracy = if call.text("mode")? == "nearest" { Accuracy::BitExact } else { SUMS };
    let told = match (call.opt_ints("axes")?, node.input(3)) {
        // Some runtimes interpolate only along the last axes.
        (Some(_), _) | (_, Some(_)) if accuracy != Accuracy::BitExact => return Err(Skip::NOT_HERE),
        (Some(axes), _) => Told::Axes(call::axes(&axes, cx.rank(cx.input(id, 0)?)?)?, 0, Side::Input(0)),
        (None, Some(sizes)) => Told::Each(3, cx.ints(sizes)?),
        (None, None) => Told::EachFloat(2, cx.floats(cx.input(id, 2)?)?),
    };
    Ok((told, accuracy))
}
