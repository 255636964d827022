//! `onnxforge optimize`: fewer nodes, the same results.

mod lineage;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::{
    NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser,
};
use onnxforge::analysis::fingerprint::{Fingerprint, Unfit, fitting};
use onnxforge::check::nearest;
use onnxforge::hierarchy::effect::ModuleEffect;
use onnxforge::interface::{self, Wishes};
use onnxforge::io::External;
use onnxforge::ir::{Model, NodeId};
use onnxforge::passes::pipeline::{Options, Outcome, PassOutcome, Stop};
use onnxforge::passes::targets::{PORTABLE, TARGETS, Target};
use onnxforge::passes::{self, Pass};
use onnxforge::runtime::Runtime;
use onnxforge::upgrade::CURED;
use onnxforge::verify;
use onnxforge::verify::engine::Engine;
use onnxforge::verify::guard::{self, Proof, When};
use serde::Serialize;

use self::lineage::Lineage;
use super::run::{named_shape, named_size};
use super::upgrade::{self, Wanted};
use super::verify::{EngineArg, given};
use super::{ExternalArg, refuse_invalid};
use crate::failure::{Failure, Verdict};
use crate::files::WrittenFile;
use crate::output::{Output, bytes, grouped, number, table};

/// Make a model smaller without changing what it computes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write the result; the same path replaces the model.
    #[arg(short, long)]
    output: PathBuf,
    #[command(flatten)]
    selection: Selection,
    /// The size of a named dimension of the inputs, from now on.
    #[arg(long, value_name = "NAME=N", value_parser = named_size)]
    set_dim: Vec<(String, usize)>,
    /// The shape of an input, from now on; named dimensions get the same size everywhere.
    #[arg(long, value_name = "NAME=N,N,…", value_parser = named_shape)]
    set_shape: Vec<(String, Vec<usize>)>,
    /// Make these values of the graph the outputs, and cut off what they do not need.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = NonEmptyStringValueParser::new())]
    outputs: Vec<String>,
    /// The version of the standard operators from now on, before the passes run; only upwards.
    #[arg(long, value_name = "keep|latest|N", default_value = "keep")]
    opset: Wanted,
    /// Stop after so many edits.
    #[arg(long, value_name = "N")]
    stop_after: Option<usize>,
    /// Where weights go.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
    #[command(flatten)]
    checks: Checks,
    /// Write every edit to this file, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a page that shows the modules of the result, before and after.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// How the work is checked.
#[derive(Debug, clap::Args)]
pub struct Checks {
    /// Check every edit where it happens, and compare the result with the original: in the end, also after each pass, or nothing of all
    /// that. What is found wrong is left out.
    #[arg(long, value_enum, default_value = "final")]
    verify: VerifyArg,
    #[command(flatten)]
    comparison: Comparison,
    /// Take it for good when something wrong was found and left out, instead of exiting with 1.
    #[arg(long)]
    allow_revert: bool,
}

/// How the result is compared with the original.
#[derive(Debug, clap::Args)]
pub struct Comparison {
    /// How many inputs the comparison tries, with other sizes of named dimensions each time.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    samples: usize,
    /// What computes for the comparison.
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineArg,
    /// Inputs for the comparison by name; others are made up.
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,
    /// Other seeds make up other inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum VerifyArg {
    Off,
    Final,
    Each,
}

/// Time that checks of single edits may take together.
const LOCAL: Duration = Duration::from_secs(60);

/// Which passes run.
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// Run only these passes, stage by stage in this order; `onnxforge passes` lists them.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    passes: Vec<String>,
    /// Leave these passes out.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    skip: Vec<String>,
    /// What the model is made for.
    #[arg(long, value_parser = target(), default_value = PORTABLE.name, conflicts_with = "passes")]
    target: &'static Target,
}

/// Reads the name of a target.
fn target() -> impl TypedValueParser<Value = &'static Target> {
    let names = TARGETS.iter().map(|target| PossibleValue::new(target.name).help(target.summary));
    PossibleValuesParser::new(names)
        .map(|name| TARGETS.into_iter().find(|target| target.name == name).unwrap_or(&PORTABLE))
}

