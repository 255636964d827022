//! `onnxforge coverage`: how many nodes are known to come from a module.

use std::io::{self, Write};

use onnxforge::hierarchy::coverage::{CategoryCoverage, Coverage, coverage};
use serde::Serialize;

use super::hierarchy::{View, Viewed};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, number, table};

/// Count the nodes whose module is known, by kind of operator.
///
/// A node of which only the model is known never counts.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    viewed: Viewed,
    /// Only this category, such as neural_layers; part of its name is enough.
    #[arg(long, value_name = "NAME")]
    category: Option<String>,
    /// List operators, nodes that are not known and modules without nodes.
    #[arg(long)]
    detailed: bool,
    /// Exit with 1 when less than so many percent of all nodes (or of the category) are known.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_under: Option<f64>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a number from 0 to 100 is needed".to_owned()),
    }
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// Whether every category reaches its threshold.
    ok: bool,
    /// What does not.
    warnings: Vec<String>,
    #[serde(flatten)]
    coverage: Coverage,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let View { model, hierarchy, tags, .. } = args.viewed.load(output)?;
    let mut found = coverage(&model, &hierarchy, &tags);
    let mut measured = found.coverage;
    if let Some(wanted) = &args.category {
        let known: Vec<&str> = found.categories.iter().map(|category| category.category).collect();
        // Half of a name is enough where it means one.
        let fits: Vec<&str> = known.iter().copied().filter(|name| name.contains(wanted.as_str())).collect();
        let [name] = fits[..] else {
            return Err(Failure::new(format!(
                "{}: {} category {wanted:?} here; there are {}",
                args.viewed.source.model.display(),
                if fits.is_empty() { "no" } else { "more than one" },
                known.join(", ")
            )));
        };
        found.categories.retain(|category| category.category == name);
        found.uncovered.retain(|node| node.category == name);
        measured = found.categories.first().map_or(1.0, |category| category.coverage);
    }
    let mut warnings: Vec<String> =
        found.categories.iter().filter(|category| !category.ok).map(warning).collect();
    if found.with_parameters.root > 0 {
        warnings.push(format!(
            "{} nodes that compute with parameters have no known module",
            found.with_parameters.root
        ));
    }
    let report = Report { schema: 1, ok: warnings.is_empty(), warnings, coverage: found };
    output.result(&report, |out| show(&report, args.detailed, out))?;
    let enough = args.fail_under.is_none_or(|percent| measured * 100.0 >= percent);
    Ok(if enough { Verdict::Yes } else { Verdict::No })
}

fn warning(category: &CategoryCoverage) -> String {
    let threshold = category.threshold.unwrap_or(0.0) * 100.0;
    format!("{}: {:.1} % known, {threshold:.0} % expected", category.category, category.coverage * 100.0)
}

fn show(report: &Report, detailed: bool, out: &mut dyn Write) -> io::Result<()> {
    let found = &report.coverage;
    let mut rows = table(&["category", "nodes", "exact", "inferred", "unknown", "known", "expected"]);
    for category in &found.categories {
        let counts = category.counts;
        let mut add = |label: String, counts: onnxforge::hierarchy::coverage::Counts, expected: String| {
            rows.add_row([
                comfy_table::Cell::new(label),
                number(counts.nodes),
                number(counts.exact),
                number(counts.inferred),
                number(counts.root),
                number(format!("{:.1} %", counts.coverage() * 100.0)),
                number(expected),
            ]);
        };
        let expected = match category.threshold {
            Some(threshold) => {
                format!("{:.0} %{}", threshold * 100.0, if category.ok { "" } else { " MISSED" })
            }
            None => "-".to_owned(),
        };
        add(category.category.to_owned(), counts, expected);
        if detailed {
            category.operators.iter().for_each(|(op, counts)| add(format!("  {op}"), *counts, String::new()));
        }
    }
    writeln!(out, "{rows}")?;
    if detailed {
        for node in &found.uncovered {
            let weights = if node.uses_parameters { ", computes with parameters" } else { "" };
            writeln!(out, "unknown: {} ({}{weights})", node.node, node.category)?;
        }
        for module in &found.without_nodes {
            writeln!(out, "no nodes: {} {}: {}", module.module, module.tag, module.why)?;
        }
    }
    for warning in &report.warnings {
        writeln!(out, "below what is expected: {warning}")?;
    }
    let counts = found.counts;
    let evidence: Vec<String> =
        found.evidence.iter().map(|(name, count)| format!("{name} {count}")).collect();
    writeln!(
        out,
        "{} of {} nodes known ({:.1} %): {} exact, {} inferred; {} of {} that compute with parameters",
        counts.exact + counts.inferred,
        counts.nodes,
        found.coverage * 100.0,
        counts.exact,
        counts.inferred,
        found.with_parameters.nodes - found.with_parameters.root,
        found.with_parameters.nodes,
    )?;
    writeln!(out, "known from: {}", evidence.join(", "))
}
