//! `onnxforge run`: runs a model with the operators of this library.

mod select;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::{NonEmptyStringValueParser, RangedU64ValueParser};
use onnxforge::eval::{Options, Session, npz};
use onnxforge::ops::{Array, Value};
use serde::Serialize;

use super::warn_of_newer_opsets;
use crate::arguments::{gigabytes, named_shape, named_size, seconds};
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::{Output, number, table};

/// Run a model; inputs and outputs are .npz archives of numpy.
///
/// Missing inputs are synthetic: normally distributed floats, integers within the range that they index.
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
    /// Write the inputs here, synthetic ones included.
    #[arg(long, value_name = "FILE.npz")]
    save_inputs: Option<PathBuf>,
    /// Engine: `native` computes in the declared types, `oracle` computes every float in 64 bits.
    #[arg(long, value_enum, default_value = "native")]
    engine: Engine,
    /// Show and write these values instead of the model's outputs; any value of the graph has a name.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,…",
        conflicts_with = "all",
        value_parser = NonEmptyStringValueParser::new()
    )]
    outputs: Vec<String>,
    /// Show and write every value of the graph.
    #[arg(long)]
    all: bool,
    /// Size of a symbolic dimension in synthetic inputs; others take the smallest size at which the model runs.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// Shape of a synthetic input; symbolic dimensions get the same size in the other inputs.
    #[arg(long, value_name = "NAME=N,N,…", value_parser = named_shape)]
    set_shape: Vec<(String, Vec<usize>)>,
    /// Seed for synthetic inputs and random operators.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Run this many times and show the median time.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    repeat: usize,
    /// Memory limit for values, in GB.
    #[arg(long, default_value = "16", value_name = "GB", value_parser = gigabytes)]
    memory: u64,
    /// Stop after this many seconds; loading does not count.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    Native,
    Oracle,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    engine: &'static str,
    /// Median over the runs.
    milliseconds: f64,
    runs: usize,
    outputs: Vec<Shown>,
    files: Vec<WrittenFile>,
}

/// An output in a few numbers; those that are not finite are counted and otherwise left out.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    r#type: String,
    shape: Option<Vec<usize>>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    nan: usize,
    inf: usize,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let named = |error: &dyn std::fmt::Display| Failure::at(&args.model, error);
    output.files.require_folders(args.output.iter().chain(&args.save_inputs))?;
    let model = output.files.load(&args.model)?;
    warn_of_newer_opsets(&args.model, &model);
    let deadline = args.timeout.and_then(|time| Instant::now().checked_add(time));
    let wanted = select::wanted(args, &model)?;
    let inputs = select::inputs(args, &model, deadline, output)?;
    let bar = output.progress();
    let options = Options {
        memory: args.memory,
        deadline,
        wide: args.engine == Engine::Oracle,
        seed: args.seed,
        keep_constants: args.repeat > 1,
    };
    let session = Session::new(&model, options).watched(bar);
    let (mut times, mut values) = (Vec::new(), Vec::new());
    for _ in 0..args.repeat {
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
        files.extend(write_npz(path, &inputs, output)?);
    }
    if let Some(path) = &args.output {
        files.extend(write_npz(path, &results, output)?);
    }
    let report = Report {
        schema: 2,
        engine: if args.engine == Engine::Oracle { "oracle" } else { "native" },
        milliseconds: times.get(times.len() / 2).copied().unwrap_or(f64::NAN),
        runs: times.len(),
        outputs: results.iter().map(|(name, value)| shown(name, value)).collect(),
        files,
    };
    output.result(&report, |out| show(&report, out))?;
    Ok(Verdict::Yes)
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

pub(super) fn write_npz(
    path: &Path,
    values: &[(String, Value)],
    output: &Output,
) -> Result<Vec<WrittenFile>, Failure> {
    let mut found = Vec::new();
    values.iter().for_each(|(name, value)| tensors(name, value, &mut found));
    let arrays: Vec<(&str, &Array)> = found.iter().map(|(name, array)| (name.as_str(), *array)).collect();
    output.files.write(path, |out| npz::write(out, &arrays).map_err(std::io::Error::other))
}

fn shown(name: &str, value: &Value) -> Shown {
    let Value::Tensor(array) = value else {
        let r#type = value.form().to_owned();
        let name = name.to_owned();
        return Shown { name, r#type, shape: None, min: None, max: None, mean: None, nan: 0, inf: 0 };
    };
    let numbers = array.to_f64s().unwrap_or_default();
    let finite: Vec<f64> = numbers.iter().copied().filter(|x| x.is_finite()).collect();
    let extreme = |of: fn(f64, f64) -> f64| finite.iter().copied().reduce(of);
    Shown {
        name: name.to_owned(),
        r#type: array.dtype().name().to_owned(),
        shape: Some(array.shape().to_vec()),
        min: extreme(f64::min),
        max: extreme(f64::max),
        mean: mean(&finite),
        nan: numbers.iter().filter(|x| x.is_nan()).count(),
        inf: numbers.iter().filter(|x| x.is_infinite()).count(),
    }
}

/// The mean of finite numbers, which is finite even where their sum is not.
fn mean(numbers: &[f64]) -> Option<f64> {
    let count = numbers.len() as f64;
    let plain = numbers.iter().sum::<f64>() / count;
    let mean = if plain.is_finite() { plain } else { numbers.iter().map(|x| x / count).sum() };
    (!numbers.is_empty()).then_some(mean)
}

fn show(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    let mut rows = table(&["output", "type", "min", "max", "mean", "NaN", "inf"]);
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
            number(value.inf),
        ]);
    }
    writeln!(out, "{rows}")?;
    let median = if report.runs > 1 { format!(", median of {}", report.runs) } else { String::new() };
    writeln!(out, "{:.1} ms ({}{median})", report.milliseconds, report.engine)?;
    show_files(&report.files, out)
}
