//! Quantized models: what stands between DequantizeLinear and QuantizeLinear computes in integers.
//!
//! A value that DequantizeLinear gives is *held* by the tensor of its integers. An operator whose operands are held and whose result only goes to
//! QuantizeLinear becomes one on integers, which the format defines as the same computation; operators that only move elements hand on what they stand
//! for. Whatever else reads a held value gets real numbers.

use onnxforge_ir::value::Use;
use onnxforge_ir::{DType, NodeId, ValueId};
use onnxforge_ops::Array;
use onnxforge_ops::call::axis;
use onnxforge_proto::blob::Blob;

use super::{Writer, code};
use crate::tflite::graph::{Quantization, Tensor};
use crate::tflite::schema::{self, Builtin};
use crate::view::Why;

/// How far one looks for what a value is quantized as.
const FURTHEST: usize = 16;
/// How far a scale may be from the product of those that it should be: a rounding or two.
const SCALES_APART: f32 = 1e-6;
/// From an unsigned integer of 8 bits to the signed one that stands for the same.
const SIGNED: i64 = 128;

/// How a node computes.
pub enum Plan {
    /// On integers; tensors of its results are there.
    Integers,
    /// On floats; the reason, where its operands are quantized.
    Floats(Option<String>),
}

/// What the result of an operator on integers stands for.
#[derive(Clone, Copy)]
enum Stands {
    /// Whatever its readers ask for.
    Free,
    /// The same as its operand, whose elements it moves.
    Moved,
    /// The same as its operand, with a rounding, so only where its readers ask for that.
    Same,
    /// What the format fixes: a scale and a zero point.
    Fixed(f32, i64),
    /// The same as all of its operands, which are made so.
    Joined,
}

fn result_of(op: &str) -> Option<Stands> {
    Some(match op {
        "Transpose"
        | "Reshape"
        | "Flatten"
        | "Squeeze"
        | "Unsqueeze"
        | "Slice"
        | "Split"
        | "Gather"
        | "Pad"
        | "onnxforge.tflite.MaxPool2D" => Stands::Moved,
        "onnxforge.tflite.AveragePool2D"
        | "onnxforge.tflite.Resize2D"
        | "ReduceMax"
        | "ReduceMin"
        | "GlobalMaxPool" => Stands::Same,
        "onnxforge.tflite.Conv2D"
        | "onnxforge.tflite.DepthwiseConv2D"
        | "onnxforge.tflite.FullyConnected"
        | "Add"
        | "Sub"
        | "Mul"
        | "MatMul"
        | "ReduceMean"
        | "GlobalAveragePool"
        | "Relu"
        | "LeakyRelu"
        | "HardSwish" => Stands::Free,
        "Sigmoid" | "Softmax" => Stands::Fixed(1.0 / 256.0, -128),
        "Tanh" => Stands::Fixed(1.0 / 128.0, 0),
        "Concat" => Stands::Joined,
        _ => return None,
    })
}

/// How many of the first operands of an operator hold numbers that it computes with.
fn operands(op: &str, count: usize) -> usize {
    match op {
        "Add" | "Sub" | "Mul" | "MatMul" => 2,
        "Concat" => count,
        _ => 1,
    }
}

