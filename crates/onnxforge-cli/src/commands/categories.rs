//! What commands say of nodes by category: which share of each is known, and which share should be.

use std::io::{self, Write};

use onnxforge::hierarchy::coverage::{CategoryCoverage, Counts, Coverage, Thresholds, find, name};
use serde::Serialize;
use serde::ser::SerializeMap;

use crate::failure::Failure;
use crate::output::{number, table};

/// What is expected of categories.
#[derive(Debug, clap::Args)]
pub struct ThresholdArgs {
    /// Percentage of a category's nodes that should be known, instead of the usual one; part of its name is enough.
    #[arg(long, value_name = "CATEGORY=PERCENT", value_parser = named_percent)]
    threshold: Vec<(String, f64)>,
}

/// Which categories are shown, and how much of them.
#[derive(Debug, clap::Args)]
pub struct CategoryArgs {
    #[command(flatten)]
    thresholds: ThresholdArgs,
    /// Only this category, such as neural_network_layers; part of its name is enough.
    #[arg(long, value_name = "NAME")]
    category: Option<String>,
    /// List operators, nodes that are not known and modules without nodes.
    #[arg(long)]
    pub detailed: bool,
}

/// A percentage.
pub fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a number from 0 to 100 is needed".to_owned()),
    }
}

fn named_percent(text: &str) -> Result<(String, f64), String> {
    let (name, number) = text.split_once('=').ok_or("write CATEGORY=PERCENT")?;
    Ok((name.to_owned(), percent(number)?))
}

impl ThresholdArgs {
    /// The usual ones, and those that were chosen.
    pub fn resolve(&self) -> Result<Thresholds, Failure> {
        let mut thresholds = Thresholds::default();
        for (name, percent) in &self.threshold {
            let category = find(name).map_err(|error| Failure::new(format!("--threshold: {error}")))?;
            thresholds.set(category, *percent);
        }
        Ok(thresholds)
    }
}

impl CategoryArgs {
    /// What is expected.
    pub fn thresholds(&self) -> Result<Thresholds, Failure> {
        self.thresholds.resolve()
    }

    /// Leaves nothing but the category that was asked for. Answers the share of nodes that is known of what is left.
    pub fn narrow(&self, found: &mut Coverage) -> Result<f64, Failure> {
        let Some(wanted) = &self.category else { return Ok(found.coverage) };
        let known =
            || found.categories.iter().map(|category| category.category).collect::<Vec<_>>().join(", ");
        // Of the categories that the model has, a part of a name means the one that it fits.
        let mut fits =
            found.categories.iter().map(|category| category.category).filter(|name| name.contains(&**wanted));
        let chosen = match (fits.next(), fits.next()) {
            (Some(one), None) => one,
            (first, _) => match find(wanted) {
                Ok(category) if first.is_some() => name(category),
                _ => {
                    let fits = if first.is_none() { "no" } else { "more than one" };
                    return Err(Failure::new(format!(
                        "{fits} category {wanted:?} here; there are {}",
                        known()
                    )));
                }
            },
        };
        found.categories.retain(|category| category.category == chosen);
        found.uncovered.retain(|node| node.category == chosen);
        Ok(found.categories.first().map_or(1.0, |category| category.coverage))
    }
}

/// What is below what is expected.
pub fn warnings(found: &Coverage) -> Vec<String> {
    let below = found.categories.iter().filter(|category| !category.ok).map(|category| {
        let threshold = category.threshold.unwrap_or(0.0);
        format!("{}: {:.1} % known, {threshold:.0} % expected", category.category, category.percentage)
    });
    let unknown = (found.with_parameters.root > 0).then(|| {
        format!("{} nodes that compute with parameters have no known module", found.with_parameters.root)
    });
    below.chain(unknown).collect()
}

/// One line per category, with a mark where too little is known.
pub fn breakdown(found: &Coverage, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Tagging performance by category:")?;
    let longest = found.categories.iter().map(|category| category.category.len()).max().unwrap_or(0);
    for CategoryCoverage { category, total, tagged, percentage, threshold, ok, .. } in &found.categories {
        let mark = match (ok, threshold) {
            (false, Some(threshold)) => format!("  BELOW {threshold:.0}%"),
            _ => String::new(),
        };
        writeln!(out, "  {category:longest$}  {percentage:5.1}% tagged ({tagged}/{total} nodes){mark}")?;
    }
    Ok(())
}

/// The categories as a table, with their operators on request.
pub fn tabulate(found: &Coverage, detailed: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = table(&["category", "nodes", "exact", "inferred", "unknown", "known", "expected"]);
    for category in &found.categories {
        let mut add = |label: String, counts: Counts, expected: String| {
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
            Some(threshold) => format!("{threshold:.0} %{}", if category.ok { "" } else { " MISSED" }),
            None => "-".to_owned(),
        };
        add(category.category.to_owned(), category.counts, expected);
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
    Ok(())
}

/// Categories by their names.
pub struct ByName<'c>(pub &'c [CategoryCoverage]);

impl Serialize for ByName<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|category| map.serialize_entry(category.category, category))?;
        map.end()
    }
}
