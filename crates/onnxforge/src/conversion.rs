//! Models as files of other runtimes: legalized, written, read back and compared.

use std::path::Path;

use onnxforge_convert::{Format, Refusal, Settings, Summary};
use onnxforge_ir::Model;
use onnxforge_ir::io::{SaveError, require_folder};
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Silent};
use onnxforge_rewrite::interface::{self, Wishes};
use onnxforge_verify::guard::{self, When};
use onnxforge_verify::{self as verify, Report as Comparison, Verdict, VerifyError, Which};
use serde::Serialize;

use crate::loading::load_valid;
use crate::optimize::{Options, Verification, optimize_with};
use crate::selection::Selection;
use crate::{Error, Opset};

/// The version of the standard operators that legalization and writers know; models of older ones are converted first.
pub const OPSET: i64 = 21;

/// What a conversion is to be. The default: floats of 32 bits, inputs and outputs as they are, and the file compared with the model.
#[derive(Clone, Debug, Default)]
pub struct ConvertOptions {
    /// Sizes, shapes and outputs that are fixed before anything else happens.
    pub interface: Wishes,
    /// How the file is verified.
    pub verification: Verification,
    /// What formats let their users choose.
    pub settings: Settings,
}

/// What became of a conversion.
#[derive(Debug, Serialize)]
pub struct Converted {
    /// Version of this layout.
    pub schema: u32,
    /// The format.
    pub format: Format,
    /// What the file is made of; nothing where there is none.
    pub summary: Option<Summary>,
    /// Every node that has no place in the format. Where there is one, nothing was written.
    pub refused: Vec<Refusal>,
    /// How the file compares with the model. Where they differ, nothing was written.
    pub comparison: Option<Comparison>,
    /// Why there is no comparison, where one was asked for.
    pub unverified: Option<String>,
    /// How often each pass changed something.
    pub passes: Vec<(&'static str, usize)>,
    /// The size of what was written; nothing where the place of the result is as it was.
    pub bytes: Option<u64>,
    /// How long the steps took.
    pub milliseconds: Times,
}

/// Milliseconds of each step.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Times {
    /// Saying the model in what the format has, with checks of single edits.
    pub legalize: f64,
    /// Turning it into the format, and writing it.
    pub write: f64,
    /// Reading it back and comparing it.
    pub verify: f64,
}

impl Converted {
    /// Whether there is a file that computes what the model does, as far as that was asked for.
    pub fn is_written(&self) -> bool {
        self.bytes.is_some()
    }

    /// Whether the file was compared with the model, and found to be the same up to rounding.
    pub fn is_verified(&self) -> bool {
        self.comparison.as_ref().is_some_and(|report| report.verdict <= Verdict::Rounding)
    }
}

/// Converts a model to the format that the name of the result says, and verifies what was written.
pub fn convert(model: Model, path: impl AsRef<Path>, options: &ConvertOptions) -> Result<Converted, Error> {
    convert_with(model, path.as_ref(), options, &Silent)
}

/// The same, with somebody who hears about progress.
pub fn convert_with(
    model: Model,
    path: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<Converted, Error> {
    let format = Format::of(path)?;
    require_folder(path)?;
    let is_checked = options.verification.when != When::Off;
    let start = Instant::now();
    let mut original = model.clone();
    interface::apply(&mut original, &options.interface)?;
    let mut checks = options.verification.checks(&original)?;
    let is_old = model.opset(model.main(), "").is_some_and(|opset| opset < OPSET);
    let when = if is_checked { When::Local } else { When::Off };
    let legalization = Options {
        interface: options.interface.clone(),
        opset: if is_old { Opset::Version(OPSET) } else { Opset::Keep },
        passes: Selection { target: format.target(), ..Selection::default() },
        verification: Verification { when, ..options.verification.clone() },
        ..Options::default()
    };
    let optimized = optimize_with(model, &legalization, progress)?;
    let edits = optimized.report.passes.iter().filter(|pass| pass.edits > 0);
    let mut converted = Converted {
        schema: 1,
        format,
        summary: None,
        refused: Vec::new(),
        comparison: None,
        unverified: None,
        passes: edits.map(|pass| (pass.name, pass.edits)).collect(),
        bytes: None,
        milliseconds: Times { legalize: since(start), ..Times::default() },
    };
    let start = Instant::now();
    let artifact = match format.lower(&optimized.model, &options.settings) {
        Ok(artifact) => artifact,
        Err(refusals) => {
            converted.refused = refusals.0;
            return Ok(converted);
        }
    };
    let unwritable = |source| SaveError::Write { path: path.to_owned(), source };
    let staged = artifact.stage(path, progress).map_err(unwritable)?;
    converted.summary = Some(artifact.summary.clone());
    converted.milliseconds.write = since(start);
    if is_checked {
        let start = Instant::now();
        let read = load_valid(format.open(staged.path())?, &[])?;
        checks.comparison.rounding = guard::declared(&optimized.model);
        checks.comparison.tolerance = format.tolerance(&options.settings);
        compare(&mut converted, &read, checks, progress)?;
        converted.milliseconds.verify = since(start);
        if converted.comparison.as_ref().is_some_and(|report| report.verdict == Verdict::Different) {
            return Ok(converted);
        }
    }
    staged.persist().map_err(unwritable)?;
    converted.bytes = Some(artifact.byte_len());
    Ok(converted)
}

/// Compares what was written with the model. Only the native engine knows the operators of other formats.
fn compare(
    converted: &mut Converted,
    read: &Model,
    checks: guard::Options,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let Some(original) = &checks.original else { return Ok(()) };
    match verify::verify(original, read, &checks.comparison, progress) {
        Ok(report) => converted.comparison = Some(report),
        Err(
            error @ (VerifyError::Undetermined(_)
            | VerifyError::Sample(_)
            | VerifyError::Run { which: Which::First, .. }),
        ) => converted.unverified = Some(error.to_string()),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
