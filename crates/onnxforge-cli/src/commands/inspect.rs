//! `onnxforge inspect`: what a model is made of.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;

use onnxforge::analysis::effort::{Effort, Figure, effort};
use onnxforge::analysis::inspect::{Inspection, Interface, inspect};
use onnxforge::analysis::scene::Scene;
use onnxforge::ir::Model;
use onnxforge::passes;
use serde::Serialize;

use super::{Models, short_name};
use crate::arguments::named_size;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, bar, bytes, grouped, number, table};

/// Show interface, operators, weights, FLOPs and memory of models.
///
/// Several models are shown side by side.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    models: Models,
    /// Size of a symbolic dimension for FLOPs and memory; others are 1.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// Show for each pass, run alone, how many matches it rewrites and how many it skips.
    #[arg(long)]
    passes: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    models: Vec<Inspected>,
}

#[derive(Debug, Serialize)]
struct Inspected {
    #[serde(flatten)]
    inspection: Inspection,
    effort: Effort,
    /// What passes could act on, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    passes: Option<Vec<Chance>>,
}

/// What a pass would do, alone, with the model as it is in the file.
#[derive(Debug, Serialize)]
struct Chance {
    pass: &'static str,
    /// How often it would fire.
    fires: usize,
    /// Change of the number of nodes.
    nodes: i64,
    /// Places that it is about and would leave as they are.
    leaves: usize,
}

impl Inspected {
    fn of(args: &Args, path: &Path, mut model: Model) -> Self {
        let sizes: HashMap<String, u64> =
            args.set_dim.iter().map(|(name, size)| (name.clone(), *size as u64)).collect();
        let inspection = inspect(&model, Some(path));
        let effort = effort(&model, &sizes);
        let passes = args.passes.then(|| {
            let scene = Scene::of(&mut model);
            let trials = passes::defaults().map(|pass| scene.trial(pass));
            let chance = |trial: onnxforge::analysis::scene::Trial| Chance {
                pass: trial.outcome.pass.name,
                fires: trial.outcome.edits,
                nodes: trial.outcome.nodes,
                leaves: trial.outcome.skipped.len(),
            };
            trials.map(chance).collect()
        });
        Self { inspection, effort, passes }
    }
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let models = args.models.each(output, |path, model| Ok(Inspected::of(args, path, model)))?;
    let report = Report { schema: 1, models };
    output.result(&report, |out| match report.models.as_slice() {
        [one] => show_one(one, out),
        several => show_side_by_side(several, out),
    })?;
    Ok(Verdict::Yes)
}

/// Label and value of the facts that fit on a line.
fn facts(model: &Inspection) -> Vec<(&'static str, String)> {
    let opsets: Vec<String> =
        model.opsets.iter().map(|(domain, version)| format!("{domain} {version}")).collect();
    let mut facts = vec![
        ("file", model.file_bytes.map_or_else(|| "-".to_owned(), bytes)),
        ("IR version", model.ir_version.map_or_else(|| "-".to_owned(), |version| version.to_string())),
        ("opset", opsets.join(", ")),
        ("producer", model.producer.clone().unwrap_or_else(|| "-".to_owned())),
        ("graph", model.graph.clone().unwrap_or_else(|| "-".to_owned())),
        ("nodes", nodes(model)),
        ("initializers", grouped(model.initializers as u64)),
        ("parameters", grouped(model.parameters)),
        ("weights", bytes(model.weight_bytes)),
    ];
    if !model.functions.is_empty() {
        facts.push(("functions", model.functions.join(", ")));
    }
    for file in &model.data_files {
        let state = if file.available { "" } else { ", not readable" };
        facts.push(("data file", format!("{} ({}{state})", file.location, bytes(file.bytes))));
    }
    if !model.metadata.is_empty() {
        facts.push(("metadata", model.metadata.join(", ")));
    }
    facts
}

fn nodes(model: &Inspection) -> String {
    if model.nodes == model.nodes_total {
        return grouped(model.nodes as u64);
    }
    let elsewhere = grouped((model.nodes_total - model.nodes) as u64);
    format!("{} (+ {elsewhere} in bodies and functions)", grouped(model.nodes as u64))
}

/// Label and value of what a run takes.
fn effort_lines(effort: &Effort) -> Vec<(&'static str, String)> {
    let counted = |figure: &Figure, unit: &dyn Fn(u64) -> String| match &figure.expression {
        Some(expression) if expression.chars().any(char::is_alphabetic) => {
            format!("{} = {expression}", unit(figure.value))
        }
        _ => unit(figure.value),
    };
    let mut lines = vec![
        ("FLOPs", counted(&effort.flops, &grouped)),
        ("MACs", counted(&effort.macs, &grouped)),
        ("activations", counted(&effort.memory, &bytes)),
    ];
    if let Some(node) = &effort.memory_at {
        lines.push(("most at", node.clone()));
    }
    if !effort.assumed.is_empty() {
        lines.push(("taken as 1", format!("{}; --set-dim NAME=N", effort.assumed.join(", "))));
    }
    if effort.unknown_nodes + effort.unknown_values > 0 {
        let text = format!(
            "operations of {} nodes, sizes of {} values",
            effort.unknown_nodes, effort.unknown_values
        );
        lines.push(("not known", text));
    }
    lines
}

fn show_passes(chances: &[Chance], out: &mut dyn Write) -> io::Result<()> {
    let mut rows = table(&["pass", "would fire", "nodes", "would leave"]);
    for chance in chances.iter().filter(|chance| chance.fires + chance.leaves > 0) {
        rows.add_row([
            comfy_table::Cell::new(chance.pass),
            number(grouped(chance.fires as u64)),
            number(format!("{:+}", chance.nodes)),
            number(grouped(chance.leaves as u64)),
        ]);
    }
    writeln!(out, "{rows}")
}

