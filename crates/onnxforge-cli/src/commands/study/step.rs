//! The steps of a study: each is a command, run in a process of its own, whose answer is kept.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onnxforge::io::write_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::Failure;

/// How often a process that runs is looked at.
const LOOK: Duration = Duration::from_millis(20);
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

/// What a process may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory of its own.
    pub memory: Option<u64>,
    /// How long it may take.
    pub time: Duration,
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
        let folder = tempfile::tempdir()?;
        let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
        let child = Command::new(program)
            .args(before)
            .args(&self.words)
            .arg("--json=-")
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .spawn()?;
        let ended = wait(child, limits)?;
        let said = String::from_utf8_lossy(&std::fs::read(&err)?).into_owned();
        let last = said.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let last: String = last.chars().take(LONGEST).collect();
        let failure = match (ended, limits.memory) {
            (None, _) => format!("it took more than {} s", limits.time.as_secs()),
            // Whoever answers "no" has answered.
            (Some(0 | 1), _) => match serde_json::from_slice(&std::fs::read(&out)?) {
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

/// Waits for a process: its exit code, negative for a signal; nothing if time was up.
fn wait(mut child: Child, limits: Limits) -> Result<Option<i32>, Failure> {
    #[cfg(target_os = "linux")]
    if let (Some(memory), Ok(id)) = (limits.memory, i32::try_from(child.id())) {
        use rustix::process::{Pid, Resource, Rlimit, prlimit};
        let limit = Rlimit { current: Some(memory), maximum: Some(memory) };
        // A process that has ended already needs no limit.
        let _ = prlimit(Pid::from_raw(id), Resource::Data, limit);
    }
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            #[cfg(unix)]
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            #[cfg(not(unix))]
            let signal: Option<i32> = None;
            return Ok(Some(status.code().unwrap_or_else(|| -signal.unwrap_or(1))));
        }
        if start.elapsed() > limits.time {
            drop(child.kill());
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}
