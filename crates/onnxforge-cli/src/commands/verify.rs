//! `onnxforge verify`: whether two models compute the same.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;
use comfy_table::Cell;
use onnxforge::eval::check_given;
use onnxforge::ir::Model;
use onnxforge::ops::Value;
use onnxforge::runtime::Runtime;
use onnxforge::verify::blocks::{Pairs, verify_blocks};
use onnxforge::verify::engine::Engine;
use onnxforge::verify::{self, Options, OutputReport, Verdict as Said, VerifyError};
use serde::Serialize;

use super::MOST_INPUTS;
use super::run::{check_dims, named_size, stored};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, number, table};

/// Tell whether two models compute the same, and whether a difference is rounding or error.
///
/// Both run on the same made-up inputs, at several sizes of every named dimension. Where results differ, a float64 run of the first
/// model judges: the second is right when it is no further from that than the first is, up to a few times and a few units in the last
/// place, or a little further where both models agree in 64 bits.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model that is right.
    first: PathBuf,
    /// The model to be judged.
    second: PathBuf,
    /// How many inputs are tried.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    samples: usize,
    /// Try so many inputs, and tell how differences are distributed and which tolerance they recommend.
    #[arg(long, value_name = "N", conflicts_with = "samples", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    sweep: Option<usize>,
    /// Accept differences up to this share of the largest magnitude of an output, instead of asking a float64 run.
    #[arg(long, value_name = "T", value_parser = share)]
    tolerance: Option<f64>,
    /// What computes.
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineArg,
    /// Inputs by name; others are made up.
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,
    /// The size of a named dimension in inputs that are made up.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// Other seeds make up other inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Compare block by block wherever a value has one name in both models, each block on the same values: for models that do not fit into memory.
    #[arg(long)]
    blocks: bool,
}

/// Reads a share of something.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share.is_finite() && share >= 0.0 => Ok(share),
        _ => Err("a number from 0 on is needed, such as 1e-5".to_owned()),
    }
}

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EngineArg {
    /// ONNX Runtime where it is found, this library otherwise.
    Auto,
    /// This library.
    Native,
    /// ONNX Runtime without its optimizations.
    Ort,
    /// ONNX Runtime with all of its optimizations, as users run it.
    OrtAll,
    /// This library, every float in 64 bits.
    Oracle,
}

