//! `onnxforge verify`: whether two models compute the same.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use comfy_table::Cell;
use onnxforge::verification::Sweep;
use onnxforge::verify::{OutputReport, Verdict as Said};
use onnxforge::{Verified, VerifyOptions, verify_with};
use serde::Serialize;

use crate::arguments::{EngineArg, check_dims, given, named_size};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, number, table};

/// Check that two models compute the same, up to rounding.
///
/// Both models run on the same synthetic inputs, at several sizes of every symbolic dimension. Where results differ, a float64 run of the
/// reference decides: the other model is equal up to rounding when its error against that run is of the same size as the reference's.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The reference model.
    first: PathBuf,
    /// The model to check.
    second: PathBuf,
    /// Number of inputs to try.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    samples: usize,
    /// Try this many inputs; show the distribution of differences and a recommended tolerance.
    #[arg(long, value_name = "N", conflicts_with = "samples", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    sweep: Option<usize>,
    /// Accept differences up to this fraction of the largest magnitude of an output, instead of comparing with a float64 run.
    #[arg(long, value_name = "T", value_parser = share)]
    tolerance: Option<f64>,
    /// Engine that runs the models.
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineArg,
    /// Inputs by name; others are synthetic.
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,
    /// Size of a symbolic dimension in synthetic inputs.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// Seed for synthetic inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Compare block by block, cutting both models at values of the same name; for models that do not fit into memory.
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

/// What `--json` shows.
#[derive(Debug, Serialize)]
struct Shown {
    schema: u32,
    #[serde(flatten)]
    found: Verified,
    /// How differences are distributed, where that was asked for.
    sweep: Option<Sweep>,
}

/// What `--json` shows where models cannot be compared.
#[derive(Debug, Serialize)]
struct Failed<'a> {
    schema: u32,
    error: &'a Failure,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    compare(args, output).inspect_err(|error| {
        if output.wants_json() {
            drop(output.result(&Failed { schema: 1, error }, |_| Ok(())));
        }
    })
}

fn compare(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let (first, second) = (output.files.load(&args.first)?, output.files.load(&args.second)?);
    check_dims("--set-dim", &args.set_dim, &first)?;
    let options = VerifyOptions {
        engine: args.engine.into(),
        samples: args.sweep.unwrap_or(args.samples),
        seed: args.seed,
        given: given(args.inputs.as_deref(), &first, output)?,
        dims: args.set_dim.iter().cloned().collect(),
        tolerance: args.tolerance,
        by_blocks: args.blocks,
    };
    let found = verify_with(&first, &second, &options, output.progress())?;
    if let Some(reason) = &found.fallback {
        tracing::warn!("{reason}; the native engine took over");
    }
    let verdict = found.report.verdict;
    // What is wrong recommends no tolerance; where one was given, how far results move is told all the same.
    let is_told = found.report.by_sample.iter().all(|found| found.is_finite())
        && (verdict != Said::Different || args.tolerance.is_some());
    let sweep = args.sweep.filter(|_| is_told).map(|_| Sweep::of(&found.report.by_sample));
    let shown = Shown { schema: 1, found, sweep };
    output.result(&shown, |out| shown.show(out))?;
    Ok(if verdict >= Said::Undetermined { Verdict::No } else { Verdict::Yes })
}

impl Shown {
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
        for output in &self.found.report.outputs {
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
        let samples = self.found.report.samples;
        let said = said(self.found.report.verdict);
        let inside = match self.found.report.inside {
            0 => String::new(),
            values => format!(", also at {values} values inside, block by block"),
        };
        if let Some(first) =
            self.found.report.first_difference.as_ref().filter(|_| self.found.report.inside > 0)
        {
            writeln!(out, "the first value that differs is {}", first.name)?;
        }
        if let Some(why) = self.found.report.undetermined() {
            writeln!(out, "{why}; other inputs (--inputs) or a tolerance (--tolerance) may help")?;
        }
        let unequal = &self.found.report.unequal;
        if !unequal.is_empty() {
            writeln!(
                out,
                "dimensions of one name are taken to be equal; where they are not, the second model computes something else: {}",
                unequal.join("; ")
            )?;
        }
        for branch in &self.found.report.untaken {
            writeln!(out, "no input leads into the {branch}, so nothing is known of it; --inputs may")?;
        }
        let mut seen = BTreeSet::new();
        for sizes in self.found.report.sizes.iter().filter(|sizes| seen.insert(*sizes)) {
            writeln!(out, "sizes: {sizes}")?;
        }
        if !self.found.fixed.is_empty() {
            let fixed: Vec<String> =
                self.found.fixed.iter().map(|(name, size)| format!("{name}={size}")).collect();
            writeln!(
                out,
                "no other sizes were tried than those that the second model has fixed: {}",
                fixed.join(", ")
            )?;
        }
        let plural = if samples == 1 { "" } else { "s" };
        writeln!(out, "{said} ({samples} sample{plural}, engine {}{inside})", self.found.report.engine.name())
    }
}

/// A verdict in words.
pub fn said(verdict: Said) -> &'static str {
    match verdict {
        Said::Identical => "identical to the bit",
        Said::Rounding => "equal up to rounding",
        Said::Undetermined => "UNDETERMINED",
        Said::Different => "NOT the same",
    }
}

fn cells(output: &OutputReport) -> Vec<Cell> {
    let said = match (output.verdict, &output.mismatch) {
        (_, Some(mismatch)) => format!("different: {mismatch}"),
        (Said::Identical, _) => "identical".to_owned(),
        (Said::Rounding, _) => "rounding".to_owned(),
        (Said::Undetermined, _) => "undetermined".to_owned(),
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
