//! The inputs that models run on.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

use onnxforge::eval::sample::{self, SampleError};
use onnxforge::eval::{check_given, npz};
use onnxforge::ir::value::Port;
use onnxforge::ir::{Model, Type};
use onnxforge::ops::Value;
use onnxforge::verify::named_dims;

use crate::failure::Failure;
use crate::output::Output;

/// Most names that an error lists.
const MOST_NAMES: usize = 12;

/// Bytes that given inputs of models that are compared may take.
const MOST_INPUTS: u64 = 16 << 30;

/// The inputs that the archive holds.
pub fn given(
    archive: Option<&Path>,
    model: &Model,
    output: &Output,
) -> Result<HashMap<String, Value>, Failure> {
    let Some(path) = archive else { return Ok(HashMap::new()) };
    let found = stored(path, model, MOST_INPUTS, output)?;
    check_given(model, &found).map_err(|error| Failure::at(path, error))?;
    Ok(found)
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
    let made_up = sample::sample(model, options, inputs).map_err(|error| {
        let hint = match &error {
            SampleError::Input { .. } => "; give it with --inputs",
            SampleError::Sizes(_) => "; set sizes with --set-dim, or give inputs with --inputs",
            SampleError::Shape(_) | SampleError::Budget { .. } => "",
        };
        Failure::at(path, format_args!("{error}{hint}"))
    })?;
    inputs.extend(made_up);
    Ok(())
}

/// Refuses names of dimensions that no input has.
pub fn check_dims(flag: &str, wanted: &[(String, usize)], model: &Model) -> Result<(), Failure> {
    let dims = named_dims(model);
    match wanted.iter().find(|(name, _)| !dims.contains(name)) {
        Some((name, _)) if dims.is_empty() => {
            Err(Failure::new(format!("{flag}: no input has a dimension {name:?}, or any named dimension")))
        }
        Some((name, _)) => {
            let dims: Vec<&str> = dims.iter().map(String::as_str).collect();
            Err(Failure::new(format!("{flag}: no input has a dimension {name:?}; there are {}", list(&dims))))
        }
        None => Ok(()),
    }
}

/// Names for an error.
pub fn list(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
