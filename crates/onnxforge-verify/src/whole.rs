//! Two whole models on the same inputs: the first on all samples, then the second, then float64 runs where results leave doubts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::branches::{Branches, watched};
use crate::compare::{self, Difference, Mismatch, compare};
use crate::engine::Engine;
use crate::judge::{Excused, FEW, Judged, said};
use crate::report::{Kind, OutputReport, Report, Verdict, VerifyError, Which};
use crate::samples::{Inputs, Samples};
use crate::side::Side;
use crate::steps::behind_steps;
use crate::{Options, input_names, paired_outputs};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Model, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::eval::sample::Manner;
use onnxforge_ops::eval::shapes::Shapes;
use onnxforge_ops::infer::Inference;
use onnxforge_proto::cancel::checkpoint;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Unit};

/// The outputs that have no elements at any sizes, as far as inference knows.
fn always_empty(model: &Model) -> BTreeSet<String> {
    let inference = Inference::of(model);
    let ports = model.scope(model.main()).outputs().iter();
    let is_empty = |value: ValueId| inference.shape(value).is_some_and(|shape| shape.contains(&Dim::ZERO));
    let empty = ports.filter(|port| is_empty(port.value));
    empty.map(|port| model.value(port.value).name().to_string()).collect()
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
    kind: Kind,
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
            .and_then(|(runs, branches)| self.judged(reference, runs, branches, options, progress));
        progress.end();
        found
    }

    /// Runs the first model on every sample. Sizes at which it does not run give way to others.
    fn runs(
        &self,
        reference: &Model,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<(Vec<Run>, Branches), VerifyError> {
        let mut samples = Samples::new(reference, options);
        // Passes have read weights, and ONNX Runtime maps files itself.
        reference.weights_were_read();
        let (model, mut branches) = watched(self.models[0]);
        let mut side = Side::new(Which::First, &model, options.engine)?;
        let (mut runs, start): (Vec<Run>, _) = (Vec::new(), Instant::now());
        while runs.len() < samples.count() {
            let inputs = samples.at(runs.len())?;
            match side.outputs(&inputs) {
                Ok(outputs) if !self.says_something(&outputs) && samples.calm() => {
                    tracing::debug!("plainer values are tried: an output has no finite element");
                }
                Ok(outputs) => {
                    runs.push(Run { inputs, outputs, kind: Kind::Sample });
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
        for run in &runs {
            branches.see(&run.inputs.values, &run.outputs);
        }
        // Dimensions of one name may differ where the first model runs so.
        let unequal =
            samples.unequal().map(|(shapes, breaks_a_name)| (shapes, Kind::Unequal { breaks_a_name }));
        let unequal: Vec<(Shapes, Kind)> = unequal.collect();
        let further = samples.further();
        let runs_further = further.iter().map(|shapes| (shapes.clone(), Kind::Further));
        for (shapes, kind) in unequal.into_iter().chain(runs_further) {
            let mut ran = None;
            for manner in [samples.manner(), Manner::Plain] {
                let inputs = samples.with(&shapes, runs.len(), manner)?;
                ran = side.outputs(&inputs).ok().map(|outputs| Run { inputs, outputs, kind });
                if ran.is_some() || kind == Kind::Further {
                    break;
                }
            }
            if let Some(run) = ran {
                branches.see(&run.inputs.values, &run.outputs);
                runs.push(run);
            }
        }
        Self::into_branches(&samples, &further, &mut side, &mut branches, &mut runs)?;
        Ok((runs, branches))
    }

    /// Adds runs that lead into branches that none took so far, where some inputs do and runs cost little.
    fn into_branches(
        samples: &Samples<'_>,
        further: &[Shapes],
        side: &mut Side<'_>,
        branches: &mut Branches,
        runs: &mut Vec<Run>,
    ) -> Result<(), VerifyError> {
        /// How many inputs are tried.
        const TRIED: usize = 24;
        let shapes: Vec<Shapes> = samples.cheap().into_iter().chain(further.iter().cloned()).collect();
        for (tried, shapes) in shapes.iter().cycle().take(TRIED).enumerate() {
            if branches.untaken().next().is_none() {
                break;
            }
            let inputs = samples.with(shapes, runs.len() + tried, samples.manner())?;
            if let Ok(outputs) = side.outputs(&inputs)
                && branches.see(&inputs.values, &outputs)
            {
                runs.push(Run { inputs, outputs, kind: Kind::Further });
            }
        }
        Ok(())
    }

    /// Whether every output has a finite element, or has none at all.
    fn says_something(&self, results: &HashMap<String, Value>) -> bool {
        let outputs = self.pairs.iter().skip(self.inside).filter_map(|(name, _)| results.get(name));
        outputs.into_iter().all(compare::says_something)
    }

    /// Runs the second model on the same inputs, and judges what it gives.
    fn judged(
        &self,
        reference: &Model,
        runs: Vec<Run>,
        branches: Branches,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<Report, VerifyError> {
        let mut outputs: Vec<OutputReport> =
            self.pairs.iter().map(|(name, _)| OutputReport::new(name)).collect();
        let (mut by_sample, mut doubts): (Vec<f64>, Vec<Doubt>) = (Vec::new(), Vec::new());
        let (mut unequal, mut untaken) = (Vec::new(), BTreeSet::new());
        reference.weights_were_read();
        {
            let (model, mut of_second) = watched(self.models[1]);
            let mut side = Side::new(Which::Second, &model, options.engine)?;
            side.renamed.clone_from(&self.renamed);
            for (place, run) in runs.iter().enumerate() {
                let may_fail = match run.kind {
                    Kind::Unequal { breaks_a_name } => breaks_a_name || !options.runs_wherever,
                    Kind::Sample | Kind::Further => false,
                };
                let found = match side.outputs(&run.inputs) {
                    Err(_) if may_fail => {
                        unequal.push(run.inputs.sizes.clone());
                        continue;
                    }
                    found => found?,
                };
                of_second.see(&run.inputs.values, &found);
                if run.kind == (Kind::Unequal { breaks_a_name: true }) {
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
                    by_sample.extend((run.kind == Kind::Sample).then_some(largest));
                }
                checkpoint();
                progress.advance(u64::from(run.kind == Kind::Sample));
            }
            untaken.extend(branches.untaken().chain(of_second.untaken()));
        }
        self.settle(&runs, doubts, &mut outputs)?;
        let are_empty = || outputs.iter().skip(self.inside).any(|output| !output.has_elements);
        let always_empty = if are_empty() { always_empty(reference) } else { BTreeSet::new() };
        for output in outputs.iter_mut().skip(self.inside) {
            output.settle(always_empty.contains(&output.name));
        }
        let verdict = outputs.iter().map(|output| output.verdict).max().unwrap_or(Verdict::Identical);
        let first_difference = outputs.iter().find(|output| output.verdict == Verdict::Different).cloned();
        let outputs = outputs.split_off(self.inside);
        let mut sizes: Vec<String> = Vec::new();
        for Run { inputs, kind, .. } in &runs {
            let is_known = *kind == Kind::Further && sizes.contains(&inputs.sizes);
            sizes.extend((!is_known && !inputs.sizes.is_empty()).then(|| inputs.sizes.clone()));
        }
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
            untaken: untaken.into_iter().collect(),
        })
    }

    /// Compares the results of one run. Answers the largest difference of an output; what is not clear becomes a doubt.
    fn compared(
        &self,
        run: usize,
        Run { inputs, outputs: expected, .. }: &Run,
        mut found: HashMap<String, Value>,
        options: &Options,
        outputs: &mut [OutputReport],
        doubts: &mut Vec<Doubt>,
    ) -> f64 {
        let mut largest: f64 = 0.0;
        // What goes into a draw may be an input.
        let in_second = |name: &String| self.renamed.get(name).unwrap_or(name).clone();
        let given: HashMap<String, &Value> =
            inputs.values.iter().map(|(name, value)| (in_second(name), value)).collect();
        for (place, ((name, other), report)) in self.pairs.iter().zip(outputs).enumerate() {
            let expected = expected.get(name).or_else(|| inputs.values.get(name));
            let found = found.remove(other).or_else(|| given.get(other).map(|&value| value.clone()));
            let (Some(x), Some(y)) = (expected, found) else {
                report.fails(&Mismatch::Missing);
                largest = f64::INFINITY;
                continue;
            };
            report.see(x);
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
        runs: &[Run],
        doubts: Vec<Doubt>,
        outputs: &mut [OutputReport],
    ) -> Result<(), VerifyError> {
        let Some(last) = doubts.iter().map(|doubt| doubt.run).max() else { return Ok(()) };
        let behind = behind_steps(self.models[0], &Inference::of(self.models[0]));
        let behind: HashSet<&str> =
            behind.into_iter().map(|value| &**self.models[0].value(value).name()).collect();
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
        let mut excused: BTreeMap<usize, Excused> = BTreeMap::new();
        for (Doubt { run, place, results, difference }, judged) in judged {
            // What is inside of an ill-conditioned model may be further off; the outputs tell.
            let level = match &judged {
                Some(judged) if place >= self.inside => judged.excused(levels[run]),
                _ => levels[run],
            };
            let (name, other) = &self.pairs[place];
            let wide = first[run].get(name).zip(second[run].get(other)).map(|(a, b)| [a, b]);
            let behind = wide.filter(|_| behind.contains(&**name)).map(|wide| (&results[0], wide));
            let verdict = said(judged.as_ref(), level, behind);
            if let Some((_, wide)) = behind.filter(|_| verdict == Verdict::Rounding) {
                excused.entry(place).or_default().add(results.each_ref(), wide);
            }
            if verdict == Verdict::Undetermined {
                let why = judged.as_ref().map_or_else(String::new, |judged| judged.why(name));
                outputs[place].undetermined.get_or_insert(why);
            }
            outputs[place].add(difference, verdict, judged.map(|judged| [judged.first, judged.second]));
        }
        for (place, excused) in excused {
            let results = runs.iter().filter_map(|run| run.outputs.get(&self.pairs[place].0));
            if excused.are_in_line(results.filter_map(|value| Some(value.array().ok()?.shape()))) {
                outputs[place].verdict = Verdict::Different;
            }
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
