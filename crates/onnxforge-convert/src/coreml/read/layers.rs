//! Convolutions, pools, products, normalizations, reductions, and quantized numbers.

use onnxforge_ir::DType;
use onnxforge_proto::Str;

use super::Trouble;
use super::emit::Emit;
use super::operation::{Call, back};
use super::values::Known;
use crate::message::Attr;

type Done = Result<(), Trouble>;

/// The number of axes of a window.
fn spatial(x: &Known) -> Result<usize, Trouble> {
    x.shape
        .len()
        .checked_sub(2)
        .filter(|count| (1..=3).contains(count))
        .ok_or_else(|| "a window of no axes".into())
}

fn listed(call: &Call, name: &'static str, count: usize, default: i64) -> Result<Vec<i64>, Trouble> {
    let given = call.ints(name)?.unwrap_or_else(|| vec![default; count]);
    match given.len() == count {
        true => Ok(given),
        false => Err(format!("{} with {} numbers as {name}", call.kind, given.len())),
    }
}

/// Padding, as the standard says it: all that lies in front, then all that lies behind.
fn padding(call: &Call, count: usize) -> Result<Attr<'static>, Trouble> {
    Ok(match &*call.text("pad_type", "valid")? {
        "valid" => Attr::Text("auto_pad", "VALID"),
        "same" => Attr::Text("auto_pad", "SAME_UPPER"),
        "same_lower" => Attr::Text("auto_pad", "SAME_LOWER"),
        _ => {
            let pads = listed(call, "pad", 2 * count, 0)?;
            let side = |side: usize| pads.iter().skip(side).step_by(2).copied().collect::<Vec<_>>();
            Attr::Ints("pads", [side(0), side(1)].concat())
        }
    })
}

fn operands(emit: &mut Emit, call: &Call) -> Result<Vec<Str>, Trouble> {
    let mut inputs = vec![emit.read(call.input("x")?), emit.read(call.input("weight")?)];
    if let Some(bias) = call.optional("bias") {
        inputs.push(emit.read(bias));
    }
    Ok(inputs)
}

/// A convolution, or its transpose.
fn window(emit: &mut Emit, call: &Call, op: &str) -> Done {
    let count = spatial(call.input("x")?)?;
    let attrs = vec![
        padding(call, count)?,
        Attr::Ints("strides", listed(call, "strides", count, 1)?),
        Attr::Ints("dilations", listed(call, "dilations", count, 1)?),
        Attr::Int("group", call.int("groups", 1)?),
    ];
    let inputs = operands(emit, call)?;
    emit.node(op, inputs, vec![call.result()?], attrs);
    Ok(())
}

pub fn conv(emit: &mut Emit, call: &Call) -> Done {
    window(emit, call, "Conv")
}

pub fn conv_transpose(emit: &mut Emit, call: &Call) -> Done {
    if !matches!(&*call.text("pad_type", "valid")?, "custom" | "valid") {
        return Err("conv_transpose whose padding follows from its result".into());
    }
    window(emit, call, "ConvTranspose")
}

pub fn pool(emit: &mut Emit, call: &Call) -> Done {
    let x = call.input("x")?;
    let count = spatial(x)?;
    let mut attrs = vec![
        padding(call, count)?,
        Attr::Ints("kernel_shape", listed(call, "kernel_sizes", count, 1)?),
        Attr::Ints("strides", listed(call, "strides", count, 1)?),
        Attr::Int("ceil_mode", call.flag("ceil_mode")?.into()),
    ];
    let is_max = call.kind == "max_pool";
    if !is_max {
        attrs.push(Attr::Int("count_include_pad", (!call.flag("exclude_padding_from_average")?).into()));
    }
    let x = emit.read(x);
    emit.node(if is_max { "MaxPool" } else { "AveragePool" }, vec![x], vec![call.result()?], attrs);
    Ok(())
}

pub fn channel_norm(emit: &mut Emit, call: &Call) -> Done {
    let x = emit.read(call.input("x")?);
    let (scale, bias) = (emit.read(call.input("gamma")?), emit.read(call.input("beta")?));
    let epsilon = Attr::Float("epsilon", call.number("epsilon", 1e-5)? as f32);
    let mut inputs = vec![x, scale, bias];
    let is_batch = call.kind == "batch_norm";
    if is_batch {
        inputs.push(emit.read(call.input("mean")?));
        inputs.push(emit.read(call.input("variance")?));
    }
    let name = if is_batch { "BatchNormalization" } else { "InstanceNormalization" };
    emit.node(name, inputs, vec![call.result()?], vec![epsilon]);
    Ok(())
}

