//! LiteRT, which runs files of TensorFlow Lite: the Python package `ai-edge-litert`, where it is found. It works in a process of its own, so that a file
//! that it crashes on is an error here.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use onnxforge_ops::eval::npz;
use onnxforge_ops::{Array, Value};
use serde::Deserialize;
use serde_json::json;

use super::find::{has_package, interpreters};
use crate::bench::{Budget, Group};

/// The variable that names a Python interpreter with the package.
pub const VARIABLE: &str = "ONNXFORGE_LITERT_PYTHON";
/// The package.
const PACKAGE: &str = "ai_edge_litert";
/// What the interpreter runs.
const SCRIPT: &str = include_str!("litert.py");
/// Outputs of more bytes are not read.
const LARGEST: u64 = 8 << 30;

/// What LiteRT could not do.
#[derive(Debug, thiserror::Error)]
pub enum LiteRtError {
    /// It is not there.
    #[error(
        "LiteRT is not found; `pip install ai-edge-litert`, or set {VARIABLE} to a Python interpreter that has it"
    )]
    Missing,
    /// It refuses a file, or fails while it runs it.
    #[error("LiteRT: {0}")]
    Refused(String),
    /// A value that it does not take.
    #[error("LiteRT takes no {0}")]
    Value(String),
    /// The process cannot be started, or ends without an answer.
    #[error("the process of LiteRT: {0}")]
    Process(#[from] io::Error),
    /// Inputs or outputs cannot be exchanged.
    #[error(transparent)]
    Archive(#[from] npz::NpzError),
}

/// An interpreter of Python that has the package.
#[derive(Clone, Debug)]
pub struct LiteRt {
    python: OsString,
}

impl LiteRt {
    /// The first one that is found: what the variable names, or else the active environment and the search path.
    pub fn get() -> Result<&'static Self, LiteRtError> {
        static FOUND: OnceLock<Option<LiteRt>> = OnceLock::new();
        let find = || {
            let named = std::env::var_os(VARIABLE).filter(|python| !python.is_empty());
            let mut tried = named.map_or_else(interpreters, |python| vec![python]).into_iter();
            tried.find(|python| has_package(python, PACKAGE)).map(|python| Self { python })
        };
        FOUND.get_or_init(find).as_ref().ok_or(LiteRtError::Missing)
    }

    /// The outputs of a file by name.
    pub fn run(
        &self,
        file: &Path,
        inputs: &HashMap<String, Value>,
        threads: usize,
    ) -> Result<HashMap<String, Value>, LiteRtError> {
        #[derive(Deserialize)]
        struct Answer {
            names: Vec<String>,
        }
        let folder = tempfile::tempdir()?;
        let outputs = folder.path().join("outputs.npz");
        let (names, given) = written(inputs, folder.path())?;
        let question =
            json!({ "file": file, "threads": threads, "names": names, "inputs": given, "outputs": outputs });
        let Answer { names } = self.ask(&question)?;
        let mut arrays = npz::read(File::open(&outputs)?, LARGEST)?;
        let named = names.into_iter().enumerate().filter_map(|(index, name)| {
            let array = arrays.remove(&index.to_string())?;
            Some((name, Value::Tensor(array)))
        });
        Ok(named.collect())
    }

    /// Loads files and lets them take turns, all on the same inputs.
    pub fn measure(
        &self,
        files: &[PathBuf],
        inputs: &HashMap<String, Value>,
        options: &MeasureOptions,
    ) -> Result<Group, LiteRtError> {
        let folder = tempfile::tempdir()?;
        let (names, given) = written(inputs, folder.path())?;
        let (rounds, seconds) = match options.budget {
            Budget::Rounds(rounds) => (Some(rounds), 0.0),
            Budget::Time(time) => (None, time.as_secs_f64()),
        };
        self.ask(&json!({
            "files": files,
            "names": names,
            "inputs": given,
            "threads": options.threads,
            "warmups": options.warmups,
            "turn": options.turn,
            "rounds": rounds,
            "seconds": seconds,
        }))
    }

    fn ask<T: for<'de> Deserialize<'de>>(&self, question: &serde_json::Value) -> Result<T, LiteRtError> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Answer<T> {
            Refused { error: String },
            Done(T),
        }
        let mut command = Command::new(&self.python);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(question.to_string().as_bytes())?;
        }
        let output = child.wait_with_output()?;
        match serde_json::from_slice(&output.stdout) {
            Ok(Answer::Done(answer)) => Ok(answer),
            Ok(Answer::Refused { error }) => Err(LiteRtError::Refused(error)),
            Err(_) => Err(LiteRtError::Refused(format!("the process ended with {}", output.status))),
        }
    }
}

/// How files are measured.
#[derive(Clone, Copy, Debug)]
pub struct MeasureOptions {
    /// Threads within an operator.
    pub threads: usize,
    /// Runs of each file that do not count.
    pub warmups: usize,
    /// Which file comes first.
    pub turn: usize,
    /// When it is enough.
    pub budget: Budget,
}

/// Writes inputs into a folder; their names, and the archive that has them in this order.
fn written(inputs: &HashMap<String, Value>, folder: &Path) -> Result<(Vec<String>, PathBuf), LiteRtError> {
    let mut names: Vec<&String> = inputs.keys().collect();
    names.sort();
    let mut arrays: Vec<(String, &Array)> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let array = inputs.get(*name).and_then(|value| value.array().ok());
        arrays.push((index.to_string(), array.ok_or_else(|| LiteRtError::Value((*name).clone()))?));
    }
    let path = folder.join("inputs.npz");
    let arrays: Vec<(&str, &Array)> = arrays.iter().map(|(index, array)| (index.as_str(), *array)).collect();
    npz::write(File::create(&path)?, &arrays)?;
    Ok((names.into_iter().cloned().collect(), path))
}
