//! `onnxforge optimize`: fewer nodes, the same results.

mod show;

use std::path::{Path, PathBuf};
use std::time::Instant;

use onnxforge::Hierarchy;
use onnxforge::hierarchy::recorded::Recorded;
use onnxforge::io::External;
use onnxforge::ir::Model;
use onnxforge::optimize::{Optimized, Options, Report, Times, optimize_with};
use onnxforge::page::{Besides, page};
use onnxforge::trace::edits;
use onnxforge::verify::guard::Proof;
use serde::Serialize;

use super::ExternalArg;
use super::hierarchy::sidecar;
use super::tag::write_beside;
use crate::arguments::{Checks, PlanArgs};
use crate::failure::{Failure, Verdict};
use crate::files::WrittenFile;
use crate::output::Output;

/// Make a model smaller without changing what it computes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write the result; the same path replaces the model [default: NAME.opt.onnx beside NAME.onnx].
    #[arg(short, long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    plan: PlanArgs,
    /// Declare inferred types and shapes in value_info and of outputs.
    #[arg(long)]
    declare_shapes: bool,
    /// Name nodes that have no name.
    #[arg(long)]
    name_nodes: bool,
    /// Rewrite only inside of these modules (paths, tags or patterns such as 'encoder.*'), and leave all other nodes as they are.
    #[arg(long, value_name = "MODULE,…", value_delimiter = ',')]
    modules: Vec<String>,
    /// Stop after this many edits.
    #[arg(long, value_name = "N")]
    stop_after: Option<usize>,
    /// Where to store weights.
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
    let passes = args.plan.selection().resolve()?;
    let path = args.output.clone().unwrap_or_else(|| beside(&args.model));
    output.files.require_folders(args.output.iter().chain(&args.trace).chain(&args.report))?;
    let model = args.plan.load(&args.model, output)?;
    super::warn_of_newer_opsets(&args.model, &model);
    let options = Options {
        stop_after: args.stop_after,
        within: args.modules.clone(),
        verification: args.checks.verification(&model, output)?,
        modules: sidecar(&args.model, &model, output),
        declare_shapes: args.declare_shapes,
        name_nodes: args.name_nodes,
        ..args.plan.options(passes)
    };
    let load = milliseconds(start);
    // Weights are shared.
    let original = args.report.is_some().then(|| model.clone());
    let optimized = optimize_with(model, &options, output.progress())
        .map_err(|error| Failure::from(error).about(&args.model))?;
    let start = Instant::now();
    let files = write(args, &path, &optimized, (original, options.modules.as_ref()), output)?;
    let reproducers = write_reproducers(&optimized.report.verification, &path, output)?;
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
    path: &Path,
    optimized: &Optimized,
    (original, recorded): (Option<Model>, Option<&Recorded>),
    output: &Output,
) -> Result<Vec<WrittenFile>, Failure> {
    let Optimized { model, modules, .. } = optimized;
    if let Some(trace) = &args.trace {
        write_trace(model, trace, output)?;
    }
    let mut files = output.save(model, path, args.external)?;
    if recorded.is_some() {
        files.extend(write_beside(path, model, &modules.hierarchy, &modules.policy, output)?);
    }
    if let Some(report) = &args.report {
        let file = path.display().to_string();
        let known = original.as_ref().map(|original| Hierarchy::of(original, recorded));
        let besides = Besides {
            optimization: Some(optimized.for_page()),
            before: original.as_ref().zip(known.as_ref()),
            times: None,
        };
        let text = page(&file, model, &modules.hierarchy, &modules.policy, &[], besides);
        files.extend(output.files.write(report, |out| out.write_all(text.as_bytes()))?);
    }
    Ok(files)
}

/// Where the result goes unless told otherwise: `NAME.opt.onnx` beside `NAME.onnx`.
fn beside(model: &Path) -> PathBuf {
    let is_named = model.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx"));
    let name = if is_named { model.file_stem() } else { model.file_name() };
    let mut name = name.unwrap_or_default().to_owned();
    name.push(".opt.onnx");
    model.with_file_name(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_lies_beside_its_model() {
        for (model, result) in [
            ("a/bert.onnx", "a/bert.opt.onnx"),
            ("yolo.v8.ONNX", "yolo.v8.opt.onnx"),
            ("model.v2", "model.v2.opt.onnx"),
            ("memory:model.onnx", "memory:model.opt.onnx"),
        ] {
            assert_eq!(beside(Path::new(model)), Path::new(result));
        }
    }
}
