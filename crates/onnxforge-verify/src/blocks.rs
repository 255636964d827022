//! Models compared block by block, in the memory of one block.
//!
//! The first model runs in blocks of a few nodes, and keeps only what is still read. Wherever both models compute the same value, the
//! second computes it from the first one's values of the same kind just before: a block is right or wrong by itself, whatever
//! came before it, and models whose blocks all agree agree. What both models compute by the very same nodes is not computed
//! twice. What a model computes from its constants alone, such as weights the other way round, is computed in the block that reads it and goes
//! with it.

mod pairs;
mod plan;

use std::collections::{BTreeSet, HashMap, HashSet};

pub use self::pairs::Pairs;
pub use self::plan::suits_blocks;
use self::plan::{Block, Twin, plan};
use super::Options;
use super::compare::compare;
use super::engine::{Engine, EngineError, Ready};
use super::judge::{Judged, said};
use super::report::{Kind, Moment, OutputReport, Report, Verdict, VerifyError, Which};
use super::samples::{Inputs, Samples};
use super::steps::behind_steps;
use onnxforge_ir::cut::Cut;
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Model, NodeId, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::infer::Inference;
use onnxforge_proto::cancel::checkpoint;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Unit};
use onnxforge_proto::schema::ValueInfoProto;

/// Inputs on their way through the blocks.
struct Lane {
    inputs: Inputs,
    kind: Kind,
    /// Values of the first model that are still needed.
    state: HashMap<ValueId, Value>,
    /// What was found, by values of the first model.
    reports: HashMap<ValueId, OutputReport>,
    /// The largest difference.
    largest: f64,
    /// Why they got no further.
    end: Option<VerifyError>,
}

