//! `onnxforge coverage`: how many nodes are known to come from a module.

use std::io::{self, Write};

use onnxforge::hierarchy::coverage::{Coverage, coverage};
use serde::Serialize;

use super::categories::{CategoryArgs, percent, tabulate, warnings};
use super::hierarchy::{View, Viewed};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Count the nodes whose module is known, by kind of operator.
///
/// A node of which only the model is known never counts.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    viewed: Viewed,
    #[command(flatten)]
    pub categories: CategoryArgs,
    /// Exit with 1 when less than so many percent of all nodes (or of the category) are known.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_under: Option<f64>,
}

/// What is known, and what of it is too little.
#[derive(Debug, Serialize)]
pub struct Report {
    pub schema: u32,
    /// Whether every category reaches its threshold.
    pub ok: bool,
    /// What does not.
    pub warnings: Vec<String>,
    #[serde(flatten)]
    pub coverage: Coverage,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let (_, report, verdict) = args.look(output)?;
    output.result(&report, |out| {
        tabulate(&report.coverage, args.categories.detailed, out)?;
        summary(&report, out)
    })?;
    Ok(verdict)
}

impl Args {
    /// The model, what is known of its nodes, and whether that is enough.
    pub fn look(&self, output: &Output) -> Result<(View, Report, Verdict), Failure> {
        let view = self.viewed.load(output)?;
        let thresholds = self.categories.thresholds()?;
        let mut found = coverage(&view.model, &view.hierarchy, &view.tags, &thresholds);
        let measured =
            self.categories.narrow(&mut found).map_err(|failure| failure.about(&self.viewed.source.model))?;
        let warnings = warnings(&found);
        let enough = self.fail_under.is_none_or(|percent| measured * 100.0 >= percent);
        let report = Report { schema: 1, ok: warnings.is_empty(), warnings, coverage: found };
        Ok((view, report, if enough { Verdict::Yes } else { Verdict::No }))
    }
}

/// What is too little, and all in one line each.
pub fn summary(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let found = &report.coverage;
    for warning in &report.warnings {
        writeln!(out, "below what is expected: {warning}")?;
    }
    let counts = found.counts;
    let evidence: Vec<String> =
        found.evidence.iter().map(|(name, count)| format!("{name} {count}")).collect();
    writeln!(
        out,
        "{} of {} nodes known ({:.1} %): {} exact, {} inferred; {} of {} that compute with parameters",
        counts.known(),
        counts.nodes,
        found.coverage * 100.0,
        counts.exact,
        counts.inferred,
        found.with_parameters.nodes - found.with_parameters.root,
        found.with_parameters.nodes,
    )?;
    let read = found.consumers;
    writeln!(
        out,
        "{} of {} tensors known with all their consumers ({:.1} %)",
        read.tagged, read.total, read.percentage
    )?;
    writeln!(out, "known from: {}; confidence {:.2}", evidence.join(", "), found.confidence)
}
