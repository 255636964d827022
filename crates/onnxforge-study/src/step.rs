//! The steps of a study: each is a command, run in a process of its own, whose answer is kept.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use onnxforge::io::write_file;
use onnxforge_cli::failure::Failure;
use onnxforge_cli::process::{Ended, Limits, run};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::program;

/// Characters of what a process said that are kept.
const LONGEST: usize = 400;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A command of `onnxforge`.
    Command,
    /// An experiment of the lab, which this program has.
    Lab,
}

/// One command about one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name under which its answer is kept.
    pub name: String,
    /// Who answers it.
    by: By,
    /// The words of the command, without `--json`.
    pub words: Vec<OsString>,
    /// Files that other commands make, and that this one reads.
    pub reads: Vec<PathBuf>,
}

/// What a step answered, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Version of onnxforge.
    version: String,
    /// What was run.
    pub command: Vec<String>,
    /// Which state of the model it was about.
    pub model: Stamp,
    /// What it might use.
    limits: Limits,
    /// How long it took.
    pub seconds: f64,
    /// The answer, or why there is none.
    #[serde(flatten)]
    pub answer: Answer,
}

impl Kept {
    /// Whether this version answered, about this state of the model.
    pub fn is_about(&self, stamp: Option<Stamp>) -> bool {
        self.version == env!("CARGO_PKG_VERSION") && stamp.is_none_or(|stamp| stamp == self.model)
    }
}

/// The state of a model: another one has other answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Bytes of the model and of what lies beside it under its name.
    pub bytes: u64,
    /// When one of them was written last, in seconds since 1970.
    pub written: u64,
}

/// The answer of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The report.
    Report(Value),
    /// Why there is none.
    Failure(String),
}

/// Where and how steps run.
pub struct Desk<'a> {
    /// The folder that keeps the answers.
    pub folder: &'a Path,
    /// How to start commands of `onnxforge`.
    pub program: &'a [OsString],
    /// What a step may use.
    pub limits: Limits,
    /// The state of the model.
    pub model: Stamp,
}

impl Step {
    pub fn new(name: impl Into<String>, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        Self { name: name.into(), by: By::Command, words, reads: Vec::new() }
    }

    /// The same for an experiment of the lab.
    pub fn of_lab(name: impl Into<String>, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { by: By::Lab, ..Self::new(name, words) }
    }

    /// The same for a command that reads files that others make.
    pub fn reading(self, files: &[PathBuf]) -> Self {
        Self { reads: files.to_vec(), ..self }
    }

    /// The command as one would type it.
    fn command(&self) -> Vec<String> {
        let words = self.words.iter().map(|word| word.to_string_lossy().into_owned());
        let start: &[&str] = match self.by {
            By::Command => &["onnxforge"],
            By::Lab => &["onnxforge", "study", "lab"],
        };
        start.iter().map(|&word| word.to_owned()).chain(words).collect()
    }
}

impl Desk<'_> {
    fn file(&self, step: &Step) -> PathBuf {
        self.folder.join(format!("{}.json", step.name))
    }

    /// The answer that is kept already, if it is one to the same command of the same version about the same model. Whoever failed may try
    /// again with more memory or time.
    pub fn kept(&self, step: &Step) -> Option<Kept> {
        let text = std::fs::read(self.file(step)).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        let is_same = kept.is_about(Some(self.model)) && kept.command == step.command();
        let is_final = matches!(kept.answer, Answer::Report(_)) || !self.limits.exceed(&kept.limits);
        (is_same && is_final).then_some(kept)
    }

    /// Runs the command, unless its answer is kept already, and keeps the answer.
    pub fn ask(&self, step: &Step) -> Result<Kept, Failure> {
        if let Some(kept) = self.kept(step) {
            return Ok(kept);
        }
        let start = Instant::now();
        let answer = self.answer(step)?;
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!("{}: {} took {seconds:.1} s", self.folder.display(), step.name);
        self.keep(step, answer, seconds)
    }

    /// Keeps an answer.
    pub fn keep(&self, step: &Step, answer: Answer, seconds: f64) -> Result<Kept, Failure> {
        let kept = Kept {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: step.command(),
            model: self.model,
            limits: self.limits,
            seconds,
            answer,
        };
        write_file(&self.file(step), |out| Ok(serde_json::to_writer_pretty(out, &kept)?))?;
        Ok(kept)
    }

    /// Runs the command.
    pub fn answer(&self, step: &Step) -> Result<Answer, Failure> {
        let mut command = match step.by {
            By::Command => program::onnxforge(self.program)?,
            By::Lab => program::lab(self.program)?,
        };
        command.args(&step.words).arg("--json=-");
        let Ended { code, out, said } = run(&mut command, self.limits)?;
        let last = said.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let last: String = last.chars().take(LONGEST).collect();
        let failure = match (code, self.limits.memory) {
            (None, _) => format!("it took more than {} s", self.limits.time.unwrap_or_default().as_secs()),
            // Whoever answers "no" has answered.
            (Some(0 | 1), _) => match serde_json::from_slice(&out) {
                Ok(report) => return Ok(Answer::Report(report)),
                Err(error) => format!("its answer cannot be read: {error}"),
            },
            (Some(2), _) => last,
            (Some(_), Some(memory)) if said.contains("memory allocation") => {
                format!("it needs more than {} of memory", onnxforge_cli::output::bytes(memory))
            }
            // Where there is too little even to begin, nobody can say so.
            (Some(signal @ ..0), Some(memory)) if last.is_empty() => {
                let memory = onnxforge_cli::output::bytes(memory);
                format!("signal {} ended it; it was given {memory} of memory", -signal)
            }
            (Some(code), _) => format!("the process ended with {code}: {last}"),
        };
        Ok(Answer::Failure(failure))
    }
}
