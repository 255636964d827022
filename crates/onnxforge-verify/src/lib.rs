//! Whether two models compute the same, and whether a difference is rounding or error.
//!
//! Both models run on the same inputs, at several sizes of every symbolic dimension. Where results are not the same to the bit, the
//! float64 run of the first model judges: the second is right when it is no further from that than the first is, up to a few
//! units in the last place. Where both agree in 64 bits, it may be a little further: another order of summing does that.

pub mod bench;
pub mod blocks;
pub mod compare;
pub mod engine;
pub mod guard;
mod judge;
pub mod local;
pub mod parts;
pub mod reduce;
mod region;
pub mod runtime;

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use serde::Serialize;

use self::blocks::Pairs;
use self::compare::{Difference, Mismatch, compare};
use self::engine::{Engine, EngineError, Ready};
use self::judge::{FEW, Judged, said};
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::{Def, Model, Type, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::eval::sample::{self, SampleError};
use onnxforge_ops::infer::Inference;
use onnxforge_proto::cancel::checkpoint;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Unit};
use onnxforge_proto::schema::ValueInfoProto;

/// What to run.
#[derive(Debug)]
pub struct Options {
    /// What computes.
    pub engine: Engine,
    /// How many inputs are made up.
    pub samples: usize,
    /// What they start from.
    pub seed: u64,
    /// Inputs that are given; others are made up.
    pub given: HashMap<String, Value>,
    /// Sizes of named dimensions; others take several.
    pub dims: HashMap<String, usize>,
    /// The largest difference, as a share of the largest magnitude, that is accepted; without it the float64 run judges.
    pub tolerance: Option<f64>,
    /// The size of named dimensions that `dims` does not tell, where the usual ones do not do; in every other sample twice as large.
    pub size: Option<usize>,
    /// Units in the last place, at the scale of a result, that are known to be rounding; the float64 run judges only beyond.
    pub rounding: f64,
    /// Results that differ in a bit are different: signs of zeros and payloads of NaN count too.
    pub exact: bool,
}

impl Options {
    /// Two made-up inputs, judged by the float64 run.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            samples: 2,
            seed: 0,
            given: HashMap::new(),
            dims: HashMap::new(),
            tolerance: None,
            size: None,
            rounding: 0.0,
            exact: false,
        }
    }
}

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The same bits.
    Identical,
    /// The same but for rounding.
    Rounding,
    /// Not the same.
    Different,
}

/// What was found at one output, over all samples.
#[derive(Clone, Debug, Serialize)]
pub struct OutputReport {
    /// Its name in the first model.
    pub name: String,
    /// What is said of it.
    pub verdict: Verdict,
    /// How far apart results are; nothing where they cannot be compared.
    pub difference: Option<Difference>,
    /// Why they cannot be compared.
    pub mismatch: Option<String>,
    /// How far the results of both models are from the float64 run of the first, as shares of the scale, where that was needed.
    pub from_oracle: Option<[f64; 2]>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What computed.
    pub engine: Engine,
    /// What is said of all outputs together.
    pub verdict: Verdict,
    /// How many inputs were tried.
    pub samples: usize,
    /// The outputs, in the order of the first model.
    pub outputs: Vec<OutputReport>,
    /// Whether they were compared block by block, each block of both on the same values.
    pub by_blocks: bool,
    /// At how many values inside of the models they were compared, too.
    pub inside: usize,
    /// The first value, in the order of computing, at which they differ.
    pub first_difference: Option<OutputReport>,
    /// The largest difference of each sample, as a share of the scale.
    pub by_sample: Vec<f64>,
}

/// Why two models cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// No inputs.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A model does not run.
    #[error("the {which} model does not run ({when}): {error}")]
    Run {
        /// Which.
        which: Which,
        /// When it failed.
        when: Moment,
        /// Why.
        error: EngineError,
    },
    /// The models take or give different things.
    #[error("{0}")]
    Interface(String),
}

/// One of the models that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The reference.
    First,
    /// The one that is judged.
    Second,
    /// The model that parts were cut out of.
    Whole,
    /// A part of it.
    Extracted,
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Whole => "whole",
            Self::Extracted => "extracted",
        })
    }
}