/// Decides how a node computes, and makes the tensors of its results where that is on integers.
pub fn plan(w: &mut Writer<'_>, id: NodeId) -> Result<Plan, Why> {
    let op = w.node(id).op().to_string();
    let Some(kind) = result_of(&op) else {
        let is_quantized = !matches!(&*op, "QuantizeLinear" | "DequantizeLinear")
            && w.node(id).inputs().iter().flatten().any(|value| w.held.contains_key(value));
        let reason = is_quantized.then(|| "the format has no such operator on integers".to_owned());
        return Ok(Plan::Floats(reason));
    };
    let given: Vec<ValueId> = w.node(id).inputs().iter().flatten().copied().collect();
    let given = given[..operands(&op, given.len()).min(given.len())].to_vec();
    let held: Option<Vec<i32>> = given.iter().map(|value| w.held.get(value).copied()).collect();
    let Some(held) = held else {
        let some = given.iter().any(|value| w.held.contains_key(value));
        return Ok(Plan::Floats(some.then(|| "an operand is no quantized one".to_owned())));
    };
    if held.is_empty() || !held.iter().all(|&tensor| is_activation(w, tensor)) {
        return Ok(Plan::Floats(None));
    }
    match results(w, id, kind, &op, &held) {
        Ok(quantization) => {
            if let Stands::Joined = kind {
                join(w, &given, &held, &quantization)?;
            }
            for output in w.node(id).outputs().to_vec().into_iter().flatten() {
                let output = w.resolved(output);
                let shape = w.shape(output)?;
                let name = format!("{}/quantized", w.model.value(output).name());
                let tensor = w.computed(&name, DType::I8, &shape)?;
                stand_for(w, tensor, &quantization);
                w.held.insert(output, tensor);
            }
            Ok(Plan::Integers)
        }
        Err(reason) => Ok(Plan::Floats(Some(reason))),
    }
}

/// What the results of a node stand for, or why it does not compute on integers.
fn results(w: &Writer<'_>, id: NodeId, kind: Stands, op: &str, held: &[i32]) -> Result<Quantization, String> {
    let first = held.first().and_then(|&tensor| w.quantization_of(tensor)).cloned();
    let first = first.ok_or("it has no operands")?;
    let output = w.node(id).output(0).ok_or("nothing reads its result")?;
    let asked = || {
        wanted(w, output, FURTHEST)
            .ok_or_else(|| "its result is not quantized, or in several ways".to_owned())
    };
    if op == "Pad" {
        pads(w, id, output)?;
    }
    let has_weights = matches!(
        op,
        "onnxforge.tflite.Conv2D" | "onnxforge.tflite.DepthwiseConv2D" | "onnxforge.tflite.FullyConnected"
    );
    if has_weights {
        weights(w, id, op, &first)?;
    }
    let quantization = match kind {
        Stands::Moved => first,
        Stands::Free => asked()?,
        Stands::Joined => {
            let same = held.iter().all(|&tensor| w.quantization_of(tensor) == Some(&first));
            if same { first } else { asked()? }
        }
        Stands::Same => match asked()? {
            asked if asked == first => first,
            _ => return Err("its result has another scale than its operand".to_owned()),
        },
        Stands::Fixed(scale, zero) => match asked()? {
            asked if asked.scales == [scale] && asked.zeros == [zero] => asked,
            _ => return Err(format!("the format fixes the scale of its result at {scale}")),
        },
    };
    Ok(quantization)
}

/// Whether padding is a number that integers stand for. What is less than any number may be the least integer in front of a maximum.
fn pads(w: &Writer<'_>, id: NodeId, output: ValueId) -> Result<(), String> {
    let Some(value) = w.node(id).input(2) else { return Ok(()) };
    let constant = w.model.constant(value).and_then(|it| Array::from_tensor(it).ok()?.to_f64().ok());
    let is_maximum = |used: &Use| match *used {
        Use::Input { node, .. } => w.node(node).op().is("onnxforge.tflite.MaxPool2D"),
        Use::Output { .. } => false,
    };
    match constant {
        Some(0.0) => Ok(()),
        Some(f64::NEG_INFINITY) if w.model.value(output).uses().iter().all(is_maximum) => Ok(()),
        _ => Err("it pads with a number that is not 0".to_owned()),
    }
}

/// Whether the least integer stands for 0, which is what padding of the format is.
pub fn least_is_zero(w: &Writer<'_>, x: ValueId) -> bool {
    let quantization = w.held.get(&x).and_then(|&held| w.quantization_of(held));
    quantization.is_some_and(|quantization| quantization.zeros == [-SIGNED])
}

/// The least integer, for padding in front of a maximum.
pub fn least(w: &mut Writer<'_>, id: NodeId) -> Result<i32, Why> {
    let x = w.arg(id, 0)?;
    let quantization = w.held.get(&x).and_then(|&held| w.quantization_of(held)).cloned();
    let name = format!("{}/least", w.model.value(x).name());
    let data = Some(Blob::from(vec![i8::MIN as u8]).into());
    Ok(w.push(Tensor { name, dtype: code(DType::I8)?, shape: vec![], data, quantization }))
}