pub fn layer_norm(emit: &mut Emit, call: &Call) -> Done {
    let x = call.input("x")?;
    let rank = x.shape.len() as i64;
    let mut axes = call.ints("axes")?.unwrap_or_else(|| (0..rank).collect());
    axes.iter_mut().for_each(|axis| *axis = if *axis < 0 { *axis + rank } else { *axis });
    axes.sort_unstable();
    let first = axes.first().copied().unwrap_or(0);
    if first < 0 || !axes.iter().copied().eq(first..rank) {
        return Err("layer_norm of axes that are not the last ones".into());
    }
    let dtype = x.dtype();
    let mut inputs = vec![emit.read(x)];
    inputs.push(match call.optional("gamma") {
        Some(scale) => emit.read(scale),
        None => emit.numbers(dtype, vec![1], &[1.0]),
    });
    if let Some(bias) = call.optional("beta") {
        inputs.push(emit.read(bias));
    }
    let attrs = vec![Attr::Int("axis", first), Attr::Float("epsilon", call.number("epsilon", 1e-5)? as f32)];
    emit.node("LayerNormalization", inputs, vec![call.result()?], attrs);
    Ok(())
}

pub fn local_response(emit: &mut Emit, call: &Call) -> Done {
    let attrs = vec![
        Attr::Int("size", call.int("size", 1)?),
        Attr::Float("alpha", call.number("alpha", 1e-4)? as f32),
        Attr::Float("beta", call.number("beta", 0.75)? as f32),
        Attr::Float("bias", call.number("k", 1.0)? as f32),
    ];
    let x = emit.read(call.input("x")?);
    emit.node("LRN", vec![x], vec![call.result()?], attrs);
    Ok(())
}

/// A matrix with rows for columns.
fn turned(emit: &mut Emit, known: &Known) -> Result<Str, Trouble> {
    let rank = known.shape.len() as i64;
    if rank < 2 {
        return Err("a vector with rows for columns".into());
    }
    let mut perm: Vec<i64> = (0..rank).collect();
    perm.swap(rank as usize - 2, rank as usize - 1);
    let x = emit.read(known);
    Ok(emit.call("Transpose", vec![x], vec![Attr::Ints("perm", perm)]))
}

pub fn matmul(emit: &mut Emit, call: &Call) -> Done {
    let mut inputs = Vec::new();
    for (name, flag) in [("x", "transpose_x"), ("y", "transpose_y")] {
        let operand = call.input(name)?;
        inputs.push(match call.flag(flag)? {
            true => turned(emit, operand)?,
            false => emit.read(operand),
        });
    }
    emit.node("MatMul", inputs, vec![call.result()?], vec![]);
    Ok(())
}

pub fn linear(emit: &mut Emit, call: &Call) -> Done {
    let x = call.input("x")?;
    if x.shape.len() == 2 {
        let inputs = operands(emit, call)?;
        emit.node("Gemm", inputs, vec![call.result()?], vec![Attr::Int("transB", 1)]);
        return Ok(());
    }
    let inputs = vec![emit.read(x), turned(emit, call.input("weight")?)?];
    match call.optional("bias") {
        Some(bias) => {
            let product = emit.call("MatMul", inputs, vec![]);
            let bias = emit.read(bias);
            emit.node("Add", vec![product, bias], vec![call.result()?], vec![]);
        }
        None => emit.node("MatMul", inputs, vec![call.result()?], vec![]),
    }
    Ok(())
}

pub fn reduce(emit: &mut Emit, call: &Call) -> Done {
    let name = match &*call.kind {
        "reduce_mean" => "ReduceMean",
        "reduce_sum" => "ReduceSum",
        "reduce_max" => "ReduceMax",
        "reduce_min" => "ReduceMin",
        "reduce_prod" => "ReduceProd",
        "reduce_l1_norm" => "ReduceL1",
        "reduce_l2_norm" => "ReduceL2",
        "reduce_sum_square" => "ReduceSumSquare",
        "reduce_log_sum" => "ReduceLogSum",
        _ => "ReduceLogSumExp",
    };
    let mut inputs = vec![emit.read(call.input("x")?)];
    if let Some(axes) = call.ints("axes")? {
        inputs.push(emit.ints(&axes));
    }
    let keeps = Attr::Int("keepdims", call.flag("keep_dims")?.into());
    emit.node(name, inputs, vec![call.result()?], vec![keeps]);
    Ok(())
}

pub fn arg_extreme(emit: &mut Emit, call: &Call) -> Done {
    let name = if call.kind == "reduce_argmax" { "ArgMax" } else { "ArgMin" };
    let attrs =
        vec![Attr::Int("axis", call.int("axis", -1)?), Attr::Int("keepdims", call.flag("keep_dims")?.into())];
    let x = emit.read(call.input("x")?);
    back(emit, call, name, vec![x], attrs)
}

pub fn top_k(emit: &mut Emit, call: &Call) -> Done {
    let count = call.int("k", 1)?;
    let inputs = vec![emit.read(call.input("x")?), emit.ints(&[count])];
    let attrs = vec![
        Attr::Int("axis", call.int("axis", -1)?),
        Attr::Int("largest", (!call.flag("ascending")?).into()),
    ];
    let (values, places) = (call.output(0)?.name.clone(), call.output(1)?);
    let wide = emit.fresh("TopK");
    emit.node("TopK", inputs, vec![values, wide.clone()], attrs);
    let to = Attr::Int("to", places.dtype().code().into());
    emit.node("Cast", vec![wide], vec![places.name.clone()], vec![to]);
    Ok(())
}

