//! `onnxforge attribute`: which pass does what, alone and among the others.

use std::path::PathBuf;

use comfy_table::Cell;
use onnxforge::passes::pipeline::{Options, optimize};
use onnxforge::progress::Unit;
use serde::Serialize;

use super::optimize::Selection;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, number, table};

/// Count the nodes that each pass removes: alone on the model as it is, and as one of all.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The models.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    models: Vec<ModelReport>,
}

#[derive(Debug, Serialize)]
struct ModelReport {
    model: String,
    /// Nodes of the whole model, bodies and functions included.
    nodes: usize,
    after: usize,
    passes: Vec<Attribution>,
}

/// Changes of the number of nodes.
#[derive(Debug, Serialize)]
struct Attribution {
    pass: &'static str,
    isolated: i64,
    cumulative: i64,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let passes = args.selection.resolve()?;
    let mut models = Vec::new();
    output.progress().begin("models", args.models.len() as u64, Unit::Models);
    for path in &args.models {
        let model = output.files.load(path)?;
        let mut together = model.clone();
        let all = optimize(&mut together, &Options { passes: passes.clone(), ..Options::default() });
        let attribution = |pass: &&'static onnxforge::passes::Pass| {
            let mut alone = model.clone();
            let one = optimize(&mut alone, &Options { passes: vec![pass], ..Options::default() });
            let sum = |outcome: &onnxforge::passes::pipeline::Outcome| {
                outcome.passes.iter().filter(|of| of.pass.name == pass.name).map(|of| of.nodes).sum()
            };
            Attribution { pass: pass.name, isolated: sum(&one), cumulative: sum(&all) }
        };
        models.push(ModelReport {
            model: path.display().to_string(),
            nodes: model.node_count(),
            after: together.node_count(),
            passes: passes.iter().map(attribution).collect(),
        });
        output.progress().advance(1);
    }
    output.progress().end();
    let report = Report { schema: 1, models };
    output.result(&report, |out| {
        for model in &report.models {
            let mut rows = table(&["pass", "alone", "among all"]);
            for row in model.passes.iter().filter(|row| row.isolated != 0 || row.cumulative != 0) {
                rows.add_row([
                    Cell::new(row.pass),
                    number(format!("{:+}", row.isolated)),
                    number(format!("{:+}", row.cumulative)),
                ]);
            }
            rows.add_row([
                Cell::new("all together"),
                number(""),
                number(format!("{:+}", model.after as i64 - model.nodes as i64)),
            ]);
            writeln!(out, "{} ({} nodes)\n{rows}", model.model, model.nodes)?;
        }
        Ok(())
    })?;
    Ok(Verdict::Yes)
}
