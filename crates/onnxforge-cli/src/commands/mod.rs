//! One file per command.

mod attribute;
mod audit;
mod bench;
mod census;
mod check;
mod compare;
mod completions;
mod coverage;
mod doctor;
mod explain;
mod export;
mod extract;
mod fingerprint;
mod hierarchy;
mod infer;
mod inspect;
mod lab;
mod materialize;
mod optimize;
mod parse;
mod passes;
mod print;
mod redact;
mod reduce;
mod report;
mod restore;
mod run;
mod save;
mod strip;
mod study;
mod tag;
mod tree;
mod upgrade;
mod validate;
mod verify;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use onnxforge::check::{Problem, Rule, Severity, check as find_problems};
use onnxforge::ir::Model;
use onnxforge::ops::callee::newer_opsets;
use onnxforge::progress::Unit;
use serde::Serialize;

use crate::failure::{Failure, Kind, Verdict};
use crate::files::WrittenFile;
use crate::jobs;
use crate::output::Output;

/// Bytes that given inputs of models that are compared may take.
const MOST_INPUTS: u64 = 16 << 30;

/// The commands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Optimize(optimize::Args),
    Upgrade(upgrade::Args),
    Verify(verify::Args),
    Compare(compare::Args),
    Passes(passes::Args),
    Explain(explain::Args),
    Attribute(attribute::Args),
    Audit(audit::Args),
    Fingerprint(fingerprint::Args),
    Census(census::Args),
    Bench(bench::Args),
    Study(study::Args),
    #[command(hide = true)]
    Lab(lab::Args),
    Check(check::Args),
    Inspect(inspect::Args),
    Infer(infer::Args),
    Run(run::Args),
    Save(save::Args),
    Print(print::Args),
    Parse(parse::Args),
    Reduce(reduce::Args),
    Export(export::Args),
    Tag(tag::Args),
    Tree(tree::Args),
    Coverage(coverage::Args),
    Extract(extract::Args),
    Report(report::Args),
    Restore(restore::Args),
    Strip(strip::Args),
    Validate(validate::Args),
    Redact(redact::Args),
    Materialize(materialize::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
}

impl Command {
    pub fn run(self, output: &Output) -> Result<Verdict, Failure> {
        match self {
            Self::Optimize(args) => optimize::run(&args, output),
            Self::Upgrade(args) => upgrade::run(&args, output),
            Self::Verify(args) => verify::run(&args, output),
            Self::Compare(args) => compare::run(&args, output),
            Self::Passes(args) => passes::run(&args, output),
            Self::Explain(args) => explain::run(&args, output),
            Self::Attribute(args) => attribute::run(&args, output),
            Self::Audit(args) => audit::run(&args, output),
            Self::Fingerprint(args) => fingerprint::run(&args, output),
            Self::Census(args) => census::run(&args, output),
            Self::Bench(args) => bench::run(&args, output),
            Self::Study(args) => study::run(&args, output),
            Self::Lab(args) => lab::run(&args, output),
            Self::Check(args) => check::run(&args, output),
            Self::Infer(args) => infer::run(&args, output),
            Self::Inspect(args) => inspect::run(&args, output),
            Self::Run(args) => run::run(&args, output),
            Self::Save(args) => save::run(&args, output),
            Self::Print(args) => print::run(&args, output),
            Self::Parse(args) => parse::run(&args, output),
            Self::Reduce(args) => reduce::run(&args, output),
            Self::Export(args) => export::run(&args),
            Self::Tag(args) => tag::run(&args, output),
            Self::Tree(args) => tree::run(&args, output),
            Self::Coverage(args) => coverage::run(&args, output),
            Self::Extract(args) => extract::run(&args, output),
            Self::Report(args) => report::run(&args, output),
            Self::Restore(args) => restore::run(&args, output),
            Self::Strip(args) => strip::run(&args, output),
            Self::Validate(args) => validate::run(&args, output),
            Self::Redact(args) => redact::run(&args, output),
            Self::Materialize(args) => materialize::run(&args, output),
            Self::Doctor(args) => doctor::run(&args, output),
            Self::Completions(args) => completions::run(&args, output),
        }
    }
}

/// Where weights go, as users say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExternalArg {
    /// Into the model file while that stays below 2 GiB, else into one data file.
    Auto,
    /// Where they were: external weights stay external, the others stay inside.
    Keep,
    /// Into the model file.
    Inline,
    /// All but the small ones into one data file beside the model.
    Split,
}

