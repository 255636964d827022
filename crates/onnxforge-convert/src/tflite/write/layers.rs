//! Convolutions, pools, products and reductions.

use onnxforge_ir::{DType, NodeId, ValueId};
use onnxforge_ops::call::axes;

use super::{Writer, quantized};
use crate::tflite::graph::Setting;
use crate::tflite::schema;
use crate::view::Why;

const FLOATS: &[DType] = &[DType::F32];

/// Strides and dilations of a window, and its kind of padding.
struct Window {
    strides: [i32; 2],
    dilations: [i32; 2],
    padding: u8,
}

fn window(w: &Writer<'_>, id: NodeId) -> Result<Window, Why> {
    let call = w.call(id)?;
    let pair = |name: &str| -> Result<[i32; 2], Why> {
        let given = call.opt_ints(name)?.unwrap_or_else(|| vec![1, 1]);
        let narrow = |index: usize| given.get(index).and_then(|&size| i32::try_from(size).ok());
        match (narrow(0), narrow(1)) {
            (Some(height), Some(width)) => Ok([height, width]),
            _ => Err(format!("the attribute {name} has no two numbers").into()),
        }
    };
    let padding = match &*call.text("auto_pad")? {
        "SAME_UPPER" => 0,
        "VALID" => 1,
        _ => return Err("padding that is no known kind".into()),
    };
    Ok(Window { strides: pair("strides")?, dilations: pair("dilations")?, padding })
}

/// Image, weights and bias; convolutions of the format always have one.
fn operands(w: &mut Writer<'_>, id: NodeId, maps_axis: usize) -> Result<[i32; 3], Why> {
    let (x, weights) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(x, FLOATS)?;
    let bias = match w.node(id).input(2) {
        _ if w.in_integers => quantized::bias(w, id)?,
        Some(bias) => w.tensor(bias)?,
        None => {
            let maps = w.shape(weights)?.get(maps_axis).and_then(onnxforge_ir::dim::Dim::as_const);
            let maps =
                maps.and_then(|maps| i32::try_from(maps).ok()).ok_or("the number of maps is not known")?;
            w.needed(DType::F32, &[maps], vec![0; 4 * maps as usize])?
        }
    };
    Ok([w.tensor(x)?, w.tensor(weights)?, bias])
}

pub fn conv(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let Window { strides, dilations, padding } = window(w, id)?;
    let inputs = operands(w, id, 0)?;
    let y = w.result(id)?;
    let settings = vec![
        (0, Setting::Byte(padding)),
        (1, Setting::Int(strides[1])),
        (2, Setting::Int(strides[0])),
        (3, w.activation(id)),
        (4, Setting::Int(dilations[1])),
        (5, Setting::Int(dilations[0])),
    ];
    w.emit(schema::CONV_2D, 1, settings, &inputs, &[y]);
    Ok(())
}

pub fn depthwise_conv(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let Window { strides, dilations, padding } = window(w, id)?;
    let inputs = operands(w, id, 3)?;
    let y = w.result(id)?;
    let size = |value: ValueId| w.shape(value).ok()?.get(3)?.as_const();
    let (channels, maps) = (size(w.arg(id, 0)?), size(w.arg(id, 1)?));
    let (Some(channels @ 1..), Some(maps)) = (channels, maps) else {
        return Err("channels are not known".into());
    };
    let version = if dilations == [1, 1] { 1 } else { 2 };
    let settings = vec![
        (0, Setting::Byte(padding)),
        (1, Setting::Int(strides[1])),
        (2, Setting::Int(strides[0])),
        (3, Setting::Int((maps / channels) as i32)),
        (4, w.activation(id)),
        (5, Setting::Int(dilations[1])),
        (6, Setting::Int(dilations[0])),
    ];
    w.emit(schema::DEPTHWISE_CONV_2D, version, settings, &inputs, &[y]);
    Ok(())
}

