//! `onnxforge attribute`: which pass does what, alone and among the others.

use std::io::{self, Write};

use comfy_table::Cell;
use onnxforge::analysis::attribution::{Attribution, attribute};
use onnxforge::progress::Silent;
use onnxforge::verify::guard::{Compared, When};
use serde::Serialize;

use super::Models;
use crate::arguments::{Comparison, SelectionArgs};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, number, table};

/// Count the nodes that each pass removes, alone and in the pipeline.
///
/// Alone, a pass runs on the model as it is.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    models: Models,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Compare results with the original's after each pass; see --samples, --engine, --inputs and --seed.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    comparison: Comparison,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    models: Vec<Attributed>,
}

#[derive(Debug, Serialize)]
struct Attributed {
    model: String,
    #[serde(flatten)]
    attribution: Attribution,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let passes = args.selection.passes()?;
    let models = args.models.each(output, |path, model| {
        let checks = match args.verify {
            true => Some(args.comparison.resolve(When::Each, &model, output)?),
            false => None,
        };
        let attribution = attribute(&model, &passes, checks, &Silent)?;
        Ok(Attributed { model: path.display().to_string(), attribution })
    })?;
    let report = Report { schema: 1, models };
    output.result(&report, |out| report.models.iter().try_for_each(|model| show(model, args.verify, out)))?;
    let is_good = report.models.iter().all(|model| model.attribution.is_good());
    Ok(if is_good { Verdict::Yes } else { Verdict::No })
}

fn show(model: &Attributed, verified: bool, out: &mut dyn Write) -> io::Result<()> {
    let Attribution { nodes, after, passes, unverified, reverted } = &model.attribution;
    let mut heading = vec!["pass", "alone", "among all"];
    if verified {
        heading.extend(["results alone", "after it, among all"]);
    }
    let mut rows = table(&heading);
    let changes = passes.iter().filter(|share| {
        share.isolated != 0
            || share.cumulative != 0
            || share.accuracy_isolated.is_some()
            || share.accuracy_cumulative.is_some()
    });
    for share in changes {
        let mut cells = vec![
            Cell::new(share.pass),
            number(format!("{:+}", share.isolated)),
            number(format!("{:+}", share.cumulative)),
        ];
        if verified {
            cells.extend(
                [share.accuracy_isolated, share.accuracy_cumulative].map(|found| number(said(found))),
            );
        }
        rows.add_row(cells);
    }
    let mut total =
        vec![Cell::new("all together"), number(""), number(format!("{:+}", *after as i64 - *nodes as i64))];
    total.resize_with(heading.len(), || number(""));
    rows.add_row(total);
    writeln!(out, "{} ({nodes} nodes)\n{rows}", model.model)?;
    for wrong in reverted {
        writeln!(out, "{} of {} is wrong ({}); it was reverted", wrong.rule, wrong.pass, wrong.difference)?;
    }
    unverified.iter().try_for_each(|reason| writeln!(out, "results were not compared: {reason}"))
}

/// What a comparison found, in a cell.
fn said(found: Option<Compared>) -> String {
    use onnxforge::verify::Verdict::{Different, Identical, Rounding, Undetermined};
    match found.map(|found| (found.verdict, found.difference)) {
        None => "-".to_owned(),
        Some((Identical, _)) => "identical".to_owned(),
        Some((Rounding, difference)) => format!("{:.1e}", difference.unwrap_or(0.0)),
        Some((Undetermined, _)) => "undetermined".to_owned(),
        Some((Different, Some(difference))) => format!("DIFFERENT ({difference:.1e})"),
        Some((Different, None)) => "DIFFERENT".to_owned(),
    }
}
