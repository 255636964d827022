//! `onnxforge upgrade`: a newer operator set, the same results.

use std::io::{self, Write};
use std::path::PathBuf;

use comfy_table::Cell;
use onnxforge::Opset;
use onnxforge::opset::{Tried, convert};
use onnxforge::upgrade::{self, CONVERTED};
use serde::Serialize;

use super::ExternalArg;
use crate::arguments::version;
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::{Output, grouped, number, table};

/// Convert a model to newer standard operators.
///
/// The results stay the same.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model, of opset 7 or later.
    model: PathBuf,
    /// Where to write the result; the same path replaces the model.
    #[arg(short, long)]
    output: PathBuf,
    /// The version to convert to: a number, or the latest that ONNX Runtime takes.
    #[arg(long, value_name = "latest|N", default_value = "latest", value_parser = version)]
    opset: Opset,
    /// Where to store weights.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    #[serde(flatten)]
    converted: upgrade::Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    tried: Option<Tried>,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_folders([&args.output])?;
    let mut model = output.files.load_valid(&args.model, CONVERTED)?;
    let (converted, tried) =
        convert(&mut model, args.opset, false).map_err(|error| Failure::from(error).about(&args.model))?;
    let converted = converted.unwrap_or_default();
    let files = output.save(&model, &args.output, args.external)?;
    let report = Report { schema: 1, converted, tried, files };
    output.result(&report, |out| {
        show(&report.converted, report.tried.as_ref(), out)?;
        show_files(&report.files, out)
    })?;
    Ok(Verdict::Yes)
}

/// Tells what was converted.
pub fn show(report: &upgrade::Report, tried: Option<&Tried>, out: &mut dyn Write) -> io::Result<()> {
    if !report.steps.is_empty() {
        let mut changes = table(&["operator", "changed in opset", "nodes"]);
        for step in &report.steps {
            let nodes = number(grouped(step.nodes as u64));
            changes.add_row([Cell::new(&step.operator), number(step.opset), nodes]);
        }
        writeln!(out, "{changes}")?;
    }
    let is = |name: &str, from: i64, to: i64| match from == to {
        true => format!("{name} {to} stays"),
        false => format!("{name} {from} became {to}"),
    };
    let opset = report.from.map_or_else(
        || "the graph uses no standard operators".to_owned(),
        |from| is("opset", from, report.to),
    );
    writeln!(out, "{opset}, {}", is("IR version", report.ir_from, report.ir_to))?;
    show_tried(tried, out)
}

/// Says what ONNX Runtime does not take, or why that is not known.
pub fn show_tried(tried: Option<&Tried>, out: &mut dyn Write) -> io::Result<()> {
    match tried.filter(|tried| tried.is_notable()) {
        Some(tried) => writeln!(out, "{tried}"),
        None => Ok(()),
    }
}
