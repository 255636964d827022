//! Operations that move or choose elements.

use onnxforge_ir::DType;
use onnxforge_proto::Str;

use super::Trouble;
use super::emit::Emit;
use super::operation::{Call, back};
use crate::message::Attr;

type Done = Result<(), Trouble>;

pub fn reshape(emit: &mut Emit, call: &Call) -> Done {
    let shape = call.input("shape")?;
    // A 0 stands for the size that is there in both.
    let inputs = vec![emit.read(call.input("x")?), emit.wide(shape)];
    emit.node("Reshape", inputs, vec![call.result()?], vec![]);
    Ok(())
}

pub fn axes(emit: &mut Emit, call: &Call) -> Done {
    let is_more = call.kind == "expand_dims";
    let mut inputs = vec![emit.read(call.input("x")?)];
    match call.ints("axes")? {
        Some(axes) => inputs.push(emit.ints(&axes)),
        None if is_more => return Err("expand_dims without axes".into()),
        None => {}
    }
    emit.node(if is_more { "Unsqueeze" } else { "Squeeze" }, inputs, vec![call.result()?], vec![]);
    Ok(())
}

pub fn transpose(emit: &mut Emit, call: &Call) -> Done {
    let perm = Attr::Ints("perm", call.demanded("perm")?);
    let x = emit.read(call.input("x")?);
    emit.node("Transpose", vec![x], vec![call.result()?], vec![perm]);
    Ok(())
}

pub fn concat(emit: &mut Emit, call: &Call) -> Done {
    if call.flag("interleave")? {
        return Err("concat by turns".into());
    }
    let inputs = call.list("values").iter().map(|value| emit.read(value)).collect();
    emit.node("Concat", inputs, vec![call.result()?], vec![Attr::Int("axis", call.int("axis", 0)?)]);
    Ok(())
}

pub fn split(emit: &mut Emit, call: &Call) -> Done {
    let mut inputs = vec![emit.read(call.input("x")?)];
    let outputs: Vec<Str> = call.outputs().iter().map(|output| output.name.clone()).collect();
    let mut attrs = vec![Attr::Int("axis", call.int("axis", 0)?)];
    match call.ints("split_sizes")? {
        Some(sizes) => inputs.push(emit.ints(&sizes)),
        None => attrs.push(Attr::Int("num_outputs", outputs.len() as i64)),
    }
    emit.node("Split", inputs, outputs, attrs);
    Ok(())
}

/// Further than any axis goes.
const FAR: i64 = i32::MAX as i64;

