//! Models as files of other runtimes: legalized, written, read back and compared.

use std::collections::HashMap;
use std::path::Path;

use onnxforge_convert::{Artifact, Format, Layout, Refusal, Settings, Summary, Weights, coreml};
use onnxforge_hierarchy::recorded::Recorded;
use onnxforge_hierarchy::store;
use onnxforge_ir::io::{SaveError, require_folder};
use onnxforge_ir::{Model, NodeId};
use onnxforge_ops::eval::sample;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Silent};
use onnxforge_rewrite::interface::{self, Wishes};
use onnxforge_verify::compare;
use onnxforge_verify::engine::Engine;
use onnxforge_verify::guard::{self, When};
use onnxforge_verify::runtime::litert::LiteRt;
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
    /// How weights are stored.
    pub weights: Weights,
    /// The layout of inputs and outputs that are images.
    pub layout: Layout,
    /// How the file is verified.
    pub verification: Verification,
    /// Also run the file in LiteRT, beside the model in the native engine.
    pub litert: bool,
    /// What was recorded beside the model about its PyTorch modules; the model itself is asked in any case.
    pub modules: Option<Recorded>,
    /// What packages of Core ML are to be like.
    pub coreml: coreml::Settings,
}

/// The share of the scale up to which results may differ where weights are rounded to 16 bits.
const HALVES: f64 = 1e-2;

/// The same in LiteRT, whose kernels round in their own way: floats, weights of 16 bits, and integers of 8 bits.
const IN_LITERT: [f64; 3] = [1e-4, HALVES, 5e-2];

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
    /// How the file with weights of 16 bits compares with the model; `comparison` is about the same file with 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounded: Option<Comparison>,
    /// What LiteRT makes of the file, where that was asked for. Where it is too far from the model, nothing was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub litert: Option<InLiteRt>,
    /// Why there is no comparison, where one was asked for.
    pub unverified: Option<String>,
    /// How often each pass changed something.
    pub passes: Vec<(&'static str, usize)>,
    /// The size of what was written; nothing where the place of the result is as it was.
    pub bytes: Option<u64>,
    /// How long the steps took.
    pub milliseconds: Times,
}

/// What LiteRT makes of a file.
#[derive(Clone, Debug, Serialize)]
pub struct InLiteRt {
    /// How far its results are from those of the model, as a share of their scale; nothing where they have another shape or type.
    pub apart: Option<f64>,
    /// How far they may be.
    pub bound: f64,
}

