//! Quantized numbers: weights stay as they are stored, and steps of activations stay steps.

use onnxforge_ir::{DType, NodeId, Tensor, ValueId};
use onnxforge_ops::call::axis;
use onnxforge_proto::blob::Blob;

use super::constants::label;
use super::{Var, Writer, named};
use crate::coreml::schema::{Argument, ArgumentEntry, Binding, Elem, Operation, Value, ValueEntry};
use crate::view::Why;

type Done = Result<(), Why>;

/// The element type of quantized numbers.
fn stored(dtype: DType) -> Option<Elem> {
    Some(match dtype {
        DType::I8 => Elem::I8,
        DType::U8 => Elem::U8,
        DType::I4 => Elem::I4,
        DType::U4 => Elem::U4,
        _ => return None,
    })
}

/// What quantized numbers are multiplied with and moved by.
struct Grid<'m> {
    scale: &'m Tensor,
    zero: Option<&'m Tensor>,
    axis: usize,
    block: i64,
}

impl<'m> Grid<'m> {
    fn of(w: &Writer<'m>, id: NodeId, rank: usize) -> Result<Self, Why> {
        let call = w.call(id)?;
        let constant =
            |value: ValueId| w.model.constant(value).ok_or_else(|| Why::from("its scale is computed"));
        let scale = constant(w.arg(id, 1)?)?;
        let zero = w.node(id).input(2).map(constant).transpose()?;
        let axis = match scale.shape().len() {
            0 => 0,
            _ => axis(call.int("axis")?, rank.max(1))?,
        };
        Ok(Self { scale, zero, axis, block: call.opt_int("block_size")?.unwrap_or(0) })
    }
}

pub fn dequantize(w: &mut Writer<'_>, id: NodeId) -> Done {
    let value = w.arg(id, 0)?;
    let Some(constant) = w.model.constant(value) else { return steps(w, id) };
    let grid = Grid::of(w, id, constant.shape().len())?;
    let y = w.result(id, 0)?;
    let is_wide = grid.scale.dtype() == DType::F32 || grid.scale.dtype() == DType::F16;
    let Some(elem) = stored(constant.dtype()).filter(|_| is_wide) else {
        return computed(w, value, constant, &grid, &y);
    };
    let is_byte = matches!(elem, Elem::I8 | Elem::U8);
    match (is_byte && grid.block == 0, w.settings.ios) {
        (true, 16..) => affine(w, constant, elem, &grid, &y),
        (_, 18..) => blocks(w, constant, elem, &grid, &y),
        (false, _) => Err(Why::from("quantized numbers in blocks or of 4 bits are there from iOS 18 on")
            .hinting("--ios 18")),
        // Before there was an operator for it, numbers are stored as what they stand for.
        (true, _) => computed(w, value, constant, &grid, &y),
    }
}

fn payload(constant: &Tensor) -> Result<onnxforge_proto::blob::Payload, Why> {
    constant.payload().map_err(|error| Why::from(error.to_string()))
}

/// Scales as numbers of the type of the result.
fn scales(w: &mut Writer<'_>, scale: &Tensor, elem: Elem, sizes: &[i64]) -> Result<Value, Why> {
    let all = onnxforge_ops::Array::from_tensor(scale)?.to_f64s()?;
    let bytes: Vec<u8> = match elem {
        Elem::F16 => all.iter().flat_map(|&it| half::f16::from_f64(it).to_le_bytes()).collect(),
        _ => all.iter().flat_map(|&it| (it as f32).to_le_bytes()).collect(),
    };
    Ok(match bytes.len() {
        0..64 => w.immediate_value(elem, sizes, &bytes),
        _ => w.file_value(elem, sizes, Blob::from(bytes).into()),
    })
}

fn small(w: &mut Writer<'_>, elem: Elem, sizes: &[i64], bytes: Vec<u8>) -> Value {
    match bytes.len() {
        0..64 => w.immediate_value(elem, sizes, &bytes),
        _ => w.file_value(elem, sizes, Blob::from(bytes).into()),
    }
}

fn shape_of(tensor: &Tensor) -> Vec<i64> {
    tensor.shape().iter().map(|&size| size as i64).collect()
}

