//! Fewer nodes, the same results: everything that happens to a model between loading and saving.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onnxforge_analysis::fingerprint::Unfit;
use onnxforge_hierarchy::effect::ModuleEffect;
use onnxforge_hierarchy::lineage::{Carried, Lineage};
use onnxforge_hierarchy::module::ancestors;
use onnxforge_hierarchy::recorded::Recorded;
use onnxforge_hierarchy::report::{Optimization, PassEffect};
use onnxforge_hierarchy::select::select;
use onnxforge_hierarchy::{Hierarchy, ModuleId, Tags};
use onnxforge_ir::io::{self, SaveOptions, Saved};
use onnxforge_ir::{Model, NodeId};
use onnxforge_ops::Value;
use onnxforge_ops::eval::check_given;
use onnxforge_ops::eval::shapes::{Names, Wanted};
use onnxforge_ops::infer::Inference;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Silent};
use onnxforge_rewrite::Within;
use onnxforge_rewrite::interface::{self, Wishes};
use onnxforge_rewrite::passes::pipeline::{self, PassOutcome, Stop};
use onnxforge_rewrite::passes::targets::ORT;
use onnxforge_rewrite::upgrade;
use onnxforge_verify as verify;
use onnxforge_verify::blocks::suits_blocks;
use onnxforge_verify::engine::{Choice, Engine, Engines};
use onnxforge_verify::guard::{self, Proof, When};
use serde::Serialize;

use crate::Error;
use crate::kind::Kind;
use crate::opset::{self, Opset, Tried};
use crate::selection::Selection;

/// What is to be done with a model. The default: the passes of the portable target, and the result compared with the original.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Sizes, shapes and outputs that are fixed before anything else happens.
    pub interface: Wishes,
    /// The version of the standard operators to convert to, only upwards. For ONNX Runtime as target, the newest up to it that the
    /// ONNX Runtime of this machine takes.
    pub opset: Opset,
    /// Which passes run.
    pub passes: Selection,
    /// How much results may change.
    pub accuracy: AccuracyMode,
    /// Paths, tags or patterns of the modules that passes may rewrite, everything if empty. All other nodes stay as they are.
    pub within: Vec<String>,
    /// Stop after so many edits.
    pub stop_after: Option<usize>,
    /// How the result is verified.
    pub verification: Verification,
    /// What was recorded beside the model about its PyTorch modules; the model itself is asked in any case.
    pub modules: Option<Recorded>,
    /// Declare the types and shapes that are known, of values in between and of outputs.
    pub declare_shapes: bool,
    /// Name nodes that have no name.
    pub name_nodes: bool,
}

/// How much results may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccuracyMode {
    /// As much as each rule declares; the comparison in the end tells rounding from error.
    #[default]
    Default,
    /// Not by a bit: only edits that are declared bit-exact are made, and in the comparison any other bit is a difference.
    Exact,
}

/// How the result is verified.
#[derive(Clone, Debug)]
pub struct Verification {
    /// When.
    pub when: When,
    /// How many inputs the comparison tries, each with other sizes of named dimensions.
    pub samples: usize,
    /// What synthetic inputs start from.
    pub seed: u64,
    /// Inputs that are given; others are synthetic.
    pub given: HashMap<String, Value>,
    /// Sizes of named dimensions in synthetic inputs.
    pub dims: HashMap<String, usize>,
    /// Which engine runs the models: the native one unless told otherwise. Where ONNX Runtime is found, it takes over where that cannot run the
    /// original, and has to load the result where it loads the original.
    pub engine: Choice,
    /// Time that checks of single edits may take together; without it, as much as the size of the model justifies.
    pub local: Option<Duration>,
}

/// Time for checks of single edits of a model without weights.
const LOCAL_CHECKS: Duration = Duration::from_millis(250);

/// Models of fixed sizes that run longer than this are compared on one sample.
const SECOND_SAMPLE: Duration = Duration::from_millis(50);

impl Default for Verification {
    fn default() -> Self {
        Self {
            when: When::Final,
            samples: 2,
            seed: 0,
            given: HashMap::new(),
            dims: HashMap::new(),
            engine: Choice::Auto,
            local: None,
        }
    }
}

impl Verification {
    /// No verification at all.
    pub fn off() -> Self {
        Self { when: When::Off, ..Self::default() }
    }

