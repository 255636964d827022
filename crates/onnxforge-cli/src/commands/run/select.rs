//! What goes into a run, and what is wanted from it.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use onnxforge::check::nearest;
use onnxforge::eval::sample;
use onnxforge::ir::{Model, ValueId};
use onnxforge::ops::Value;

use super::Args;
use crate::arguments::{check_dims, complete, list, stored};
use crate::failure::Failure;
use crate::output::Output;

/// The inputs from the archive, and synthetic ones for the rest.
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
    check_dims("--set-dim", &args.set_dim, model)
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
