//! Convolutions, pools, products and reductions.

use onnxforge_ir::DType;
use onnxforge_ops::tflite::DOMAIN;

use super::Trouble;
use super::emit::Emit;
use super::operator::Operator;
use crate::message::Attr;

type Done = Result<(), Trouble>;

/// The kind of padding of a window, as the standard says it.
fn auto_pad(operator: &Operator<'_>) -> Result<Attr<'static>, Trouble> {
    let kind = if operator.byte(0)? == 0 { "SAME_UPPER" } else { "VALID" };
    Ok(Attr::Text("auto_pad", kind))
}

fn pair(name: &'static str, height: i32, width: i32) -> Attr<'static> {
    Attr::Ints(name, vec![height.into(), width.into()])
}

/// The size of an axis of a tensor.
fn size(emit: &Emit, tensor: usize, axis: usize) -> Result<i64, Trouble> {
    let size = emit.tensors.get(tensor).signature.get(axis).copied().filter(|&size| size > 0);
    size.map(i64::from).ok_or_else(|| "a size that is not known".into())
}

/// Image, weights and perhaps a bias.
fn operands(emit: &mut Emit, operator: &Operator<'_>) -> Result<Vec<onnxforge_proto::Str>, Trouble> {
    let mut inputs = vec![emit.read(operator.input(0)?), emit.read(operator.input(1)?)];
    inputs.extend(operator.optional(2).map(|bias| emit.read(bias)));
    Ok(inputs)
}

pub fn conv(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let (channels, of_group) = (size(emit, operator.input(0)?, 3)?, size(emit, operator.input(1)?, 3)?);
    let attrs = vec![
        auto_pad(operator)?,
        pair("strides", operator.int(2, 0)?, operator.int(1, 0)?),
        pair("dilations", operator.int(5, 1)?, operator.int(4, 1)?),
        Attr::Int("group", channels / of_group),
    ];
    let (inputs, activation) = (operands(emit, operator)?, operator.byte(3)?);
    emit.activated(operator, (DOMAIN, "Conv2D"), inputs, attrs, activation)
}

pub fn depthwise_conv(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let attrs = vec![
        auto_pad(operator)?,
        pair("strides", operator.int(2, 0)?, operator.int(1, 0)?),
        pair("dilations", operator.int(6, 1)?, operator.int(5, 1)?),
        Attr::Int("group", size(emit, operator.input(0)?, 3)?),
    ];
    let (inputs, activation) = (operands(emit, operator)?, operator.byte(4)?);
    emit.activated(operator, (DOMAIN, "DepthwiseConv2D"), inputs, attrs, activation)
}

pub fn transpose_conv(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    // Where padding lies would follow from the sizes of the result.
    if operator.byte(0)? == 0 {
        return Err("TRANSPOSE_CONV that cuts off".into());
    }
    let attrs = vec![auto_pad(operator)?, pair("strides", operator.int(2, 0)?, operator.int(1, 0)?)];
    let mut inputs = vec![emit.read(operator.input(2)?), emit.read(operator.input(1)?)];
    inputs.extend(operator.optional(3).map(|bias| emit.read(bias)));
    let activation = operator.byte(3)?;
    emit.activated(operator, (DOMAIN, "TransposeConv"), inputs, attrs, activation)
}

pub fn pool(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let attrs = vec![
        auto_pad(operator)?,
        pair("strides", operator.int(2, 0)?, operator.int(1, 0)?),
        pair("kernel_shape", operator.int(4, 0)?, operator.int(3, 0)?),
    ];
    let inputs = vec![emit.read(operator.input(0)?)];
    let name = if operator.builtin.name == "MAX_POOL_2D" { "MaxPool2D" } else { "AveragePool2D" };
    let activation = operator.byte(5)?;
    emit.activated(operator, (DOMAIN, name), inputs, attrs, activation)
}

pub fn fully_connected(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    if operator.byte(1)? != 0 {
        return Err("weights in another format".into());
    }
    let mut inputs = operands(emit, operator)?;
    if !operator.flag(2)? && emit.tensors.get(operator.input(0)?).signature.len() != 2 {
        let target = emit.ints(&[-1, size(emit, operator.input(1)?, 1)?]);
        inputs[0] = emit.call("Reshape", vec![inputs[0].clone(), target], vec![]);
    }
    let activation = operator.byte(0)?;
    emit.activated(operator, (DOMAIN, "FullyConnected"), inputs, vec![], activation)
}

pub fn batch_matmul(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let mut inputs = Vec::new();
    for index in [0, 1] {
        let input = operator.input(index)?;
        let mut x = emit.read(input);
        if operator.flag(index as u16)? {
            let mut order: Vec<i64> = (0..emit.tensors.get(input).signature.len() as i64).collect();
            let [.., a, b] = &mut order[..] else { return Err("a product of a vector".into()) };
            std::mem::swap(a, b);
            x = emit.call("Transpose", vec![x], vec![Attr::Ints("perm", order)]);
        }
        inputs.push(x);
    }
    let y = emit.result(operator)?;
    emit.node("", "MatMul", inputs, vec![y], vec![]);
    Ok(())
}

pub fn resize(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let is_nearest = operator.builtin.name == "RESIZE_NEAREST_NEIGHBOR";
    let (corners, middles) = match is_nearest {
        true => (operator.flag(0)?, operator.flag(1)?),
        false => (operator.flag(2)?, operator.flag(3)?),
    };
    if is_nearest && (corners || middles) {
        return Err("RESIZE_NEAREST_NEIGHBOR between corners or middles".into());
    }
    let places = match (corners, middles) {
        (true, _) => "align_corners",
        (_, true) => "half_pixel",
        _ => "asymmetric",
    };
    let attrs = vec![
        Attr::Text("coordinate_transformation_mode", places),
        Attr::Text("mode", if is_nearest { "nearest" } else { "linear" }),
        Attr::Text("nearest_mode", "floor"),
    ];
    let inputs = vec![emit.read(operator.input(0)?), emit.wide(operator.input(1)?)];
    let y = emit.result(operator)?;
    emit.node(DOMAIN, "Resize2D", inputs, vec![y], attrs);
    Ok(())
}

pub fn reduce(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let name = match operator.builtin.name {
        "MEAN" => "ReduceMean",
        "SUM" => "ReduceSum",
        "REDUCE_MAX" => "ReduceMax",
        "REDUCE_MIN" => "ReduceMin",
        _ => "ReduceProd",
    };
    let axes = operator.input(1)?;
    let axes = match emit.fixed(axes) {
        Some(axes) => emit.ints(&axes),
        None => emit.wide(axes),
    };
    let inputs = vec![emit.read(operator.input(0)?), axes];
    let y = emit.result(operator)?;
    emit.node("", name, inputs, vec![y], vec![Attr::Int("keepdims", operator.flag(0)?.into())]);
    Ok(())
}

pub fn arg_extreme(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let axis = emit.demand(operator.input(1)?)?;
    let axis = axis.first().copied().ok_or("no axis")?;
    let name = if operator.builtin.name == "ARG_MAX" { "ArgMax" } else { "ArgMin" };
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    let at = emit.call(name, vec![x], vec![Attr::Int("axis", axis), Attr::Int("keepdims", 0)]);
    let to = emit.tensors.get(operator.output(0)?).dtype;
    emit.node("", "Cast", vec![at], vec![y], vec![Attr::Int("to", to.code().into())]);
    Ok(())
}

pub fn top_k(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let x = emit.read(operator.input(0)?);
    let count = emit.wide(operator.input(1)?);
    let one = emit.ints(&[1]);
    let count = emit.call("Reshape", vec![count, one], vec![]);
    let best = emit.result(operator)?;
    let places = emit.tensors.get(operator.output(1)?).clone();
    let at = emit.tensors.fresh("TopK");
    emit.node("", "TopK", vec![x, count], vec![best, at.clone()], vec![Attr::Int("axis", -1)]);
    let to = if places.dtype == DType::I64 { DType::I64 } else { DType::I32 };
    emit.node("", "Cast", vec![at], vec![places.name], vec![Attr::Int("to", to.code().into())]);
    Ok(())
}