pub fn transpose_conv(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let Window { strides, padding, .. } = window(w, id)?;
    let [x, weights, bias] = operands(w, id, 0)?;
    let y = w.out(id, 0)?;
    let (sizes, y) = (w.list(&w.sizes(y)?)?, w.tensor(y)?);
    let settings =
        vec![(0, Setting::Byte(padding)), (1, Setting::Int(strides[1])), (2, Setting::Int(strides[0]))];
    w.emit(schema::TRANSPOSE_CONV, 3, settings, &[sizes, weights, x, bias], &[y]);
    Ok(())
}

pub fn pool(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let Window { strides, padding, .. } = window(w, id)?;
    let kernel = w.call(id)?.opt_ints("kernel_shape")?.unwrap_or_default();
    let &[height, width] = &kernel[..] else { return Err("the window has no two sizes".into()) };
    let x = w.arg(id, 0)?;
    w.takes(x, FLOATS)?;
    let (x, y) = (w.tensor(x)?, w.result(id)?);
    let is_max = w.node(id).op().is("onnxforge.tflite.MaxPool2D");
    let settings = vec![
        (0, Setting::Byte(padding)),
        (1, Setting::Int(strides[1])),
        (2, Setting::Int(strides[0])),
        (3, Setting::Int(width as i32)),
        (4, Setting::Int(height as i32)),
        (5, w.activation(id)),
    ];
    let builtin = if is_max { schema::MAX_POOL_2D } else { schema::AVERAGE_POOL_2D };
    w.emit(builtin, 1, settings, &[x], &[y]);
    Ok(())
}

pub fn fully_connected(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, weights) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(x, FLOATS)?;
    let keeps = w.rank(x)? != 2;
    let mut inputs = vec![w.tensor(x)?, w.tensor(weights)?];
    inputs.push(match w.node(id).input(2) {
        Some(_) if w.in_integers => quantized::bias(w, id)?,
        Some(bias) => w.tensor(bias)?,
        None => -1,
    });
    let version = match (inputs[2], keeps) {
        (-1, _) => 6,
        (_, true) => 5,
        (_, false) => 1,
    };
    // Older runtimes would take the first scale of weights for all.
    let by_map = w.quantization_of(inputs[1]).is_some_and(|quantization| quantization.scales.len() > 1);
    let version = if by_map { 12 } else { version };
    let y = w.result(id)?;
    let settings = vec![(0, w.activation(id)), (2, Setting::Byte(keeps.into()))];
    w.emit(schema::FULLY_CONNECTED, version, settings, &inputs, &[y]);
    Ok(())
}

pub fn matmul(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (a, b) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(a, FLOATS)?;
    let ranks = [w.rank(a)?, w.rank(b)?];
    if ranks.iter().any(|rank| !(2..=5).contains(rank)) {
        return Err(
            format!("products are of tensors of 2 to 5 axes, not of {} and {}", ranks[0], ranks[1]).into()
        );
    }
    let mut inputs = [w.tensor(a)?, w.tensor(b)?];
    let is_turned = |value| w.model.value(value).node().is_some_and(|from| w.node(from).op().is("Transpose"));
    if inputs[0] == inputs[1]
        && schema::type_of(w.type_of(inputs[1])) == Some(DType::F32)
        && is_turned(w.resolved(a))
    {
        // XNNPACK would take what is transposed for both operands, and turn one of them.
        let shape = w.shape(b)?;
        let copy = w.scratch(id, DType::F32, &shape)?;
        w.cast(inputs[1], copy);
        inputs[1] = copy;
    }
    let y = w.result(id)?;
    w.emit(schema::BATCH_MATMUL, 1, vec![], &inputs, &[y]);
    Ok(())
}

