//! Operators that move elements, choose them, or are about shapes.

use onnxforge_ir::DType;

use super::Trouble;
use super::emit::Emit;
use super::operator::Operator;
use crate::message::Attr;

type Done = Result<(), Trouble>;

pub fn reshape(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    let (target, has_zero) = match (operator.optional(1), operator.ints(0)?) {
        (Some(shape), _) => {
            let has_zero = emit.fixed(shape).is_none_or(|sizes| sizes.contains(&0));
            (emit.wide(shape), has_zero)
        }
        (None, Some(shape)) => (emit.ints(&shape), shape.contains(&0)),
        (None, None) => return Err("RESHAPE without a shape".into()),
    };
    emit.node("", "Reshape", vec![x, target], vec![y], vec![Attr::Int("allowzero", has_zero.into())]);
    Ok(())
}

pub fn squeeze(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    let axes = operator.ints(0)?.filter(|axes| !axes.is_empty());
    let inputs = [Some(x), axes.map(|axes| emit.ints(&axes))].into_iter().flatten().collect();
    emit.node("", "Squeeze", inputs, vec![y], vec![]);
    Ok(())
}

pub fn expand_dims(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let axis = emit.demand(operator.input(1)?)?;
    let inputs = vec![emit.read(operator.input(0)?), emit.ints(&axis)];
    let y = emit.result(operator)?;
    emit.node("", "Unsqueeze", inputs, vec![y], vec![]);
    Ok(())
}

pub fn transpose(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let perm = emit.demand(operator.input(1)?)?;
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    emit.node("", "Transpose", vec![x], vec![y], vec![Attr::Ints("perm", perm)]);
    Ok(())
}

pub fn concatenation(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let inputs = operator.inputs()?.into_iter().map(|input| emit.read(input)).collect();
    let (axis, activation) = (operator.int(0, 0)?, operator.byte(1)?);
    emit.activated(operator, ("", "Concat"), inputs, vec![Attr::Int("axis", axis.into())], activation)
}

pub fn pack(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let axis = operator.int(1, 0)?;
    let mut parts = Vec::new();
    for input in operator.inputs()? {
        let (x, axes) = (emit.read(input), emit.ints(&[axis.into()]));
        parts.push(emit.call("Unsqueeze", vec![x, axes], vec![]));
    }
    let y = emit.result(operator)?;
    emit.node("", "Concat", parts, vec![y], vec![Attr::Int("axis", axis.into())]);
    Ok(())
}

pub fn split(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let sized = operator.builtin.name == "SPLIT_V";
    let (x, axis) = if sized { (0, 2) } else { (1, 0) };
    let axis = emit.demand(operator.input(axis)?)?.first().copied().ok_or("no axis")?;
    let mut inputs = vec![emit.read(operator.input(x)?)];
    let mut attrs = vec![Attr::Int("axis", axis)];
    if sized {
        inputs.push(emit.wide(operator.input(1)?));
    } else {
        attrs.push(Attr::Int("num_outputs", operator.outputs().len() as i64));
    }
    let outputs = operator.outputs().to_vec().into_iter().map(|output| emit.output(output)).collect();
    emit.node("", "Split", inputs, outputs, attrs);
    Ok(())
}

pub fn pad(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let pads = emit.demand(operator.input(1)?)?;
    let ends = |end: usize| pads.chunks(2).map(move |pair| pair.get(end).copied().unwrap_or(0));
    let pads: Vec<i64> = ends(0).chain(ends(1)).collect();
    let mut inputs = vec![emit.read(operator.input(0)?), emit.ints(&pads)];
    let mut mode = "constant";
    match operator.builtin.name {
        "PADV2" => inputs.push(emit.read(operator.input(2)?)),
        "MIRROR_PAD" if operator.byte(0)? == 0 => mode = "reflect",
        "MIRROR_PAD" => return Err("MIRROR_PAD with the border".into()),
        _ => {}
    }
    let y = emit.result(operator)?;
    emit.node("", "Pad", inputs, vec![y], vec![Attr::Text("mode", mode)]);
    Ok(())
}

pub fn slice(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let (begin, size) = (operator.input(1)?, operator.input(2)?);
    let rank = emit.tensors.get(operator.input(0)?).signature.len() as i64;
    let starts = emit.wide(begin);
    let ends = match (emit.fixed(begin), emit.fixed(size)) {
        (Some(begin), Some(size)) => {
            let end = |(&begin, &size): (&i64, &i64)| {
                if size < 0 { i64::MAX } else { begin.saturating_add(size) }
            };
            let ends: Vec<i64> = begin.iter().zip(&size).map(end).collect();
            emit.ints(&ends)
        }
        (_, Some(size)) if size.iter().any(|&size| size < 0) => return Err("SLICE of what is left".into()),
        _ => {
            let size = emit.wide(size);
            emit.call("Add", vec![starts.clone(), size], vec![])
        }
    };
    let axes = emit.ints(&(0..rank).collect::<Vec<_>>());
    let inputs = vec![emit.read(operator.input(0)?), starts, ends, axes];
    let y = emit.result(operator)?;
    emit.node("", "Slice", inputs, vec![y], vec![]);
    Ok(())
}

