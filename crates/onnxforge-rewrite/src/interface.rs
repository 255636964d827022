//! What a model takes and gives, changed on request: sizes of dimensions, shapes of inputs, other outputs.

use std::collections::{BTreeMap, HashMap};

use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::value::Port;
use onnxforge_ir::{Model, Type, ValueId};
use onnxforge_ops::check::nearest;
use onnxforge_ops::eval::shapes::Place;
use onnxforge_ops::infer::{ConflictKind, Inference};
use onnxforge_proto::Str;
use onnxforge_proto::schema::{Dimension, TensorShapeProto, TypeProto, ValueInfoProto};

/// What is to change.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Sizes of named dimensions of inputs.
    pub dims: BTreeMap<String, usize>,
    /// Shapes of inputs.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// The outputs, if not those that the model has.
    pub outputs: Vec<String>,
}

/// Why a wish cannot be fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum InterfaceError {
    #[error("no input has a dimension {name:?}; {hint}")]
    NoDim { name: String, hint: String },
    #[error("the model has no input {name:?}; it has {hint}")]
    NoInput { name: String, hint: String },
    #[error("no value of the graph is named {name:?}{}", near.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default())]
    NoValue { name: String, near: Option<String> },
    #[error("the input {name} is declared as {declared}, which {wanted:?} does not fit")]
    Shape { name: String, declared: String, wanted: Vec<usize> },
    #[error("the dimension {name} would be both {first} and {second}")]
    TwoSizes { name: String, first: usize, second: usize },
    #[error("the model cannot run with these sizes: {node}: {why}")]
    Contradiction { node: String, why: String },
    #[error("the type of {name:?} is not known, so it cannot become an output")]
    UnknownType { name: String },
}

/// Changes the interface, and what follows from it: the declarations of outputs, and those of values in between that would
/// contradict it.
pub fn apply(model: &mut Model, wishes: &Wishes) -> Result<(), InterfaceError> {
    if wishes.dims.is_empty() && wishes.shapes.is_empty() && wishes.outputs.is_empty() {
        return Ok(());
    }
    let before = Inference::of(model);
    let problems = |inference: &Inference| -> HashMap<_, String> {
        let calls =
            inference.conflicts().iter().filter(|conflict| matches!(conflict.kind, ConflictKind::Call(_)));
        calls.map(|conflict| (conflict.node, conflict.kind.to_string())).collect()
    };
    let known_problems = problems(&before);
    if !wishes.outputs.is_empty() {
        let outputs =
            wishes.outputs.iter().map(|name| output(model, &before, name)).collect::<Result<_, _>>()?;
        model.set_outputs(outputs);
    }
    if wishes.dims.is_empty() && wishes.shapes.is_empty() {
        return Ok(());
    }
    let sizes = sizes(model, wishes)?;
    let count = model.scope(model.main()).inputs().len();
    for index in 0..count {
        set_input(model, index, wishes, &sizes)?;
    }
    let after = Inference::of(model);
    let mut new: Vec<_> =
        problems(&after).into_iter().filter(|(node, _)| !known_problems.contains_key(node)).collect();
    new.sort_unstable();
    if let Some((node, why)) = new.into_iter().next() {
        return Err(InterfaceError::Contradiction { node: model.node_label(node), why });
    }
    for conflict in after.conflicts() {
        if let ConflictKind::Declared { value, .. } = conflict.kind {
            model.forget_declaration(value);
        }
    }
    let outputs: Vec<ValueId> = model.scope(model.main()).outputs().iter().map(|port| port.value).collect();
    for (index, value) in outputs.into_iter().enumerate() {
        if let Some(declared) = after.declaration(value) {
            model.set_output_type(index, declared);
        }
    }
    Ok(())
}

/// Declarations of inputs in which dimensions got names of their own, as they were.
#[derive(Debug, Default)]
pub struct Separated {
    declared: Vec<(usize, TypeProto)>,
}

/// Gives dimensions names of their own, so that nothing takes them for equal to others of their name. Those of one entry share a name.
pub fn separate(model: &mut Model, apart: &[Vec<Place>]) -> Separated {
    let mut separated = Separated::default();
    let count = model.scope(model.main()).inputs().len();
    for index in 0..count {
        let port = &model.scope(model.main()).inputs()[index];
        let input = model.value(port.value).name().clone();
        let own = |axis: usize| {
            let is_here = |place: &Place| place.input == input && place.axis == axis;
            apart.iter().find(|places| places.iter().any(is_here)).and_then(|places| places.first())
        };
        let Some(before) = port.info.r#type.as_deref() else { continue };
        let mut declared = before.clone();
        let shape = declared.tensor_type.as_deref_mut().and_then(|tensor| tensor.shape.as_deref_mut());
        let mut is_changed = false;
        for (axis, dim) in shape.into_iter().flat_map(|shape| &mut shape.dim).enumerate() {
            if let Some(place) = own(axis) {
                dim.dim_param = Some(format!("{}[{}]", place.input, place.axis).into());
                is_changed = true;
            }
        }
        if is_changed {
            separated.declared.push((index, before.clone()));
            model.set_input_type(index, declared);
        }
    }
    separated
}

