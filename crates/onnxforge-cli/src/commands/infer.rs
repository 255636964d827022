//! `onnxforge infer`: the type and shape of every value.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use onnxforge::infer::{Inference, Options};
use onnxforge::ir::scope::{Scope, ScopeKind};
use onnxforge::ir::{Model, ScopeId, ValueId};
use onnxforge::ops::Fact;
use serde::Serialize;

use super::{ExternalArg, warn_of_newer_opsets};
use crate::arguments::seconds;
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::{Output, table};

/// Infer the type and shape of every value, with symbolic sizes.
///
/// Unknown sizes are expressions of the inputs' dimensions. Exits with 1 when a declared shape contradicts the inferred one, or a node
/// cannot run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Write the model with the inferred types and shapes as declarations; inputs and outputs keep theirs.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Where to store weights.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
    /// List every value, also in bodies of nodes and in functions. By default, list the values of the graph whose shape is not
    /// fully known in terms of the inputs' dimensions.
    #[arg(long)]
    all: bool,
    /// Stop after this many seconds; values that were not reached stay unknown.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// Values that nodes of the graph compute.
    total: usize,
    /// Those whose shape is fully expressed in the inputs' dimensions.
    expressed: usize,
    /// Every value was looked at.
    complete: bool,
    milliseconds: f64,
    values: Vec<Shown>,
    conflicts: Vec<Contradiction>,
    files: Vec<WrittenFile>,
}

#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    /// The body or function that the value belongs to, if it does not belong to the graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    op: String,
    r#type: String,
    expressed: bool,
}

#[derive(Debug, Serialize)]
struct Contradiction {
    node: String,
    problem: String,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_folders(&args.output)?;
    let mut model = output.files.load(&args.model)?;
    warn_of_newer_opsets(&args.model, &model);
    let start = Instant::now();
    let deadline = args.timeout.and_then(|time| start.checked_add(time));
    let inference = Inference::with(&model, &Options { deadline, ..Options::default() });
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let mut values = values(&model, &inference, model.main());
    let (total, expressed) = (values.len(), values.iter().filter(|value| value.expressed).count());
    if args.all {
        for (scope, _) in model.scopes().filter(|(scope, _)| *scope != model.main()) {
            values.extend(self::values(&model, &inference, scope));
        }
    }
    let conflicts = inference.conflicts().iter().map(|conflict| Contradiction {
        node: model.node_label(conflict.node),
        problem: conflict.kind.to_string(),
    });
    let conflicts = conflicts.collect();
    let mut files = Vec::new();
    if let Some(path) = &args.output {
        inference.declare(&mut model);
        files = output.save(&model, path, args.external)?;
    }
    let complete = inference.is_complete();
    let report = Report { schema: 2, total, expressed, complete, milliseconds, values, conflicts, files };
    output.result(&report, |out| show(&report, args.all, out))?;
    Ok(if report.conflicts.is_empty() { Verdict::Yes } else { Verdict::No })
}

/// The values that the nodes of a scope compute.
fn values(model: &Model, inference: &Inference, scope: ScopeId) -> Vec<Shown> {
    let within = within(model, model.scope(scope));
    let shown = |op: String, id: ValueId| Shown {
        name: model.value(id).name().to_string(),
        within: within.clone(),
        op,
        r#type: match inference.fact(id) {
            Fact::Tensor(fact) => fact.display(inference.symbols()).to_string(),
            Fact::Sequence { .. } => "sequence".to_owned(),
            Fact::Optional { .. } => "optional".to_owned(),
            Fact::Map => "map".to_owned(),
            Fact::Unknown => "?".to_owned(),
        },
        expressed: inference.is_expressed(id),
    };
    let nodes = model.nodes_in(scope);
    let outputs = nodes.flat_map(|(_, node)| {
        let ids = node.outputs().iter().flatten();
        ids.map(move |&id| (node.op().to_string(), id))
    });
    outputs.map(|(op, id)| shown(op, id)).collect()
}

/// Which body or function a scope is.
fn within(model: &Model, scope: &Scope) -> Option<String> {
    match scope.kind() {
        ScopeKind::Main(_) => None,
        ScopeKind::Body { node, .. } => Some(model.node_label(*node)),
        ScopeKind::Function(_) => Some(format!("function {}", scope.name().map_or("", |name| name))),
    }
}

fn show(report: &Report, all: bool, out: &mut dyn Write) -> io::Result<()> {
    let nested = report.values.iter().any(|value| value.within.is_some());
    let mut rows =
        table(if nested { &["value", "operator", "type", "within"] } else { &["value", "operator", "type"] });
    let listed = report.values.iter().filter(|value| all || !value.expressed);
    let mut count = 0;
    for value in listed {
        let mut row = vec![value.name.as_str(), &value.op, &value.r#type];
        row.extend(nested.then(|| value.within.as_deref().unwrap_or_default()));
        rows.add_row(row);
        count += 1;
    }
    if count > 0 {
        writeln!(out, "{rows}")?;
    }
    for conflict in &report.conflicts {
        writeln!(out, "contradiction at {}: {}", conflict.node, conflict.problem)?;
    }
    writeln!(
        out,
        "{} of {} values are fully expressed in the dimensions of the inputs ({:.1} ms)",
        report.expressed, report.total, report.milliseconds
    )?;
    if !report.complete {
        writeln!(out, "not everything was looked at: there is too much, or time was up")?;
    }
    show_files(&report.files, out)
}