pub fn resize(emit: &mut Emit, call: &Call) -> Done {
    let x = call.input("x")?;
    let rank = x.shape.len() as i64;
    if rank < 3 {
        return Err(format!("{} of {rank} axes", call.kind));
    }
    let mut attrs = vec![Attr::Ints("axes", vec![rank - 2, rank - 1])];
    let image = emit.read(x);
    let none: Str = "".into();
    if call.kind == "resize_bilinear" {
        let places = match &*call.text("sampling_mode", "DEFAULT")? {
            "UNALIGN_CORNERS" => "half_pixel",
            "STRICT_ALIGN_CORNERS" => "align_corners",
            "DEFAULT" => "asymmetric",
            other => return Err(format!("resize_bilinear by {other}")),
        };
        attrs.push(Attr::Text("coordinate_transformation_mode", places));
        attrs.push(Attr::Text("mode", "linear"));
        let sizes = [call.int("target_size_height", 1)?, call.int("target_size_width", 1)?];
        let sizes = emit.ints(&sizes);
        emit.node("Resize", vec![image, none.clone(), none, sizes], vec![call.result()?], attrs);
        return Ok(());
    }
    let scales = [call.number("scale_factor_height", 1.0)?, call.number("scale_factor_width", 1.0)?];
    let scales = emit.numbers(DType::F32, vec![2], &scales);
    if call.kind == "upsample_bilinear" {
        if call.flag("align_corners")?
            || call.optional("half_pixel_centers").is_some() && !call.flag("half_pixel_centers")?
        {
            return Err("upsample_bilinear by other places than middles".into());
        }
        attrs.push(Attr::Text("coordinate_transformation_mode", "half_pixel"));
        attrs.push(Attr::Text("mode", "linear"));
    } else {
        attrs.push(Attr::Text("coordinate_transformation_mode", "asymmetric"));
        attrs.push(Attr::Text("mode", "nearest"));
        attrs.push(Attr::Text("nearest_mode", "floor"));
    }
    emit.node("Resize", vec![image, none, scales], vec![call.result()?], attrs);
    Ok(())
}

pub fn quantized(emit: &mut Emit, call: &Call) -> Done {
    let x = match &*call.kind {
        "constexpr_affine_dequantize" => call.input("quantized_data")?,
        _ => call.input("input")?,
    };
    let mut inputs = vec![emit.read(x), emit.read(call.input("scale")?)];
    let is_up = call.kind == "quantize";
    match call.optional("zero_point") {
        Some(zero) if is_up || zero.elem == x.elem => inputs.push(emit.read(zero)),
        Some(_) => return Err("a zero that is no quantized number".into()),
        None if is_up => return Err("quantize without zero_point".into()),
        None => {}
    }
    let axis = Attr::Int("axis", call.int("axis", 0)?);
    emit.node(
        if is_up { "QuantizeLinear" } else { "DequantizeLinear" },
        inputs,
        vec![call.result()?],
        vec![axis],
    );
    Ok(())
}

pub fn blocks(emit: &mut Emit, call: &Call) -> Done {
    let (data, scale) = (call.input("data")?, call.input("scale")?);
    let known = |known: &Known| known.shape.iter().copied().collect::<Option<Vec<i64>>>();
    let (Some(all), Some(of_scale)) = (known(data), known(scale)) else {
        return Err("a constant of unknown size".into());
    };
    if all.len() != of_scale.len()
        || all.iter().zip(&of_scale).any(|(&all, &part)| part < 1 || all % part != 0)
    {
        return Err("blocks that do not fit".into());
    }
    let spread: Vec<usize> = (0..all.len()).filter(|&axis| of_scale[axis] != 1).collect();
    let blocked: Vec<usize> = (0..all.len()).filter(|&axis| of_scale[axis] != all[axis]).collect();
    let offset = call.optional("offset");
    if offset.is_some_and(|offset| offset.elem != data.elem || offset.shape != scale.shape) {
        return Err("an offset of another type".into());
    }
    let (shape, attrs) = match (&spread[..], &blocked[..]) {
        ([], _) => (Some(vec![]), vec![]),
        (&[axis], others) if !others.contains(&axis) => {
            (Some(vec![all[axis]]), vec![Attr::Int("axis", axis as i64)])
        }
        (_, &[axis]) => {
            let block = all[axis] / of_scale[axis];
            (None, vec![Attr::Int("axis", axis as i64), Attr::Int("block_size", block)])
        }
        _ => return Err("blocks along several axes".into()),
    };
    let mut inputs = vec![emit.read(data)];
    for value in std::iter::once(scale).chain(offset) {
        let value = Known {
            shape: shape.clone().map_or(value.shape.clone(), |it| it.into_iter().map(Some).collect()),
            ..value.clone()
        };
        inputs.push(emit.read(&value));
    }
    emit.node("DequantizeLinear", inputs, vec![call.result()?], attrs);
    Ok(())
}
