//! `onnxforge study`: a program of its own, `onnxforge-study`, to which this command hands its words.

use std::ffi::OsString;
use std::process::Command;

use onnxforge::runtime::find::{VARIABLE, preferred};
use serde_json::Value;

use crate::failure::{Failure, Verdict};
use crate::globals::{Globals, JsonTarget};
use crate::output::Output;
use crate::process::{self, Ended, Limits};

/// The program.
const PROGRAM: &str = "onnxforge-study";

/// Run all experiments on many models; write tables and plots.
///
/// This is the program `onnxforge-study`, which must be installed beside this one or in the PATH. `onnxforge study --help` shows its options.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// The arguments of `onnxforge-study`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let program = process::find(PROGRAM, &output.program).ok_or_else(|| {
        Failure::new(format!(
            "the program {PROGRAM} is neither beside this one nor in the PATH; hint: in the repository of onnxforge, \
             `cargo install --path crates/{PROGRAM}`"
        ))
    })?;
    let mut study = Command::new(&program);
    for word in &output.program {
        let mut option = OsString::from("--program=");
        option.push(word);
        study.arg(option);
    }
    // It has no interpreter around it that could tell which ONNX Runtime to use.
    let is_named = std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty());
    if let Some(library) = preferred().filter(|_| !is_named) {
        study.env(VARIABLE, library);
    }
    if output.is_called() {
        return call(study, args, output);
    }
    study.args(output.globals.words()).args(&args.words);
    Err(Failure::at(&program, format_args!("cannot be started: {}", process::replace_with(&mut study))))
}

/// Runs the study for the program that called this command, and gives it the answer.
fn call(mut study: Command, args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("report.json");
    let globals = Globals { json: Some(JsonTarget::File(json.clone())), ..output.globals.clone() };
    study.args(globals.words()).args(&args.words);
    let Ended { code, out, said } = process::run(&mut study, Limits::default())?;
    let verdict = match code {
        Some(0) => Verdict::Yes,
        Some(1) => Verdict::No,
        _ => {
            let reason = said.lines().find_map(|line| line.strip_prefix("error: "));
            let reason = reason.or(said.lines().last()).unwrap_or("it ended without an answer");
            return Err(Failure::new(reason));
        }
    };
    said.lines().for_each(|line| tracing::warn!("{line}"));
    // Help has no report.
    let report: Value =
        if json.exists() { serde_json::from_slice(&std::fs::read(&json)?)? } else { Value::Null };
    output.result(&report, |text| text.write_all(&out))?;
    Ok(verdict)
}