/// When a model failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The engine does not take it.
    Loading,
    /// On inputs with these sizes of named dimensions.
    Running(String),
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loading => f.write_str("when it is loaded"),
            Self::Running(sizes) => f.write_str(sizes),
        }
    }
}

/// One of the two models, and what runs it.
struct Side<'m> {
    which: Which,
    model: &'m Model,
    /// The inputs that it takes.
    takes: BTreeSet<String>,
    run: Ready<'m>,
    /// In 64 bits, once that is asked for.
    wide: Option<Ready<'m>>,
}

/// Inputs of one run, and the sizes of their dimensions in words.
struct Inputs {
    values: HashMap<String, Value>,
    sizes: String,
}

impl<'m> Side<'m> {
    fn new(which: Which, model: &'m Model, engine: Engine) -> Result<Self, VerifyError> {
        let run = Self::opened(which, model, engine)?;
        Ok(Self { which, model, takes: input_names(model, true), run, wide: None })
    }

    fn opened(which: Which, model: &'m Model, engine: Engine) -> Result<Ready<'m>, VerifyError> {
        let start = Instant::now();
        let failed = |error| VerifyError::Run { which, when: Moment::Loading, error };
        let opened = engine.open(model).map_err(failed)?;
        tracing::debug!("the {which} model loaded in {:.1?} ({})", start.elapsed(), engine.name());
        Ok(opened)
    }

    /// The outputs by name, in 64 bits where that is asked for.
    fn outputs(&mut self, inputs: &Inputs, wide: bool) -> Result<HashMap<String, Value>, VerifyError> {
        let taken = inputs.values.iter().filter(|(name, _)| self.takes.contains(*name));
        let taken = taken.map(|(name, value)| (name.clone(), value.clone())).collect();
        let ready = match (wide, &mut self.wide) {
            (false, _) => &mut self.run,
            (true, Some(wide)) => wide,
            (true, empty) => empty.insert(Self::opened(self.which, self.model, Engine::Oracle)?),
        };
        let (which, sizes, start) = (self.which, &inputs.sizes, Instant::now());
        let failed = |error| VerifyError::Run { which, when: Moment::Running(sizes.clone()), error };
        let outputs = ready.run(&taken).map_err(failed)?;
        tracing::debug!(
            "the {which} model ran in {:.1?} ({sizes}{})",
            start.elapsed(),
            if wide { ", 64 bits" } else { "" }
        );
        Ok(outputs)
    }
}

/// Compares the outputs of two models.
pub fn verify(
    first: &Model,
    second: &Model,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report, VerifyError> {
    let pairs = paired_outputs(first, second)?;
    progress.begin("comparing", options.samples as u64, Unit::Runs);
    let found = compare_models([first, second], (first, &Inference::of(first)), &pairs, 0, options, progress);
    progress.end();
    found
}

/// Models with more bytes of constants than this are compared block by block.
const LARGE: u64 = 1 << 30;

/// Whether a model is compared block by block.
pub fn is_large(model: &Model) -> bool {
    model.stored_bytes() > LARGE
}

/// Compares two models, one of which was made from the other, at their outputs and at values that both compute; block by block where
/// they are large.
pub fn verify_inside(
    first: &Model,
    second: &Model,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report, VerifyError> {
    if is_large(first) {
        return blocks::verify_blocks(first, second, &Pairs::by_id(first, second), options, progress);
    }
    let pairs = paired_outputs(first, second)?;
    let inference = Inference::of(first);
    let inside = survivors(first, second, &inference);
    let declare = |value: ValueId| ValueInfoProto {
        r#type: inference.declaration(value).map(Box::new),
        ..ValueInfoProto::default()
    };
    let [first_wider, second_wider] = [first, second].map(|model| model.with_outputs(&inside, &declare));
    let named = inside.iter().map(|&value| first.value(value).name().to_string());
    let pairs: Vec<(String, String)> = named.map(|name| (name.clone(), name)).chain(pairs).collect();
    progress.begin("comparing with the original", options.samples as u64, Unit::Runs);
    let wider = [&first_wider, &second_wider];
    let found = compare_models(wider, (first, &inference), &pairs, inside.len(), options, progress);
    progress.end();
    found
}

/// Whether operators of a model turn small differences of floats into large ones: they round, compare or choose.
fn makes_steps(model: &Model, inference: &Inference) -> bool {
    const STEPS: [&str; 20] = [
        "Round",
        "Floor",
        "Ceil",
        "Sign",
        "Mod",
        "Cast",
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "TopK",
        "ArgMax",
        "ArgMin",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Equal",
        "NonZero",
        "Unique",
        "NonMaxSuppression",
        "Hardmax",
    ];
    let is_float = |value: Option<ValueId>| {
        let dtype = value.and_then(|value| inference.tensor(value)?.dtype);
        dtype.is_none_or(|dtype| dtype.epsilon().is_some())
    };
    model.nodes().any(|(_, node)| {
        STEPS.iter().any(|op| node.op().is(op))
            && is_float(node.input(0))
            && !(node.op().is("Cast") && is_float(node.output(0)))
    })
}

/// Bytes that values inside may take together.
const MOST_INSIDE: i64 = 1 << 29;

/// The values of the graph that nodes of both models compute and that are no outputs, in the order of the first; as many as memory
/// allows.
fn survivors(first: &Model, second: &Model, inference: &Inference) -> Vec<ValueId> {
    let mut left = MOST_INSIDE;
    let mut found = Vec::new();
    for (_, node) in first.nodes_in(first.main()) {
        for &value in node.outputs().iter().flatten() {
            let inside = is_twin(first, second, value) && !first.value(value).is_exposed();
            let fact = inference.tensor(value).filter(|_| inside);
            let known = fact.and_then(|fact| Some((fact.dtype?, fact.shape.as_ref()?)));
            // Engines exchange no smaller ones.
            let Some((dtype, dims)) = known.filter(|(dtype, _)| crate::runtime::exchanges(*dtype)) else {
                continue;
            };
            let elements = dims
                .iter()
                .try_fold(1i64, |product, dim| product.checked_mul(dim.evaluate(&|_| Some(8))?.max(1)));
            left = left
                .saturating_sub(elements.unwrap_or(i64::MAX).saturating_mul(i64::from(dtype.bits()) / 8 + 1));
            if left < 0 {
                return found;
            }
            found.push(value);
        }
    }
    found
}

/// Whether nodes of both models compute a value. One model was made from the other, so that what has one id is one value.
fn is_twin(first: &Model, second: &Model, value: ValueId) -> bool {
    second.has_value(value)
        && second.value(value).node().is_some()
        && second.value(value).name() == first.value(value).name()
}

/// Compares two models at outputs that belong together, the first `inside` of which are values inside of them. Inputs are made for
/// `reference`, which is the first without these values as outputs, and what is known of it.
fn compare_models(
    [first, second]: [&Model; 2],
    (reference, inference): (&Model, &Inference),
    pairs: &[(String, String)],
    inside: usize,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report, VerifyError> {
    let mut sides =
        [Side::new(Which::First, first, options.engine)?, Side::new(Which::Second, second, options.engine)?];
    if let Some(unknown) = input_names(second, false).difference(&sides[0].takes).next() {
        return Err(VerifyError::Interface(format!("only the second model has the input {unknown}")));
    }
    let mut outputs: Vec<OutputReport> = pairs.iter().map(|(name, _)| OutputReport::new(name)).collect();
    let mut by_sample = Vec::new();
    let steps = makes_steps(reference, inference);
    for index in 0..options.samples {
        let inputs = inputs(reference, inference, options, index)?;
        let [expected, found] = both(&mut sides, &inputs, false)?;
        let mut largest: f64 = 0.0;
        let mut doubtful = Vec::new();
        for (place, ((name, other), report)) in pairs.iter().zip(&mut outputs).enumerate() {
            let compared = match (expected.get(name), found.get(other)) {
                (Some(x), Some(y)) => compare(x, y).map(|difference| (x, y, difference)),
                _ => Err(Mismatch::Missing),
            };
            let (x, y, difference) = match compared {
                Ok(compared) => compared,
                Err(mismatch) => {
                    report.fails(&mismatch);
                    largest = f64::INFINITY;
                    continue;
                }
            };
            if place >= inside {
                largest = largest.max(difference.max_rel);
            }
            match options.without_oracle(x, &difference, place < inside) {
                Some(verdict) => report.add(difference, verdict, None),
                None => {
                    tracing::debug!("{name} differs by {:.1e} of its scale", difference.max_rel);
                    doubtful.push((place, [x, y], difference));
                }
            }
        }
        if !doubtful.is_empty() {
            let [a, b] = both(&mut sides, &inputs, true)?;
            let judged: Vec<_> = doubtful
                .into_iter()
                .map(|(place, results, difference)| {
                    let (name, other) = &pairs[place];
                    let wide = a.get(name).zip(b.get(other)).map(|(a, b)| [a, b]);
                    let judged = wide.and_then(|wide| Judged::of(results, wide));
                    (place, judged, steps.then_some(results[0]).zip(wide), difference)
                })
                .collect();
            let firsts = judged.iter().filter_map(|(_, judged, ..)| Some(judged.as_ref()?.first));
            let level = firsts.fold(0.0, f64::max);
            for (place, judged, behind, difference) in judged {
                // What is inside of an ill-conditioned model may be further off; the outputs tell.
                let level = match &judged {
                    Some(judged) if place >= inside => judged.excused(level),
                    _ => level,
                };
                let verdict = said(judged.as_ref(), level, behind);
                outputs[place].add(difference, verdict, judged.map(|judged| [judged.first, judged.second]));
            }
        }
        by_sample.push(largest);
        checkpoint();
        progress.advance(1);
    }
    let verdict = outputs.iter().map(|output| output.verdict).max().unwrap_or(Verdict::Identical);
    let first_difference = outputs.iter().find(|output| output.verdict == Verdict::Different).cloned();
    let outputs = outputs.split_off(inside);
    let (engine, samples) = (options.engine, options.samples);
    Ok(Report { engine, verdict, samples, outputs, by_blocks: false, inside, first_difference, by_sample })
}

fn both(
    sides: &mut [Side<'_>; 2],
    inputs: &Inputs,
    wide: bool,
) -> Result<[HashMap<String, Value>; 2], VerifyError> {
    let [first, second] = sides;
    Ok([first.outputs(inputs, wide)?, second.outputs(inputs, wide)?])
}

/// The inputs of a sample: those that are given, and made-up ones.
fn inputs(
    model: &Model,
    inference: &Inference,
    options: &Options,
    index: usize,
) -> Result<Inputs, VerifyError> {
    let dims = sizes(model, options, index);
    let sizes = described(&dims);
    let seed = options.seed.wrapping_add(index as u64);
    let settings = sample::Options { seed, dims, default_dim: 1 + index % 3, ..sample::Options::default() };
    let mut values = sample::sample(model, inference, &settings, &options.given)?;
    values.extend(options.given.clone());
    Ok(Inputs { values, sizes })
}

impl Options {
    /// What is clear without a float64 run.
    fn without_oracle(&self, expected: &Value, difference: &Difference, is_inside: bool) -> Option<Verdict> {
        match self.tolerance {
            _ if difference.identical => Some(Verdict::Identical),
            _ if self.exact => Some(Verdict::Different),
            // Only signs of zeros differ.
            _ if difference.max_abs == 0.0 => Some(Verdict::Rounding),
            Some(tolerance) if difference.max_rel <= tolerance => Some(Verdict::Rounding),
            Some(_) => Some(Verdict::Different),
            None => {
                let unit = expected.array().ok()?.dtype().epsilon()?;
                // Half of the digits are rounding never. Inside of a model they may be, where large numbers nearly cancel; what comes of it shows
                // at the outputs.
                let most = if unit > 1e-4 { FEW * unit } else { unit.sqrt() };
                let bound =
                    if is_inside && self.rounding > 0.0 { most } else { most.min(self.rounding * unit) };
                (difference.max_rel <= bound).then_some(Verdict::Rounding)
            }
        }
    }
}

impl OutputReport {
    fn new(name: &str) -> Self {
        let name = name.to_owned();
        Self { name, verdict: Verdict::Identical, difference: None, mismatch: None, from_oracle: None }
    }

    fn fails(&mut self, mismatch: &Mismatch) {
        self.verdict = Verdict::Different;
        self.mismatch.get_or_insert_with(|| mismatch.to_string());
    }

    fn add(&mut self, difference: Difference, verdict: Verdict, from_oracle: Option<[f64; 2]>) {
        self.verdict = self.verdict.max(verdict);
        self.difference = Some(match self.difference.take() {
            Some(worst) => worst.worse(difference),
            None => difference,
        });
        if let Some([first, second]) = from_oracle {
            let [a, b] = self.from_oracle.unwrap_or([0.0, 0.0]);
            self.from_oracle = Some([a.max(first), b.max(second)]);
        }
    }
}

/// The outputs of both models that belong together: by name, or by place where no name fits.
fn paired_outputs(first: &Model, second: &Model) -> Result<Vec<(String, String)>, VerifyError> {
    let names = |model: &Model| -> Vec<String> {
        let ports = model.scope(model.main()).outputs();
        ports.iter().map(|port| model.value(port.value).name().to_string()).collect()
    };
    let (a, b) = (names(first), names(second));
    if a.len() != b.len() {
        let counts = format!("the first model has {} outputs, the second {}", a.len(), b.len());
        return Err(VerifyError::Interface(counts));
    }
    let same: BTreeSet<&String> = a.iter().collect();
    let by_name = b.iter().all(|name| same.contains(name));
    Ok(if by_name {
        a.iter().map(|name| (name.clone(), name.clone())).collect()
    } else {
        a.into_iter().zip(b).collect()
    })
}

/// The inputs of a model: all of them, or those without a default, which somebody has to give.
fn input_names(model: &Model, with_defaults: bool) -> BTreeSet<String> {
    let ports = model.scope(model.main()).inputs().iter();
    let has_default = |value| matches!(model.value(value).def(), Def::Input { default: Some(_), .. });
    let wanted = ports.filter(|port| with_defaults || !has_default(port.value));
    wanted.map(|port| model.value(port.value).name().to_string()).collect()
}

/// The names of the dimensions of a model's inputs.
pub fn named_dims(model: &Model) -> BTreeSet<String> {
    dims_of(model, |_| true)
}

/// The names of the dimensions of those inputs of a model whose names are wanted.
fn dims_of(model: &Model, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let ports = model.scope(model.main()).inputs().iter();
    for port in ports.filter(|port| wanted(model.value(port.value).name())) {
        if let Type::Tensor(_, Some(shape)) = port.declared() {
            names.extend(shape.iter().filter_map(|dim| match dim {
                DeclaredDim::Named(name) => Some(name.to_string()),
                _ => None,
            }));
        }
    }
    names
}

/// Sizes for the named dimensions of a sample, as far as no given input tells them: others in each of three in a row, and others for
/// each dimension.
fn sizes(model: &Model, options: &Options, sample: usize) -> HashMap<String, usize> {
    const SIZES: [[usize; 3]; 3] = [[2, 5, 8], [1, 3, 4], [3, 7, 16]];
    let told = dims_of(model, |name| options.given.contains_key(name));
    let free = named_dims(model).into_iter().filter(|name| !told.contains(name));
    let mut dims: HashMap<String, usize> = free
        .enumerate()
        .map(|(place, name)| {
            let usual = SIZES[sample % 3][place % 3];
            (name, options.size.map_or(usual, |size| size * (1 + sample % 2)))
        })
        .collect();
    dims.extend(options.dims.iter().map(|(name, size)| (name.clone(), *size)));
    dims
}

fn described(dims: &HashMap<String, usize>) -> String {
    let mut dims: Vec<String> = dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
    dims.sort();
    if dims.is_empty() { "running".to_owned() } else { dims.join(", ") }
}
