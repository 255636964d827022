//! `onnxforge upgrade`: a newer operator set, the same results.

use std::io::{self, Write};
use std::path::PathBuf;

use comfy_table::Cell;
use onnxforge::upgrade;
use onnxforge::upgrade::{CURED, NEWEST, NEWEST_OF_RUNTIMES, OLDEST};
use serde::Serialize;

use super::ExternalArg;
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::{Output, grouped, number, table};

/// Convert a model to newer standard operators.
///
/// What it computes stays the same.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model, of opset 7 or later.
    model: PathBuf,
    /// Where to write the result; the same path replaces the model.
    #[arg(short, long)]
    output: PathBuf,
    /// The version to convert to: a number, or the latest that is known.
    #[arg(long, value_name = "latest|N", default_value = "latest", value_parser = version)]
    opset: i64,
    /// Where weights go.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
}

/// A version of the standard operators, as users say it.
fn version(text: &str) -> Result<i64, String> {
    match (text, text.parse()) {
        ("latest", _) => Ok(NEWEST),
        (_, Ok(version)) if (OLDEST..=NEWEST).contains(&version) => Ok(version),
        _ => Err(format!("a number from {OLDEST} to {NEWEST} is needed, or `latest`")),
    }
}

/// The same, where the version may also stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Keep,
    Version(i64),
}

impl Wanted {
    /// The version to convert to, if the model's own is not to stay.
    pub fn version(self) -> Option<i64> {
        match self {
            Self::Keep => None,
            Self::Version(version) => Some(version),
        }
    }
}

impl std::str::FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(Self::Keep),
            _ => version(text).map(Self::Version).map_err(|error| format!("{error} or `keep`")),
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    #[serde(flatten)]
    converted: upgrade::Report,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_folders([&args.output])?;
    let mut model = output.files.load_valid(&args.model, CURED)?;
    let converted = upgrade(&mut model, args.opset).map_err(|error| Failure::at(&args.model, error))?;
    let files = output.save(&model, &args.output, args.external)?;
    let report = Report { schema: 1, converted, files };
    output.result(&report, |out| {
        show(&report.converted, out)?;
        show_files(&report.files, out)
    })?;
    Ok(Verdict::Yes)
}

/// Tells what was converted.
pub fn show(report: &upgrade::Report, out: &mut dyn Write) -> io::Result<()> {
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
    if report.to > NEWEST_OF_RUNTIMES {
        let newest = NEWEST_OF_RUNTIMES;
        writeln!(
            out,
            "note: ONNX Runtime 1.31 loads operator sets up to {newest}; --opset {newest} gives one of these"
        )?;
    }
    Ok(())
}