    /// What is to be checked, with the model as it is now as the original.
    pub fn checks(&self, original: &Model) -> Result<guard::Options, Error> {
        self.engine.check()?;
        check_given(original, &self.given)?;
        let (engines, by_blocks) = match self.when {
            When::Off => (Engines::only(Engine::Native), false),
            When::Local | When::Final | When::Each => {
                (self.engine.engines_for_results(), suits_blocks(original))
            }
        };
        let comparison = verify::Options {
            samples: self.samples,
            seed: self.seed,
            given: self.given.clone(),
            dims: self.dims.clone(),
            time: Some(SECOND_SAMPLE),
            by_blocks,
            runs_wherever: true,
            ..verify::Options::new(engines.first)
        };
        // Reading the weights once takes a run about as long.
        let weights = Duration::from_nanos(original.stored_bytes());
        let local = self.local.unwrap_or(LOCAL_CHECKS + weights);
        let original = (self.when != When::Off).then(|| original.clone());
        Ok(guard::Options {
            when: self.when,
            comparison,
            instead: engines.instead,
            local,
            original,
            loads: false,
        })
    }
}

/// An optimized model, and what was done to it.
#[derive(Debug)]
pub struct Optimized {
    /// The model.
    pub model: Model,
    /// What was done.
    pub report: Report,
    /// What each pass did, with the matches that it skipped in the end.
    pub passes: Vec<PassOutcome>,
    /// How long it took.
    pub times: Times,
    /// The PyTorch modules that nodes come from.
    pub modules: Carried,
}

/// What was done to a model.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this layout.
    pub schema: u32,
    /// What the file said otherwise than the standard asks for, and was mended when it was loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mended: Vec<String>,
    /// How much results were allowed to change.
    pub accuracy: AccuracyMode,
    /// What kind of network it is.
    pub kind: Kind,
    /// What was converted to another operator set, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opset: Option<upgrade::Report>,
    /// What ONNX Runtime says of the model, where that was asked: it is the target, or the operator set is to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<Tried>,
    /// The model before.
    pub before: Size,
    /// And after.
    pub after: Size,
    /// Nodes by operator, before and after.
    pub operators: BTreeMap<String, (usize, usize)>,
    /// What each pass did, in the order in which they run.
    pub passes: Vec<PassReport>,
    /// How often the whole list of passes ran.
    pub rounds: usize,
    /// Why they ended.
    pub stop: Stop,
    /// What the checks say.
    pub verification: Proof,
    /// What became of the modules that nodes come from, where they are known.
    pub modules: Vec<ModuleEffect>,
}

/// The size of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Nodes of the main graph.
    pub nodes: usize,
    /// Nodes of the whole model, bodies and functions included.
    pub all_nodes: usize,
    /// Bytes of constants.
    pub constants: u64,
}

/// What one pass did.
#[derive(Clone, Debug, Serialize)]
pub struct PassReport {
    /// The pass.
    pub name: &'static str,
    /// Its accuracy class.
    pub class: &'static str,
    /// Its edits.
    pub edits: usize,
    /// Change of the number of nodes.
    pub nodes: i64,
    /// Change of the bytes of constants.
    pub bytes: i64,
    /// How long it took.
    pub milliseconds: f64,
    /// Why candidates were not rewritten, and how many.
    pub skipped: BTreeMap<String, usize>,
    /// Why the pass did not run: the model has nothing that it could find.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// Milliseconds of each kind of work.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// Shape inference.
    pub inference: f64,
    /// Passes.
    pub passes: f64,
    /// Checks of single edits.
    pub local_checks: f64,
    /// Comparison of the result with the original.
    pub comparison: f64,
}

/// Makes a model smaller without changing what it computes, verifies that, and says what was done.
pub fn optimize(model: Model, options: &Options) -> Result<Optimized, Error> {
    optimize_with(model, options, &Silent)
}