impl Selection {
    /// The chosen passes.
    pub fn resolve(&self) -> Result<Vec<&'static Pass>, Failure> {
        let chosen = self.passes.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
        let mut chosen = if chosen.is_empty() { self.target.passes().collect() } else { chosen };
        for target in TARGETS {
            let asked = |of: &[&'static Pass]| {
                of.iter().map(|pass| pass.name).find(|name| chosen.iter().any(|pass| pass.name == *name))
            };
            if let (Some(adds), Some(omits)) = (asked(target.adds), asked(target.omits)) {
                return Err(Failure::new(format!(
                    "{adds} is for models without what {omits} makes; ask for one of them"
                )));
            }
        }
        for name in &self.skip {
            let skipped = find(name)?;
            chosen.retain(|pass| pass.name != skipped.name);
        }
        Ok(chosen)
    }

    /// Those of the chosen passes that may find something in a model, and the others; all of them where they were asked for.
    fn fitting(&self, model: &Model, chosen: &[&'static Pass]) -> (Vec<&'static Pass>, Vec<Unfit>) {
        if !self.passes.is_empty() {
            return (chosen.to_vec(), Vec::new());
        }
        let (fit, unfit) = fitting(model, chosen);
        for Unfit { pass, why } in &unfit {
            tracing::info!("{} is left out: {why}", pass.name);
        }
        (fit, unfit)
    }
}

/// The pass of this name, or what might have been meant.
pub fn find(name: &str) -> Result<&'static Pass, Failure> {
    onnxforge::passes::find(name.trim()).ok_or_else(|| {
        let cure = match nearest(name, passes::all().map(|pass| pass.name)) {
            Some(near) => format!("did you mean {near}?"),
            None => "`onnxforge passes` lists them".to_owned(),
        };
        Failure::new(format!("no pass is called {name:?}; {cure}"))
    })
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    /// What was converted to another operator set, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    opset: Option<onnxforge::upgrade::Report>,
    before: Size,
    after: Size,
    /// Nodes by operator, before and after.
    operators: BTreeMap<String, (usize, usize)>,
    passes: Vec<PassReport>,
    rounds: usize,
    stop: Stop,
    verification: Proof,
    /// Small models on which passes did something wrong.
    reproducers: Vec<String>,
    /// What became of the modules that nodes come from, where they are known.
    modules: Vec<ModuleEffect>,
    milliseconds: Times,
    files: Vec<WrittenFile>,
}

#[derive(Debug, Serialize)]
struct Size {
    /// Nodes of the main graph.
    nodes: usize,
    /// Nodes of the whole model, bodies and functions included.
    all_nodes: usize,
    /// Bytes of constants.
    constants: u64,
}

#[derive(Debug, Serialize)]
struct PassReport {
    name: &'static str,
    class: &'static str,
    edits: usize,
    nodes: i64,
    bytes: i64,
    milliseconds: f64,
    /// Why places that the pass is about stay as they are, and how many.
    skipped: BTreeMap<String, usize>,
    /// Why the pass did not run: the model has nothing that it could find.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
}

#[derive(Debug, Serialize)]
struct Times {
    load: f64,
    inference: f64,
    passes: f64,
    local_checks: f64,
    comparison: f64,
    save: f64,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let passes = args.selection.resolve()?;
    let start = Instant::now();
    let cured = if args.opset == Wanted::Keep { &[][..] } else { CURED };
    refuse_invalid(&args.model, output, cured)?;
    let mut model = output.files.load(&args.model)?;
    super::warn_of_newer_opsets(&args.model, &model);
    tell_class(&model);
    let (before, operators_before) = (Size::of(&model), model.operator_counts());
    let lineage = Lineage::of(&args.model, &model, output);
    let wishes = Wishes {
        dims: args.set_dim.iter().cloned().collect(),
        shapes: args.set_shape.iter().cloned().collect(),
        outputs: args.outputs.clone(),
    };
    interface::apply(&mut model, &wishes).map_err(|error| Failure::at(&args.model, error))?;
    let mut checks = args.checks.resolve(&model, output)?;
    let opset = match args.opset {
        Wanted::Keep => None,
        Wanted::Version(to) => Some(upgrade::convert(&mut model, &args.model, to)?),
    };
    let load = milliseconds(start);
    let start = Instant::now();
    let (fit, unfit) = args.selection.fitting(&model, &passes);
    let options = Options {
        passes: fit,
        stop_after: args.stop_after,
        progress: output.progress(),
        ..Options::default()
    };
    let (outcome, proof) = guard::optimize(&mut model, &options, &mut checks)?;
    let optimized = milliseconds(start);
    let is_wrong = !proof.reverted.is_empty() && !args.checks.allow_revert;
    if let Some(path) = &args.trace {
        write_trace(&model, path, output)?;
    }
    let modules = lineage.carry(&mut model)?;
    let start = Instant::now();
    let mut files = output.save(&model, &args.output, args.external)?;
    let reproducers = write_reproducers(&proof, &args.output, output)?;
    let mut operators: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    operators_before.into_iter().for_each(|(op, count)| operators.entry(op).or_default().0 = count);
    model.operator_counts().into_iter().for_each(|(op, count)| operators.entry(op).or_default().1 = count);
    files.extend(modules.write_sidecar(&args.output, &model, output)?);
    if let Some(path) = &args.report {
        files.extend(modules.write_page(path, &args.output, &model, &outcome, output)?);
    }
    let mut reports: Vec<PassReport> = outcome.passes.iter().map(PassReport::of).collect();
    reports.extend(unfit.iter().map(PassReport::left_out));
    reports.sort_by_key(|report| passes.iter().position(|pass| pass.name == report.name));
    let report = Report {
        schema: 1,
        opset,
        before,
        after: Size::of(&model),
        operators,
        passes: reports,
        rounds: outcome.rounds,
        stop: outcome.stop,
        milliseconds: Times {
            load,
            inference: outcome.inference.as_secs_f64() * 1e3,
            passes: optimized
                - outcome.inference.as_secs_f64() * 1e3
                - proof.local.milliseconds
                - proof.milliseconds,
            local_checks: proof.local.milliseconds,
            comparison: proof.milliseconds,
            save: milliseconds(start),
        },
        modules: modules.effects,
        files,
        verification: proof,
        reproducers,
    };
    output.result(&report, |out| report.show(&outcome, out))?;
    Ok(if is_wrong { Verdict::No } else { Verdict::Yes })
}