impl EngineArg {
    /// The engine that is meant. Block by block, this library needs half of the memory that ONNX Runtime takes, and no more time.
    pub fn engine(self, by_blocks: bool) -> Engine {
        match self {
            Self::Auto if !by_blocks && Runtime::get().is_ok() => Engine::Ort,
            Self::Auto | Self::Native => Engine::Native,
            Self::Ort => Engine::Ort,
            Self::OrtAll => Engine::OrtAll,
            Self::Oracle => Engine::Oracle,
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    #[serde(flatten)]
    report: verify::Report,
    /// Why another engine than ONNX Runtime computed, where that was to.
    fallback: Option<String>,
    /// How differences are distributed, where that was asked for.
    sweep: Option<Sweep>,
}

/// The largest differences of samples, as shares of the largest magnitude.
#[derive(Debug, Serialize)]
struct Sweep {
    min: f64,
    max: f64,
    mean: f64,
    p99: f64,
    all_zero: bool,
    /// Ten times what 99 of 100 samples stay below.
    recommended_tolerance: f64,
}

impl Sweep {
    fn of(differences: &[f64]) -> Self {
        let mut sorted = differences.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = sorted.len().saturating_sub(1);
            sorted.get((share * last as f64).ceil() as usize).copied().unwrap_or(0.0)
        };
        let p99 = at(0.99);
        Self {
            min: at(0.0),
            max: at(1.0),
            mean: sorted.iter().sum::<f64>() / sorted.len().max(1) as f64,
            p99,
            all_zero: sorted.iter().all(|&difference| difference == 0.0),
            recommended_tolerance: 10.0 * p99,
        }
    }
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let (first, second) = (output.files.load(&args.first)?, output.files.load(&args.second)?);
    check_dims(&args.set_dim, &first)?;
    let engine = args.engine.engine(args.blocks);
    let mut options = Options {
        samples: args.sweep.unwrap_or(args.samples),
        seed: args.seed,
        given: given(args.inputs.as_deref(), &first, output)?,
        dims: args.set_dim.iter().cloned().collect(),
        tolerance: args.tolerance,
        ..Options::new(engine)
    };
    let bar = output.progress();
    let compare = |options: &Options| match args.blocks {
        true => verify_blocks(&first, &second, &Pairs::by_name(&first, &second)?, options, bar),
        false => verify::verify(&first, &second, options, bar),
    };
    let mut found = compare(&options);
    // What ONNX Runtime never could run, this library may. A second model that it cannot run although it can the first is no fallback's business.
    let mut fallback = None;
    if let (EngineArg::Auto, Engine::Ort, Err(error @ VerifyError::Run { which: "first", .. })) =
        (args.engine, engine, &found)
    {
        tracing::warn!("{error}; the native engine takes over");
        fallback = Some(error.to_string());
        options.engine = Engine::Native;
        found = compare(&options);
    }
    let report = found?;
    let verdict = report.verdict;
    // What is wrong recommends nothing.
    // What is wrong recommends no tolerance; where one was given, how far results move is told all the same.
    let is_told = report.by_sample.iter().all(|found| found.is_finite())
        && (verdict != Said::Different || args.tolerance.is_some());
    let sweep = args.sweep.filter(|_| is_told).map(|_| Sweep::of(&report.by_sample));
    let report = Report { schema: 1, report, fallback, sweep };
    output.result(&report, |out| report.show(out))?;
    Ok(if verdict == Said::Different { Verdict::No } else { Verdict::Yes })
}

/// The inputs that the archive holds.
pub fn given(
    archive: Option<&Path>,
    model: &Model,
    output: &Output,
) -> Result<HashMap<String, Value>, Failure> {
    let Some(path) = archive else { return Ok(HashMap::new()) };
    let found = stored(path, model, MOST_INPUTS, output)?;
    check_given(model, &found).map_err(|error| Failure::at(path, error))?;
    Ok(found)
}

impl Report {
    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = table(&[
            "output",
            "verdict",
            "max abs",
            "max rel",
            "ulps",
            "cosine",
            "from float64: first",
            "second",
        ]);
        for output in &self.report.outputs {
            rows.add_row(cells(output));
        }
        writeln!(out, "{rows}")?;
        if let Some(sweep) = &self.sweep {
            writeln!(
                out,
                "relative differences: min {:.1e}, mean {:.1e}, p99 {:.1e}, max {:.1e}{}; recommended tolerance {:.1e}",
                sweep.min,
                sweep.mean,
                sweep.p99,
                sweep.max,
                if sweep.all_zero { " (all zero)" } else { "" },
                sweep.recommended_tolerance
            )?;
        }
        let samples = self.report.samples;
        let said = said(self.report.verdict);
        let inside = match self.report.inside {
            0 => String::new(),
            values => format!(", also at {values} values inside, block by block"),
        };
        if let Some(first) = self.report.first_difference.as_ref().filter(|_| self.report.inside > 0) {
            writeln!(out, "the first value that differs is {}", first.name)?;
        }
        writeln!(out, "{said} ({samples} samples, engine {}{inside})", self.report.engine.name())
    }
}

/// A verdict in words.
pub fn said(verdict: Said) -> &'static str {
    match verdict {
        Said::Identical => "identical to the bit",
        Said::Rounding => "the same but for rounding",
        Said::Different => "NOT the same",
    }
}

fn cells(output: &OutputReport) -> Vec<Cell> {
    let said = match (output.verdict, &output.mismatch) {
        (_, Some(mismatch)) => format!("different: {mismatch}"),
        (Said::Identical, _) => "identical".to_owned(),
        (Said::Rounding, _) => "rounding".to_owned(),
        (Said::Different, _) => "different".to_owned(),
    };
    let mut row = vec![Cell::new(&output.name), Cell::new(said)];
    match &output.difference {
        Some(difference) => row.extend([
            number(format!("{:.1e}", difference.max_abs)),
            number(format!("{:.1e}", difference.max_rel)),
            number(difference.ulps.map_or_else(|| "-".to_owned(), |ulps| ulps.to_string())),
            number(format!("{:.9}", difference.cosine)),
        ]),
        None => row.extend(std::iter::repeat_n(number("-"), 4)),
    }
    match output.from_oracle {
        Some(errors) => row.extend(errors.map(|error| number(format!("{error:.1e}")))),
        None => row.extend(std::iter::repeat_n(number("-"), 2)),
    }
    row
}