pub fn resize(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, sizes, call) = (w.arg(id, 0)?, w.arg(id, 1)?, w.call(id)?);
    w.takes(x, FLOATS)?;
    let places = call.text("coordinate_transformation_mode")?;
    let nearest = call.text("mode")? == "nearest";
    let flags = [places == "align_corners", places == "half_pixel"];
    let inputs = [w.tensor(x)?, w.narrowed(id, sizes)?];
    let y = w.result(id)?;
    let [corners, middles] = flags.map(|flag| Setting::Byte(flag.into()));
    match nearest {
        true => w.emit(schema::RESIZE_NEAREST_NEIGHBOR, 1, vec![(0, corners), (1, middles)], &inputs, &[y]),
        false => {
            let version = if flags[1] { 3 } else { 1 };
            w.emit(schema::RESIZE_BILINEAR, version, vec![(2, corners), (3, middles)], &inputs, &[y]);
        }
    }
    Ok(())
}

pub fn reduce(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (x, call) = (w.arg(id, 0)?, w.call(id)?);
    let rank = w.rank(x)?;
    let (builtin, types): (_, &[DType]) = match &*w.node(id).op().name {
        "ReduceMean" => (schema::MEAN, FLOATS),
        "ReduceSum" => (schema::SUM, &[DType::F32, DType::I32, DType::I64]),
        "ReduceMax" => (schema::REDUCE_MAX, &[DType::F32, DType::I32, DType::I64]),
        "ReduceMin" => (schema::REDUCE_MIN, &[DType::F32, DType::I32, DType::I64]),
        _ => (schema::REDUCE_PROD, &[DType::F32, DType::I32, DType::I64]),
    };
    w.takes(x, types)?;
    let keeps = call.flag("keepdims")?;
    if let Some(axes) = w.node(id).input(1).filter(|&axes| w.ints(axes).is_none()) {
        // Without any axis it would be all or none.
        let some =
            w.shape(axes)?.first().and_then(onnxforge_ir::dim::Dim::as_const).is_some_and(|count| count > 0);
        if !some {
            return Err("its axes are not known".into());
        }
        if w.shape(x)?.iter().any(|size| size.as_const() == Some(0)) {
            return Err("it reduces an axis of no elements".into());
        }
        let inputs = [w.tensor(x)?, w.narrowed(id, axes)?];
        let y = w.result(id)?;
        w.emit(builtin, 1, vec![(0, Setting::Byte(keeps.into()))], &inputs, &[y]);
        return Ok(());
    }
    let given = match w.node(id).input(1) {
        Some(_) => Some(w.fixed_ints(id, 1)?),
        None => call.opt_ints("axes")?,
    };
    let given = match given.filter(|given| !given.is_empty()) {
        Some(given) => axes(&given, rank)?,
        None if call.opt_int("noop_with_empty_axes")?.is_some_and(|flag| flag != 0) => {
            return super::arithmetic::copy(w, id);
        }
        None => (0..rank).collect(),
    };
    reduced(w, id, builtin, &given, keeps)
}

fn reduced(
    w: &mut Writer<'_>,
    id: NodeId,
    builtin: schema::Builtin,
    axes: &[usize],
    keeps: bool,
) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    let shape = w.shape(x)?;
    // Of no numbers at all, the extremes of the format are finite.
    if axes.iter().any(|&axis| shape.get(axis).and_then(onnxforge_ir::dim::Dim::as_const) == Some(0)) {
        return Err("it reduces an axis of no elements".into());
    }
    let axes: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
    let inputs = [w.tensor(x)?, w.list(&axes)?];
    let y = w.result(id)?;
    w.emit(builtin, 1, vec![(0, Setting::Byte(keeps.into()))], &inputs, &[y]);
    Ok(())
}

pub fn global_pool(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let x = w.arg(id, 0)?;
    w.takes(x, FLOATS)?;
    let axes: Vec<usize> = (2..w.rank(x)?).collect();
    let is_mean = w.node(id).op().is("GlobalAveragePool");
    reduced(w, id, if is_mean { schema::MEAN } else { schema::REDUCE_MAX }, &axes, true)
}