/// The same, with somebody who hears about progress.
pub fn optimize_with(
    mut model: Model,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Optimized, Error> {
    let mut selection = options.passes.clone();
    let kind = Kind::choose(&model, &mut selection);
    let passes = selection.passes()?;
    let (before, operators_before) = (Size::of(&model), model.operator_counts());
    let lineage = Lineage::of(&model, options.modules.as_ref());
    let within = chosen(&model, lineage.hierarchy(), options)?;
    interface::apply(&mut model, &options.interface)?;
    let start = Instant::now();
    let mut checks = options.verification.checks(&model)?;
    let apart = Names::of(&model, Wanted::default()).apart;
    let separated =
        interface::separate(&mut model, &apart.into_iter().map(|(places, _)| places).collect::<Vec<_>>());
    let exact = options.accuracy == AccuracyMode::Exact;
    checks.comparison.exact = exact;
    let bound = options.passes.is_for(&ORT) || options.opset == Opset::Latest;
    let (opset, tried) = opset::convert(&mut model, options.opset, options.passes.is_for(&ORT))?;
    let loads = bound && tried.as_ref().is_some_and(Tried::loads);
    checks.loads = loads;
    if exact {
        upgrade::bit_exact(&model)?;
    }
    let (fit, unfit) = selection.fitting(&model, &passes);
    let work = pipeline::Options {
        passes: fit,
        stop_after: options.stop_after,
        exact,
        barred: selection.barred(),
        within: within.map(Arc::new),
        progress,
        ..Default::default()
    };
    let (outcome, proof) = guard::optimize(&mut model, &work, &mut checks)?;
    separated.rejoin(&mut model);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let (whole, inference) = (milliseconds(start.elapsed()), milliseconds(outcome.inference));
    let times = Times {
        inference,
        passes: whole - inference - proof.local.milliseconds - proof.milliseconds,
        local_checks: proof.local.milliseconds,
        comparison: proof.milliseconds,
    };
    if loads {
        opset::demand(&model)?;
    }
    let modules = lineage.carry(&mut model)?;
    if options.declare_shapes {
        let known = Inference::of(&model);
        known.declare(&mut model);
        known.declare_outputs(&mut model);
    }
    if options.name_nodes {
        model.name_nodes();
    }
    let mut operators: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    operators_before.into_iter().for_each(|(op, count)| operators.entry(op).or_default().0 = count);
    model.operator_counts().into_iter().for_each(|(op, count)| operators.entry(op).or_default().1 = count);
    let mut reports: Vec<PassReport> = outcome.passes.iter().map(PassReport::of).collect();
    reports.extend(unfit.iter().map(PassReport::left_out));
    reports.sort_by_key(|report| passes.iter().position(|pass| pass.name == report.name));
    let report = Report {
        schema: 1,
        mended: model.mended().iter().map(ToString::to_string).collect(),
        accuracy: options.accuracy,
        kind: kind.unwrap_or_else(|| Kind::of(&model)),
        opset,
        tried,
        before,
        after: Size::of(&model),
        operators,
        passes: reports,
        rounds: outcome.rounds,
        stop: outcome.stop,
        verification: proof,
        modules: modules.effects.clone(),
    };
    Ok(Optimized { model, report, passes: outcome.passes, times, modules })
}

/// The nodes that passes may rewrite: those that come from the chosen modules alone.
fn chosen(model: &Model, hierarchy: &Hierarchy, options: &Options) -> Result<Option<Within>, Error> {
    if options.within.is_empty() {
        return Ok(None);
    }
    if options.opset != Opset::Keep {
        return Err(Error::WholeModel);
    }
    let tags = Tags::new(hierarchy.table(), &hierarchy.policy());
    let mut paths: Vec<String> = Vec::new();
    for pattern in &options.within {
        paths.extend(select(hierarchy, &tags, pattern)?);
    }
    let paths: HashSet<&str> = paths.iter().map(String::as_str).collect();
    let table = hierarchy.table();
    let is_chosen = |module: ModuleId| {
        let path = &*table.get(module).path;
        paths.contains(path) || ancestors(path).any(|around| paths.contains(around))
    };
    let chosen: Vec<bool> = table.iter().map(|(id, _)| is_chosen(id)).collect();
    let comes_from = |id: &NodeId| hierarchy.origin(*id).modules.iter().all(|module| chosen[module.index()]);
    Ok(Some(model.nodes().map(|(id, _)| id).filter(comes_from).collect()))
}

impl Optimized {
    /// Saves the model; weights stay in data files where they were in some.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<Saved, Error> {
        Ok(io::save(&self.model, path.as_ref(), &SaveOptions::default())?)
    }

    /// What passes did, as the report's page shows it.
    pub fn for_page(&self) -> Optimization {
        let fired = self.report.passes.iter().filter(|pass| pass.edits > 0);
        let passes =
            fired.map(|pass| PassEffect { pass: pass.name.to_owned(), edits: pass.edits, nodes: pass.nodes });
        Optimization {
            before: self.modules.before.first().copied().unwrap_or(0),
            after: self.model.node_count(),
            passes: passes.collect(),
            modules: self.modules.before.clone(),
        }
    }
}

impl Size {
    fn of(model: &Model) -> Self {
        Self {
            nodes: model.scope(model.main()).node_count(),
            all_nodes: model.node_count(),
            constants: model.stored_bytes(),
        }
    }
}

impl PassReport {
    fn of(outcome: &PassOutcome) -> Self {
        let mut skipped = BTreeMap::new();
        for skip in &outcome.skipped {
            *skipped.entry(skip.reason.to_string()).or_default() += 1;
        }
        Self {
            name: outcome.pass.name,
            class: outcome.pass.accuracy().class(),
            edits: outcome.edits,
            nodes: outcome.nodes,
            bytes: outcome.bytes,
            milliseconds: outcome.time.as_secs_f64() * 1e3,
            skipped,
            left_out: None,
        }
    }

    fn left_out(unfit: &Unfit) -> Self {
        Self {
            name: unfit.pass.name,
            class: unfit.pass.accuracy().class(),
            edits: 0,
            nodes: 0,
            bytes: 0,
            milliseconds: 0.0,
            skipped: BTreeMap::new(),
            left_out: Some(unfit.why.clone()),
        }
    }
}
