//! The programs that answer questions: `onnxforge`, and this one.

use std::ffi::OsString;
use std::process::Command;

use onnxforge_cli::failure::Failure;
use onnxforge_cli::process::{Limits, find, run};

/// The program whose commands a study is made of.
const ONNXFORGE: &str = "onnxforge";

/// How to start `onnxforge`: as was said, or the one beside this program, or the first in the search path. [`check`] tells whether it is there.
pub fn located(given: Vec<OsString>) -> Vec<OsString> {
    if !given.is_empty() {
        return given;
    }
    let here = std::env::current_exe().map(Into::into).into_iter().collect::<Vec<OsString>>();
    vec![find(ONNXFORGE, &here).map_or_else(|| ONNXFORGE.into(), Into::into)]
}

/// Fails unless `onnxforge` can be started and is of the same version as this program: answers are kept as those of this version.
pub fn check(program: &[OsString]) -> Result<(), Failure> {
    let shown = program.join(" ".as_ref()).display().to_string();
    let failed = |why: String| {
        Failure::new(format!("{shown}: {why}; hint: name the program {ONNXFORGE} with --program"))
    };
    let mut command = onnxforge(program)?;
    let ended = run(command.arg("--version"), Limits::default()).map_err(|why| failed(why.to_string()))?;
    let said = String::from_utf8_lossy(&ended.out);
    let expected = concat!("onnxforge ", env!("CARGO_PKG_VERSION"));
    match said.trim() {
        said if said == expected => Ok(()),
        "" => Err(failed(format!("does not tell its version: {}", ended.said.trim()))),
        said => Err(failed(format!("is {said:?} instead of {expected:?}"))),
    }
}

/// `onnxforge`, to be given a command.
pub fn onnxforge(program: &[OsString]) -> Result<Command, Failure> {
    let (first, others) = program.split_first().ok_or_else(|| Failure::new("no program to run"))?;
    let mut command = Command::new(first);
    command.args(others);
    Ok(command)
}

/// This program's lab, to be given an experiment.
pub fn lab(program: &[OsString]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    for word in program {
        let mut option = OsString::from("--program=");
        option.push(word);
        command.arg(option);
    }
    command.arg("lab");
    Ok(command)
}