impl Checks {
    /// What is to be checked, with the model as it is now as the original.
    pub fn resolve(&self, model: &Model, output: &Output) -> Result<guard::Options, Failure> {
        let when = match self.verify {
            VerifyArg::Off => When::Off,
            VerifyArg::Final => When::Final,
            VerifyArg::Each => When::Each,
        };
        self.comparison.resolve(when, model, output)
    }
}

impl Comparison {
    /// What is to be checked, with the model as it is now as the original.
    pub fn resolve(&self, when: When, model: &Model, output: &Output) -> Result<guard::Options, Failure> {
        if matches!(self.engine, EngineArg::Ort | EngineArg::OrtAll) {
            Runtime::get()?;
        }
        let engine = match when {
            When::Off => Engine::Native,
            When::Final | When::Each => self.engine.engine(verify::is_large(model)),
        };
        let comparison = verify::Options {
            samples: self.samples,
            seed: self.seed,
            given: given(self.inputs.as_deref(), model, output)?,
            ..verify::Options::new(engine)
        };
        Ok(guard::Options { when, comparison, local: LOCAL, original: Some(model.clone()) })
    }
}

/// Says what kind of network the model is, and which passes matter for it, where somebody wants to know.
fn tell_class(model: &Model) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let found = Fingerprint::of(model);
    tracing::info!(
        "{} ({:.0} % sure): {}",
        found.class.name(),
        found.confidence * 100.0,
        found.reasons.join("; ")
    );
    for fit in found.passes() {
        tracing::info!("{} matters: {}", fit.pass, fit.why);
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
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
            class: super::passes::class(outcome.pass.accuracy()),
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
            class: super::passes::class(unfit.pass.accuracy()),
            edits: 0,
            nodes: 0,
            bytes: 0,
            milliseconds: 0.0,
            skipped: BTreeMap::new(),
            left_out: Some(unfit.why.clone()),
        }
    }
}

