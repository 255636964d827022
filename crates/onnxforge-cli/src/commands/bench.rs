//! `onnxforge bench`: how long ONNX Runtime takes for models, and whether one is faster than another.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use comfy_table::Cell;
use onnxforge::analysis::inspect::inspect;
use onnxforge::bench::{self, Budget, Estimate, FEWEST, Group, Measured, Memory, Verdict as Said};
use onnxforge::eval::{check_inputs, sample};
use onnxforge::formats::Format;
use onnxforge::ir::Model;
use onnxforge::ops::Value;
use onnxforge::progress::Unit;
use onnxforge::runtime::find::VARIABLE;
use onnxforge::runtime::litert::{LiteRt, MeasureOptions};
use onnxforge::runtime::timed::Inputs;
use onnxforge::runtime::{Level, Runtime};
use serde::Serialize;

use super::LevelArg;
use super::run::write_npz;
use crate::arguments::{check_dims, complete, given, named_size, seconds};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, bytes, grouped, number, table};
use crate::process::{Ended, Limits, run as run_process};

/// Measure latency, load time and memory in ONNX Runtime or LiteRT.
///
/// Files of TensorFlow Lite run in LiteRT (Python package ai-edge-litert), ONNX models in ONNX Runtime.
/// Other models are compared with the first.
///
/// All models run on the same inputs and take turns; each is compared with the first within a round. Sessions of one model differ, those
/// of small ones by a fifth, so there are several, each in a process of its own, and the interval of a median is one over sessions.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The models. All must take the same inputs.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// Sessions of each model.
    #[arg(long, default_value_t = 9, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(FEWEST as u64..=1000))]
    sessions: usize,
    /// Seconds to measure, all sessions together, without loading and warm-up.
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// Timed runs of each session, instead of --seconds.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: Option<usize>,
    /// Warm-up runs of each session.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    warmup: usize,
    /// Threads within an operator and between operators. One is the steadiest.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: usize,
    /// Graph optimization level of ONNX Runtime.
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
    /// Measure one session of each model in this process, and write the times; this one comes first.
    #[arg(long, hide = true)]
    turn: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// What runs the models.
    host: &'static str,
    /// Its version.
    runtime: Option<String>,
    level: Level,
    threads: usize,
    /// Sessions of each model.
    sessions: usize,
    /// Rounds of each session.
    rounds: Vec<usize>,
    /// How sure the intervals are; they are those of order statistics of sessions.
    confidence: f64,
    inputs: Vec<InputReport>,
    models: Vec<ModelReport>,
}

