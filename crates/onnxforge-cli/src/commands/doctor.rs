//! `onnxforge doctor`: what was found on this machine, and fixes for what was not.

use onnxforge::runtime::Runtime;
use onnxforge::runtime::find::{Source, VARIABLE};
use onnxforge::upgrade::NEWEST_OF_RUNTIMES;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Check the environment and suggest fixes.
#[derive(Debug, clap::Args)]
pub struct Args {}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    version: &'static str,
    threads: usize,
    runtime: Option<Found>,
    /// Why there is no ONNX Runtime, and the fix.
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Found {
    file: String,
    source: Source,
    version: Option<String>,
    build: String,
}

pub fn run(_: &Args, output: &Output) -> Result<Verdict, Failure> {
    let (runtime, problem) = match Runtime::get() {
        Ok(runtime) => {
            let found = Found {
                file: runtime.file.display().to_string(),
                source: runtime.source,
                version: runtime.version(),
                build: runtime.build.clone(),
            };
            (Some(found), None)
        }
        Err(missing) => (None, Some(missing.to_string())),
    };
    let report = Report {
        schema: 1,
        version: env!("CARGO_PKG_VERSION"),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        runtime,
        problem,
    };
    output.result(&report, |out| {
        writeln!(out, "onnxforge {}, {} threads", report.version, report.threads)?;
        writeln!(out, "native engine: embedded; operator sets up to {NEWEST_OF_RUNTIMES} by default")?;
        match (&report.runtime, &report.problem) {
            (Some(found), _) => {
                let version = found.version.as_deref().unwrap_or("of unknown version");
                let source = match found.source {
                    Source::Variable => format!("named by {VARIABLE}"),
                    Source::Python => "of the Python package onnxruntime".to_owned(),
                    Source::System => "of the system".to_owned(),
                };
                writeln!(out, "ONNX Runtime {version}, {source}: {}", found.file)
            }
            (None, problem) => writeln!(out, "{}", problem.as_deref().unwrap_or_default()),
        }
    })?;
    Ok(Verdict::Yes)
}
