//! `onnxforge validate`: whether what a model says of its modules holds together.

use onnxforge::hierarchy::Tags;
use onnxforge::hierarchy::coverage::{Coverage, coverage};
use onnxforge::hierarchy::sidecar::path_for;
use onnxforge::hierarchy::validate::{contradictions, problems};
use serde::Serialize;

use super::categories::{CategoryArgs, breakdown, tabulate, warnings};
use super::hierarchy::{Source, read_table};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Check that the modules of a model and its sidecar are consistent.
///
/// Every path must be in the table, tags must be those of the paths and mean one module each, module stacks must be readable, and table and
/// sidecar must belong to this graph. The answer is no (exit code 1) when something does not hold.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    categories: CategoryArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    valid: bool,
    problems: Vec<String>,
    /// Categories of which less is known than expected; that alone is no problem.
    warnings: Vec<String>,
    coverage: Coverage,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let (model, hierarchy) = args.source.load(output)?;
    let tags = Tags::new(hierarchy.table(), &hierarchy.policy());
    let mut found = problems(&model, &hierarchy, &tags);
    let beside = path_for(&args.source.model);
    if beside.is_file() {
        match read_table(&beside, output) {
            Ok(recorded) => {
                let known = recorded.fingerprint.as_deref();
                let same =
                    known.is_none_or(|known| known == onnxforge::hierarchy::store::fingerprint(&model));
                match same {
                    true => found.extend(contradictions(&model, &hierarchy, &recorded)),
                    false => found.push(format!("{}: belongs to another graph", beside.display())),
                }
            }
            Err(failure) => found.push(failure.message),
        }
    }
    let mut known = coverage(&model, &hierarchy, &tags, &args.categories.thresholds()?);
    args.categories.narrow(&mut known).map_err(|failure| failure.about(&args.source.model))?;
    let warnings = warnings(&known);
    let report = Report { schema: 1, valid: found.is_empty(), problems: found, warnings, coverage: known };
    output.result(&report, |out| {
        match args.categories.detailed {
            true => tabulate(&report.coverage, true, out)?,
            false => breakdown(&report.coverage, out)?,
        }
        for warning in &report.warnings {
            writeln!(out, "below what is expected: {warning}")?;
        }
        for problem in report.problems.iter().take(20) {
            writeln!(out, "{problem}")?;
        }
        match report.problems.len() {
            0 => writeln!(out, "valid: {} modules, {} tags", hierarchy.table().len(), tags.own().count()),
            1 => writeln!(out, "NOT valid: 1 problem"),
            count => writeln!(out, "NOT valid: {count} problems"),
        }
    })?;
    Ok(if report.valid { Verdict::Yes } else { Verdict::No })
}
