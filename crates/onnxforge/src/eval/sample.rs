//! Inputs made up for a model: of the declared types, with values that make sense where they go.
//!
//! Floats are normally distributed. Integers that select (indices of a Gather) stay within what they select from; other
//! integers are 0 or 1, like masks, and the first of them is 1, so that a mask never hides everything.

use std::collections::HashMap;

use crate::infer::Inference;
use crate::ir::dim::Dim;
use crate::ir::dtype::Kind;
use crate::ir::types::DeclaredDim;
use crate::ir::value::{Def, Use};
use crate::ir::{DType, Model, Type, ValueId};
use crate::ops::{Array, OpError, Value};
use crate::random::Random;

/// How inputs are made up.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the random numbers start from.
    pub seed: u64,
    /// Sizes of named dimensions.
    pub dims: HashMap<String, usize>,
    /// The size of dimensions that are not named above.
    pub default_dim: usize,
    /// Shapes of inputs, by name; they win over everything else.
    pub shapes: HashMap<String, Vec<usize>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, dims: HashMap::new(), default_dim: 1, shapes: HashMap::new() }
    }
}

/// Most elements of one input.
const MAX_ELEMENTS: usize = 1 << 28;

/// A value for every input of the model's graph that has no default and is not one of `given`.
pub fn sample(
    model: &Model,
    inference: &Inference,
    options: &Options,
    given: &[String],
) -> Result<HashMap<String, Value>, OpError> {
    let mut random = Random::new(options.seed);
    let mut inputs = HashMap::new();
    for port in model.scope(model.main()).inputs() {
        if matches!(model.value(port.value).def(), Def::Input { default: Some(_), .. }) {
            continue;
        }
        let name = model.value(port.value).name().to_string();
        if given.contains(&name) {
            continue;
        }
        let range = index_range(model, inference, port.value);
        let value = value(&port.declared(), options.shapes.get(&name), range, options, &mut random)
            .map_err(|why| OpError::Unsupported(format!("making up the input {name}: {why}")))?;
        inputs.insert(name, value);
    }
    Ok(inputs)
}

fn value(
    declared: &Type,
    shape: Option<&Vec<usize>>,
    range: Option<i64>,
    options: &Options,
    random: &mut Random,
) -> Result<Value, String> {
    match declared {
        Type::Tensor(Some(dtype), declared) => {
            let shape = match (shape, declared) {
                (Some(shape), _) => shape.clone(),
                (None, Some(dims)) => dims.iter().map(|dim| size(dim, options)).collect(),
                (None, None) => return Err("its rank is not declared".to_owned()),
            };
            Ok(tensor(*dtype, &shape, range, random)?.into())
        }
        Type::Sequence(element) => {
            let element = value(element, shape, range, options, random)?;
            Ok(Value::Sequence(vec![element].into()))
        }
        Type::Optional(element) => {
            let element = value(element, shape, range, options, random)?;
            Ok(Value::Optional(Some(Box::new(element))))
        }
        other => Err(format!("it is declared as {other}")),
    }
}

fn size(dim: &DeclaredDim, options: &Options) -> usize {
    match dim {
        DeclaredDim::Size(size) => usize::try_from(*size).unwrap_or(usize::MAX),
        DeclaredDim::Named(name) => options.dims.get(&**name).copied().unwrap_or(options.default_dim),
        DeclaredDim::Unknown => options.default_dim,
    }
}

fn tensor(dtype: DType, shape: &[usize], range: Option<i64>, random: &mut Random) -> Result<Array, String> {
    let count = crate::ir::tensor::element_count(shape).filter(|&count| count <= MAX_ELEMENTS);
    let count = count.ok_or_else(|| format!("its shape {shape:?} is too large"))?;
    let array = match (dtype.kind(), range) {
        (Kind::Float, _) => {
            let values: Vec<f64> = (0..count).map(|_| random.normal()).collect();
            Array::new(shape, values)
        }
        (Kind::Bool, _) => {
            let values: Vec<bool> = (0..count).map(|i| i == 0 || random.below(4) > 0).collect();
            return Array::new(shape, values).map_err(|error| error.to_string());
        }
        (Kind::Signed | Kind::Unsigned, Some(range)) => {
            let below = u64::try_from(range).unwrap_or(1).max(1);
            Array::new(shape, (0..count).map(|_| random.below(below) as i64).collect::<Vec<_>>())
        }
        (Kind::Signed | Kind::Unsigned, None) => {
            let values = (0..count).map(|i| i64::from(i == 0 || random.below(4) > 0));
            Array::new(shape, values.collect::<Vec<_>>())
        }
        _ => return Err(format!("elements of type {dtype}")),
    };
    let array = array.map_err(|error| error.to_string())?;
    convert(&array, dtype).ok_or_else(|| format!("elements of type {dtype}"))
}

/// The numbers in another type.
fn convert(array: &Array, dtype: DType) -> Option<Array> {
    if let Some(array) = super::npz::fit(array, dtype) {
        return Some(array);
    }
    let (shape, values) = (array.shape(), array.to_i64s().ok()?);
    let array = match dtype {
        DType::I8 => Array::new(shape, values.iter().map(|&v| v as i8).collect::<Vec<_>>()),
        DType::I16 => Array::new(shape, values.iter().map(|&v| v as i16).collect::<Vec<_>>()),
        DType::U8 => Array::new(shape, values.iter().map(|&v| v as u8).collect::<Vec<_>>()),
        DType::U16 => Array::new(shape, values.iter().map(|&v| v as u16).collect::<Vec<_>>()),
        DType::U32 => Array::new(shape, values.iter().map(|&v| v as u32).collect::<Vec<_>>()),
        DType::U64 => Array::new(shape, values.iter().map(|&v| v as u64).collect::<Vec<_>>()),
        _ => return None,
    };
    array.ok()
}

/// How many there are to choose from, when the value is used to choose: the least over all choices.
fn index_range(model: &Model, inference: &Inference, id: ValueId) -> Option<i64> {
    // Operators that hand integers on as they are.
    const PASSING: [&str; 9] =
        ["Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Slice", "Expand", "Flatten"];
    let (mut open, mut seen, mut least) = (vec![id], vec![id], None::<i64>);
    while let Some(id) = open.pop() {
        for used in model.value(id).uses() {
            let Use::Input { node, index } = *used else { continue };
            let node = model.node(node);
            let table = match (&*node.op().name, index) {
                ("Gather" | "GatherElements", 1) => {
                    let axis = node.attr_int("axis").unwrap_or(0);
                    Some((node.input(0), axis))
                }
                _ => None,
            };
            if let Some((Some(table), axis)) = table {
                let size = inference.shape(table).and_then(|shape| {
                    let axis = crate::ops::call::axis(axis, shape.len()).ok()?;
                    shape.get(axis).and_then(Dim::as_const)
                });
                least = match (least, size) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
            if index == 0 && PASSING.contains(&&*node.op().name) {
                for &output in node.outputs().iter().flatten() {
                    if !seen.contains(&output) {
                        seen.push(output);
                        open.push(output);
                    }
                }
            }
        }
    }
    least
}
