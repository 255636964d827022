//! Two whole models on the same inputs: the first on all samples, then the second, then float64 runs where results leave doubts.

use std::collections::{BTreeSet, HashMap};

use crate::compare::{self, Difference, Mismatch, compare};
use crate::engine::{Engine, Ready};
use crate::judge::{FEW, Judged, said};
use crate::report::{Moment, OutputReport, Report, Verdict, VerifyError, Which};
use crate::samples::{Inputs, Samples};
use crate::{Options, input_names, paired_outputs};
use onnxforge_ir::{Model, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::infer::Inference;
use onnxforge_proto::cancel::checkpoint;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Unit};

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

/// Whether operators of a model turn small differences of floats into large ones: they round, compare or choose.
pub fn makes_steps(model: &Model, inference: &Inference) -> bool {
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

/// Two models and what is to be compared.
pub struct Work<'a> {
    /// The first is the reference.
    pub models: [&'a Model; 2],
    /// Outputs that belong together; the first `inside` of them are values inside of the models.
    pub pairs: Vec<(String, String)>,
    /// How many of them are inside.
    pub inside: usize,
    /// What inputs of the first model are called in the second, where that differs.
    pub renamed: HashMap<String, String>,
}

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
    pub fn of(first: &'a Model, second: &'a Model) -> Result<Self, VerifyError> {
        let pairs = paired_outputs(first, second)?;
        Ok(Self { models: [first, second], pairs, inside: 0, renamed: HashMap::new() })
    }

    /// Compares the models. Inputs are made for `reference`, which is the first without values inside as outputs.
    pub fn compare(
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
        // Passes have read weights, and ONNX Runtime maps files itself.
        reference.weights_were_read();
        let mut side = Side::new(Which::First, self.models[0], options.engine)?;
        let (mut runs, start): (Vec<Run>, _) = (Vec::new(), Instant::now());
        while runs.len() < samples.count() {
            let inputs = samples.at(runs.len())?;
            match side.outputs(&inputs) {
                Ok(outputs) => {
                    runs.push(Run { inputs, outputs, is_unequal: false, breaks_a_name: false });
                    progress.advance(1);
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
            if samples.is_fixed() && options.time.is_some_and(|time| start.elapsed() > time) {
                break;
            }
        }
        // Dimensions of one name may differ where the first model runs so.
        for (shapes, breaks_a_name) in samples.unequal() {
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
        reference.weights_were_read();
        {
            let mut side = Side::new(Which::Second, self.models[1], options.engine)?;
            side.renamed.clone_from(&self.renamed);
            for (place, run) in runs.iter().enumerate() {
                let found = match side.outputs(&run.inputs) {
                    Err(_) if run.breaks_a_name || run.is_unequal && !options.runs_wherever => {
                        unequal.push(run.inputs.sizes.clone());
                        continue;
                    }
                    found => found?,
                };
                if run.breaks_a_name {
                    let (mut reports, count) = (outputs.clone(), doubts.len());
                    self.compared(place, run, found, options, &mut reports, &mut doubts);
                    let is_same = |(new, old): (&OutputReport, &OutputReport)| {
                        new.verdict < Verdict::Different || new.verdict == old.verdict
                    };
                    if doubts.len() == count && reports.iter().zip(&outputs).all(is_same) {
                        outputs = reports;
                    } else {
                        doubts.truncate(count);
                        unequal.push(run.inputs.sizes.clone());
                    }
                } else {
                    let largest = self.compared(place, run, found, options, &mut outputs, &mut doubts);
                    by_sample.extend((!run.is_unequal).then_some(largest));
                }
                checkpoint();
                progress.advance(u64::from(!run.is_unequal));
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
    pub(crate) fn without_oracle(
        &self,
        expected: &Value,
        difference: &Difference,
        is_inside: bool,
    ) -> Option<Verdict> {
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
