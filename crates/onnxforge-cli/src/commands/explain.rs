//! `onnxforge explain`: why a pass fired or not, node by node.

use std::path::PathBuf;

use onnxforge::passes;
use onnxforge::passes::pipeline::{Options, optimize};
use serde::Serialize;

use crate::arguments::find;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, table};

/// Show where a pass fires in a model, and why not elsewhere.
///
/// The pass runs on the model as it is, after the passes that stand before it have run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pass; `onnxforge passes` lists them.
    pass: String,
    /// The model.
    model: PathBuf,
    /// Run the pass alone, on the model as it is in the file.
    #[arg(long)]
    alone: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    pass: &'static str,
    fired: Vec<Fired>,
    skipped: Vec<Left>,
}

#[derive(Debug, Serialize)]
struct Fired {
    rule: String,
    nodes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Left {
    rule: &'static str,
    node: String,
    reason: String,
    culprit: Option<String>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let pass = find(&args.pass)?;
    let mut model = output.files.load(&args.model)?;
    if !args.alone {
        let before = passes::defaults().take_while(|before| before.name != pass.name).collect();
        optimize(&mut model, &Options { passes: before, ..Options::default() });
    }
    let first = model.journal().len();
    let outcome = optimize(&mut model, &Options { passes: vec![pass], ..Options::default() });
    let fired = model.journal().iter().skip(first).map(|entry| Fired {
        rule: entry.rule.to_string(),
        nodes: entry.consumed.iter().map(|&id| model.node_label(id)).collect(),
    });
    let skipped = outcome.passes.iter().flat_map(|pass| &pass.skipped).map(|skip| Left {
        rule: skip.rule,
        node: model.node_label(skip.node),
        reason: skip.reason.to_string(),
        culprit: skip.culprit.map(|id| model.value(id).name().to_string()),
    });
    let report = Report { schema: 1, pass: pass.name, fired: fired.collect(), skipped: skipped.collect() };
    output.result(&report, |out| {
        let mut rows = table(&["rule", "fired at"]);
        for fired in &report.fired {
            rows.add_row([&fired.rule, &fired.nodes.join(", ")]);
        }
        if !report.fired.is_empty() {
            writeln!(out, "{rows}")?;
        }
        let mut rows = table(&["rule", "left alone", "because", "see"]);
        for left in &report.skipped {
            rows.add_row([left.rule, &left.node, &left.reason, left.culprit.as_deref().unwrap_or("")]);
        }
        if !report.skipped.is_empty() {
            writeln!(out, "{rows}")?;
        }
        writeln!(
            out,
            "{}: fired {} times, left {} places alone",
            pass.name,
            report.fired.len(),
            report.skipped.len()
        )
    })?;
    Ok(Verdict::Yes)
}
