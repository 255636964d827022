//! The steps of a study: each is a command, run in a process of its own, whose answer is kept.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use onnxforge::io::write_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::Failure;
use crate::process::{Ended, Limits, run};

/// Characters of what a process said that are kept.
const LONGEST: usize = 400;

/// One command about one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name under which its answer is kept.
    pub name: String,
    /// The words of the command, without `--json`.
    pub words: Vec<OsString>,
}

/// What a step answered, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Version of onnxforge.
    version: String,
    /// What was run.
    command: Vec<String>,
    /// How long it took.
    pub seconds: f64,
    /// The answer, or why there is none.
    #[serde(flatten)]
    pub answer: Answer,
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

impl Step {
    pub fn new(name: impl Into<String>, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { name: name.into(), words: words.into_iter().map(Into::into).collect() }
    }

    /// The file that keeps the answer.
    pub fn file(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.json", self.name))
    }

    /// The command as one would type it.
    fn command(&self) -> Vec<String> {
        let words = self.words.iter().map(|word| word.to_string_lossy().into_owned());
        std::iter::once("onnxforge".to_owned()).chain(words).collect()
    }

    /// The answer that is kept already, if it is one to the same command of the same version.
    pub fn kept(&self, folder: &Path) -> Option<Kept> {
        let text = std::fs::read(self.file(folder)).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        (kept.version == env!("CARGO_PKG_VERSION") && kept.command == self.command()).then_some(kept)
    }

    /// Runs the command, unless its answer is kept already, and keeps the answer.
    pub fn run(&self, folder: &Path, program: &[OsString], limits: Limits) -> Result<Kept, Failure> {
        if let Some(kept) = self.kept(folder) {
            return Ok(kept);
        }
        let start = Instant::now();
        let answer = self.answer(program, limits)?;
        let kept = Kept {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: self.command(),
            seconds: start.elapsed().as_secs_f64(),
            answer,
        };
        write_file(&self.file(folder), |out| Ok(serde_json::to_writer_pretty(out, &kept)?))?;
        Ok(kept)
    }

    fn answer(&self, program: &[OsString], limits: Limits) -> Result<Answer, Failure> {
        let (program, before) = program.split_first().ok_or_else(|| Failure::new("no program to run"))?;
        let mut command = Command::new(program);
        command.args(before).args(&self.words).arg("--json=-");
        let Ended { code, out, said } = run(&mut command, limits)?;
        let last = said.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let last: String = last.chars().take(LONGEST).collect();
        let failure = match (code, limits.memory) {
            (None, _) => format!("it took more than {} s", limits.time.unwrap_or_default().as_secs()),
            // Whoever answers "no" has answered.
            (Some(0 | 1), _) => match serde_json::from_slice(&out) {
                Ok(report) => return Ok(Answer::Report(report)),
                Err(error) => format!("its answer cannot be read: {error}"),
            },
            (Some(2), _) => last,
            (Some(_), Some(memory)) if said.contains("memory allocation") => {
                format!("it needs more than {} of memory", crate::output::bytes(memory))
            }
            (Some(code), _) => format!("the process ended with {code}: {last}"),
        };
        Ok(Answer::Failure(failure))
    }
}