/// Fails unless the weights and the bias of a layer are what the format takes on integers.
fn weights(w: &Writer<'_>, id: NodeId, op: &str, x: &Quantization) -> Result<(), String> {
    let held = w.node(id).input(1).and_then(|value| w.held.get(&value).copied());
    let held =
        held.filter(|&tensor| w.made(tensor).is_some_and(|it| it.data.is_some() && Some(it.dtype) == i8()));
    let quantization = held.and_then(|tensor| w.quantization_of(tensor));
    let quantization = quantization.ok_or("its weights are not stored as integers of 8 bits")?;
    if quantization.zeros.iter().any(|&zero| zero != 0) {
        return Err("its weights have a zero point".to_owned());
    }
    let maps = if op == "onnxforge.tflite.DepthwiseConv2D" { 3 } else { 0 };
    if quantization.scales.len() > 1 && quantization.axis != maps {
        return Err("its weights have scales along another axis than that of its maps".to_owned());
    }
    let Some(bias) = w.node(id).input(2) else { return Ok(()) };
    if let Some(&tensor) = w.held.get(&bias) {
        let given = w.quantization_of(tensor).ok_or("its bias is not quantized")?;
        let product = product(x, quantization);
        let scale = |index: usize| given.scales.get(index).or(given.scales.first()).copied().unwrap_or(0.0);
        let fits = product
            .iter()
            .enumerate()
            .all(|(index, &wanted)| (scale(index) - wanted).abs() <= SCALES_APART * wanted);
        let is_plain = given.zeros.iter().all(|&zero| zero == 0);
        if w.made(tensor).map(|tensor| tensor.dtype) == schema::type_code(DType::I32) && is_plain && fits {
            return Ok(());
        }
        return Err("its bias has another scale than its products".to_owned());
    }
    match w.model.constant(bias).is_some_and(|bias| bias.dtype() == DType::F32) {
        true => Ok(()),
        false => Err("its bias is computed".to_owned()),
    }
}

/// The scales of the products of an operand and weights.
fn product(x: &Quantization, weights: &Quantization) -> Vec<f32> {
    let x = x.scales.first().copied().unwrap_or(1.0);
    weights.scales.iter().map(|scale| scale * x).collect()
}

/// The bias of a layer as integers of 32 bits, with the scales of its products.
pub fn bias(w: &mut Writer<'_>, id: NodeId) -> Result<i32, Why> {
    let (x, weights) = (w.arg(id, 0)?, w.arg(id, 1)?);
    let maps = if w.node(id).op().is("onnxforge.tflite.DepthwiseConv2D") { 3 } else { 0 };
    let maps =
        w.shape(weights)?.get(maps).and_then(onnxforge_ir::dim::Dim::as_const).ok_or("maps are not known")?;
    let bias = w.node(id).input(2);
    if let Some(&held) = bias.and_then(|bias| w.held.get(&bias)) {
        return Ok(held);
    }
    let quantization = |w: &Writer<'_>, value: ValueId| {
        w.held.get(&value).and_then(|&held| w.quantization_of(held)).cloned()
    };
    let (x, weights) = (quantization(w, x), quantization(w, weights));
    let scales =
        product(&x.ok_or("its operand is not quantized")?, &weights.ok_or("its weights are not quantized")?);
    let numbers = match bias.and_then(|bias| w.model.constant(bias)) {
        Some(bias) => Array::from_tensor(bias)?.to_f64s()?,
        None => vec![0.0; usize::try_from(maps).unwrap_or(0)],
    };
    let scale = |index: usize| f64::from(scales.get(index).or(scales.first()).copied().unwrap_or(1.0));
    let integers =
        numbers.iter().enumerate().map(|(index, number)| (number / scale(index)).round_ties_even() as i32);
    let data = integers.flat_map(i32::to_le_bytes).collect::<Vec<u8>>();
    let label =
        w.node(id).output(0).map_or_else(String::new, |output| w.model.value(output).name().to_string());
    let zeros = vec![0; scales.len()];
    Ok(w.push(Tensor {
        name: format!("{label}/bias"),
        dtype: code(DType::I32)?,
        shape: vec![Some(i32::try_from(maps).map_err(|_| "too many maps")?)],
        data: Some(Blob::from(data).into()),
        quantization: Some(Quantization { scales, zeros, axis: 0 }),
    }))
}