fn affine(w: &mut Writer<'_>, constant: &Tensor, elem: Elem, grid: &Grid<'_>, y: &Var) -> Done {
    let sizes = shape_of(constant);
    let data = w.file_value(elem, &sizes, payload(constant)?);
    let of_scale = if grid.scale.len() == 1 { Vec::new() } else { shape_of(grid.scale) };
    let zeros = match grid.zero {
        Some(zero) => zero.bytes().map_err(|error| Why::from(error.to_string()))?.into_owned(),
        None => vec![0; grid.scale.len()],
    };
    let zero = small(w, elem, &of_scale, zeros);
    let scale = scales(w, grid.scale, y.elem, &of_scale)?;
    let axis = w.immediate_value(Elem::I32, &[], &(grid.axis as i32).to_le_bytes());
    let entry = |(key, value): (&str, Value)| ValueEntry {
        key: Some(key.into()),
        value: Some(Box::new(value)),
        ..Default::default()
    };
    let fields = [("axis", axis), ("quantized_data", data), ("scale", scale), ("zero_point", zero)];
    w.operations.push(Operation {
        kind: Some("constexpr_affine_dequantize".into()),
        outputs: vec![named(&y.name, y.elem, &y.shape)],
        attributes: std::iter::once(label(&y.name)).chain(fields.map(entry)).collect(),
        ..Operation::default()
    });
    Ok(())
}

fn blocks(w: &mut Writer<'_>, constant: &Tensor, elem: Elem, grid: &Grid<'_>, y: &Var) -> Done {
    let sizes = shape_of(constant);
    // Scales have as many axes as what they scale.
    let of_scale = match (grid.block, grid.scale.len()) {
        (0, 1) => vec![1; sizes.len()],
        (0, count) => {
            let mut all = vec![1; sizes.len()];
            all[grid.axis] = count as i64;
            all
        }
        _ => shape_of(grid.scale),
    };
    if of_scale.len() != sizes.len() || sizes.iter().zip(&of_scale).any(|(all, blocks)| all % blocks != 0) {
        return Err("its blocks have different sizes".into());
    }
    let data = w.file_value(elem, &sizes, payload(constant)?);
    let scale = scales(w, grid.scale, y.elem, &of_scale)?;
    let mut fields = vec![("data", data), ("scale", scale)];
    if let Some(zero) = grid.zero {
        let bytes = zero.bytes().map_err(|error| Why::from(error.to_string()))?.into_owned();
        fields.push(("offset", small(w, elem, &of_scale, bytes)));
    }
    let entry = |(key, value): (&str, Value)| {
        let binding = Binding { value: Some(Box::new(value)), ..Binding::default() };
        let argument = Argument { bindings: vec![binding], ..Argument::default() };
        ArgumentEntry { key: Some(key.into()), value: Some(Box::new(argument)), ..ArgumentEntry::default() }
    };
    w.operations.push(Operation {
        kind: Some("constexpr_blockwise_shift_scale".into()),
        inputs: fields.into_iter().map(entry).collect(),
        outputs: vec![named(&y.name, y.elem, &y.shape)],
        attributes: vec![label(&y.name)],
        ..Operation::default()
    });
    Ok(())
}

/// Numbers that are stored as what they stand for: biases, mostly.
fn computed(w: &mut Writer<'_>, value: ValueId, constant: &Tensor, grid: &Grid<'_>, y: &Var) -> Done {
    if grid.block != 0 {
        return Err("quantized numbers in blocks are there from iOS 18 on".into());
    }
    let numbers = onnxforge_ops::Array::from_tensor(constant)?.to_f64s()?;
    let scales = onnxforge_ops::Array::from_tensor(grid.scale)?.to_f64s()?;
    let zeros = match grid.zero {
        Some(zero) => onnxforge_ops::Array::from_tensor(zero)?.to_f64s()?,
        None => vec![0.0; scales.len()],
    };
    let sizes = shape_of(constant);
    let inner: i64 = sizes.get(grid.axis + 1..).unwrap_or_default().iter().product();
    let along = sizes.get(grid.axis).copied().unwrap_or(1);
    let place = |index: usize| if scales.len() == 1 { 0 } else { (index as i64 / inner % along) as usize };
    let wide: Vec<f32> = numbers
        .iter()
        .enumerate()
        .map(|(index, number)| ((number - zeros[place(index)]) * scales[place(index)]) as f32)
        .collect();
    let tensor =
        Tensor::from_f32s(constant.shape().to_vec(), &wide).map_err(|error| Why::from(error.to_string()))?;
    let name = format!("{}_dequantized", w.model.value(value).name());
    let stored = w.data(&name, &tensor, y.elem, &sizes)?;
    w.emit("identity", &[("x", (&stored).into())], &[y]);
    let output = w.known.iter().find(|(_, var)| var.name == y.name).map(|(&value, _)| value);
    if let Some(output) = output {
        // Convolutions want the constant itself.
        w.operations.pop();
        w.known.insert(output, stored);
    }
    Ok(())
}