fn show_one(inspected: &Inspected, out: &mut dyn Write) -> io::Result<()> {
    let model = &inspected.inspection;
    writeln!(out, "{}", model.path.as_deref().unwrap_or("model"))?;
    for (label, value) in facts(model).into_iter().chain(effort_lines(&inspected.effort)) {
        writeln!(out, "  {label:<13} {value}")?;
    }
    show_interface("inputs", &model.inputs, out)?;
    show_interface("outputs", &model.outputs, out)?;

    let most = model.operators.first().map_or(0, |op| op.count as u64);
    writeln!(out, "operators")?;
    let width = model.operators.iter().map(|op| op.op.chars().count()).max().unwrap_or(0);
    for op in &model.operators {
        writeln!(out, "  {:<width$} {:>6}  {}", op.op, op.count, bar(op.count as u64, most, 40))?;
    }

    if !model.dtypes.is_empty() {
        writeln!(out, "weights by type")?;
        for share in &model.dtypes {
            let part = bar(share.bytes, model.weight_bytes, 40);
            writeln!(
                out,
                "  {:<14} {:>6} tensors {:>10}  {part}",
                share.dtype,
                share.tensors,
                bytes(share.bytes)
            )?;
        }
    }
    if !model.largest.is_empty() {
        let mut rows = table(&["largest tensors", "type", "bytes", "share"]);
        for tensor in &model.largest {
            let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
            let share = tensor.bytes as f64 / model.weight_bytes.max(1) as f64 * 100.0;
            rows.add_row([
                comfy_table::Cell::new(&tensor.name),
                comfy_table::Cell::new(format!("{}[{}]", tensor.dtype, shape.join(","))),
                number(bytes(tensor.bytes)),
                number(format!("{share:.1} %")),
            ]);
        }
        writeln!(out, "{rows}")?;
    }
    match &inspected.passes {
        Some(chances) => show_passes(chances, out),
        None => Ok(()),
    }
}

fn show_interface(title: &str, ports: &[Interface], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{title}")?;
    let width = ports.iter().map(|port| port.name.chars().count()).max().unwrap_or(0);
    for port in ports {
        let default = if port.default { "  (has a default)" } else { "" };
        writeln!(out, "  {:<width$} {}{default}", port.name, port.ty)?;
    }
    Ok(())
}

fn show_side_by_side(models: &[Inspected], out: &mut dyn Write) -> io::Result<()> {
    let paths: Vec<&str> =
        models.iter().map(|model| model.inspection.path.as_deref().unwrap_or("model")).collect();
    let names = paths.iter().map(|path| short_name(path, &paths));
    let mut rows = table(&std::iter::once("").chain(names).collect::<Vec<_>>());
    for (label, cell) in [
        ("file", (|m| m.file_bytes.map_or_else(|| "-".to_owned(), bytes)) as fn(&Inspection) -> String),
        ("IR version", |m| m.ir_version.map_or_else(|| "-".to_owned(), |version| version.to_string())),
        ("opset", |m| m.opsets.iter().map(|(d, v)| format!("{d} {v}")).collect::<Vec<_>>().join("\n")),
        ("inputs", |m| interface_lines(&m.inputs)),
        ("outputs", |m| interface_lines(&m.outputs)),
        ("nodes", nodes),
        ("parameters", |m| grouped(m.parameters)),
        ("weights", |m| bytes(m.weight_bytes)),
    ] {
        rows.add_row(
            std::iter::once(label.to_owned()).chain(models.iter().map(|model| cell(&model.inspection))),
        );
    }
    for (label, cell) in [
        ("FLOPs", (|e| grouped(e.flops.value)) as fn(&Effort) -> String),
        ("MACs", |e| grouped(e.macs.value)),
        ("activations", |e| bytes(e.memory.value)),
    ] {
        rows.add_row(std::iter::once(label.to_owned()).chain(models.iter().map(|model| cell(&model.effort))));
    }
    let mut counts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, model) in models.iter().enumerate() {
        for op in &model.inspection.operators {
            counts.entry(&op.op).or_insert_with(|| vec![0; models.len()])[i] = op.count;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(op, counts)| (std::cmp::Reverse(counts.iter().max().copied()), *op));
    for (op, counts) in counts {
        let cells =
            counts.iter().map(|&count| if count == 0 { "-".to_owned() } else { grouped(count as u64) });
        rows.add_row(std::iter::once(op.to_owned()).chain(cells));
    }
    show_chances(models, &mut rows);
    for column in rows.column_iter_mut().skip(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    writeln!(out, "{rows}")
}

/// How often passes would fire, a line for each that would at all.
fn show_chances(models: &[Inspected], rows: &mut comfy_table::Table) {
    for pass in passes::defaults() {
        let fires = models.iter().map(|model| {
            let chance = model.passes.iter().flatten().find(|chance| chance.pass == pass.name);
            chance.map_or(0, |chance| chance.fires)
        });
        let fires: Vec<usize> = fires.collect();
        if fires.iter().any(|&fires| fires > 0) {
            let cells =
                fires.iter().map(|&fires| if fires == 0 { "-".to_owned() } else { grouped(fires as u64) });
            rows.add_row(std::iter::once(pass.name.to_owned()).chain(cells));
        }
    }
}

fn interface_lines(ports: &[Interface]) -> String {
    ports.iter().map(|port| format!("{}: {}", port.name, port.ty)).collect::<Vec<_>>().join("\n")
}
