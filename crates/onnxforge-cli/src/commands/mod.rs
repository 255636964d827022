//! One file per command.

mod analyze;
mod attribute;
mod audit;
mod bench;
mod categories;
mod census;
mod check;
mod compare;
mod completions;
mod convert;
mod coverage;
mod doctor;
mod explain;
mod export;
mod extract;
mod fingerprint;
mod float16;
mod hierarchy;
mod infer;
mod inspect;
mod materialize;
mod optimize;
mod parse;
mod passes;
mod print;
mod profile;
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

use onnxforge::ir::Model;
use onnxforge::ops::callee::newer_opsets;
use onnxforge::progress::Unit;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::jobs;
use crate::output::Output;

/// Defines the commands, each once: its group, its name, and the module of that name with its arguments and its work.
macro_rules! commands {
    ($($group:literal: $($name:ident($module:ident)),+;)+) => {
        /// The commands.
        #[derive(Debug, clap::Subcommand)]
        pub enum Command {
            $($($name($module::Args),)+)+
        }

        impl Command {
            /// Does the work.
            pub fn run(self, output: &Output) -> Result<Verdict, Failure> {
                match self {
                    $($(Self::$name(args) => $module::run(&args, output),)+)+
                }
            }
        }

        /// The groups in which help lists the commands, the common ones first.
        pub const GROUPS: &[(&str, &[&str])] = &[$(($group, &[$(stringify!($module)),+])),+];
    };
}

commands! {
    "Optimize": Optimize(optimize), Upgrade(upgrade), Float16(float16), Passes(passes), Explain(explain);
    "Verify": Verify(verify), Compare(compare), Bench(bench), Reduce(reduce);
    "Convert": Convert(convert);
    "Understand": Inspect(inspect), Audit(audit), Infer(infer), Attribute(attribute), Fingerprint(fingerprint), Census(census);
    "Modules": Tree(tree), Profile(profile), Extract(extract), Report(report), Export(export), Tag(tag), Analyze(analyze), Coverage(coverage), Validate(validate),
        Restore(restore), Strip(strip);
    "Files": Check(check), Run(run), Save(save), Print(print), Parse(parse), Redact(redact), Materialize(materialize);
    "Tools": Doctor(doctor), Completions(completions), Study(study);
}

/// Where weights go, as users say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExternalArg {
    /// In the model file if that stays below 2 GiB, otherwise in one data file.
    Auto,
    /// As in the original: external weights are copied into new data files, the others stay in the model file.
    Keep,
    /// As `keep`, but the result reads the original's data files if they are in the same folder.
    Share,
    /// In the model file.
    Inline,
    /// All but small ones in one data file beside the model.
    Split,
}

impl From<ExternalArg> for onnxforge::io::External {
    fn from(arg: ExternalArg) -> Self {
        match arg {
            ExternalArg::Auto => Self::Auto,
            ExternalArg::Keep => Self::Keep,
            ExternalArg::Share => Self::Share,
            ExternalArg::Inline => Self::Inline,
            ExternalArg::Split => Self::Split,
        }
    }
}

/// Graph optimization level of ONNX Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LevelArg {
    /// No optimizations.
    Off,
    /// Removal of nodes, constant folding.
    Basic,
    /// Also fusions.
    Extended,
    /// Also the memory layout for this machine; ONNX Runtime's default.
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
    /// Models processed at a time [default: number of threads].
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

/// What a command wrote, for `--json` and for people.
#[derive(Debug, Serialize)]
struct Written {
    schema: u32,
    files: Vec<WrittenFile>,
    /// What else there is to say.
    notes: Vec<String>,
    /// What was mended when the model was loaded, of which people read in the log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mended: Vec<String>,
}

impl Written {
    fn new(files: Vec<WrittenFile>) -> Self {
        Self { schema: 1, files, notes: Vec::new(), mended: Vec::new() }
    }

    fn show(&self, output: &Output) -> Result<(), Failure> {
        output.result(self, |out| {
            self.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
            show_files(&self.files, out)
        })
    }
}