fn i8() -> Option<u8> {
    schema::type_code(DType::I8)
}

/// Whether a tensor holds computed integers of 8 bits with one scale.
fn is_activation(w: &Writer<'_>, tensor: i32) -> bool {
    let one = w.quantization_of(tensor).is_some_and(|quantization| quantization.scales.len() == 1);
    one && w.made(tensor).is_some_and(|tensor| Some(tensor.dtype) == i8())
}

/// What all readers of a value ask it to be quantized as.
fn wanted(w: &Writer<'_>, value: ValueId, furthest: usize) -> Option<Quantization> {
    let value = w.resolved(value);
    let mut found: Option<Quantization> = None;
    for used in w.model.value(value).uses() {
        let Use::Input { node, index: 0 } = *used else { return None };
        let op = w.node(node).op().to_string();
        let asked = match result_of(&op) {
            _ if op == "QuantizeLinear" => {
                let (dtype, quantization) = meaning(w, node).ok()?;
                matches!(dtype, DType::I8 | DType::U8).then(|| signed(dtype, quantization))
            }
            Some(Stands::Moved) if op != "Split" => {
                wanted(w, w.node(node).output(0)?, furthest.checked_sub(1)?)
            }
            _ => None,
        }?;
        if asked.scales.len() != 1 || found.as_ref().is_some_and(|found| *found != asked) {
            return None;
        }
        found = Some(asked);
    }
    found
}

/// What a node says that integers mean, and their type.
fn meaning(w: &Writer<'_>, id: NodeId) -> Result<(DType, Quantization), Why> {
    let (node, call) = (w.node(id), w.call(id)?);
    if call.opt_int("block_size")?.is_some_and(|size| size != 0) {
        return Err("scales of blocks have no place in the format".into());
    }
    let quantizes = node.op().is("QuantizeLinear");
    let integers = if quantizes { node.output(0).ok_or("nothing reads its result")? } else { w.arg(id, 0)? };
    let dtype = w.dtype(integers)?;
    if !matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::I32) {
        return Err(format!("the format quantizes to no {}", dtype.name()).into());
    }
    let constant = |value: ValueId| {
        let constant = w.model.constant(value).ok_or("its scale or zero point is computed")?;
        Ok::<_, Why>(Array::from_tensor(constant)?)
    };
    let scale = constant(w.arg(id, 1)?)?;
    if scale.dtype() != DType::F32 || scale.rank() > 1 {
        return Err("its scales are not floats of 32 bits".into());
    }
    let scales: Vec<f32> = scale.to_f64s()?.into_iter().map(|scale| scale as f32).collect();
    if scales.is_empty() || !scales.iter().all(|scale| scale.is_finite() && *scale > 0.0) {
        return Err("a scale is no positive number".into());
    }
    let zeros = match node.input(2) {
        Some(zero) => constant(zero)?.to_i64s()?,
        None => vec![0; scales.len()],
    };
    if zeros.len() != scales.len() {
        return Err("there are not as many zero points as scales".into());
    }
    let axis = match scale.rank() {
        0 => 0,
        _ => axis(call.int_or("axis", 1)?, w.rank(integers)?)?,
    };
    // A list of one scale for an axis of any length is one for all.
    Ok((dtype, Quantization { axis: if scales.len() == 1 { 0 } else { axis as i32 }, scales, zeros }))
}

/// The same numbers with signed integers.
fn signed(dtype: DType, quantization: Quantization) -> Quantization {
    if dtype != DType::U8 {
        return quantization;
    }
    let zeros = quantization.zeros.iter().map(|zero| zero - SIGNED).collect();
    Quantization { zeros, ..quantization }
}