pub fn slice_by_index(emit: &mut Emit, call: &Call) -> Done {
    let x = call.input("x")?;
    let rank = x.shape.len();
    let strides = call.ints("stride")?.unwrap_or_else(|| vec![1; rank]);
    let listed = |name: &str| -> Result<Vec<bool>, Trouble> {
        Ok(call.ints(name)?.map_or_else(|| vec![false; rank], |all| all.iter().map(|&it| it != 0).collect()))
    };
    let (open, ends, gone) = (listed("begin_mask")?, listed("end_mask")?, listed("squeeze_mask")?);
    if [open.len(), ends.len(), gone.len(), strides.len()] != [rank; 4] {
        return Err("slice_by_index with another number of axes".into());
    }
    let mut inputs = vec![emit.read(x)];
    for (name, mask, is_end) in [("begin", &open, false), ("end", &ends, true)] {
        let far: Vec<i64> = strides
            .iter()
            .map(|&stride| match (is_end, stride > 0) {
                (false, true) => 0,
                (false, false) | (true, true) => FAR,
                (true, false) => -FAR,
            })
            .collect();
        let given = call.input(name)?;
        inputs.push(match given.ints() {
            Some(known) if known.len() == rank => {
                let mut all: Vec<i64> =
                    (0..rank).map(|axis| if mask[axis] { far[axis] } else { known[axis] }).collect();
                // One element of an axis goes.
                for axis in (0..rank).filter(|&axis| gone[axis]) {
                    let begin = call.input("begin")?.ints().and_then(|all| all.get(axis).copied());
                    let begin = begin.ok_or("an axis that is removed where it is computed")?;
                    all[axis] = match (is_end, begin) {
                        (false, begin) => begin,
                        (true, -1) => FAR,
                        (true, begin) => begin + 1,
                    };
                }
                emit.ints(&all)
            }
            Some(_) => return Err("slice_by_index with another number of axes".into()),
            None if gone.contains(&true) => return Err("an axis that is removed where it is computed".into()),
            None => {
                let wide = emit.wide(given);
                match mask.contains(&true) {
                    false => wide,
                    true => {
                        let bytes = mask.iter().map(|&it| it.into()).collect();
                        let mask = emit.constant(DType::Bool, vec![rank as i64], bytes);
                        let far = emit.ints(&far);
                        emit.call("Where", vec![mask, far, wide], vec![])
                    }
                }
            }
        });
    }
    let all: Vec<i64> = (0..rank as i64).collect();
    inputs.push(emit.ints(&all));
    inputs.push(emit.ints(&strides));
    let removed: Vec<i64> = (0..rank as i64).filter(|&axis| gone[axis as usize]).collect();
    if removed.is_empty() {
        emit.node("Slice", inputs, vec![call.result()?], vec![]);
        return Ok(());
    }
    let part = emit.call("Slice", inputs, vec![]);
    let removed = emit.ints(&removed);
    emit.node("Squeeze", vec![part, removed], vec![call.result()?], vec![]);
    Ok(())
}

pub fn slice_by_size(emit: &mut Emit, call: &Call) -> Done {
    let (begin, size) = (call.demanded("begin")?, call.demanded("size")?);
    if begin.len() != size.len() || size.iter().any(|&size| size < 0) || begin.iter().any(|&begin| begin < 0)
    {
        return Err("slice_by_size from the end, or to the end".into());
    }
    let ends: Vec<i64> = begin.iter().zip(&size).map(|(begin, size)| begin + size).collect();
    let inputs = vec![emit.read(call.input("x")?), emit.ints(&begin), emit.ints(&ends)];
    emit.node("Slice", inputs, vec![call.result()?], vec![]);
    Ok(())
}

pub fn pad(emit: &mut Emit, call: &Call) -> Done {
    let x = call.input("x")?;
    let pads = call.demanded("pad")?;
    let rank = x.shape.len();
    let count = pads.len() / 2;
    if pads.len() % 2 != 0 || count > rank {
        return Err("pad of other axes".into());
    }
    // They are those of the last axes.
    let mut all = vec![0; 2 * rank];
    for (place, pair) in pads.as_chunks::<2>().0.iter().enumerate() {
        all[rank - count + place] = pair[0];
        all[2 * rank - count + place] = pair[1];
    }
    let mode = match &*call.text("mode", "constant")? {
        "constant" => "constant",
        "reflect" => "reflect",
        "replicate" => "edge",
        other => return Err(format!("pad by {other}")),
    };
    let mut inputs = vec![emit.read(x), emit.ints(&all)];
    if mode == "constant" {
        let value = call.number("constant_val", 0.0)?;
        inputs.push(emit.number(x.dtype(), value));
    }
    emit.node("Pad", inputs, vec![call.result()?], vec![Attr::Text("mode", mode)]);
    Ok(())
}

pub fn repeated(emit: &mut Emit, call: &Call) -> Done {
    if call.kind == "tile" {
        let inputs = vec![emit.read(call.input("x")?), emit.wide(call.input("reps")?)];
        emit.node("Tile", inputs, vec![call.result()?], vec![]);
        return Ok(());
    }
    let shape = emit.wide(call.input("shape")?);
    let value = match call.optional("value") {
        Some(value) => emit.read(value),
        None => emit.number(DType::F32, 0.0),
    };
    emit.node("Expand", vec![value, shape], vec![call.result()?], vec![]);
    Ok(())
}