impl Separated {
    /// Gives dimensions the names that they had.
    pub fn rejoin(self, model: &mut Model) {
        for (index, declared) in self.declared {
            model.set_input_type(index, declared);
        }
    }
}

/// The value of this name as an output.
fn output(model: &Model, inference: &Inference, name: &str) -> Result<Port, InterfaceError> {
    let own = || model.values().filter(|(id, _)| model.scope_of(*id) == Some(model.main()));
    let Some((value, _)) = own().find(|(_, value)| **value.name() == *name) else {
        let names = own().map(|(_, value)| &**value.name());
        let near = nearest(name, names).map(str::to_owned);
        return Err(InterfaceError::NoValue { name: name.to_owned(), near });
    };
    let mut ports = model.scope(model.main()).outputs().iter();
    if let Some(port) = ports.find(|port| port.value == value) {
        return Ok(port.clone());
    }
    let unknown = || InterfaceError::UnknownType { name: name.to_owned() };
    let declared = inference.declaration(value).ok_or_else(unknown)?;
    let info = ValueInfoProto {
        name: Some(model.value(value).name().clone()),
        r#type: Some(Box::new(declared)),
        ..ValueInfoProto::default()
    };
    Ok(Port { value, info: Box::new(info) })
}

/// The size of each named dimension that is given, directly or by the shape of an input.
fn sizes(model: &Model, wishes: &Wishes) -> Result<BTreeMap<Str, usize>, InterfaceError> {
    let mut sizes: BTreeMap<Str, usize> =
        wishes.dims.iter().map(|(name, &size)| (name.as_str().into(), size)).collect();
    let ports = model.scope(model.main()).inputs();
    let mut named: Vec<Str> = Vec::new();
    for port in ports {
        let Type::Tensor(_, Some(shape)) = port.declared() else { continue };
        let given = wishes.shapes.get(&**model.value(port.value).name());
        for (axis, dim) in shape.iter().enumerate() {
            let DeclaredDim::Named(name) = dim else { continue };
            named.push(name.clone());
            let Some(&size) = given.and_then(|given| given.get(axis)) else { continue };
            let first = *sizes.entry(name.clone()).or_insert(size);
            if first != size {
                return Err(InterfaceError::TwoSizes { name: name.to_string(), first, second: size });
            }
        }
    }
    named.sort();
    named.dedup();
    if let Some(name) = wishes.dims.keys().find(|name| !named.iter().any(|named| **named == ***name)) {
        let hint = match named.is_empty() {
            true => "no input has a named dimension".to_owned(),
            false => format!("there are {}", named.join(", ")),
        };
        return Err(InterfaceError::NoDim { name: name.clone(), hint });
    }
    let inputs: Vec<&str> = ports.iter().map(|port| &**model.value(port.value).name()).collect();
    match wishes.shapes.keys().find(|name| !inputs.contains(&name.as_str())) {
        Some(name) => Err(InterfaceError::NoInput { name: name.clone(), hint: inputs.join(", ") }),
        None => Ok(sizes),
    }
}

/// Declares the sizes that are known of an input.
fn set_input(
    model: &mut Model,
    index: usize,
    wishes: &Wishes,
    sizes: &BTreeMap<Str, usize>,
) -> Result<(), InterfaceError> {
    let port = &model.scope(model.main()).inputs()[index];
    let name = model.value(port.value).name().to_string();
    let Some(mut declared) = port.info.r#type.as_deref().cloned() else { return Ok(()) };
    let shown = port.declared().to_string();
    let Some(tensor) = declared.tensor_type.as_deref_mut() else { return Ok(()) };
    let given = wishes.shapes.get(&name);
    if tensor.shape.is_none()
        && let Some(given) = given
    {
        let open =
            TensorShapeProto { dim: vec![Dimension::default(); given.len()], ..TensorShapeProto::default() };
        tensor.shape = Some(Box::new(open));
    }
    let Some(shape) = tensor.shape.as_deref_mut() else { return Ok(()) };
    let wrong = |given: &[usize]| InterfaceError::Shape {
        name: name.clone(),
        declared: shown.clone(),
        wanted: given.to_vec(),
    };
    if let Some(given) = given.filter(|given| given.len() != shape.dim.len()) {
        return Err(wrong(given));
    }
    for (axis, dim) in shape.dim.iter_mut().enumerate() {
        let wanted = given.and_then(|given| given.get(axis)).copied();
        let size = match (DeclaredDim::from(&*dim), wanted) {
            (DeclaredDim::Size(size), Some(wanted)) if size as usize != wanted => {
                return Err(wrong(given.map_or(&[], Vec::as_slice)));
            }
            (DeclaredDim::Size(_), _) => continue,
            (DeclaredDim::Named(name), wanted) => wanted.or_else(|| sizes.get(&name).copied()),
            (DeclaredDim::Unknown, wanted) => wanted,
        };
        if let Some(size) = size {
            (dim.dim_value, dim.dim_param) = (Some(size as i64), None);
        }
    }
    model.set_input_type(index, declared);
    Ok(())
}