#[derive(Debug, Serialize)]
pub struct InputReport {
    pub name: String,
    pub r#type: String,
    pub shape: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct ModelReport {
    model: String,
    /// Nodes of the whole model.
    nodes: usize,
    /// The model file, and what it uses of data files.
    bytes: u64,
    /// Of a process that loads and runs only this model; nothing where the system does not tell.
    memory: Option<Memory>,
    #[serde(flatten)]
    measured: Measured,
}

/// What runs the models.
enum Host {
    OnnxRuntime(&'static Runtime),
    LiteRt(&'static LiteRt),
}

impl Host {
    /// ONNX Runtime for ONNX models, LiteRT for files of TensorFlow Lite.
    fn of(models: &[PathBuf]) -> Result<Self, Failure> {
        let is_tflite = |path: &PathBuf| Format::found_in(path) == Some(Format::TfLite);
        match models.iter().filter(|path| is_tflite(path)).count() {
            0 => Ok(Self::OnnxRuntime(Runtime::get()?)),
            count if count == models.len() => Ok(Self::LiteRt(LiteRt::get()?)),
            _ => Err(Failure::new(
                "ONNX models and files of TensorFlow Lite run in different runtimes: measure one kind at a time",
            )),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::OnnxRuntime(_) => "ONNX Runtime",
            Self::LiteRt(_) => "LiteRT",
        }
    }

    fn version(&self) -> Option<String> {
        match self {
            Self::OnnxRuntime(runtime) => runtime.version(),
            Self::LiteRt(_) => None,
        }
    }
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let host = Host::of(&args.models)?;
    if let Some(turn) = args.turn {
        return group(args, turn, output);
    }
    let models = args.models.iter().map(|path| output.files.load(path)).collect::<Result<Vec<_>, _>>()?;
    let inputs = inputs(args, &models, output)?;
    if let Host::OnnxRuntime(_) = host {
        // What ONNX Runtime does not take is reported before anything is measured.
        Inputs::new(&inputs)?;
    }
    let folder = tempfile::tempdir()?;
    let process = Process {
        args,
        host: &host,
        values: &inputs,
        program: &output.program,
        follow_links: output.files.links.follow,
        inputs: folder.path().join("inputs.npz"),
    };
    let named: Vec<(String, Value)> =
        inputs.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    write_npz(&process.inputs, &named, output)?;
    let bar = output.progress();
    bar.begin(host.name(), (args.models.len() + args.sessions) as u64, Unit::Sessions);
    // Each model alone first: that also brings the files into memory.
    let mut memory = Vec::new();
    for path in &args.models {
        memory.push(process.measure(std::slice::from_ref(path), 0, Budget::Rounds(1))?.memory);
        bar.advance(1);
    }
    let budget = match args.rounds {
        Some(rounds) => Budget::Rounds(rounds),
        None => Budget::Time(args.seconds / u32::try_from(args.sessions).unwrap_or(u32::MAX)),
    };
    let mut groups = Vec::new();
    for turn in 0..args.sessions {
        groups.push(process.measure(&args.models, turn, budget)?);
        bar.advance(1);
    }
    bar.end();
    let none = || Failure::new("too few sessions were measured".to_owned());
    let measured = bench::compare(&groups).ok_or_else(none)?;
    let of_models = args.models.iter().zip(&models).zip(memory).zip(measured);
    let report = Report {
        schema: 1,
        host: host.name(),
        runtime: host.version(),
        level: args.level.into(),
        threads: args.threads,
        sessions: groups.len(),
        rounds: groups.iter().map(|group| group.sessions[0].runs.len()).collect(),
        confidence: bench::confidence(groups.len()).ok_or_else(none)?,
        inputs: shown_inputs(&inputs),
        models: of_models
            .map(|(((path, model), memory), measured)| ModelReport::new(path, model, memory, measured))
            .collect(),
    };
    output.result(&report, |out| report.show(out))?;
    Ok(Verdict::Yes)
}

/// The inputs of the first model, which all of them must take.
fn inputs(args: &Args, models: &[Model], output: &Output) -> Result<HashMap<String, Value>, Failure> {
    let (path, first) = (&args.models[0], &models[0]);
    check_dims("--set-dim", &args.set_dim, first)?;
    let mut inputs = given(args.inputs.as_deref(), first, output)?;
    let dims = args.set_dim.iter().cloned().collect();
    let options = sample::Options { seed: args.seed, dims, ..sample::Options::default() };
    complete(path, first, &mut inputs, &options)?;
    for (other, model) in args.models.iter().zip(models) {
        check_inputs(model, &inputs).map_err(|error| {
            let given =
                if other == path { String::new() } else { format!(" with the inputs of {}", path.display()) };
            Failure {
                path: Some(other.clone()),
                ..Failure::new(format_args!(
                    "{}{given}: {error}; all models must take the same inputs",
                    other.display()
                ))
            }
        })?;
    }
    Ok(inputs)
}

/// The part of a process of its own: writes a [`Group`].
fn group(args: &Args, turn: usize, output: &Output) -> Result<Verdict, Failure> {
    let inputs = given(args.inputs.as_deref(), &output.files.load(&args.models[0])?, output)?;
    let options = bench::Options {
        level: args.level.into(),
        threads: args.threads,
        warmups: args.warmup,
        budget: args.rounds.map_or(Budget::Time(args.seconds), Budget::Rounds),
        turn,
    };
    let group = bench::measure(&args.models, &inputs, &options)?;
    output.result(&group, |_| Ok(()))?;
    Ok(Verdict::Yes)
}

/// How sessions are measured in a process of their own.
struct Process<'a> {
    args: &'a Args,
    host: &'a Host,
    values: &'a HashMap<String, Value>,
    program: &'a [OsString],
    follow_links: bool,
    /// The file of the inputs.
    inputs: PathBuf,
}

impl Process<'_> {
    fn measure(&self, models: &[PathBuf], turn: usize, budget: Budget) -> Result<Group, Failure> {
        let runtime = match self.host {
            Host::OnnxRuntime(runtime) => runtime,
            Host::LiteRt(litert) => {
                let (threads, warmups) = (self.args.threads, self.args.warmup);
                let options = MeasureOptions { threads, warmups, turn, budget };
                return litert.measure(models, self.values, &options).map_err(Failure::new);
            }
        };
        let (program, words) =
            self.program.split_first().ok_or_else(|| Failure::new("no program to measure with"))?;
        let mut command = Command::new(program);
        command.args(words);
        command.env(VARIABLE, &runtime.file).arg("bench").arg("--inputs").arg(&self.inputs);
        let budget = match budget {
            Budget::Rounds(rounds) => format!("--rounds={rounds}"),
            Budget::Time(time) => format!("--seconds={}", time.as_secs_f64()),
        };
        let level = self.args.level.to_possible_value();
        command.arg(budget).arg(format!("--turn={turn}")).arg(format!("--threads={}", self.args.threads));
        command.arg(format!("--warmup={}", self.args.warmup));
        command.arg(format!("--level={}", level.as_ref().map_or("all", |level| level.get_name())));
        if self.follow_links {
            command.arg("--follow-links");
        }
        command.arg("--json=-").arg("--").args(models);
        let Ended { code, out, said } = run_process(&mut command, Limits::default())?;
        if code != Some(0) {
            let said = said.trim().trim_start_matches("error: ");
            let end = match said {
                "" => format!("the measuring process ended with {}", code.unwrap_or(-1)),
                said => said.to_owned(),
            };
            return Err(Failure::new(end));
        }
        Ok(serde_json::from_slice(&out)?)
    }
}

/// Inputs as reports list them.
pub fn shown_inputs(inputs: &HashMap<String, Value>) -> Vec<InputReport> {
    let tensors = inputs.iter().filter_map(|(name, value)| {
        let array = value.array().ok()?;
        let r#type = array.dtype().name().to_owned();
        Some(InputReport { name: name.clone(), r#type, shape: array.shape().to_vec() })
    });
    let mut shown: Vec<InputReport> = tensors.collect();
    shown.sort_by(|a, b| a.name.cmp(&b.name));
    shown
}

impl ModelReport {
    fn new(path: &Path, model: &Model, memory: Option<Memory>, measured: Measured) -> Self {
        let card = inspect(model, Some(path));
        let data: u64 = card.data_files.iter().map(|file| file.bytes).sum();
        Self {
            model: path.display().to_string(),
            nodes: card.nodes_total,
            bytes: card.file_bytes.unwrap_or(0).saturating_add(data),
            memory,
            measured,
        }
    }
}

impl Report {
    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = table(&["model", "nodes", "size", "load, ms", "run, ms", "speed", "peak memory"]);
        for model in &self.models {
            let against = model.measured.against_first.as_ref();
            rows.add_row(vec![
                Cell::new(&model.model),
                number(grouped(model.nodes as u64)),
                number(bytes(model.bytes)),
                number(shown(&model.measured.load_ms)),
                number(shown(&model.measured.latency_ms)),
                number(against.map_or_else(|| "1".to_owned(), |against| shown(&against.speed))),
                number(model.memory.map_or_else(|| "-".to_owned(), |memory| bytes(memory.peak))),
            ]);
        }
        writeln!(out, "{rows}")?;
        for model in &self.models {
            let Some(against) = &model.measured.against_first else { continue };
            let said = match against.verdict {
                Said::Faster => "faster than",
                Said::Slower => "slower than",
                Said::Noise => "noise: not distinguishable from",
            };
            writeln!(out, "{}: {said} {}", model.model, self.models[0].model)?;
        }
        let inputs =
            self.inputs.iter().map(|input| format!("{} {}{:?}", input.name, input.r#type, input.shape));
        let rounds = self.rounds.iter().copied();
        writeln!(
            out,
            "{} {}, {} {}, {} sessions of each model with {} to {} rounds; inputs: {}",
            self.host,
            self.runtime.as_deref().unwrap_or("of unknown version"),
            self.threads,
            if self.threads == 1 { "thread" } else { "threads" },
            self.sessions,
            rounds.clone().min().unwrap_or(0),
            rounds.max().unwrap_or(0),
            inputs.collect::<Vec<_>>().join(", ")
        )?;
        writeln!(
            out,
            "medians over sessions with {:.1} % intervals (order statistics); speed: the first model's time by this one's in the same round",
            self.confidence * 100.0
        )?;
        if self.models.iter().any(|model| model.memory.is_none()) {
            writeln!(out, "memory is measured on Linux only")?;
        }
        Ok(())
    }
}

fn shown(estimate: &Estimate) -> String {
    let Estimate { median, low, high } = estimate;
    // Four digits, whatever the magnitude.
    let digits = (3 - median.abs().max(1e-3).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{median:.digits$} [{low:.digits$}, {high:.digits$}]")
}
