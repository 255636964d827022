//! `onnxforge run`: runs a model with the operators of this library.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onnxforge::eval::{Options, Session, npz, sample};
use onnxforge::infer::Inference;
use onnxforge::io::save::write_file;
use onnxforge::ir::{Model, Type, ValueId};
use onnxforge::ops::{Array, Value};
use serde::Serialize;

use super::load_model;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, bytes, number, table};
use crate::progress::Bar;

/// Run a model; inputs and outputs are .npz archives of numpy.
///
/// Inputs that are not given are made up: normally distributed floats, integers within what they select from.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Inputs by name.
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,
    /// Write the outputs here.
    #[arg(short, long, value_name = "FILE.npz")]
    output: Option<PathBuf>,
    /// Write the inputs here, for example those that were made up.
    #[arg(long, value_name = "FILE.npz")]
    save_inputs: Option<PathBuf>,
    /// What computes: native in the declared types, oracle with every float in 64 bits.
    #[arg(long, value_enum, default_value = "native")]
    engine: Engine,
    /// Show and write these values instead of the model's outputs; any value of the graph has a name.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", conflicts_with = "all")]
    outputs: Vec<String>,
    /// Show and write every value of the graph.
    #[arg(long)]
    all: bool,
    /// The size of a named dimension in inputs that are made up; others are 1.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// The shape of an input that is made up.
    #[arg(long, value_name = "NAME=N,N,…", value_parser = named_shape)]
    set_shape: Vec<(String, Vec<usize>)>,
    /// Other seeds make up other inputs and draw other random numbers.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Run this often and tell the median time.
    #[arg(long, default_value_t = 1, value_name = "N")]
    repeat: usize,
    /// Memory that values may take, in GB.
    #[arg(long, default_value_t = 16.0, value_name = "GB")]
    memory: f64,
    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    Native,
    Oracle,
}

fn named_size(text: &str) -> Result<(String, usize), String> {
    let (name, size) = text.split_once('=').ok_or("write NAME=N")?;
    Ok((name.to_owned(), size.trim().parse().map_err(|_| format!("{size:?} is not a size"))?))
}

fn named_shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let (name, sizes) = text.split_once('=').ok_or("write NAME=N,N,…")?;
    let sizes = sizes.split([',', 'x']).filter(|size| !size.trim().is_empty());
    let shape = sizes.map(|size| size.trim().parse().map_err(|_| format!("{size:?} is not a size")));
    Ok((name.to_owned(), shape.collect::<Result<_, String>>()?))
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    engine: &'static str,
    /// Median over the runs.
    milliseconds: f64,
    runs: usize,
    outputs: Vec<Shown>,
    files: Vec<String>,
}

/// An output in a few numbers.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    r#type: String,
    shape: Option<Vec<usize>>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    nan: usize,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let named = |error: &dyn std::fmt::Display| Failure(format!("{}: {error}", args.model.display()));
    let model = load_model(&args.model, output)?;
    let inputs = inputs(args, &model)?;
    let wanted = wanted(args, &model)?;
    let bar = Bar::new(output.shows_progress());
    let options = Options {
        memory: (args.memory.max(0.0) * 1e9) as u64,
        time: args.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        wide: args.engine == Engine::Oracle,
        seed: args.seed,
        keep_constants: args.repeat > 1,
    };
    let session = Session::new(&model, options).watched(&bar);
    let (mut times, mut values) = (Vec::new(), Vec::new());
    for _ in 0..args.repeat.max(1) {
        let start = Instant::now();
        values = session.run_values(&inputs, &wanted).map_err(|error| named(&error))?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let names = wanted.iter().map(|&id| model.value(id).name().to_string());
    let results: Vec<(String, Value)> = names.zip(values).collect();
    let mut files = Vec::new();
    if let Some(path) = &args.save_inputs {
        let mut inputs: Vec<(String, Value)> = inputs.into_iter().collect();
        inputs.sort_by(|a, b| a.0.cmp(&b.0));
        files.push(write_npz(path, &inputs)?);
    }
    if let Some(path) = &args.output {
        files.push(write_npz(path, &results)?);
    }
    let report = Report {
        schema: 1,
        engine: if args.engine == Engine::Oracle { "oracle" } else { "native" },
        milliseconds: times.get(times.len() / 2).copied().unwrap_or(f64::NAN),
        runs: times.len(),
        outputs: results.iter().map(|(name, value)| shown(name, value)).collect(),
        files,
    };
    output.result(&report, |out| show(&report, out))?;
    Ok(Verdict::Yes)
}

