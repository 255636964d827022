//! `onnxforge check`: is it valid.

use std::path::PathBuf;

use onnxforge::check::{Problem, Severity, check, conflicts};
use onnxforge::io::Source;
use onnxforge::io::load::from_message;
use onnxforge::loading::HARMLESS;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Check that a model is valid; list every problem with its place.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Count warnings as errors.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: u32,
    model: String,
    valid: bool,
    problems: &'a [Problem],
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let mut source = output.files.open(&args.model)?;
    let mut problems = check(&source.message, &mut source.files);
    // What breaks no rule is examined for what it computes.
    let is_held =
        |problem: &Problem| problem.severity == Severity::Warning || HARMLESS.contains(&problem.rule);
    if problems.iter().all(is_held) {
        let Source { message, mut files, .. } = source;
        if let Ok(model) = from_message(message, &mut files) {
            problems.extend(conflicts(&model));
        }
    }
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let warnings = problems.len() - errors;
    let valid = errors == 0 && !(args.strict && warnings > 0);
    let report = Report { schema: 1, model: args.model.display().to_string(), valid, problems: &problems };
    output.result(&report, |out| {
        for problem in &problems {
            let kind = if problem.severity == Severity::Error { "error" } else { "warning" };
            writeln!(out, "{kind}[{}] {}: {}", problem.rule.id(), problem.place, problem.message)?;
        }
        let verdict = if valid { "valid" } else { "not valid" };
        writeln!(out, "{}: {verdict} ({errors} errors, {warnings} warnings)", args.model.display())
    })?;
    Ok(if valid { Verdict::Yes } else { Verdict::No })
}