impl Report {
    fn show(&self, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
        if let Some(converted) = &self.opset {
            upgrade::show(converted, out)?;
        }
        let mut ops = table(&["operator", "before", "after"]);
        let changed = self.operators.iter().filter(|(_, (before, after))| before != after);
        for (op, (before, after)) in changed {
            ops.add_row([
                comfy_table::Cell::new(op),
                number(grouped(*before as u64)),
                number(grouped(*after as u64)),
            ]);
        }
        ops.add_row([
            comfy_table::Cell::new("all nodes"),
            number(grouped(self.before.all_nodes as u64)),
            number(grouped(self.after.all_nodes as u64)),
        ]);
        ops.add_row([
            comfy_table::Cell::new("constants"),
            number(bytes(self.before.constants)),
            number(bytes(self.after.constants)),
        ]);
        writeln!(out, "{ops}")?;
        let mut passes = table(&["pass", "edits", "nodes", "bytes", "ms"]);
        for pass in self.passes.iter().filter(|pass| pass.edits > 0) {
            passes.add_row([
                comfy_table::Cell::new(pass.name),
                number(grouped(pass.edits as u64)),
                number(format!("{:+}", pass.nodes)),
                number(format!("{:+}", pass.bytes)),
                number(format!("{:.1}", pass.milliseconds)),
            ]);
        }
        if self.passes.iter().any(|pass| pass.edits > 0) {
            writeln!(out, "{passes}")?;
        }
        lineage::show(&self.modules, out)?;
        match outcome.stop {
            Stop::Fixpoint => {}
            Stop::Edits => writeln!(out, "stopped after the number of edits that was asked for")?,
            Stop::Rounds => {
                writeln!(out, "stopped after {} rounds, although passes still found something", self.rounds)?;
            }
        }
        show_proof(&self.verification, out)?;
        for (path, wrong) in self
            .reproducers
            .iter()
            .zip(self.verification.reverted.iter().filter(|wrong| wrong.reproducer.is_some()))
        {
            writeln!(
                out,
                "{path} shows it: onnxforge optimize {path} -o OUT --passes {}; please report it",
                wrong.pass
            )?;
        }
        for file in &self.files {
            writeln!(out, "wrote {} ({})", file.path, bytes(file.bytes))?;
        }
        Ok(())
    }
}

/// Writes small models that show what was wrong, beside the result.
fn write_reproducers(proof: &Proof, beside: &Path, output: &Output) -> Result<Vec<String>, Failure> {
    let mut written = Vec::new();
    for (place, model) in proof.reverted.iter().filter_map(|wrong| wrong.reproducer.as_deref()).enumerate() {
        let path = beside.with_extension(format!("wrong-{}.onnx", place + 1));
        output.save(model, &path, External::Auto)?;
        written.push(path.display().to_string());
    }
    Ok(written)
}

fn show_proof(proof: &Proof, out: &mut dyn Write) -> io::Result<()> {
    for wrong in &proof.reverted {
        writeln!(
            out,
            "LEFT OUT: {} of {} was wrong at edit {}: {} ({})",
            wrong.rule, wrong.pass, wrong.edit, wrong.value, wrong.difference
        )?;
    }
    let local = &proof.local;
    if local.checked + local.unchecked.len() > 0 {
        write!(out, "checked {} edits where they happened", grouped(local.checked as u64))?;
        if local.repeated > 0 {
            write!(out, " ({} by others that look alike)", grouped(local.repeated as u64))?;
        }
        for (reason, count) in &local.unchecked {
            write!(out, "; {} not: {reason}", grouped(*count as u64))?;
        }
        writeln!(out)?;
    }
    if let Some(reason) = &proof.fallback {
        writeln!(out, "the native engine took over: {reason}")?;
    }
    if let Some(reason) = &proof.unverified {
        writeln!(out, "NOT compared with the original: {reason}")?;
    }
    if let Some(report) = &proof.global {
        let worst = report.outputs.iter().filter_map(|output| output.difference.as_ref());
        let worst = worst.map(|difference| difference.max_rel).fold(0.0, f64::max);
        writeln!(
            out,
            "compared with the original{} at {} outputs and {} values inside ({} samples, engine {}): {}, {worst:.1e} at most",
            if report.by_blocks { " block by block" } else { "" },
            report.outputs.len(),
            grouped(report.inside as u64),
            report.samples,
            report.engine.name(),
            super::verify::said(report.verdict)
        )?;
    }
    Ok(())
}

#[derive(Serialize)]
struct TraceLine<'a> {
    edit: usize,
    pass: &'a str,
    rule: &'a str,
    class: &'static str,
    nodes: i64,
    bytes: i64,
    consumed: Vec<String>,
    produced: Vec<String>,
    redefined: Vec<String>,
}

fn write_trace(model: &Model, path: &Path, output: &Output) -> Result<(), Failure> {
    let node = |&id: &NodeId| model.node_label(id);
    let entries = model.journal().iter().enumerate();
    let mut lines = entries.map(|(edit, entry)| {
        serde_json::to_string(&TraceLine {
            edit: edit + 1,
            pass: &entry.pass,
            rule: &entry.rule,
            class: super::passes::class(entry.accuracy),
            nodes: entry.nodes,
            bytes: entry.bytes,
            consumed: entry.consumed.iter().map(node).collect(),
            produced: entry.produced.iter().map(node).collect(),
            redefined: entry.redefined.iter().map(|&id| model.value(id).name().to_string()).collect(),
        })
    });
    output.files.write(path, |out| lines.try_for_each(|line| writeln!(out, "{}", line?)))?;
    Ok(())
}
