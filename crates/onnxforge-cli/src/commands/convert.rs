//! `onnxforge convert`: a model as a file of another runtime.

use std::io::{self, Write};
use std::path::PathBuf;

use comfy_table::Cell;
use onnxforge::formats::{Format, Layout, Weights};
use onnxforge::interface::Wishes;
use onnxforge::verify::Verdict as Said;
use onnxforge::{ConvertOptions, Converted, convert_with};
use serde::Serialize;

use super::hierarchy::sidecar;
use super::verify::said;
use crate::arguments::{Checks, CoreMl, named_shape, named_size};
use crate::failure::{Failure, Kind, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::{Output, bytes, grouped, number, table};

/// Convert a model to TensorFlow Lite or Core ML.
///
/// What is written is read back and compared with the model. A model with nodes that the
/// format has no place for is not written; they are listed, each with the reason.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write the result: a name that ends in .tflite or .mlpackage.
    #[arg(short, long)]
    output: PathBuf,
    /// Fix a symbolic input dimension.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// Fix the shape of an input; symbolic dimensions get the same size everywhere.
    #[arg(long, value_name = "NAME=N,N,…", value_parser = named_shape)]
    set_shape: Vec<(String, Vec<usize>)>,
    /// How weights are stored. float16 halves the file; results differ by what that rounds.
    #[arg(long, value_enum, default_value = "float32")]
    weights: WeightsArg,
    /// Layout of inputs and outputs that are images: that of the model, or channels last.
    #[arg(long, value_enum, default_value = "keep")]
    layout: LayoutArg,
    /// Also run the result in LiteRT (Python package ai-edge-litert) before it is written.
    #[arg(long)]
    litert: bool,
    #[command(flatten)]
    checks: Checks,
    #[command(flatten)]
    coreml: CoreMl,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum WeightsArg {
    Float32,
    Float16,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LayoutArg {
    Keep,
    Nhwc,
}

/// What `--json` shows.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    converted: Converted,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_real(&args.output)?;
    if let (Ok(Format::TfLite), Some(option)) = (Format::of(&args.output), args.coreml.given()) {
        let why = "is for packages of Core ML: a result that ends in .mlpackage";
        return Err(Failure::new(format_args!("{option} {why}")).of_kind(Kind::Usage));
    }
    let of_tflite = [
        ("--weights", matches!(args.weights, WeightsArg::Float16)),
        ("--layout", matches!(args.layout, LayoutArg::Nhwc)),
        ("--litert", args.litert),
    ];
    let given = of_tflite.into_iter().find(|option| option.1);
    if let (Ok(Format::CoreMl), Some((option, _))) = (Format::of(&args.output), given) {
        let why = "is for files of TensorFlow Lite: a result that ends in .tflite";
        return Err(Failure::new(format_args!("{option} {why}")).of_kind(Kind::Usage));
    }
    let model = output.files.load_valid(&args.model, &[])?;
    let options = ConvertOptions {
        interface: Wishes {
            dims: args.set_dim.iter().cloned().collect(),
            shapes: args.set_shape.iter().cloned().collect(),
            outputs: Vec::new(),
        },
        weights: match args.weights {
            WeightsArg::Float32 => Weights::Float32,
            WeightsArg::Float16 => Weights::Float16,
        },
        layout: match args.layout {
            LayoutArg::Keep => Layout::Keep,
            LayoutArg::Nhwc => Layout::Nhwc,
        },
        litert: args.litert,
        modules: sidecar(&args.model, &model, output),
        verification: args.checks.verification(&model, output)?,
        coreml: args.coreml.settings(),
    };
    let converted = convert_with(model, &args.output, &options, output.progress())
        .map_err(|error| Failure::from(error).about(&args.model))?;
    let files = converted.bytes.map(|size| WrittenFile::new(&args.output, size)).into_iter().collect();
    let is_good = converted.is_written() && (converted.is_verified() || !args.checks.require_verified);
    let shown = Shown { converted, files };
    output.result(&shown, |out| shown.show(out))?;
    Ok(if is_good { Verdict::Yes } else { Verdict::No })
}

impl Shown {
    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let Converted { format, summary, refused, comparison, unverified, .. } = &self.converted;
        if !refused.is_empty() {
            let mut rows = table(&["node", "operator", "why it has no place", "what may help"]);
            for refusal in refused {
                let hint = refusal.hint.unwrap_or_default();
                rows.add_row([&*refusal.node, &refusal.operator, &refusal.reason, hint].map(Cell::new));
            }
            writeln!(out, "{rows}")?;
            let count = refused.len();
            return writeln!(out, "nothing was written: {} cannot express {count} nodes", format.name());
        }
        if let Some(summary) = summary {
            let mut rows = table(&["operator", "nodes"]);
            for (operator, count) in &summary.operators {
                rows.add_row([Cell::new(operator), number(grouped(*count as u64))]);
            }
            writeln!(out, "{rows}")?;
            let (weights, transposes) = (bytes(summary.weights), summary.transposes);
            writeln!(
                out,
                "{weights} of weights; {transposes} operators only move elements into another layout"
            )?;
            if let Some(delegate) = &summary.delegate {
                let all = delegate.taken + delegate.left.values().sum::<usize>();
                let (name, taken, parts) = (delegate.name, delegate.taken, delegate.partitions);
                writeln!(out, "{name} takes {taken} of {all} operators, in {parts} partitions")?;
                if !delegate.left.is_empty() {
                    let left: Vec<String> =
                        delegate.left.iter().map(|(operator, count)| format!("{count} {operator}")).collect();
                    writeln!(out, "it does not take {}", left.join(", "))?;
                }
            }
            for refusal in &summary.floats {
                writeln!(
                    out,
                    "{} ({}) computes in floats: {}",
                    refusal.node, refusal.operator, refusal.reason
                )?;
            }
            if !summary.channels_last.is_empty() {
                let turned = [&summary.channels_last.inputs[..], &summary.channels_last.outputs[..]].concat();
                writeln!(out, "channels are last in {}", turned.join(", "))?;
            }
            summary.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
        }
        if let Some(report) = &self.converted.rounded {
            let worst = report.by_sample.iter().copied().fold(0.0, f64::max);
            let (what, option) = match format {
                Format::TfLite => ("weights of 16 bits", "--weights"),
                Format::CoreMl => ("float16", "--precision"),
            };
            writeln!(out, "{what}: results differ by at most {worst:.1e} of the scale")?;
            if report.verdict == Said::Different {
                writeln!(out, "nothing was written; keep 32 bits ({option} float32)")?;
            }
        }
        if let Some(litert) = &self.converted.litert {
            match litert.apart {
                Some(apart) => writeln!(out, "LiteRT: at most {apart:.1e} of the scale apart")?,
                None => writeln!(out, "LiteRT: results of another shape or type")?,
            }
            if !litert.is_good() {
                writeln!(out, "nothing was written; please report this")?;
            }
        }
        if let Some(report) = comparison {
            let worst = report.by_sample.iter().copied().fold(0.0, f64::max);
            let (samples, engine) = (report.samples, report.engine.name());
            let words = said(report.verdict);
            writeln!(
                out,
                "{words}, at most {worst:.1e} of the scale apart ({samples} samples, engine {engine})"
            )?;
            if let Some(first) = &report.first_difference {
                writeln!(out, "the first output that differs is {}", first.name)?;
            }
            if report.verdict == Said::Different {
                writeln!(out, "nothing was written; please report this")?;
            }
        }
        if let Some(why) = unverified {
            writeln!(out, "not compared with the model: {why}")?;
        }
        show_files(&self.files, out)
    }
}
