//! Runs passes until nothing changes any more.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Pass, Stage, Work, defaults};
use crate::{Budget, Skipped, Within, Witness, Workbench};
use onnxforge_ir::{Model, NodeId, ValueId};
use onnxforge_ops::infer::Inference;
use onnxforge_proto::Str;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Silent, Unit};

/// How often the whole list may run. A model that still changes then has two passes that undo each other.
const MAX_ROUNDS: usize = 50;

/// What to run and what it may cost.
#[derive(Clone)]
pub struct Options<'a> {
    /// The passes in order; all of them by default.
    pub passes: Vec<&'static Pass>,
    /// What changes may cost; by default the model may grow by 1 MiB and 5 %.
    pub budget: Option<Budget>,
    /// Stop after so many edits.
    pub stop_after: Option<usize>,
    /// Rules that may change nothing, each with its pass.
    pub barred: Vec<(Str, Str)>,
    /// Where changes may be made; everywhere without it.
    pub within: Option<Arc<Within>>,
    /// Only changes that promise to keep every bit are made, whatever else their rules and passes do.
    pub exact: bool,
    /// Hears about progress.
    pub progress: &'a dyn Progress,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            passes: defaults().collect(),
            budget: None,
            stop_after: None,
            barred: Vec::new(),
            within: None,
            exact: false,
            progress: &Silent,
        }
    }
}

/// What was done.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What each pass did, in the order in which they ran.
    pub passes: Vec<PassOutcome>,
    /// How often the whole list ran, the last time without a change.
    pub rounds: usize,
    /// Why it ended.
    pub stop: Stop,
    /// Time for finding out what is known of every value.
    pub inference: Duration,
}

/// Why a pipeline ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// No pass finds anything any more.
    #[default]
    Fixpoint,
    /// After the number of edits that was asked for.
    Edits,
    /// The list ran as often as it may, and still finds something.
    Rounds,
}

/// What one pass did.
#[derive(Debug)]
pub struct PassOutcome {
    /// The pass.
    pub pass: &'static Pass,
    /// Edits.
    pub edits: usize,
    /// Change of the number of nodes.
    pub nodes: i64,
    /// Change of the bytes of constants.
    pub bytes: i64,
    /// Time.
    pub time: Duration,
    /// What it is about and skipped in its last run, each place once.
    pub skipped: Vec<Skipped>,
}

/// Runs the passes on the model until nothing changes any more.
pub fn optimize(model: &mut Model, options: &Options<'_>) -> Outcome {
    optimize_watched(model, options, None)
}

/// The same, with somebody who sees every change and may call a halt.
pub fn optimize_watched<'m>(
    model: &'m mut Model,
    options: &Options<'_>,
    witness: Option<&'m mut dyn Witness>,
) -> Outcome {
    let start = Instant::now();
    let facts = Inference::of(model);
    let inference = start.elapsed();
    Outcome { inference, ..run(model, facts, options, witness) }
}

/// What [`optimize`] does with one pass, on a model of which `facts` are known already: cheap enough to be done for every pass.
pub fn alone(model: &mut Model, facts: Inference, pass: &'static Pass) -> PassOutcome {
    let options = Options { passes: vec![pass], ..Options::default() };
    let outcome = run(model, facts, &options, None);
    outcome.passes.into_iter().next().unwrap_or_else(|| PassOutcome::new(pass))
}

