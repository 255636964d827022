//! `onnxforge census`: what ONNX Runtime makes of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use comfy_table::Cell;
use onnxforge::analysis::census::Census;
use onnxforge::progress::Unit;
use onnxforge::runtime::{Level, Runtime};
use serde::Serialize;

use super::LevelArg;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, number, table};

/// List the operators that ONNX Runtime runs after its own fusions.
///
/// Other models are compared with the first. Exits with 1 when ONNX Runtime runs more nodes for one of them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The models.
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// Graph optimization level of ONNX Runtime.
    #[arg(long, value_enum, default_value = "extended")]
    level: LevelArg,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    level: Level,
    models: Vec<ModelReport>,
}

#[derive(Debug, Serialize)]
struct ModelReport {
    model: String,
    /// Nodes that the file holds.
    stored_nodes: usize,
    /// Nodes that ONNX Runtime runs.
    run_nodes: usize,
    /// Operators that ONNX Runtime recovers: calls that the file does not have.
    recovered: BTreeMap<String, usize>,
    #[serde(flatten)]
    census: Census,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let runtime = Runtime::get()?;
    let level = args.level.into();
    let bar = output.progress();
    bar.begin("ONNX Runtime", args.models.len() as u64, Unit::Models);
    let mut models = Vec::new();
    for path in &args.models {
        let stored = output.files.load(path)?.operator_counts();
        let census = Census::take(path, stored, runtime, level).map_err(|error| Failure::at(path, error))?;
        bar.advance(1);
        models.push(ModelReport {
            model: path.display().to_string(),
            stored_nodes: census.stored.values().sum(),
            run_nodes: census.nodes(),
            recovered: census.recovered().map(|(op, count)| (op.to_owned(), count)).collect(),
            census,
        });
    }
    bar.end();
    let report = Report { schema: 1, level, models };
    output.result(&report, |out| {
        let mut heading = vec!["operator".to_owned()];
        for model in &report.models {
            heading.extend([model.model.clone(), "runs".to_owned()]);
        }
        let mut rows = table(&heading.iter().map(String::as_str).collect::<Vec<_>>());
        let of_all =
            report.models.iter().flat_map(|model| model.census.stored.keys().chain(model.census.run.keys()));
        for op in of_all.collect::<BTreeSet<_>>() {
            let mut row = vec![Cell::new(op)];
            for model in &report.models {
                row.push(count(model.census.stored.get(op)));
                row.push(count(model.census.run.get(op)));
            }
            rows.add_row(row);
        }
        let mut sums = vec![Cell::new("all nodes")];
        for model in &report.models {
            sums.push(count(Some(&model.stored_nodes)));
            sums.push(count(Some(&model.run_nodes)));
        }
        rows.add_row(sums);
        writeln!(out, "{rows}")?;
        for model in &report.models {
            let recovered = model.recovered.iter().map(|(op, count)| format!("{count} {op}"));
            let recovered = recovered.collect::<Vec<_>>().join(", ");
            let recovered = if recovered.is_empty() { "nothing" } else { &recovered };
            writeln!(out, "{}: ONNX Runtime recovers {recovered}", model.model)?;
        }
        Ok(())
    })?;
    let more = |model: &ModelReport| model.run_nodes > report.models[0].run_nodes;
    Ok(if report.models.iter().any(more) { Verdict::No } else { Verdict::Yes })
}

fn count(of: Option<&usize>) -> Cell {
    number(of.map_or(String::new(), |&count| grouped(count as u64)))
}
