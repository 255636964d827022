//! `onnxforge infer`: the type and shape of every value.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use onnxforge::infer::Inference;
use onnxforge::io::{SaveOptions, save_with};
use onnxforge::ir::{Model, ValueId};
use onnxforge::ops::Fact;
use serde::Serialize;

use super::{ExternalArg, Written, load_model};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, table};
use crate::progress::Bar;

/// Infer the type and shape of every value, with unknown sizes as expressions of the inputs' dimensions.
///
/// The answer is no (exit code 1) when a declared shape contradicts what follows, or a node cannot run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Write the model with what was found declared in it.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Where weights go.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
    /// List every value, not only those whose shape is not fully expressed in the inputs' dimensions.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// Values that nodes of the graph compute.
    total: usize,
    /// Those whose shape is fully expressed in the inputs' dimensions.
    expressed: usize,
    milliseconds: f64,
    values: Vec<Shown>,
    conflicts: Vec<Contradiction>,
}

#[derive(Debug, Serialize)]
struct Shown {
    name: String,
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
    let mut model = load_model(&args.model, output)?;
    let start = Instant::now();
    let inference = Inference::of(&model);
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let values = values(&model, &inference);
    let conflicts = inference.conflicts().iter().map(|conflict| {
        let node = model.node(conflict.node);
        let output = || node.outputs().iter().flatten().next().map(|&id| model.value(id).name().clone());
        let name = node.name().filter(|name| !name.is_empty()).cloned().or_else(output).unwrap_or_default();
        Contradiction { node: format!("{} {name}", node.op()), problem: conflict.kind.to_string() }
    });
    let report = Report {
        schema: 1,
        total: values.len(),
        expressed: values.iter().filter(|value| value.expressed).count(),
        milliseconds,
        conflicts: conflicts.collect(),
        values,
    };
    output.result(&report, |out| show(&report, args.all, out))?;
    if let Some(path) = &args.output {
        inference.declare(&mut model);
        let options = SaveOptions { external: args.external.into() };
        let saved = save_with(&model, path, &options, &Bar::new(output.shows_progress()))?;
        if !output.wants_json() {
            Written::from(&saved).show(output)?;
        }
    }
    Ok(if report.conflicts.is_empty() { Verdict::Yes } else { Verdict::No })
}

fn values(model: &Model, inference: &Inference) -> Vec<Shown> {
    let shown = |op: String, id: ValueId| Shown {
        name: model.value(id).name().to_string(),
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
    let nodes = model.nodes_in(model.main());
    let outputs = nodes.flat_map(|(_, node)| {
        let ids = node.outputs().iter().flatten();
        ids.map(move |&id| (node.op().to_string(), id))
    });
    outputs.map(|(op, id)| shown(op, id)).collect()
}

fn show(report: &Report, all: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = table(&["value", "operator", "type"]);
    let listed = report.values.iter().filter(|value| all || !value.expressed);
    let mut count = 0;
    for value in listed {
        rows.add_row([&value.name, &value.op, &value.r#type]);
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
    )
}