/// Numbers that were quantized just before.
fn steps(w: &mut Writer<'_>, id: NodeId) -> Done {
    let value = w.arg(id, 0)?;
    let Some(x) = w.known.get(&value).cloned().filter(|x| matches!(x.elem, Elem::I8 | Elem::U8)) else {
        return Err("what it reads was not quantized by QuantizeLinear".into());
    };
    let (scale, zero, axis) = grid_of(w, id, &x)?;
    let y = w.result(id, 0)?;
    let mut inputs = vec![("input", (&x).into()), ("scale", (&scale).into()), ("zero_point", (&zero).into())];
    if let Some(axis) = &axis {
        inputs.push(("axis", axis.into()));
    }
    w.emit("dequantize", &inputs, &[&y]);
    Ok(())
}

/// Scale, zero point and axis of steps.
fn grid_of(w: &mut Writer<'_>, id: NodeId, x: &Var) -> Result<(Var, Var, Option<Var>), Why> {
    if !w.since(17) {
        return Err(Why::from("quantized activations are there from iOS 17 on").hinting("--ios 17"));
    }
    let grid = Grid::of(w, id, x.shape.len())?;
    if grid.block != 0 || x.shape.is_empty() {
        return Err("activations that are quantized in blocks".into());
    }
    let elem = match grid.zero.map(Tensor::dtype) {
        Some(DType::I8) => Elem::I8,
        None | Some(DType::U8) => Elem::U8,
        Some(other) => return Err(format!("there are no activations of {}", other.name()).into()),
    };
    let sizes = if grid.scale.len() == 1 { Vec::new() } else { shape_of(grid.scale) };
    let numbers = onnxforge_ops::Array::from_tensor(grid.scale)?.to_f64s()?;
    let floats = w.floats;
    let bytes = match floats {
        Elem::F16 => numbers.iter().flat_map(|&it| half::f16::from_f64(it).to_le_bytes()).collect(),
        _ => numbers.iter().flat_map(|&it| (it as f32).to_le_bytes()).collect(),
    };
    let scale = w.needed(floats, &sizes, bytes);
    let zeros = match grid.zero {
        Some(zero) => zero.bytes().map_err(|error| Why::from(error.to_string()))?.into_owned(),
        None => vec![0; grid.scale.len()],
    };
    let zero = w.needed(elem, &sizes, zeros);
    let axis = if sizes.is_empty() { None } else { Some(w.int(grid.axis as i64)?) };
    Ok((scale, zero, axis))
}

pub fn quantize(w: &mut Writer<'_>, id: NodeId) -> Done {
    let output = w.out(id, 0)?;
    let is_back = |used: &onnxforge_ir::Use| {
        w.model.reader(used).is_some_and(|reader| w.node(reader).op().is("DequantizeLinear"))
    };
    if !w.model.value(output).uses().iter().all(is_back) {
        return Err("something else than DequantizeLinear reads it".into());
    }
    w.takes(w.arg(id, 0)?, super::arithmetic::FLOATS)?;
    let x = w.input(id, 0)?;
    let (scale, zero, axis) = grid_of(w, id, &x)?;
    let y = w.scratch(id, zero.elem, x.shape.clone());
    w.known.insert(output, y.clone());
    let dtype = w.text(zero.elem.name());
    let mut inputs = vec![
        ("input", (&x).into()),
        ("scale", (&scale).into()),
        ("zero_point", (&zero).into()),
        ("output_dtype", (&dtype).into()),
    ];
    if let Some(axis) = &axis {
        inputs.push(("axis", axis.into()));
    }
    w.emit("quantize", &inputs, &[&y]);
    Ok(())
}
