//! `onnxforge analyze`: coverage, tags and warnings together.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::categories::{ByName, breakdown, tabulate};
use super::coverage::{self, summary};
use super::hierarchy::View;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, bar, number, table};

/// Show the coverage, the distribution of tags and warnings together.
///
/// What `coverage` counts, and how many nodes each tag has.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    coverage: coverage::Args,
}

#[derive(Serialize)]
struct Report<'c> {
    model_class: Option<String>,
    total_operations: usize,
    tagged_operations: usize,
    /// How many tags nodes have.
    unique_tags: usize,
    /// Nodes by the tag of the module that they stand for, those without a known module left out.
    tag_distribution: BTreeMap<String, usize>,
    category_statistics: ByName<'c>,
    #[serde(flatten)]
    coverage: &'c coverage::Report,
}

/// Tags that are listed unless all are asked for.
const MOST_TAGS: usize = 20;

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let (view, found, verdict) = args.coverage.look(output)?;
    let report = Report::new(&view, &found);
    let detailed = args.coverage.categories.detailed;
    output.result(&report, |out| report.show(detailed, out))?;
    Ok(verdict)
}

impl<'c> Report<'c> {
    fn new(view: &View, coverage: &'c coverage::Report) -> Self {
        let View { model, hierarchy, tags, .. } = view;
        let mut distribution: BTreeMap<String, usize> = BTreeMap::new();
        for (id, _) in model.nodes() {
            let origin = hierarchy.origin(id);
            if origin.evidence != onnxforge::hierarchy::Evidence::Root {
                *distribution.entry(tags.get(origin.primary()).to_owned()).or_default() += 1;
            }
        }
        let root = hierarchy.table().get(onnxforge::hierarchy::ModuleId::ROOT);
        Self {
            model_class: root.class.as_ref().map(ToString::to_string),
            total_operations: coverage.coverage.counts.nodes,
            tagged_operations: coverage.coverage.counts.known(),
            unique_tags: distribution.len(),
            tag_distribution: distribution,
            category_statistics: ByName(&coverage.coverage.categories),
            coverage,
        }
    }

    fn show(&self, detailed: bool, out: &mut dyn Write) -> io::Result<()> {
        if let Some(class) = &self.model_class {
            writeln!(out, "{class}")?;
        }
        writeln!(out, "{} unique tags", self.unique_tags)?;
        writeln!(out, "{} of {} operations tagged", self.tagged_operations, self.total_operations)?;
        let mut tags: Vec<(&String, usize)> =
            self.tag_distribution.iter().map(|(tag, &nodes)| (tag, nodes)).collect();
        // The most frequent first; the order of tags where equal.
        tags.sort_by_key(|&(_, nodes)| std::cmp::Reverse(nodes));
        let most = tags.first().map_or(0, |&(_, nodes)| nodes as u64);
        let shown = if detailed { tags.len() } else { MOST_TAGS };
        let mut rows = table(&["tag", "nodes", ""]);
        for &(tag, nodes) in tags.iter().take(shown) {
            rows.add_row([
                comfy_table::Cell::new(tag),
                number(nodes),
                comfy_table::Cell::new(bar(nodes as u64, most, 20)),
            ]);
        }
        writeln!(out, "{rows}")?;
        if tags.len() > shown {
            writeln!(out, "{} more tags; --detailed lists them", tags.len() - shown)?;
        }
        match detailed {
            true => tabulate(&self.coverage.coverage, true, out)?,
            false => breakdown(&self.coverage.coverage, out)?,
        }
        summary(self.coverage, out)
    }
}
