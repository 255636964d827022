//! `onnxforge profile`: how long each PyTorch module takes.

mod show;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use onnxforge::bench::{FEWEST, confidence};
use onnxforge::eval::sample;
use onnxforge::ir::Model;
use onnxforge::ops::Value;
use onnxforge::page::{Besides, page};
use onnxforge::profile::{Engine, Measurement, Profile, Profiled, Ran, flame, profile, trace};
use onnxforge::runtime::Level;
use serde::Serialize;

use super::LevelArg;
use super::bench::{InputReport, shown_inputs};
use super::hierarchy::{PolicyArgs, Source, View};
use crate::arguments::{check_dims, complete, given, named_size, seconds};
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::{Output, forbid_inputs};

/// Measure how long each PyTorch module takes in ONNX Runtime.
///
/// ONNX Runtime's own profiler times each node of the graph that it really runs, its fusions included; nodes are found again by the names that survive.
/// Several models are shown side by side, module by module. Without ONNX Runtime, the native engine runs the model. It also runs files of TensorFlow Lite: LiteRT gives
/// Python programs no times of operators.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The models. The first is what others are compared with; all must take the same inputs.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// The PyTorch model's modules as JSON; sidecars beside the models are found by themselves.
    #[arg(long, value_name = "FILE.json")]
    modules: Option<PathBuf>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// What to list.
    #[arg(long, value_enum, default_value = "module")]
    by: By,
    /// How many levels of modules are shown.
    #[arg(long, value_name = "N", default_value_t = 3)]
    depth: usize,
    /// How many lines of a list of operators, classes or nodes are shown.
    #[arg(long, value_name = "N", default_value_t = 30)]
    top: usize,
    /// Engine that runs the models.
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineArg,
    /// How many sessions of each model there are with the profiler; there are as many without.
    #[arg(long, default_value_t = FEWEST, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(FEWEST as u64..=1000))]
    sessions: usize,
    /// How long to measure each model; loading and warming up come on top.
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// Runs of each session that do not count.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    warmup: usize,
    /// Threads within an operator and between operators. One is the steadiest.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: usize,
    /// How much ONNX Runtime rewrites.
    #[arg(long, value_enum, default_value = "all")]
    level: LevelArg,
    /// Inputs by name; others are synthetic.
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,
    /// Size of a symbolic dimension in synthetic inputs; others take the smallest size at which the model runs.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// Seed for synthetic inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write a flame graph of the first model's modules.
    #[arg(long, value_name = "FILE.svg")]
    flame: Option<PathBuf>,
    /// Write a run of the first model for Perfetto or chrome://tracing, with modules as nested slices.
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Write a page that shows the modules of the first model with their times.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// Modules that have tags, as a tree, the longest first.
    Module,
    /// Operators.
    Operator,
    /// Classes of modules.
    Class,
    /// Nodes of the graph that was run.
    Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineArg {
    /// ONNX Runtime where it is found, else the native engine, which also runs files of TensorFlow Lite.
    Auto,
    /// ONNX Runtime.
    Ort,
    /// The engine of onnxforge.
    Native,
}

impl From<EngineArg> for Engine {
    fn from(arg: EngineArg) -> Self {
        match arg {
            EngineArg::Auto => Self::Auto,
            EngineArg::Ort => Self::Ort,
            EngineArg::Native => Self::Native,
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    engine: Ran,
    /// The version of ONNX Runtime.
    runtime: Option<String>,
    level: Level,
    threads: usize,
    sessions: usize,
    /// How sure the intervals are; they are those of order statistics of sessions.
    confidence: Option<f64>,
    inputs: Vec<InputReport>,
    models: Vec<ModelReport>,
    files: Vec<WrittenFile>,
}

#[derive(Debug, Serialize)]
struct ModelReport {
    model: String,
    #[serde(flatten)]
    profile: Profile,
    /// Modules that have a tag of their own, by their place among the modules.
    #[serde(skip)]
    tagged: Vec<bool>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let written = || args.flame.iter().chain(&args.trace).chain(&args.report);
    output.files.require_folders(written())?;
    let sources =
        args.models.iter().map(|model| Source { model: model.clone(), modules: args.modules.clone() });
    let sources: Vec<Source> = sources.collect();
    for target in written() {
        sources.iter().try_for_each(|source| forbid_inputs(target, &source.files()))?;
    }
    let mut views = Vec::new();
    for source in &sources {
        views.push(args.policy.view(source, output)?);
    }
    let inputs = args.inputs(&views[0].model, output)?;
    let options = Measurement {
        level: args.level.into(),
        threads: args.threads,
        warmups: args.warmup,
        sessions: args.sessions,
        time: args.seconds,
    };
    let mut found: Vec<Profiled> = Vec::new();
    for (path, view) in args.models.iter().zip(&views) {
        let seen = (&view.hierarchy, &view.tags);
        let measured =
            profile(path, &view.model, seen, &inputs, (args.engine.into(), &options), output.progress());
        found.push(measured.map_err(|error| Failure::from(error).about(path))?);
    }
    let files = write(args, &views[0], &found[0], output)?;
    let models = args.models.iter().zip(&views).zip(&found).map(|((path, view), found)| ModelReport {
        model: path.display().to_string(),
        profile: found.profile.clone(),
        tagged: view.hierarchy.table().iter().map(|(id, _)| view.tags.kept(id) == id).collect(),
    });
    let report = Report {
        schema: 1,
        engine: found[0].engine,
        runtime: found[0].runtime.clone(),
        level: args.level.into(),
        threads: args.threads,
        sessions: args.sessions,
        confidence: confidence(args.sessions),
        inputs: shown_inputs(&inputs),
        models: models.collect(),
        files,
    };
    output.result(&report, |out| {
        report.show(args, out)?;
        show_files(&report.files, out)
    })?;
    Ok(Verdict::Yes)
}

impl Args {
    fn inputs(&self, model: &Model, output: &Output) -> Result<HashMap<String, Value>, Failure> {
        check_dims("--set-dim", &self.set_dim, model)?;
        let mut inputs = given(self.inputs.as_deref(), model, output)?;
        let dims = self.set_dim.iter().cloned().collect();
        let options = sample::Options { seed: self.seed, dims, ..sample::Options::default() };
        complete(&self.models[0], model, &mut inputs, &options)?;
        Ok(inputs)
    }
}

/// Writes what shows the first model.
fn write(args: &Args, view: &View, found: &Profiled, output: &Output) -> Result<Vec<WrittenFile>, Failure> {
    let file = args.models[0].display().to_string();
    let title = args.models[0].file_name().unwrap_or_default().to_string_lossy();
    let mut files = Vec::new();
    if let Some(path) = &args.flame {
        let drawing = flame::flame(&found.profile, &title);
        files.extend(output.files.write(path, |out| out.write_all(drawing.as_bytes()))?);
    }
    if let Some(path) = &args.trace {
        let events = trace::trace(&found.observed, &view.hierarchy, &title);
        files.extend(output.files.write(path, |out| Ok(serde_json::to_writer(out, &events)?))?);
    }
    if let Some(path) = &args.report {
        let View { model, hierarchy, policy, .. } = view;
        let besides = Besides { times: Some(&found.profile), ..Besides::default() };
        let text = page(&file, model, hierarchy, policy, &args.set_dim, besides);
        files.extend(output.files.write(path, |out| out.write_all(text.as_bytes()))?);
    }
    Ok(files)
}
