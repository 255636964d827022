//! `onnxforge float16`: floats of 16 bits.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, RangedU64ValueParser};
use comfy_table::Cell;
use onnxforge::float16::Float16Report;
use onnxforge::{Float16Options, float16_with};
use serde::Serialize;

use super::ExternalArg;
use crate::arguments::{check_dims, given, named_size};
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::{Output, bytes, grouped, number, table};

/// Convert a model to float16, where 16 bits are enough.
///
/// Weights take half of the space. Nodes stay in 32 bits if their operator takes no float16, if values would overflow or vanish, and if you say so. The result is compared with a float64 run of the
/// original, and is not written if an output differs by more than the tolerance.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write the result; the same path replaces the model.
    #[arg(short, long)]
    output: PathBuf,
    /// Nodes that stay in 32 bits, by name; `*` stands for anything.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = NonEmptyStringValueParser::new())]
    keep: Vec<String>,
    /// Operators that stay in 32 bits.
    #[arg(long, value_delimiter = ',', value_name = "OP,…", value_parser = NonEmptyStringValueParser::new())]
    keep_ops: Vec<String>,
    /// Convert inputs and outputs, too.
    #[arg(long)]
    interface: bool,
    /// Largest accepted difference of an output, as a share of its largest magnitude.
    #[arg(long, value_name = "T", default_value_t = 0.01)]
    tolerance: f64,
    /// Number of inputs to run.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    samples: usize,
    /// Inputs by name; others are synthetic. Real ones show the ranges of values better.
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,
    /// Size of a symbolic dimension in synthetic inputs; the model does not change.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    verify_dim: Vec<(String, usize)>,
    /// Seed for synthetic inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where to store weights.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
}

#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    report: Float16Report,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_folders([&args.output])?;
    let model = output.files.load_valid(&args.model, &[])?;
    super::warn_of_newer_opsets(&args.model, &model);
    check_dims("--verify-dim", &args.verify_dim, &model)?;
    let options = Float16Options {
        keep: args.keep.clone(),
        keep_operators: args.keep_ops.clone(),
        interface: args.interface,
        tolerance: args.tolerance,
        samples: args.samples,
        seed: args.seed,
        given: given(args.inputs.as_deref(), &model, output)?,
        dims: args.verify_dim.iter().cloned().collect(),
    };
    let made = float16_with(&model, &options, output.progress())
        .map_err(|error| Failure::from(error).about(&args.model))?;
    let files = output.save(&made.model, &args.output, args.external)?;
    let shown = Shown { report: made.report, files };
    output.result(&shown, |out| show(&shown, out))?;
    Ok(Verdict::Yes)
}

fn show(shown: &Shown, out: &mut dyn Write) -> io::Result<()> {
    let report = &shown.report;
    if !report.kept.is_empty() {
        let mut reasons = std::collections::BTreeMap::<(&str, &str), usize>::new();
        for kept in &report.kept {
            *reasons.entry((&kept.operator, &kept.reason)).or_default() += 1;
        }
        let mut rows = table(&["stays in 32 bits", "nodes", "because"]);
        for ((operator, reason), nodes) in reasons {
            rows.add_row([Cell::new(operator), number(grouped(nodes as u64)), Cell::new(reason)]);
        }
        writeln!(out, "{rows}")?;
    }
    let (before, after) = report.constants;
    let (converted, casts) = (grouped(report.converted as u64), grouped(report.casts as u64));
    writeln!(
        out,
        "nodes in 16 bits: {converted}, casts: {casts}; constants {} became {}",
        bytes(before),
        bytes(after)
    )?;
    match &report.unverified {
        Some(why) => writeln!(out, "not run beside the original: {why}")?,
        None => {
            let worst = report.outputs.iter().map(|output| output.error).fold(0.0, f64::max);
            writeln!(
                out,
                "outputs are at most {worst:.1e} of their scale from the float64 run of the original"
            )?;
        }
    }
    show_files(&shown.files, out)
}