fn stand_for(w: &mut Writer<'_>, tensor: i32, quantization: &Quantization) {
    if let Some(tensor) = w.graph.tensors.get_mut(tensor as usize) {
        tensor.quantization = Some(quantization.clone());
    }
}

/// Makes all operands stand for the same.
fn join(w: &mut Writer<'_>, values: &[ValueId], held: &[i32], to: &Quantization) -> Result<(), Why> {
    for (&value, &tensor) in values.iter().zip(held) {
        if w.quantization_of(tensor) != Some(to) {
            let shape = w.shape(value)?;
            let name = format!("{}/{}", w.model.value(value).name(), w.graph.tensors.len());
            let other = w.computed(&name, DType::I8, &shape)?;
            stand_for(w, other, to);
            w.emit(schema::QUANTIZE, 2, vec![], &[tensor], &[other]);
            w.joined.insert(value, other);
        }
    }
    Ok(())
}

/// QuantizeLinear: nothing where its operand is held as just that.
pub fn quantize(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (dtype, quantization) = meaning(w, id)?;
    let (x, y) = (w.arg(id, 0)?, w.out(id, 0)?);
    if quantization.scales.len() > 1 || dtype == DType::I32 {
        return Err("the operator has one scale, and integers of up to 16 bits".into());
    }
    let is_output = w.model.value(y).is_exposed();
    let held = w.held.get(&x).copied();
    if dtype == DType::U8 && !is_output && only_dequantized(w, y) {
        // Unsigned integers that nothing sees are signed ones.
        return as_signed(w, x, y, held, &signed(dtype, quantization));
    }
    if dtype == DType::I8 && !is_output {
        return as_signed(w, x, y, held, &quantization);
    }
    let from = match held {
        Some(held) => held,
        None => w.tensor(x)?,
    };
    let to = w.tensor(y)?;
    stand_for(w, to, &quantization);
    w.emit(schema::QUANTIZE, if held.is_some() { 2 } else { 1 }, vec![], &[from], &[to]);
    Ok(())
}

fn as_signed(
    w: &mut Writer<'_>,
    x: ValueId,
    y: ValueId,
    held: Option<i32>,
    quantization: &Quantization,
) -> Result<(), Why> {
    if let Some(held) = held.filter(|&held| w.quantization_of(held) == Some(quantization)) {
        w.known.insert(y, held);
        return Ok(());
    }
    let from = match held {
        Some(held) => held,
        None => w.tensor(x)?,
    };
    let shape = w.shape(y)?;
    let name = w.model.value(y).name().to_string();
    let to = w.computed(&name, DType::I8, &shape)?;
    stand_for(w, to, quantization);
    w.known.insert(y, to);
    w.emit(schema::QUANTIZE, if held.is_some() { 2 } else { 1 }, vec![], &[from], &[to]);
    Ok(())
}

/// Whether nothing but DequantizeLinear reads integers.
fn only_dequantized(w: &Writer<'_>, value: ValueId) -> bool {
    w.model.value(value).uses().iter().all(|used| match *used {
        Use::Input { node, index } => index == 0 && w.node(node).op().is("DequantizeLinear"),
        Use::Output { .. } => false,
    })
}

