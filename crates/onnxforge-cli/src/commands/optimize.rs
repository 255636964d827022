//! `onnxforge optimize`: fewer nodes, the same results.

mod show;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::builder::NonEmptyStringValueParser;
use onnxforge::Opset;
use onnxforge::hierarchy::sidecar::path_for;
use onnxforge::interface::Wishes;
use onnxforge::io::External;
use onnxforge::ir::Model;
use onnxforge::optimize::{AccuracyMode, Optimized, Options, Report, Times, optimize_with};
use onnxforge::page::page;
use onnxforge::trace::edits;
use onnxforge::upgrade::CURED;
use onnxforge::verify::guard::Proof;
use serde::Serialize;

use super::ExternalArg;
use super::hierarchy::sidecar;
use super::tag::write_sidecar;
use super::upgrade::version_or_keep;
use crate::arguments::{Checks, SelectionArgs, named_shape, named_size};
use crate::failure::{Failure, Verdict};
use crate::files::WrittenFile;
use crate::output::Output;

/// Make a model smaller without changing what it computes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write the result; the same path replaces the model.
    #[arg(short, long)]
    output: PathBuf,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Fix a symbolic input dimension.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// Fix the shape of an input; symbolic dimensions get the same size everywhere.
    #[arg(long, value_name = "NAME=N,N,…", value_parser = named_shape)]
    set_shape: Vec<(String, Vec<usize>)>,
    /// Make these values of the graph the outputs, and remove what they do not need.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = NonEmptyStringValueParser::new())]
    outputs: Vec<String>,
    /// Convert to this version of the standard operators before the passes run; only upwards.
    ///
    /// `latest` is the newest that ONNX Runtime takes; so is a number for `--target ort`, up to that.
    #[arg(long, value_name = "keep|latest|N", default_value = "keep", value_parser = version_or_keep)]
    opset: Opset,
    /// How much results may change.
    #[arg(long, value_enum, default_value = "default")]
    accuracy: AccuracyArg,
    /// Stop after this many edits.
    #[arg(long, value_name = "N")]
    stop_after: Option<usize>,
    /// Where weights go.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
    #[command(flatten)]
    checks: Checks,
    /// Write every edit to this file, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a page that shows the modules of the result, before and after.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AccuracyArg {
    /// Only rewrites that keep every bit; the comparison demands identical bits.
    Exact,
    /// Rewrites may round, each as much as it declares.
    Default,
}

impl From<AccuracyArg> for AccuracyMode {
    fn from(arg: AccuracyArg) -> Self {
        match arg {
            AccuracyArg::Exact => Self::Exact,
            AccuracyArg::Default => Self::Default,
        }
    }
}

/// What `--json` shows.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    report: Report,
    /// Small models on which passes did something wrong.
    reproducers: Vec<String>,
    milliseconds: AllTimes,
    files: Vec<WrittenFile>,
}

#[derive(Debug, Serialize)]
struct AllTimes {
    load: f64,
    #[serde(flatten)]
    work: Times,
    save: f64,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let start = Instant::now();
    let passes = args.selection.resolve()?;
    output.files.require_folders([&args.output].into_iter().chain(&args.trace).chain(&args.report))?;
    let model = output.files.load_valid(&args.model, if args.opset == Opset::Keep { &[] } else { CURED })?;
    super::warn_of_newer_opsets(&args.model, &model);
    let options = Options {
        interface: Wishes {
            dims: args.set_dim.iter().cloned().collect(),
            shapes: args.set_shape.iter().cloned().collect(),
            outputs: args.outputs.clone(),
        },
        opset: args.opset,
        passes,
        accuracy: args.accuracy.into(),
        stop_after: args.stop_after,
        verification: args.checks.verification(&model, output)?,
        modules: sidecar(&args.model, &model, output),
    };
    let load = milliseconds(start);
    let optimized = optimize_with(model, &options, output.progress())
        .map_err(|error| Failure::from(error).about(&args.model))?;
    let start = Instant::now();
    let has_sidecar = options.modules.is_some();
    let files = write(args, &optimized, has_sidecar, output)?;
    let reproducers = write_reproducers(&optimized.report.verification, &args.output, output)?;
    let milliseconds = AllTimes { load, work: optimized.times, save: milliseconds(start) };
    let proof = &optimized.report.verification;
    let is_wrong = !proof.reverted.is_empty() && !args.checks.allow_revert
        || !proof.is_verified() && args.checks.require_verified;
    let shown = Shown { report: optimized.report, reproducers, milliseconds, files };
    output.result(&shown, |out| shown.show(out))?;
    Ok(if is_wrong { Verdict::No } else { Verdict::Yes })
}

/// Writes the model and what belongs to it.
fn write(
    args: &Args,
    optimized: &Optimized,
    has_sidecar: bool,
    output: &Output,
) -> Result<Vec<WrittenFile>, Failure> {
    let Optimized { model, modules, .. } = optimized;
    if let Some(path) = &args.trace {
        write_trace(model, path, output)?;
    }
    let mut files = output.save(model, &args.output, args.external)?;
    if has_sidecar {
        let beside = path_for(&args.output);
        files.extend(write_sidecar(
            &beside,
            &args.output,
            model,
            &modules.hierarchy,
            &modules.policy,
            output,
        )?);
    }
    if let Some(path) = &args.report {
        let file = args.output.display().to_string();
        let effect = Some(optimized.for_page());
        let text = page(&file, model, &modules.hierarchy, &modules.policy, &[], effect);
        files.extend(output.files.write(path, |out| out.write_all(text.as_bytes()))?);
    }
    Ok(files)
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Writes small models that show what was wrong, beside the result.
fn write_reproducers(proof: &Proof, beside: &Path, output: &Output) -> Result<Vec<String>, Failure> {
    let mut written = Vec::new();
    for (place, model) in proof.reverted.iter().filter_map(|wrong| wrong.reproducer.as_deref()).enumerate() {
        let path = beside.with_extension(format!("wrong-{}.onnx", place + 1));
        output.save(model, &path, External::Auto)?;
        written.push(path.display().to_string());
    }
    Ok(written)
}

fn write_trace(model: &Model, path: &Path, output: &Output) -> Result<(), Failure> {
    let line = |edit| serde_json::to_string(&edit);
    let mut lines = edits(model).map(line);
    output.files.write(path, |out| lines.try_for_each(|line| writeln!(out, "{}", line?)))?;
    Ok(())
}
