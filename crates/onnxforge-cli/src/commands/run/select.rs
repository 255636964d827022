//! What goes into a run, and what is wanted from it.

use std::collections::{HashMap, HashSet};
use std::io::Cursor;
use std::path::Path;
use std::time::Instant;

use onnxforge::check::nearest;
use onnxforge::eval::npz;
use onnxforge::eval::sample::{self, SampleError};
use onnxforge::infer::{self, Inference};
use onnxforge::ir::value::Port;
use onnxforge::ir::{Model, Type, ValueId};
use onnxforge::ops::Value;
use onnxforge::verify::named_dims;

use super::Args;
use crate::failure::Failure;
use crate::output::Output;

/// Most names that an error lists.
const MOST_NAMES: usize = 12;

/// The inputs from the archive, and made-up ones for the rest.
pub fn inputs(
    args: &Args,
    model: &Model,
    deadline: Option<Instant>,
    output: &Output,
) -> Result<HashMap<String, Value>, Failure> {
    check_names(args, model)?;
    let mut inputs = match &args.inputs {
        Some(path) => stored(path, model, args.memory, output)?,
        None => HashMap::new(),
    };
    let taken: u64 = inputs.values().map(Value::byte_len).sum();
    let options = sample::Options {
        seed: args.seed,
        dims: args.set_dim.iter().cloned().collect(),
        shapes: args.set_shape.iter().cloned().collect(),
        memory: args.memory.saturating_sub(taken),
        deadline,
        ..sample::Options::default()
    };
    complete(&args.model, model, &mut inputs, &options)?;
    Ok(inputs)
}

/// Makes up the inputs that are missing.
pub fn complete(
    path: &Path,
    model: &Model,
    inputs: &mut HashMap<String, Value>,
    options: &sample::Options,
) -> Result<(), Failure> {
    let ports = model.scope(model.main()).inputs();
    if ports.iter().all(|port| inputs.contains_key(&**model.value(port.value).name())) {
        return Ok(());
    }
    let deadline = options.deadline;
    let inference = Inference::with(model, &infer::Options { deadline, ..infer::Options::default() });
    let made_up = sample::sample(model, &inference, options, inputs).map_err(|error| {
        let cure = match &error {
            SampleError::Input { .. } => "; give it with --inputs",
            SampleError::Shape(_) | SampleError::Budget { .. } => "",
        };
        Failure::at(path, format_args!("{error}{cure}"))
    })?;
    inputs.extend(made_up);
    Ok(())
}

/// The values of an archive, in the element types of the inputs of the same names.
pub fn stored(
    path: &Path,
    model: &Model,
    memory: u64,
    output: &Output,
) -> Result<HashMap<String, Value>, Failure> {
    let archive = Cursor::new(output.files.read(path)?);
    let mut inputs = HashMap::new();
    for (name, array) in npz::read(archive, memory).map_err(|error| Failure::at(path, error))? {
        let mut ports = model.scope(model.main()).inputs().iter();
        let declared = ports.find(|port| **model.value(port.value).name() == *name);
        let fitted = match declared.map(Port::declared) {
            Some(Type::Tensor(Some(wanted), _)) => npz::fit(&array, wanted),
            _ => None,
        };
        inputs.insert(name, fitted.unwrap_or(array).into());
    }
    Ok(inputs)
}

/// Refuses names of inputs and dimensions that the model does not have: a typing error would go unnoticed.
fn check_names(args: &Args, model: &Model) -> Result<(), Failure> {
    let ports = model.scope(model.main()).inputs();
    let names: Vec<&str> = ports.iter().map(|port| &**model.value(port.value).name()).collect();
    if let Some((name, _)) = args.set_shape.iter().find(|(name, _)| !names.contains(&name.as_str())) {
        return Err(Failure::new(format!(
            "--set-shape: the model has no input {name:?}; it has {}",
            list(&names)
        )));
    }
    check_dims(&args.set_dim, model)
}

/// Refuses names of dimensions that no input has.
pub fn check_dims(wanted: &[(String, usize)], model: &Model) -> Result<(), Failure> {
    let dims = named_dims(model);
    match wanted.iter().find(|(name, _)| !dims.contains(name)) {
        Some((name, _)) if dims.is_empty() => {
            Err(Failure::new(format!("--set-dim: no input has a dimension {name:?}, or any named dimension")))
        }
        Some((name, _)) => {
            let dims: Vec<&str> = dims.iter().map(String::as_str).collect();
            Err(Failure::new(format!(
                "--set-dim: no input has a dimension {name:?}; there are {}",
                list(&dims)
            )))
        }
        None => Ok(()),
    }
}

fn list(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The values to show, each once.
pub fn wanted(args: &Args, model: &Model) -> Result<Vec<ValueId>, Failure> {
    let main = model.main();
    let mut ids: Vec<ValueId> = if args.all {
        let nodes = model.nodes_in(main);
        nodes.flat_map(|(_, node)| node.outputs().iter().flatten().copied()).collect()
    } else if args.outputs.is_empty() {
        model.scope(main).outputs().iter().map(|port| port.value).collect()
    } else {
        named(args, model)?
    };
    let mut seen = HashSet::new();
    ids.retain(|id| seen.insert(*id));
    Ok(ids)
}

/// The values that `--outputs` names.
fn named(args: &Args, model: &Model) -> Result<Vec<ValueId>, Failure> {
    let own = model.values().filter(|(id, _)| model.scope_of(*id) == Some(model.main()));
    let named: HashMap<&str, ValueId> = own.map(|(id, value)| (&**value.name(), id)).collect();
    let find = |name: &String| {
        let absent = || {
            let mut names: Vec<&str> = named.keys().copied().collect();
            names.sort_unstable();
            let hint = match nearest(name, names) {
                Some(near) => format!("did you mean {near:?}?"),
                None => {
                    let outputs = model.scope(model.main()).outputs().iter();
                    let outputs: Vec<&str> = outputs.map(|port| &**model.value(port.value).name()).collect();
                    format!("the outputs are {}", list(&outputs))
                }
            };
            Failure::at(&args.model, format_args!("no value of the graph is named {name:?}; {hint}"))
        };
        named.get(name.as_str()).copied().ok_or_else(absent)
    };
    args.outputs.iter().map(find).collect()
}