/// DequantizeLinear: its result is held by its operand.
pub fn dequantize(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (dtype, quantization) = meaning(w, id)?;
    let (x, y) = (w.arg(id, 0)?, w.out(id, 0)?);
    let means = signed(dtype, quantization.clone());
    if let Some(constant) = w.model.constant(x).cloned() {
        let name = w.model.value(y).name().to_string();
        let held = w.stored(&format!("{name}/quantized"), &constant)?;
        if dtype == DType::U8 {
            let bytes = constant.bytes().map_err(|error| Why::from(error.to_string()))?;
            let shifted: Vec<u8> = bytes.iter().map(|byte| byte ^ 0x80).collect();
            if let Some(tensor) = w.graph.tensors.get_mut(held as usize) {
                (tensor.dtype, tensor.data) = (code(DType::I8)?, Some(Blob::from(shifted).into()));
            }
        }
        stand_for(w, held, &means);
        w.held.insert(y, held);
        return Ok(());
    }
    let mut from = w.tensor(x)?;
    let is_signed = Some(w.type_of(from)) == i8();
    if quantization.scales.len() > 1 {
        return Err("what is computed has scales along an axis".into());
    }
    if dtype == DType::I32 || dtype == DType::I16 && quantization.zeros != [0] {
        return Err(format!("the format has no such {} that are computed", dtype.name()).into());
    }
    match w.quantization_of(from) {
        None => stand_for(w, from, if is_signed { &means } else { &quantization }),
        Some(found) if *found == if is_signed { means.clone() } else { quantization.clone() } => {}
        Some(_) => return Err("integers are read with another scale than they were made with".into()),
    }
    if dtype == DType::U8 && !is_signed {
        let shape = w.shape(x)?;
        let name = format!("{}/signed", w.model.value(y).name());
        let to = w.computed(&name, DType::I8, &shape)?;
        stand_for(w, to, &means);
        w.emit(schema::QUANTIZE, 2, vec![], &[from], &[to]);
        from = to;
    }
    w.held.insert(y, from);
    Ok(())
}

/// The real numbers of a value that integers stand for.
pub fn real(w: &mut Writer<'_>, value: ValueId, held: i32) -> Result<i32, Why> {
    let name = w.model.value(value).name().to_string();
    let stored = w.made(held).cloned().ok_or("a tensor is missing")?;
    let quantization = stored.quantization.ok_or("integers that stand for nothing")?;
    let is_plain = quantization.scales.len() == 1 && stored.dtype != code(DType::I32)?;
    if let Some(data) = stored.data.filter(|_| !is_plain) {
        let mut bytes = Vec::new();
        data.write_to(&mut bytes).map_err(|error| Why::from(error.to_string()))?;
        let integers: Vec<i64> = match schema::type_of(stored.dtype) {
            Some(DType::I8) => bytes.iter().map(|&byte| i64::from(byte as i8)).collect(),
            Some(DType::I16) => bytes.as_chunks().0.iter().map(|&it| i16::from_le_bytes(it).into()).collect(),
            _ => bytes.as_chunks().0.iter().map(|&it| i32::from_le_bytes(it).into()).collect(),
        };
        let sizes: Vec<usize> = stored
            .shape
            .iter()
            .map(|size| size.and_then(|size| usize::try_from(size).ok()).unwrap_or(0))
            .collect();
        let axis = quantization.axis as usize;
        let behind: usize = sizes.iter().skip(axis + 1).product::<usize>().max(1);
        let along = quantization.scales.len();
        let real = integers.iter().enumerate().flat_map(|(place, integer)| {
            let index = place / behind % along;
            let zero = quantization.zeros.get(index).copied().unwrap_or(0);
            ((integer - zero) as f32 * quantization.scales.get(index).copied().unwrap_or(0.0)).to_le_bytes()
        });
        let data = Some(Blob::from(real.collect::<Vec<u8>>()).into());
        return Ok(w.push(Tensor {
            name,
            dtype: code(DType::F32)?,
            shape: stored.shape,
            data,
            quantization: None,
        }));
    }
    let dtype = code(DType::F32)?;
    let to = w.push(Tensor { name, dtype, shape: stored.shape, data: None, quantization: None });
    w.emit(schema::DEQUANTIZE, 2, vec![], &[held], &[to]);
    Ok(to)
}

/// The lowest version of an operator that takes integers of 8 bits.
pub fn version(builtin: Builtin, plain: i32) -> i32 {
    let least = match builtin {
        schema::CONV_2D | schema::DEPTHWISE_CONV_2D => 3,
        schema::FULLY_CONNECTED => 4,
        schema::RESHAPE
        | schema::SQUEEZE
        | schema::EXPAND_DIMS
        | schema::HARD_SWISH
        | schema::SHAPE
        | schema::FLOOR_MOD => 1,
        schema::SUB => 3,
        _ => 2,
    };
    plain.max(least)
}
