//! Whether two models compute the same, and whether a difference is rounding or error.
//!
//! Both models run on the same inputs, at several sizes of every symbolic dimension. Where results are not the same to the bit, the
//! float64 run of the first model judges: the second is right when it is no further from that than the first is, up to a few
//! units in the last place. Where both agree in 64 bits, it may be a little further: another order of summing does that.

pub mod bench;
pub mod blocks;
pub mod compare;
pub mod draws;
pub mod engine;
pub mod guard;
mod judge;
pub mod local;
pub mod memory;
pub mod parts;
pub mod reduce;
mod region;
pub mod runtime;
mod samples;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use self::blocks::Pairs;
use self::compare::{Difference, Mismatch, compare};
use self::draws::Apart;
use self::engine::{Engine, EngineError, Ready};
use self::judge::{FEW, Judged, said};
use self::samples::{Inputs, Samples};
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::{Def, Model, Type, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::eval::sample::SampleError;
use onnxforge_ops::eval::shapes::{Names, Wanted};
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
    /// Bytes that the values of a run may take.
    pub memory: u64,
    /// No further sample is begun where all sizes are fixed and the first model has run for so long.
    pub time: Option<Duration>,
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
            memory: memory::allowed(),
            time: None,
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
    /// Equal up to rounding.
    Rounding,
    /// It cannot be said: the reference is unreliable, or nothing could be compared.
    Undetermined,
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
    /// Why nothing can be said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undetermined: Option<String>,
    /// Whether some sample had a finite element, or it has none at all.
    #[serde(skip)]
    says_something: bool,
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
    /// The sizes of dimensions that are not fixed, in each of them.
    pub sizes: Vec<String>,
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
    /// Sizes at which the models differ because a dimension is 1 where others of its name are not: the first broadcasts it, and the second takes the
    /// name at its word. The verdict does not count them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unequal: Vec<String>,
}

impl Report {
    /// Nothing could be compared.
    pub fn of_nothing(engine: Engine, why: String) -> Self {
        let mut nothing = OutputReport::new("");
        (nothing.verdict, nothing.undetermined) = (Verdict::Undetermined, Some(why));
        Self {
            engine,
            verdict: Verdict::Undetermined,
            samples: 0,
            sizes: Vec::new(),
            outputs: vec![nothing],
            by_blocks: false,
            inside: 0,
            first_difference: None,
            by_sample: Vec::new(),
            unequal: Vec::new(),
        }
    }

    /// Why nothing can be said, where that is the verdict.
    pub fn undetermined(&self) -> Option<&str> {
        let first = self.outputs.iter().find_map(|output| output.undetermined.as_deref());
        first.filter(|_| self.verdict == Verdict::Undetermined)
    }
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
    /// Nothing can be compared.
    #[error("it cannot be determined: {0}")]
    Undetermined(String),
}

impl VerifyError {
    /// Whether inputs of other sizes may do.
    fn may_be_about_sizes(&self) -> bool {
        matches!(self, Self::Run { when: Moment::Running(_), error, .. } if error.may_be_about_sizes())
    }
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
    /// The inputs that it takes.
    takes: BTreeSet<String>,
    run: Ready<'m>,
    /// What inputs are called that have another name in the first model.
    renamed: HashMap<String, String>,
}

impl<'m> Side<'m> {
    fn new(which: Which, model: &'m Model, engine: Engine) -> Result<Self, VerifyError> {
        let run = Self::opened(which, model, engine)?;
        Ok(Self { which, takes: input_names(model, true), run, renamed: HashMap::new() })
    }

