//! `onnxforge inspect`: what a model is made of.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use onnxforge::analysis::inspect::{Inspection, Interface, inspect};
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, bar, bytes, grouped, number, table};

/// Show what models are made of: interface, operators, weights; several of them side by side.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The models.
    #[arg(required = true)]
    models: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    models: Vec<Inspection>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let models = args
        .models
        .iter()
        .map(|path| Ok(inspect(&output.files.load(path)?, Some(path))))
        .collect::<Result<Vec<_>, Failure>>()?;
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

fn show_one(model: &Inspection, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", model.path.as_deref().unwrap_or("model"))?;
    for (label, value) in facts(model) {
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
    Ok(())
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

fn show_side_by_side(models: &[Inspection], out: &mut dyn Write) -> io::Result<()> {
    let names = models.iter().map(|model| short_name(model.path.as_deref().unwrap_or("model"), models));
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
        rows.add_row(std::iter::once(label.to_owned()).chain(models.iter().map(cell)));
    }
    let mut counts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, model) in models.iter().enumerate() {
        for op in &model.operators {
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
    for column in rows.column_iter_mut().skip(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    writeln!(out, "{rows}")
}

/// The file's name, or its whole path when another model has the same name.
fn short_name<'a>(path: &'a str, models: &[Inspection]) -> &'a str {
    let name = |path: &'a str| path.rsplit(['/', '\\']).next().unwrap_or(path);
    let ending = format!("/{}", name(path));
    let same = models
        .iter()
        .filter_map(|model| model.path.as_deref())
        .filter(|other| other.ends_with(&ending))
        .count();
    if same > 1 { path } else { name(path) }
}

fn interface_lines(ports: &[Interface]) -> String {
    ports.iter().map(|port| format!("{}: {}", port.name, port.ty)).collect::<Vec<_>>().join("\n")
}