pub fn strided_slice(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let mask = |number| operator.int(number, 0);
    let (begin_mask, end_mask, shrink) = (mask(0)?, mask(1)?, mask(4)?);
    let (ellipsis, new_axes) = (mask(2)?, mask(3)?);
    if (ellipsis, new_axes) != (0, 0) || operator.flag(5)? {
        return Err("STRIDED_SLICE that adds axes".into());
    }
    let steps = emit.demand(operator.input(3)?)?;
    if steps.len() > 8 {
        return Err("STRIDED_SLICE of many axes".into());
    }
    let is_set = |mask: i32, axis: usize| mask & (1 << axis) != 0;
    let is_cut = |axis: &usize| !(is_set(begin_mask, *axis) && is_set(end_mask, *axis) && steps[*axis] == 1);
    let cut: Vec<usize> = (0..steps.len()).filter(is_cut).collect();
    let starts =
        ends_of(
            emit,
            operator.input(1)?,
            begin_mask,
            &cut,
            |axis| if steps[axis] < 0 { i64::MAX } else { 0 },
        )?;
    let ends = match shrink {
        0 => {
            let open = |axis: usize| if steps[axis] < 0 { i64::MIN } else { i64::MAX };
            ends_of(emit, operator.input(2)?, end_mask, &cut, open)?
        }
        // What an axis shrinks to is one element, wherever the cut ends.
        _ => {
            let (Some(begin), Some(end)) = (emit.fixed(operator.input(1)?), emit.fixed(operator.input(2)?))
            else {
                return Err("STRIDED_SLICE of computed places that removes axes".into());
            };
            let of = |&axis: &usize| match (is_set(shrink, axis), is_set(end_mask, axis)) {
                (true, _) => {
                    begin.get(axis).map(|&at| if at == -1 { i64::MAX } else { at.saturating_add(1) })
                }
                (_, true) => Some(i64::MAX),
                _ => end.get(axis).copied(),
            };
            let ends = cut.iter().map(of).collect::<Option<Vec<_>>>().ok_or("STRIDED_SLICE without ends")?;
            emit.ints(&ends)
        }
    };
    let axes: Vec<i64> = cut.iter().map(|&axis| axis as i64).collect();
    let strides: Vec<i64> = cut.iter().map(|&axis| steps[axis]).collect();
    let (axes, strides) = (emit.ints(&axes), emit.ints(&strides));
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    let inputs = vec![x, starts, ends, axes, strides];
    if shrink == 0 {
        emit.node("", "Slice", inputs, vec![y], vec![]);
        return Ok(());
    }
    let part = emit.call("Slice", inputs, vec![]);
    let gone: Vec<i64> =
        (0..steps.len()).filter(|&axis| is_set(shrink, axis)).map(|axis| axis as i64).collect();
    let gone = emit.ints(&gone);
    emit.node("", "Squeeze", vec![part, gone], vec![y], vec![]);
    Ok(())
}

/// Where cuts of these axes begin or end.
fn ends_of(
    emit: &mut Emit,
    list: usize,
    mask: i32,
    cut: &[usize],
    open: impl Fn(usize) -> i64,
) -> Result<onnxforge_proto::Str, Trouble> {
    let is_open = |axis: usize| mask & (1 << axis) != 0;
    if let Some(ends) = emit.fixed(list) {
        let of = |&axis: &usize| if is_open(axis) { Some(open(axis)) } else { ends.get(axis).copied() };
        let ends = cut.iter().map(of).collect::<Option<Vec<_>>>().ok_or("STRIDED_SLICE without ends")?;
        return Ok(emit.ints(&ends));
    }
    if cut.iter().all(|&axis| is_open(axis)) {
        let ends: Vec<i64> = cut.iter().map(|&axis| open(axis)).collect();
        return Ok(emit.ints(&ends));
    }
    if cut.iter().any(|&axis| is_open(axis)) {
        return Err("STRIDED_SLICE of some computed places".into());
    }
    let all = emit.wide(list);
    let wanted = emit.ints(&cut.iter().map(|&axis| axis as i64).collect::<Vec<_>>());
    Ok(emit.call("Gather", vec![all, wanted], vec![]))
}

pub fn repeated(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    // FILL has the shape first.
    let (name, x, shape) = match operator.builtin.name {
        "TILE" => ("Tile", 0, 1),
        "BROADCAST_TO" => ("Expand", 0, 1),
        _ => ("Expand", 1, 0),
    };
    let inputs = vec![emit.read(operator.input(x)?), emit.wide(operator.input(shape)?)];
    let y = emit.result(operator)?;
    emit.node("", name, inputs, vec![y], vec![]);
    Ok(())
}

pub fn gather(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let (x, mut at) = (emit.read(operator.input(0)?), emit.read(operator.input(1)?));
    let y = emit.result(operator)?;
    if operator.builtin.name == "GATHER" {
        if operator.int(1, 0)? != 0 {
            return Err("GATHER of batches".into());
        }
        emit.node("", "Gather", vec![x, at], vec![y], vec![Attr::Int("axis", operator.int(0, 0)?.into())]);
        return Ok(());
    }
    if emit.tensors.get(operator.input(1)?).dtype != DType::I64 {
        at = emit.call("Cast", vec![at], vec![Attr::Int("to", DType::I64.code().into())]);
    }
    emit.node("", "GatherND", vec![x, at], vec![y], vec![]);
    Ok(())
}

pub fn shape(emit: &mut Emit, operator: &Operator<'_>) -> Done {
    let (x, y) = (emit.read(operator.input(0)?), emit.result(operator)?);
    match emit.tensors.get(operator.output(0)?).dtype {
        DType::I64 => emit.node("", "Shape", vec![x], vec![y], vec![]),
        to => {
            let shape = emit.call("Shape", vec![x], vec![]);
            emit.node("", "Cast", vec![shape], vec![y], vec![Attr::Int("to", to.code().into())]);
        }
    }
    Ok(())
}