/// The inputs from the archive, and made-up ones for the rest.
fn inputs(args: &Args, model: &Model) -> Result<HashMap<String, Value>, Failure> {
    let mut inputs = HashMap::new();
    if let Some(path) = &args.inputs {
        let named = |error: &dyn std::fmt::Display| Failure(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(|error| named(&error))?;
        let limit = (args.memory.max(0.0) * 1e9) as u64;
        for (name, array) in npz::read(file, limit).map_err(|error| named(&error))? {
            let mut ports = model.scope(model.main()).inputs().iter();
            let declared = ports.find(|port| **model.value(port.value).name() == *name);
            let fitted = match declared.map(onnxforge::ir::value::Port::declared) {
                Some(Type::Tensor(Some(wanted), _)) => npz::fit(&array, wanted),
                _ => None,
            };
            inputs.insert(name, fitted.unwrap_or(array).into());
        }
    }
    let options = sample::Options {
        seed: args.seed,
        dims: args.set_dim.iter().cloned().collect(),
        shapes: args.set_shape.iter().cloned().collect(),
        ..sample::Options::default()
    };
    check_names(args, model)?;
    let ports = model.scope(model.main()).inputs();
    if ports.iter().all(|port| inputs.contains_key(&**model.value(port.value).name())) {
        return Ok(inputs);
    }
    let given: Vec<String> = inputs.keys().cloned().collect();
    let made_up = sample::sample(model, &Inference::of(model), &options, &given)
        .map_err(|error| Failure(format!("{}: {error}; give it with --inputs", args.model.display())))?;
    inputs.extend(made_up);
    Ok(inputs)
}

/// Refuses names of inputs and dimensions that the model does not have: a typing error would go unnoticed.
fn check_names(args: &Args, model: &Model) -> Result<(), Failure> {
    let ports = model.scope(model.main()).inputs();
    let names: Vec<&str> = ports.iter().map(|port| &**model.value(port.value).name()).collect();
    if let Some((name, _)) = args.set_shape.iter().find(|(name, _)| !names.contains(&name.as_str())) {
        return Err(Failure(format!(
            "--set-shape: the model has no input {name:?}; it has {}",
            names.join(", ")
        )));
    }
    let mut dims = Vec::new();
    for port in ports {
        if let Type::Tensor(_, Some(shape)) = port.declared() {
            dims.extend(shape.iter().filter_map(|dim| match dim {
                onnxforge::ir::types::DeclaredDim::Named(name) => Some(name.to_string()),
                _ => None,
            }));
        }
    }
    dims.sort();
    dims.dedup();
    match args.set_dim.iter().find(|(name, _)| !dims.contains(name)) {
        Some((name, _)) if dims.is_empty() => {
            Err(Failure(format!("--set-dim: no input has a dimension {name:?}, or any named dimension")))
        }
        Some((name, _)) => Err(Failure(format!(
            "--set-dim: no input has a dimension {name:?}; there are {}",
            dims.join(", ")
        ))),
        None => Ok(()),
    }
}

/// The values to show.
fn wanted(args: &Args, model: &Model) -> Result<Vec<ValueId>, Failure> {
    let main = model.main();
    if args.all {
        let nodes = model.nodes_in(main);
        return Ok(nodes.flat_map(|(_, node)| node.outputs().iter().flatten().copied()).collect());
    }
    if args.outputs.is_empty() {
        return Ok(model.scope(main).outputs().iter().map(|port| port.value).collect());
    }
    let named: HashMap<&str, ValueId> = model
        .values()
        .filter(|(id, _)| model.scope_of(*id) == Some(main))
        .map(|(id, value)| (&**value.name(), id))
        .collect();
    let find = |name: &String| {
        let found = named.get(name.as_str()).copied();
        found.ok_or_else(|| Failure(format!("{}: no value is named {name:?}", args.model.display())))
    };
    args.outputs.iter().map(find).collect()
}

/// The tensors of a value, each with a name: those of a sequence are numbered.
fn tensors<'a>(name: &str, value: &'a Value, found: &mut Vec<(String, &'a Array)>) {
    match value {
        Value::Tensor(array) => found.push((name.to_owned(), array)),
        Value::Sequence(values) => {
            values.iter().enumerate().for_each(|(i, value)| tensors(&format!("{name}.{i}"), value, found));
        }
        Value::Optional(Some(value)) => tensors(name, value, found),
        Value::Optional(None) => {}
        Value::Map(map) => {
            for (key, value) in map.iter() {
                tensors(&format!("{name}.{key}"), value, found);
            }
        }
    }
}

fn write_npz(path: &Path, values: &[(String, Value)]) -> Result<String, Failure> {
    let mut found = Vec::new();
    values.iter().for_each(|(name, value)| tensors(name, value, &mut found));
    let arrays: Vec<(&str, &Array)> = found.iter().map(|(name, array)| (name.as_str(), *array)).collect();
    write_file(path, |out| npz::write(out, &arrays).map_err(std::io::Error::other))?;
    Ok(path.display().to_string())
}

fn shown(name: &str, value: &Value) -> Shown {
    let Value::Tensor(array) = value else {
        let r#type = value.form().to_owned();
        return Shown {
            name: name.to_owned(),
            r#type,
            shape: None,
            min: None,
            max: None,
            mean: None,
            nan: 0,
        };
    };
    let numbers = array.to_f64s().unwrap_or_default();
    let real: Vec<f64> = numbers.iter().copied().filter(|x| !x.is_nan()).collect();
    let extreme = |of: fn(f64, f64) -> f64| real.iter().copied().reduce(of);
    Shown {
        name: name.to_owned(),
        r#type: array.dtype().name().to_owned(),
        shape: Some(array.shape().to_vec()),
        min: extreme(f64::min),
        max: extreme(f64::max),
        mean: (!real.is_empty()).then(|| real.iter().sum::<f64>() / real.len() as f64),
        nan: numbers.len() - real.len(),
    }
}

fn show(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    let mut rows = table(&["output", "type", "min", "max", "mean", "NaN"]);
    let cell =
        |value: Option<f64>| number(value.map_or_else(|| "-".to_owned(), |value| format!("{value:.6}")));
    for value in &report.outputs {
        let shape = value.shape.as_ref().map_or_else(String::new, |shape| format!("{shape:?}"));
        rows.add_row(vec![
            value.name.as_str().into(),
            format!("{}{shape}", value.r#type).into(),
            cell(value.min),
            cell(value.max),
            cell(value.mean),
            number(value.nan),
        ]);
    }
    writeln!(out, "{rows}")?;
    let median = if report.runs > 1 { format!(", median of {}", report.runs) } else { String::new() };
    writeln!(out, "{:.1} ms ({}{median})", report.milliseconds, report.engine)?;
    for file in &report.files {
        let size = std::fs::metadata(file).map_or(0, |data| data.len());
        writeln!(out, "wrote {file} ({})", bytes(size))?;
    }
    Ok(())
}