/// Compares two models at every value that both compute. Only one block of each is in memory
/// at any time, and all samples run through it.
pub fn verify_blocks(
    first: &Model,
    second: &Model,
    pairs: &Pairs,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report, VerifyError> {
    let facts = [first, second].map(Inference::of);
    let mut samples = Samples::new(first, options);
    let blocks = plan(first, second, pairs, &samples.sizes_of_values());
    let compared: Vec<ValueId> =
        blocks.iter().flat_map(|block| &block.twins).map(|twin| twin.values[0]).collect();
    let steps = behind_steps(first, &facts[0]);
    let runner = Runner { models: [first, second], facts: &facts, pairs, options, steps };
    let mut reports = runner.nothing_found(&compared);
    let (mut by_sample, mut sizes, mut unequal) = (Vec::new(), Vec::new(), Vec::new());
    let (start, mut is_again) = (Instant::now(), false);
    while by_sample.len() < samples.count() {
        // Where sizes are fixed, the first sample shows whether there is time for others.
        let count = if samples.is_fixed() { 1 } else { samples.count() - by_sample.len() };
        let mut lanes = Vec::new();
        for index in by_sample.len()..by_sample.len() + count {
            lanes.push(runner.lane(samples.at(index)?, Kind::Sample, &compared));
        }
        // Dimensions of one name may differ where the first model runs so.
        for (shapes, breaks_a_name) in samples.unequal().filter(|_| !is_again) {
            let inputs = samples.with(&shapes, samples.count(), samples.manner())?;
            lanes.push(runner.lane(inputs, Kind::Unequal { breaks_a_name }, &compared));
        }
        progress.begin("comparing blocks", blocks.len() as u64, Unit::Blocks);
        runner.run(&blocks, &mut lanes, progress);
        progress.end();
        let (done, mut refused) = (by_sample.len(), Vec::new());
        for (index, lane) in lanes.into_iter().enumerate() {
            let Lane { inputs, kind, reports: mut found, largest, end, .. } = lane;
            match (kind, end) {
                (Kind::Sample, Some(error @ VerifyError::Run { which: Which::First, .. })) => {
                    refused.push((done + index, error));
                    continue;
                }
                (Kind::Unequal { .. }, Some(VerifyError::Run { which: Which::First, .. })) => continue,
                (Kind::Unequal { breaks_a_name }, Some(VerifyError::Run { .. }))
                    if breaks_a_name || !options.runs_wherever =>
                {
                    unequal.push(inputs.sizes.clone());
                }
                (_, Some(error)) => return Err(error),
                (Kind::Unequal { breaks_a_name: true }, None) if differs(&found) => {
                    unequal.push(inputs.sizes.clone());
                }
                (kind, None) => {
                    by_sample.extend((kind == Kind::Sample).then_some(largest));
                    for value in &compared {
                        if let (Some(all), Some(report)) = (reports.get_mut(value), found.remove(value)) {
                            all.join(report);
                        }
                    }
                }
            }
            sizes.extend(Some(inputs.sizes).filter(|sizes| !sizes.is_empty()));
        }
        is_again = true;
        // Sizes at which the first model does not run give way to others.
        let mut others = true;
        for (index, error) in refused.into_iter().rev() {
            others &= samples.replace(index);
            if !others && by_sample.is_empty() {
                return Err(error);
            }
        }
        let is_late = samples.is_fixed() && options.time.is_some_and(|time| start.elapsed() > time);
        if !others || is_late {
            break;
        }
    }
    let is_output = |value: &ValueId| first.value(*value).is_exposed();
    for value in compared.iter().filter(|value| is_output(value)) {
        let is_always_empty = facts[0].shape(*value).is_some_and(|shape| shape.contains(&Dim::ZERO));
        reports.entry(*value).and_modify(|report| report.settle(is_always_empty));
    }
    let first_difference = compared.iter().find(|value| reports[*value].verdict == Verdict::Different);
    let first_difference = first_difference.map(|value| reports[value].clone());
    let verdict = compared.iter().map(|value| reports[value].verdict).max().unwrap_or(Verdict::Identical);
    let outputs = first.scope(first.main()).outputs().iter().filter_map(|port| reports.get(&port.value));
    Ok(Report {
        engine: options.engine,
        verdict,
        samples: by_sample.len(),
        sizes,
        outputs: outputs.cloned().collect(),
        by_blocks: true,
        inside: compared.iter().filter(|value| !is_output(value)).count(),
        first_difference,
        by_sample,
        unequal,
        untaken: Vec::new(),
    })
}

fn differs(reports: &HashMap<ValueId, OutputReport>) -> bool {
    reports.values().any(|report| report.verdict == Verdict::Different)
}

struct Runner<'a> {
    models: [&'a Model; 2],
    facts: &'a [Inference; 2],
    pairs: &'a Pairs,
    options: &'a Options,
    /// Values of the first model of which small differences may have become large ones.
    steps: HashSet<ValueId>,
}

/// Nodes of one of the models as a model of their own.
struct Part {
    side: usize,
    model: Model,
    /// What it takes.
    taken: Vec<ValueId>,
    /// What is wanted of it.
    wanted: Vec<ValueId>,
}

impl Runner<'_> {
    fn nothing_found(&self, compared: &[ValueId]) -> HashMap<ValueId, OutputReport> {
        let report = |value: ValueId| OutputReport::new(self.models[0].value(value).name());
        compared.iter().map(|&value| (value, report(value))).collect()
    }

    fn lane(&self, inputs: Inputs, kind: Kind, compared: &[ValueId]) -> Lane {
        let first = self.models[0];
        let ports = first.scope(first.main()).inputs().iter();
        let given = |value: ValueId| Some((value, inputs.values.get(&**first.value(value).name())?.clone()));
        let state = ports.filter_map(|port| given(port.value)).collect();
        Lane { inputs, kind, state, reports: self.nothing_found(compared), largest: 0.0, end: None }
    }

    /// Runs all blocks, each on all lanes that have got so far.
    fn run(&self, blocks: &[Block], lanes: &mut [Lane], progress: &dyn Progress) {
        for block in blocks {
            self.block(block, lanes);
            self.models[0].weights_were_read();
            progress.advance(1);
            checkpoint();
        }
    }

    /// Runs a block and compares what can be compared after it.
    fn block(&self, block: &Block, lanes: &mut [Lane]) {
        let part = self.part(0, &block.nodes, &block.outputs);
        self.on_each(&part, lanes, |lane, made| {
            lane.state.extend(block.outputs.iter().copied().zip(made));
            Ok(())
        });
        let changed: Vec<&Twin> = block.twins.iter().filter(|twin| !twin.is_same).collect();
        let nodes: BTreeSet<NodeId> = changed.iter().flat_map(|twin| &twin.nodes[1]).copied().collect();
        let values: Vec<ValueId> = changed.iter().map(|twin| twin.values[1]).collect();
        let part = self.part(1, &nodes.into_iter().collect::<Vec<_>>(), &values);
        self.on_each(&part, lanes, |lane, found| {
            changed.iter().zip(&found).try_for_each(|(twin, found)| self.compare(twin, found, lane))
        });
        for lane in lanes {
            for twin in &block.twins {
                let (report, value) =
                    (lane.reports.get_mut(&twin.values[0]), lane.state.get(&twin.values[0]));
                if let (Some(report), Some(value)) = (report, value) {
                    report.see(value);
                }
            }
            for value in &block.last {
                lane.state.remove(value);
            }
        }
    }

    /// Compares what the second model gives for a value with what the first gave.
    fn compare(&self, twin: &Twin, found: &Value, lane: &mut Lane) -> Result<(), VerifyError> {
        let Lane { inputs, state, reports, largest, .. } = lane;
        let (Some(report), Some(expected)) = (reports.get_mut(&twin.values[0]), state.get(&twin.values[0]))
        else {
            return Ok(());
        };
        match compare(expected, found) {
            Err(mismatch) => {
                report.fails(&mismatch);
                *largest = f64::INFINITY;
            }
            Ok(difference) => {
                *largest = largest.max(difference.max_rel);
                let (verdict, from_oracle) = match self.options.without_oracle(expected, &difference, false) {
                    Some(verdict) => (verdict, None),
                    None => self.judge(twin, [expected, found], state, inputs)?,
                };
                report.add(difference, verdict, from_oracle);
            }
        }
        Ok(())
    }

    /// What float64 runs of just these nodes say.
    fn judge(
        &self,
        twin: &Twin,
        results: [&Value; 2],
        state: &HashMap<ValueId, Value>,
        inputs: &Inputs,
    ) -> Result<(Verdict, Option<[f64; 2]>), VerifyError> {
        let wide = |side: usize| {
            let part = self.part(side, &twin.nodes[side], &[twin.values[side]]);
            let failed = |error| Self::failed(&part, inputs, error);
            let mut ready = Engine::Oracle.open(&part.model).map_err(failed)?;
            self.results(&part, &mut ready, state, inputs)
        };
        let (first, second) = (wide(0)?, wide(1)?);
        let (Some(first), Some(second)) = (first.first(), second.first()) else {
            return Ok((Verdict::Different, None));
        };
        let judged = Judged::of(results, [first, second]);
        let behind = self.steps.contains(&twin.values[0]).then_some((results[0], [first, second]));
        let verdict = said(judged.as_ref(), 0.0, behind);
        Ok((verdict, judged.map(|judged| [judged.first, judged.second])))
    }

    /// Nodes of one of the models, from which these values are wanted.
    fn part(&self, side: usize, nodes: &[NodeId], wanted: &[ValueId]) -> Part {
        let declare = |value: ValueId| ValueInfoProto {
            r#type: self.facts[side].declaration(value).map(Box::new),
            ..ValueInfoProto::default()
        };
        let Cut { model, inputs: taken, .. } = self.models[side].cut(nodes, wanted, &declare);
        Part { side, model, taken, wanted: wanted.to_vec() }
    }

    fn failed(part: &Part, inputs: &Inputs, error: EngineError) -> VerifyError {
        let which = [Which::First, Which::Second][part.side];
        VerifyError::Run { which, when: Moment::Running(inputs.sizes.clone()), error }
    }

    /// Runs a part on every lane that has got so far, and hands on what is wanted of it.
    fn on_each(
        &self,
        part: &Part,
        lanes: &mut [Lane],
        mut then: impl FnMut(&mut Lane, Vec<Value>) -> Result<(), VerifyError>,
    ) {
        let mut ready: Option<Ready<'_>> = None;
        for lane in lanes.iter_mut().filter(|lane| lane.end.is_none() && !part.wanted.is_empty()) {
            let opened = match ready.take() {
                Some(ready) => Ok(ready),
                None => self.options.engine.open(&part.model),
            };
            let done = opened
                .map_err(|error| Self::failed(part, &lane.inputs, error))
                .and_then(|opened| {
                    let ready = ready.insert(opened);
                    self.results(part, ready, &lane.state, &lane.inputs)
                })
                .and_then(|values| then(lane, values));
            lane.end = done.err();
        }
    }

    /// The values that are wanted of a part.
    fn results(
        &self,
        part: &Part,
        ready: &mut Ready<'_>,
        state: &HashMap<ValueId, Value>,
        inputs: &Inputs,
    ) -> Result<Vec<Value>, VerifyError> {
        let name = |value: ValueId| self.models[part.side].value(value).name().to_string();
        let held = |value| state.get(&self.pairs.in_first(part.side, value)?).cloned();
        let given = part.taken.iter().filter_map(|&value| Some((name(value), held(value)?))).collect();
        let mut outputs = ready.run(&given).map_err(|error| Self::failed(part, inputs, error))?;
        let results = part.wanted.iter().map(|&value| {
            let missing = || {
                let which = [Which::First, Which::Second][part.side];
                VerifyError::Interface(format!("the {which} model gives no {}", name(value)))
            };
            // A value may be wanted that is a name for an input.
            outputs.remove(&name(value)).or_else(|| held(value)).ok_or_else(missing)
        });
        results.collect()
    }
}