impl InLiteRt {
    /// Whether it computes what the model does.
    pub fn is_good(&self) -> bool {
        self.apart.is_some_and(|apart| apart <= self.bound)
    }
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
        modules: options.modules.clone(),
        ..Options::default()
    };
    let source = store::fingerprint(&model);
    let optimized = optimize_with(model, &legalization, progress)?;
    let edits = optimized.report.passes.iter().filter(|pass| pass.edits > 0);
    let mut converted = Converted {
        schema: 1,
        format,
        summary: None,
        refused: Vec::new(),
        comparison: None,
        rounded: None,
        litert: None,
        unverified: None,
        passes: edits.map(|pass| (pass.name, pass.edits)).collect(),
        bytes: None,
        milliseconds: Times { legalize: since(start), ..Times::default() },
    };
    let hierarchy = &optimized.modules.hierarchy;
    let module = |node: NodeId| {
        let path = &hierarchy.table().get(hierarchy.origin(node).primary()).path;
        (hierarchy.knows(node) && !path.is_empty()).then(|| path.to_string())
    };
    let settings = Settings {
        weights: options.weights,
        layout: options.layout,
        source: Some(&source),
        module: Some(&module),
        coreml: Some(&options.coreml),
    };
    // Where numbers are rounded to 16 bits, results may be so far from those of the model.
    let tolerance = match format {
        Format::TfLite => (options.weights == Weights::Float16).then_some(HALVES),
        Format::CoreMl => options.coreml.half.then_some(coreml::HALF),
    };
    let start = Instant::now();
    let artifact = match format.lower(&optimized.model, &settings) {
        Ok(artifact) => artifact,
        Err(refusals) => {
            converted.refused = refusals.0;
            return Ok(converted);
        }
    };
    converted.summary = Some(artifact.summary.clone());
    checks.comparison.rounding = guard::declared(&optimized.model);
    let mut judge = Judge { format, checks, progress };
    let unwritable = |source| SaveError::Write { path: path.to_owned(), source };
    if is_checked && tolerance.is_some() {
        // What is not rounding to 16 bits is found in a file that is not rounded.
        let wide = coreml::Settings { half: false, ..options.coreml.clone() };
        let plain = Settings { weights: Weights::Float32, coreml: Some(&wide), ..settings };
        if let Ok(whole) = format.lower(&optimized.model, &plain) {
            let staged = whole.stage(path, progress).map_err(unwritable)?;
            converted.comparison = judge.compare(&mut converted, &whole, staged.path())?;
        }
    }
    let staged = artifact.stage(path, progress).map_err(unwritable)?;
    converted.milliseconds.write = since(start);
    if is_checked {
        let start = Instant::now();
        judge.checks.comparison.tolerance = tolerance;
        let report = judge.compare(&mut converted, &artifact, staged.path())?;
        match tolerance {
            None => converted.comparison = report,
            Some(_) => converted.rounded = report,
        }
        converted.milliseconds.verify = since(start);
        if options.litert {
            converted.litert = Some(judge.in_litert(&artifact, staged.path(), options)?);
        }
        let reports = [&converted.comparison, &converted.rounded];
        let is_wrong = reports.into_iter().flatten().any(|report| report.verdict == Verdict::Different);
        if is_wrong || converted.litert.as_ref().is_some_and(|litert| !litert.is_good()) {
            return Ok(converted);
        }
    }
    staged.persist().map_err(unwritable)?;
    converted.bytes = Some(artifact.byte_len());
    Ok(converted)
}

/// Compares what was written with the model. Only the native engine knows the operators of other formats.
struct Judge<'a> {
    format: Format,
    checks: guard::Options,
    progress: &'a dyn Progress,
}

impl Judge<'_> {
    /// How the file at `staged` compares with the model; nothing where that cannot be said, and then why.
    fn compare(
        &self,
        converted: &mut Converted,
        artifact: &Artifact,
        staged: &Path,
    ) -> Result<Option<Comparison>, Error> {
        let Some(original) = &self.checks.original else { return Ok(None) };
        let turned = &artifact.summary.channels_last;
        let read = load_valid(self.format.open_as_model(staged, turned)?, &[])?;
        match verify::verify(original, &read, &self.checks.comparison, self.progress) {
            Ok(report) => Ok(Some(report)),
            Err(
                error @ (VerifyError::Undetermined(_)
                | VerifyError::Sample(_)
                | VerifyError::Run { which: Which::First, .. }),
            ) => {
                converted.unverified = Some(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Runs the file in LiteRT, and the model in the native engine on the same inputs, with channels where the file has them.
    fn in_litert(
        &self,
        artifact: &Artifact,
        staged: &Path,
        options: &ConvertOptions,
    ) -> Result<InLiteRt, Error> {
        let litert = LiteRt::get()?;
        let is_quantized = artifact.summary.operators.contains_key("QUANTIZE");
        let [plain, halves, integers] = IN_LITERT;
        let bound = match options.weights {
            _ if is_quantized => integers,
            Weights::Float16 => halves,
            Weights::Float32 => plain,
        };
        let read = load_valid(self.format.open(staged)?, &[])?;
        let verification = &options.verification;
        let wanted = sample::Options {
            seed: verification.seed,
            dims: verification.dims.clone(),
            ..sample::Options::default()
        };
        // What was read back computes the same as the model, as the comparison before has shown.
        let inputs = sample::sample(&read, &wanted, &HashMap::new())?;
        let expected = Engine::Native.open(&read)?.run(&inputs)?;
        let found = litert.run(staged, &inputs, 1)?;
        let differences = expected
            .iter()
            .map(|(name, value)| Some(compare::compare(value, found.get(name)?).ok()?.max_rel));
        let apart = differences.reduce(|a, b| Some(a?.max(b?))).unwrap_or(Some(0.0));
        Ok(InLiteRt { apart, bound })
    }
}

fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