fn run<'m>(
    model: &'m mut Model,
    facts: Inference,
    options: &Options<'_>,
    witness: Option<&'m mut dyn Witness>,
) -> Outcome {
    let mut budget =
        options.budget.clone().unwrap_or_else(|| Budget { growth: growth(model), ..Budget::default() });
    if let Some(edits) = options.stop_after {
        budget.edits = model.journal().len().saturating_add(edits);
    }
    budget.barred.extend(options.barred.iter().cloned());
    budget.exact |= options.exact;
    budget.within = options.within.clone().or(budget.within);
    let first_edit = model.journal().len();
    let nodes_before = model.node_count();
    let mut bench = Workbench::new(model, facts, budget).watched(witness);
    let mut outcomes: Vec<PassOutcome> = options.passes.iter().map(|pass| PassOutcome::new(pass)).collect();
    let mut marks: Vec<Option<usize>> = vec![None; outcomes.len()];
    let mut rounds = 0;
    let mut stop = Stop::Rounds;
    // Rules look at more than the neighbours of their root. What the neighbourhood of changes does not show, a last look at
    // everything does, with what inference says of the model as it is now: it may say more than of the one it was.
    let first_mark = bench.mark();
    let mut is_full = true;
    let mut stages = Stage::ALL.into_iter();
    let mut stage = stages.next().unwrap_or(Stage::Canonicalize);
    while rounds < MAX_ROUNDS {
        rounds += 1;
        let mut changed = false;
        options.progress.begin(&format!("round {rounds}"), outcomes.len() as u64, Unit::Passes);
        for (outcome, mark) in outcomes.iter_mut().zip(&mut marks) {
            if outcome.pass.stage <= stage {
                let found = outcome.run(&mut bench, mark);
                if found {
                    bench.passed(outcome.pass.name);
                }
                changed |= found;
            }
            options.progress.advance(1);
        }
        options.progress.end();
        if bench.is_spent() {
            stop = Stop::Edits;
            break;
        }
        if !changed && let Some(next) = stages.next() {
            stage = next;
            is_full &= bench.mark() == first_mark;
            continue;
        }
        if !changed && is_full {
            stop = Stop::Fixpoint;
            break;
        }
        is_full = !changed;
        if is_full {
            marks.fill(None);
            bench.infer();
        }
    }
    if bench.mark() != first_mark {
        declare_widths(bench.model, &bench.facts);
    }
    let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for entry in bench.model.journal().iter().skip(first_edit) {
        let sum = sums.entry(&entry.pass).or_default();
        *sum = (sum.0 + entry.nodes, sum.1.saturating_add(entry.bytes));
    }
    for outcome in &mut outcomes {
        if let Some(&(nodes, bytes)) = sums.get(outcome.pass.name) {
            (outcome.nodes, outcome.bytes) = (nodes, bytes);
        }
    }
    debug_assert_eq!(
        nodes_before as i64 + outcomes.iter().map(|outcome| outcome.nodes).sum::<i64>(),
        bench.model.node_count() as i64
    );
    Outcome { passes: outcomes, rounds, stop, inference: Duration::ZERO }
}

/// Declares the widths of what Attention reads where the target of a Reshape is computed: the standard's inference, which cannot follow every such target,
/// takes values of unknown width to have none, and runtimes that use it refuse the model.
fn declare_widths(model: &mut Model, facts: &Inference) {
    let is_reshaped = |value: &ValueId| {
        let mut node = model.value(*value).node().map(|id| model.node(id));
        // Neither changes the width.
        while let Some(found) = node.filter(|node| node.op().is("Cast") || node.op().is("RotaryEmbedding")) {
            node = found.input(0).and_then(|input| model.value(input).node()).map(|id| model.node(id));
        }
        let target = node.filter(|node| node.op().is("Reshape")).and_then(|node| node.input(1));
        target.is_some_and(|target| model.constant(target).is_none())
    };
    let attention = model.nodes().filter(|(_, node)| node.op().is("Attention"));
    let read = attention.flat_map(|(_, node)| node.inputs().iter().take(3).copied().flatten());
    let reshaped: Vec<ValueId> = read.filter(is_reshaped).collect();
    for value in reshaped {
        facts.declare_numbers(model, value);
    }
}

/// By how much a model may grow: 1 MiB and 5 % of its constants.
fn growth(model: &Model) -> u64 {
    (1 << 20) + model.stored_bytes() / 20
}

impl PassOutcome {
    fn new(pass: &'static Pass) -> Self {
        Self { pass, edits: 0, nodes: 0, bytes: 0, time: Duration::ZERO, skipped: Vec::new() }
    }

    /// Runs the pass on what changed since its last run. Answers whether it changed anything.
    fn run(&mut self, bench: &mut Workbench<'_>, mark: &mut Option<usize>) -> bool {
        let start = Instant::now();
        let mut skipped = Vec::new();
        let now = bench.mark();
        let edits = match self.pass.work {
            Work::Model { .. } if *mark == Some(now) => 0,
            Work::Model { run, .. } => {
                self.skipped.clear();
                run(bench, &mut skipped)
            }
            Work::Rules(rules) => {
                let nodes = bench.worklist(*mark);
                let edits = bench.rewrite(self.pass.author(), rules, nodes.clone(), &mut skipped);
                // What it looks at again it answers anew.
                let again: HashSet<NodeId> = nodes.into_iter().collect();
                self.skipped.retain(|skipped| !again.contains(&skipped.node));
                edits
            }
        };
        // A pass of rules has seen its own changes too.
        *mark = Some(bench.mark());
        self.skipped.extend(skipped);
        let mut seen = HashSet::new();
        self.skipped.reverse();
        self.skipped.retain(|skipped| {
            bench.model.node(skipped.node).is_live() && seen.insert((skipped.rule, skipped.node))
        });
        self.skipped.reverse();
        self.edits += edits;
        self.time += start.elapsed();
        debug_assert!(edits == 0 || bench.model.unaccounted().is_none(), "{}", self.pass.name);
        edits > 0
    }
}