pub fn shape(emit: &mut Emit, call: &Call) -> Done {
    let x = emit.read(call.input("x")?);
    back(emit, call, "Shape", vec![x], vec![])
}

pub fn range(emit: &mut Emit, call: &Call) -> Done {
    let inputs = ["start", "end", "step"].map(|name| call.input(name));
    let inputs = inputs.into_iter().map(|input| Ok(emit.read(input?))).collect::<Result<_, Trouble>>()?;
    emit.node("Range", inputs, vec![call.result()?], vec![]);
    Ok(())
}

pub fn gather(emit: &mut Emit, call: &Call) -> Done {
    let x = emit.read(call.input("x")?);
    let indices = call.input("indices")?;
    let batch = call.int("batch_dims", 0)?;
    let (name, attrs, places) = match &*call.kind {
        "gather" if batch != 0 => return Err("gather by batches".into()),
        "gather" => ("Gather", vec![Attr::Int("axis", call.int("axis", 0)?)], emit.read(indices)),
        "gather_along_axis" => {
            ("GatherElements", vec![Attr::Int("axis", call.int("axis", 0)?)], emit.read(indices))
        }
        _ => ("GatherND", vec![Attr::Int("batch_dims", batch)], emit.wide(indices)),
    };
    emit.node(name, vec![x, places], vec![call.result()?], attrs);
    Ok(())
}

pub fn scatter(emit: &mut Emit, call: &Call) -> Done {
    let is_along = call.kind == "scatter_along_axis";
    let indices = call.input("indices")?;
    let places = if is_along { emit.read(indices) } else { emit.wide(indices) };
    let inputs = vec![emit.read(call.input("data")?), places, emit.read(call.input("updates")?)];
    let mode = call.text("mode", "add")?;
    let reduction = match &*mode {
        "update" => "none",
        "add" | "mul" | "max" | "min" => &mode,
        other => return Err(format!("{} by {other}", call.kind)),
    };
    let mut attrs = vec![Attr::Text("reduction", reduction)];
    if is_along {
        attrs.push(Attr::Int("axis", call.int("axis", 0)?));
    }
    let name = if is_along { "ScatterElements" } else { "ScatterND" };
    emit.node(name, inputs, vec![call.result()?], attrs);
    Ok(())
}

pub fn triangle(emit: &mut Emit, call: &Call) -> Done {
    let mut x = emit.read(call.input("x")?);
    let (below, above) = (call.int("lower", -1)?, call.int("upper", -1)?);
    if below >= 0 {
        let diagonal = emit.ints(&[-below]);
        let scalar = emit.ints(&[]);
        let diagonal = emit.call("Reshape", vec![diagonal, scalar], vec![]);
        x = emit.call("Trilu", vec![x, diagonal], vec![Attr::Int("upper", 1)]);
    }
    if above >= 0 {
        let diagonal = emit.ints(&[above]);
        let scalar = emit.ints(&[]);
        let diagonal = emit.call("Reshape", vec![diagonal, scalar], vec![]);
        x = emit.call("Trilu", vec![x, diagonal], vec![Attr::Int("upper", 0)]);
    }
    emit.node("Identity", vec![x], vec![call.result()?], vec![]);
    Ok(())
}

pub fn blocks(emit: &mut Emit, call: &Call) -> Done {
    let x = emit.read(call.input("x")?);
    let (name, size, mode) = match &*call.kind {
        "space_to_depth" => ("SpaceToDepth", "block_size", None),
        "depth_to_space" => ("DepthToSpace", "block_size", Some("DCR")),
        _ => ("DepthToSpace", "upscale_factor", Some("CRD")),
    };
    let mut attrs = vec![Attr::Int("blocksize", call.int(size, 1)?)];
    attrs.extend(mode.map(|mode| Attr::Text("mode", mode)));
    emit.node(name, vec![x], vec![call.result()?], attrs);
    Ok(())
}
