//! `onnxforge explain`: why a pass fired or not, node by node.

use std::io::{self, Write};
use std::path::PathBuf;

use onnxforge::Selection;
use onnxforge::explain::{Explanation, explain_with};
use onnxforge::passes::Pass;
use onnxforge::passes::targets::PORTABLE;
use serde::Serialize;

use crate::arguments::{PlanArgs, find};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, table};

/// Show where a pass fires in a model, and why not elsewhere.
///
/// The pass runs among the others, as `optimize` with the same options runs them. A pass that is not among them is added.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pass; `onnxforge passes` lists them.
    pass: String,
    /// The model.
    model: PathBuf,
    /// Run the pass alone, on the model as it is in the file.
    #[arg(long, conflicts_with_all = ["passes", "skip", "target"])]
    alone: bool,
    #[command(flatten)]
    plan: PlanArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// Target, if passes of one ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'static str>,
    #[serde(flatten)]
    explained: Explanation,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let pass = find(&args.pass)?;
    let model = args.plan.load(&args.model, output)?;
    let passes = passes(args, pass)?;
    let target = passes.only.is_empty().then_some(passes.target.name);
    let explained = explain_with(model, pass, &args.plan.options(passes), output.progress())
        .map_err(|error| Failure::from(error).about(&args.model))?;
    let report = Report { schema: 1, target, explained };
    output.result(&report, |out| report.show(out))?;
    Ok(Verdict::Yes)
}

/// The passes that run.
fn passes(args: &Args, pass: &'static Pass) -> Result<Selection, Failure> {
    match args.alone {
        true => Ok(Selection { only: vec![pass], ..Selection::default() }),
        false => args.plan.selection().resolve_for(pass),
    }
}

impl Report {
    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let Explanation { pass, fired, skipped, elsewhere } = &self.explained;
        let mut rows = table(&["rule", "fired at"]);
        for fired in fired {
            rows.add_row([&fired.rule, &fired.nodes.join(", ")]);
        }
        if !fired.is_empty() {
            writeln!(out, "{rows}")?;
        }
        let mut rows = table(&["rule", "skipped", "because", "see"]);
        for left in skipped {
            rows.add_row([left.rule, &left.node, &left.reason, left.culprit.as_deref().unwrap_or("")]);
        }
        if !skipped.is_empty() {
            writeln!(out, "{rows}")?;
        }
        let mut rows = table(&["rule", "matches in the file", "rewritten first by"]);
        for other in elsewhere {
            let by = other.by.as_deref().unwrap_or("(no longer matches)");
            rows.add_row([other.rule.as_str(), &other.nodes.join(", "), by]);
        }
        if !elsewhere.is_empty() {
            writeln!(out, "{rows}")?;
        }
        if let Some(target) = self.target.filter(|name| *name != PORTABLE.name) {
            write!(out, "with --target {target}: ")?;
        }
        let count = |count: usize, one: &str, many: &str| {
            format!("{} {}", grouped(count as u64), if count == 1 { one } else { many })
        };
        write!(out, "{pass} fired {}", count(fired.len(), "time", "times"))?;
        write!(out, ", skipped {}", count(skipped.len(), "match", "matches"))?;
        if !elsewhere.is_empty() {
            write!(out, "; other passes rewrote {} before", count(elsewhere.len(), "match", "matches"))?;
        }
        writeln!(out)
    }
}