impl From<ExternalArg> for onnxforge::io::External {
    fn from(arg: ExternalArg) -> Self {
        match arg {
            ExternalArg::Auto => Self::Auto,
            ExternalArg::Keep => Self::Keep,
            ExternalArg::Inline => Self::Inline,
            ExternalArg::Split => Self::Split,
        }
    }
}

/// How much ONNX Runtime rewrites, as users say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LevelArg {
    /// Nothing.
    Off,
    /// Removals and folding.
    Basic,
    /// Fusions too.
    Extended,
    /// And the layout of this machine: what it does unless told otherwise.
    All,
}

impl From<LevelArg> for onnxforge::runtime::Level {
    fn from(arg: LevelArg) -> Self {
        match arg {
            LevelArg::Off => Self::Off,
            LevelArg::Basic => Self::Basic,
            LevelArg::Extended => Self::Extended,
            LevelArg::All => Self::All,
        }
    }
}

/// Models that a command is asked about, one by one.
#[derive(Debug, clap::Args)]
struct Models {
    /// The models.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// How many models at a time; as many as the machine has threads unless told.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
}

impl Models {
    /// What there is to say of each of them, in their order.
    fn each<R: Send>(
        &self,
        output: &Output,
        ask: impl Fn(&Path, Model) -> Result<R, Failure> + Sync,
    ) -> Result<Vec<R>, Failure> {
        let jobs = self.jobs.unwrap_or_else(jobs::as_many_as_fit);
        output.progress().begin("models", self.models.len() as u64, Unit::Models);
        let failed = AtomicBool::new(false);
        let answers = jobs::each(&self.models, jobs, output.progress(), |path| {
            // After one failure nobody wants the other answers.
            if failed.load(Ordering::Relaxed) {
                return None;
            }
            let answer = output.files.load(path).and_then(|model| {
                warn_of_newer_opsets(path, &model);
                ask(path, model)
            });
            failed.fetch_or(answer.is_err(), Ordering::Relaxed);
            Some(answer)
        });
        output.progress().end();
        answers.into_iter().flatten().collect()
    }
}

/// Tells that operators may mean something else than is known here.
fn warn_of_newer_opsets(path: &Path, model: &Model) {
    for newer in newer_opsets(model) {
        tracing::warn!("{}: {newer}", path.display());
    }
}

/// The file's name, or its whole path when another one has the same name.
fn short_name<'a>(path: &'a str, paths: &[&str]) -> &'a str {
    let name = |path: &'a str| path.rsplit(['/', '\\']).next().unwrap_or(path);
    let ending = format!("/{}", name(path));
    let same = paths.iter().filter(|other| other.ends_with(&ending)).count();
    if same > 1 { path } else { name(path) }
}

/// The rules that a model may break without losing its meaning.
const HARMLESS: &[Rule] = &[Rule::MissingShape, Rule::RuntimeOperator];

/// A model that contradicts the standard has no meaning that could be kept. `cured` are rules that what is to be done takes care of.
fn refuse_invalid(path: &Path, output: &Output, cured: &[Rule]) -> Result<(), Failure> {
    let (message, mut files) = output.files.message(path)?;
    let problems = find_problems(&message, &mut files);
    let matters = |problem: &&Problem| {
        problem.severity == Severity::Error
            && !cured.contains(&problem.rule)
            && !HARMLESS.contains(&problem.rule)
    };
    let errors: Vec<&Problem> = problems.iter().filter(matters).collect();
    let Some(first) = errors.first() else { return Ok(()) };
    let more = match errors.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more; `onnxforge check` lists them)"),
    };
    let failure = Failure::at(path, format_args!("{}: {}{more}", first.place, first.message));
    Err(Failure { kind: Kind::Invalid, place: Some(first.place.to_string()), ..failure })
}

/// What a command wrote, for `--json` and for people.
#[derive(Debug, Serialize)]
struct Written {
    schema: u32,
    files: Vec<WrittenFile>,
    /// What else there is to say.
    notes: Vec<String>,
}

impl Written {
    fn new(files: Vec<WrittenFile>) -> Self {
        Self { schema: 1, files, notes: Vec::new() }
    }

    fn show(&self, output: &Output) -> Result<(), Failure> {
        output.result(self, |out| {
            self.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
            let mut files = self.files.iter();
            files.try_for_each(|file| {
                writeln!(out, "wrote {} ({})", file.path, crate::output::bytes(file.bytes))
            })
        })
    }
}