    fn opened(which: Which, model: &'m Model, engine: Engine) -> Result<Ready<'m>, VerifyError> {
        let start = Instant::now();
        let failed = |error| VerifyError::Run { which, when: Moment::Loading, error };
        let opened = engine.open(model).map_err(failed)?;
        tracing::debug!("the {which} model loaded in {:.1?} ({})", start.elapsed(), engine.name());
        Ok(opened)
    }

    /// The outputs by name.
    fn outputs(&mut self, inputs: &Inputs) -> Result<HashMap<String, Value>, VerifyError> {
        let name = |name: &String| self.renamed.get(name).unwrap_or(name).clone();
        let named = inputs.values.iter().map(|(input, value)| (name(input), value.clone()));
        let taken = named.filter(|(name, _)| self.takes.contains(name)).collect();
        let (which, sizes, start) = (self.which, &inputs.sizes, Instant::now());
        let failed = |error| VerifyError::Run { which, when: Moment::Running(sizes.clone()), error };
        let outputs = self.run.run(&taken).map_err(failed)?;
        tracing::debug!("the {which} model ran in {:.1?} ({sizes})", start.elapsed());
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
    let apart = draws::apart(first, second)?;
    let work = match &apart {
        Some(Apart { models: [first, second], pairs, renamed }) => {
            Work { models: [first, second], pairs: pairs.clone(), inside: 0, renamed: renamed.clone() }
        }
        None => Work::of(first, second)?,
    };
    work.compare(work.models[0], options, progress)
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
    if let Some(Apart { models: [first, second], pairs, renamed }) = draws::apart(first, second)? {
        let work = Work { models: [&first, &second], pairs, inside: 0, renamed };
        return work.compare(&first, options, progress);
    }
    // Outputs and a few values inside; all of them only where something differs.
    let all = survivors(first, second, &Inference::of(first));
    let found = compare_at(first, second, &spread(&all, CUTS), options, progress)?;
    if found.verdict != Verdict::Different || all.len() <= CUTS {
        return Ok(found);
    }
    let all: Vec<ValueId> = all.into_iter().map(|(value, _)| value).collect();
    let place = compare_at(first, second, &all, options, progress);
    Ok(place.ok().filter(|place| place.verdict == Verdict::Different).unwrap_or(found))
}

/// Values inside of models at which these are compared in any case.
const CUTS: usize = 6;
/// Bytes that such a value may have.
const SMALL: i64 = 1 << 20;

/// A few of the smaller values, evenly spread.
fn spread(all: &[(ValueId, i64)], count: usize) -> Vec<ValueId> {
    let small: Vec<ValueId> =
        all.iter().filter(|(_, bytes)| *bytes <= SMALL).map(|(value, _)| *value).collect();
    let step = small.len() as f64 / count as f64;
    let mut chosen: Vec<ValueId> =
        (0..count).filter_map(|place| small.get((step * (place as f64 + 0.5)) as usize).copied()).collect();
    chosen.dedup();
    chosen
}

/// Compares two models, one of which was made from the other, at their outputs and at these values.
fn compare_at(
    first: &Model,
    second: &Model,
    inside: &[ValueId],
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report, VerifyError> {
    let Work { pairs, renamed, .. } = Work::of(first, second)?;
    let inference = Inference::of(first);
    let declare = |value: ValueId| ValueInfoProto {
        r#type: inference.declaration(value).map(Box::new),
        ..ValueInfoProto::default()
    };
    let [first_wider, second_wider] = [first, second].map(|model| model.with_outputs(inside, &declare));
    let named = inside.iter().map(|&value| first.value(value).name().to_string());
    let pairs = named.map(|name| (name.clone(), name)).chain(pairs).collect();
    let work = Work { models: [&first_wider, &second_wider], pairs, inside: inside.len(), renamed };
    work.compare(first, options, progress)
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

/// The values of the graph that nodes of both models compute and that are no outputs, with their bytes, in the order of the first; as many as
/// memory allows.
fn survivors(first: &Model, second: &Model, inference: &Inference) -> Vec<(ValueId, i64)> {
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
            let bytes = elements.unwrap_or(i64::MAX).saturating_mul(i64::from(dtype.bits()) / 8 + 1);
            left = left.saturating_sub(bytes);
            if left < 0 {
                return found;
            }
            found.push((value, bytes));
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

/// Two models and what is to be compared.
struct Work<'a> {
    models: [&'a Model; 2],
    /// Outputs that belong together; the first `inside` of them are values inside of the models.
    pairs: Vec<(String, String)>,
    inside: usize,
    /// What inputs of the first model are called in the second, where that differs.
    renamed: HashMap<String, String>,
}

/// How many sizes are tried at which dimensions of one name differ.
const MOST_UNEQUAL: usize = 12;

/// A run of the first model.
struct Run {
    inputs: Inputs,
    outputs: HashMap<String, Value>,
    /// Dimensions of one name have several sizes; it does not count as a sample.
    is_unequal: bool,
    /// One of them is 1 where others are not.
    breaks_a_name: bool,
}

/// A result that only float64 runs can judge.
struct Doubt {
    run: usize,
    place: usize,
    results: [Value; 2],
    difference: Difference,
}

impl<'a> Work<'a> {
    /// The outputs of two models.
    fn of(first: &'a Model, second: &'a Model) -> Result<Self, VerifyError> {
        let pairs = paired_outputs(first, second)?;
        Ok(Self { models: [first, second], pairs, inside: 0, renamed: HashMap::new() })
    }

    /// Compares the models. Inputs are made for `reference`, which is the first without values inside as outputs.
    fn compare(
        &self,
        reference: &Model,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<Report, VerifyError> {
        let takes = input_names(self.models[0], true);
        let renamed: BTreeSet<&String> = self.renamed.values().collect();
        let missing = input_names(self.models[1], false);
        let mut missing = missing.iter().filter(|name| !takes.contains(*name) && !renamed.contains(name));
        if let Some(unknown) = missing.next() {
            return Err(VerifyError::Interface(format!("only the second model has the input {unknown}")));
        }
        progress.begin("comparing with the original", 2 * options.samples as u64, Unit::Runs);
        let found = self
            .runs(reference, options, progress)
            .and_then(|runs| self.judged(reference, runs, options, progress));
        progress.end();
        found
    }

    /// Runs the first model on every sample. Sizes at which it does not run give way to others.
    fn runs(
        &self,
        reference: &Model,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<Vec<Run>, VerifyError> {
        let mut samples = Samples::new(reference, options);
        let mut side = Side::new(Which::First, self.models[0], options.engine)?;
        let (mut runs, start): (Vec<Run>, _) = (Vec::new(), Instant::now());
        while runs.len() < options.samples {
            let inputs = samples.at(runs.len())?;
            match side.outputs(&inputs) {
                Ok(outputs) => {
                    runs.push(Run { inputs, outputs, is_unequal: false, breaks_a_name: false });
                }
                Err(error) if !error.may_be_about_sizes() || !samples.replace(runs.len()) => {
                    if runs.is_empty() {
                        return Err(error);
                    }
                    break;
                }
                Err(error) => tracing::debug!("other sizes are tried: {error}"),
            }
            checkpoint();
            progress.advance(1);
            if samples.is_fixed() && options.time.is_some_and(|time| start.elapsed() > time) {
                break;
            }
        }
        // Dimensions of one name may differ where the first model runs so.
        let wanted = Wanted { dims: options.dims.clone(), memory: options.memory, ..Wanted::default() };
        let Names { apart, broadcast } = Names::of(reference, wanted.with_given(&options.given));
        let apart = apart.into_iter().map(|(_, shapes)| (shapes, false));
        let broadcast = broadcast.into_iter().map(|(_, shapes)| (shapes, true));
        for (shapes, breaks_a_name) in apart.chain(broadcast).take(MOST_UNEQUAL) {
            let inputs = samples.with(&shapes, runs.len())?;
            if let Ok(outputs) = side.outputs(&inputs) {
                runs.push(Run { inputs, outputs, is_unequal: true, breaks_a_name });
            }
        }
        Ok(runs)
    }

    /// Runs the second model on the same inputs, and judges what it gives.
    fn judged(
        &self,
        reference: &Model,
        runs: Vec<Run>,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<Report, VerifyError> {
        let mut outputs: Vec<OutputReport> =
            self.pairs.iter().map(|(name, _)| OutputReport::new(name)).collect();
        let (mut by_sample, mut doubts): (Vec<f64>, Vec<Doubt>) = (Vec::new(), Vec::new());
        let mut unequal = Vec::new();
        {
            let mut side = Side::new(Which::Second, self.models[1], options.engine)?;
            side.renamed.clone_from(&self.renamed);
            for (place, run) in runs.iter().enumerate() {
                let found = match side.outputs(&run.inputs) {
                    Err(_) if run.breaks_a_name => {
                        unequal.push(run.inputs.sizes.clone());
                        continue;
                    }
                    found => found?,
                };
                if run.breaks_a_name {
                    let mut reports = outputs.clone();
                    let (count, largest) =
                        (doubts.len(), self.compared(place, run, found, options, &mut reports, &mut doubts));
                    match largest.is_finite() && doubts.len() == count {
                        true => outputs = reports,
                        false => {
                            doubts.truncate(count);
                            unequal.push(run.inputs.sizes.clone());
                        }
                    }
                } else {
                    let largest = self.compared(place, run, found, options, &mut outputs, &mut doubts);
                    by_sample.extend((!run.is_unequal).then_some(largest));
                }
                checkpoint();
                progress.advance(1);
            }
        }
        self.settle(reference, &runs, doubts, &mut outputs)?;
        outputs.iter_mut().skip(self.inside).for_each(OutputReport::settle);
        let verdict = outputs.iter().map(|output| output.verdict).max().unwrap_or(Verdict::Identical);
        let first_difference = outputs.iter().find(|output| output.verdict == Verdict::Different).cloned();
        let outputs = outputs.split_off(self.inside);
        let sizes =
            runs.iter().map(|run| run.inputs.sizes.clone()).filter(|sizes| !sizes.is_empty()).collect();
        Ok(Report {
            engine: options.engine,
            verdict,
            samples: by_sample.len(),
            sizes,
            outputs,
            by_blocks: false,
            inside: self.inside,
            first_difference,
            by_sample,
            unequal,
        })
    }

    /// Compares the results of one run. Answers the largest difference of an output; what is not clear becomes a doubt.
    fn compared(
        &self,
        run: usize,
        Run { outputs: expected, .. }: &Run,
        mut found: HashMap<String, Value>,
        options: &Options,
        outputs: &mut [OutputReport],
        doubts: &mut Vec<Doubt>,
    ) -> f64 {
        let mut largest: f64 = 0.0;
        for (place, ((name, other), report)) in self.pairs.iter().zip(outputs).enumerate() {
            let (Some(x), Some(y)) = (expected.get(name), found.remove(other)) else {
                report.fails(&Mismatch::Missing);
                largest = f64::INFINITY;
                continue;
            };
            report.says_something |= compare::says_something(x);
            let difference = match compare(x, &y) {
                Ok(difference) => difference,
                Err(mismatch) => {
                    report.fails(&mismatch);
                    largest = f64::INFINITY;
                    continue;
                }
            };
            if place >= self.inside {
                largest = largest.max(difference.max_rel);
            }
            match options.without_oracle(x, &difference, place < self.inside) {
                Some(verdict) => report.add(difference, verdict, None),
                None => {
                    tracing::debug!("{name} differs by {:.1e} of its scale", difference.max_rel);
                    doubts.push(Doubt { run, place, results: [x.clone(), y], difference });
                }
            }
        }
        largest
    }

    /// Lets float64 runs of both models judge what is not clear.
    fn settle(
        &self,
        reference: &Model,
        runs: &[Run],
        doubts: Vec<Doubt>,
        outputs: &mut [OutputReport],
    ) -> Result<(), VerifyError> {
        let Some(last) = doubts.iter().map(|doubt| doubt.run).max() else { return Ok(()) };
        let steps = makes_steps(reference, &Inference::of(reference));
        let wide = |which: Which, model: &Model| -> Result<Vec<HashMap<String, Value>>, VerifyError> {
            let mut side = Side::new(which, model, Engine::Oracle)?;
            if which == Which::Second {
                side.renamed.clone_from(&self.renamed);
            }
            let doubtful = |run: usize| doubts.iter().any(|doubt| doubt.run == run);
            let run = |(place, run): (usize, &Run)| match doubtful(place) {
                true => side.outputs(&run.inputs),
                false => Ok(HashMap::new()),
            };
            runs.iter().enumerate().take(last + 1).map(run).collect()
        };
        let (first, second) = (wide(Which::First, self.models[0])?, wide(Which::Second, self.models[1])?);
        let mut judged: Vec<(Doubt, Option<Judged>)> = Vec::new();
        for doubt in doubts {
            let (name, other) = &self.pairs[doubt.place];
            let wide = first[doubt.run].get(name).zip(second[doubt.run].get(other));
            let found = wide.and_then(|(a, b)| Judged::of(doubt.results.each_ref(), [a, b]));
            judged.push((doubt, found));
        }
        let level = |run: usize| {
            let of_run = judged.iter().filter(|(doubt, _)| doubt.run == run);
            of_run.filter_map(|(_, judged)| Some(judged.as_ref()?.first)).fold(0.0, f64::max)
        };
        let levels: Vec<f64> = (0..=last).map(level).collect();
        for (Doubt { run, place, results, difference }, judged) in judged {
            // What is inside of an ill-conditioned model may be further off; the outputs tell.
            let level = match &judged {
                Some(judged) if place >= self.inside => judged.excused(levels[run]),
                _ => levels[run],
            };
            let (name, other) = &self.pairs[place];
            let wide = first[run].get(name).zip(second[run].get(other)).map(|(a, b)| [a, b]);
            let behind = wide.filter(|_| steps).map(|wide| (&results[0], wide));
            let verdict = said(judged.as_ref(), level, behind);
            if verdict == Verdict::Undetermined {
                let noise = judged.as_ref().map_or(f64::NAN, |judged| judged.first);
                outputs[place].undetermined.get_or_insert_with(|| {
                    format!(
                        "the reference is unreliable: rounding alone moves {name} by {noise:.0e} of its scale"
                    )
                });
            }
            outputs[place].add(difference, verdict, judged.map(|judged| [judged.first, judged.second]));
        }
        Ok(())
    }
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
                let unit = compare::unit(expected)?;
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
        Self {
            name,
            verdict: Verdict::Identical,
            difference: None,
            mismatch: None,
            from_oracle: None,
            undetermined: None,
            says_something: false,
        }
    }

    /// The verdict over all samples: results of which no element is a finite number say nothing.
    fn settle(&mut self) {
        if !self.says_something && self.verdict != Verdict::Different {
            self.verdict = Verdict::Undetermined;
            self.undetermined = Some(format!("all elements of {} are NaN or infinite", self.name));
        }
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
    let mut names = BTreeSet::new();
    for port in model.scope(model.main()).inputs() {
        if let Type::Tensor(_, Some(shape)) = port.declared() {
            names.extend(shape.iter().filter_map(|dim| match dim {
                DeclaredDim::Named(name) => Some(name.to_string()),
                _ => None,
            }));
        }
    }
    names
}
