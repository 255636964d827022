//! Optimizing so that nothing wrong is kept.
//!
//! Every change is checked where it happens ([`super::local`]), and the whole model in the end, or after each pass. What is found wrong is
//! traced to one change, its rule is barred, and the work starts again without it: the result never contains it, nor anything
//! that was built on it.

use std::time::Duration;

use serde::Serialize;

use super::engine::{Engine, Engines, may_run_forever};
use super::local::{Local, LocalReport, Wrong};
use super::runtime::{Runtime, RuntimeError};
use super::{Options as Comparison, OutputReport, Report, Verdict, VerifyError, Which, verify_inside};
use onnxforge_ir::{Accuracy, Model, Rewrite};
use onnxforge_ops::infer::Inference;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Silent};
use onnxforge_rewrite::Witness;
use onnxforge_rewrite::passes::pipeline::{self, Outcome};

/// How often something wrong may be found before the work is given up.
const MOST_REVERTS: usize = 20;

/// The longest that a reproducer is made smaller.
const REDUCING: Duration = Duration::from_secs(20);

/// When the whole model is compared with the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Never, and changes are not checked either.
    Off,
    /// Never; changes are checked where they happen, and whoever asks compares what becomes of the result.
    Local,
    /// In the end.
    Final,
    /// After every pass that changed something, and in the end.
    Each,
}

/// How the work is checked.
#[derive(Debug)]
pub struct Options {
    /// When.
    pub when: When,
    /// How models are compared.
    pub comparison: Comparison,
    /// The engine that takes over where that of the comparison cannot run the original. ONNX Runtime also has to load the result where it loads the
    /// original.
    pub instead: Option<Engine>,
    /// Time that checks of single changes may take together.
    pub local: Duration,
    /// ONNX Runtime takes the model before the passes, converted or not: a result that it does not take is the fault of a pass.
    pub loads: bool,
    /// What the result is compared with, where that is not the model before the passes.
    pub original: Option<Model>,
}

/// What the checks say.
#[derive(Debug, Default, Serialize)]
pub struct Proof {
    /// Checks of single changes, in the run that counts.
    pub local: LocalReport,
    /// The comparison of the result with the original.
    pub global: Option<Report>,
    /// Why there is none, where one was asked for.
    pub unverified: Option<String>,
    /// Why another engine than the one that was asked for computed.
    pub fallback: Option<String>,
    /// The version of the ONNX Runtime that was seen to load the result, where another engine computed.
    pub loaded_by: Option<String>,
    /// What ONNX Runtime says where it loads the result no more than the model that the passes were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_loaded: Option<String>,
    /// Comparisons after passes, in the order in which they ran, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    /// Changes that were found wrong. Their rules changed nothing in the result.
    pub reverted: Vec<Wrong>,
    /// Time for comparing models.
    pub milliseconds: f64,
}

impl Proof {
    /// Whether the result was compared with the original, and found to be the same up to rounding. A model that nothing changed is.
    pub fn is_verified(&self) -> bool {
        self.unverified.is_none()
            && self.global.as_ref().is_none_or(|report| report.verdict <= Verdict::Rounding)
    }
}

/// How a model compares with the original.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Compared {
    /// What is said of the outputs.
    pub verdict: Verdict,
    /// The largest difference of an output, as a share of its scale; nothing where results cannot be compared element by element.
    pub difference: Option<f64>,
}

impl Compared {
    /// The model does not even run.
    const BROKEN: Self = Self { verdict: Verdict::Different, difference: None };

    fn of(report: &Report) -> Self {
        let difference = report.by_sample.iter().copied().fold(0.0, f64::max);
        Self { verdict: report.verdict, difference: Some(difference).filter(|found| found.is_finite()) }
    }
}

/// How the model compares with the original after a pass.
#[derive(Clone, Debug, Serialize)]
pub struct After {
    /// The pass.
    pub pass: &'static str,
    /// What was found.
    #[serde(flatten)]
    pub compared: Compared,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// More was wrong than bars can mend.
    #[error("the result still differs from the original after {0} rules were barred; please report this")]
    Hopeless(usize),
    /// It was wrong before the first pass.
    #[error(
        "the conversion to another operator set is wrong at {value:?} ({difference}); leave it out, and please report this"
    )]
    Converted {
        /// The value that differs.
        value: String,
        /// In what.
        difference: String,
    },
}

/// Optimizes the model, and keeps nothing that is found wrong.
pub fn optimize(
    model: &mut Model,
    options: &pipeline::Options<'_>,
    checks: &mut Options,
) -> Result<(Outcome, Proof), GuardError> {
    let mut proof = Proof::default();
    let mut work = options.clone();
    if checks.when == When::Off {
        return Ok((pipeline::optimize(model, &work), proof));
    }
    let start = model.clone();
    let original = checks.original.take().unwrap_or_else(|| start.clone());
    loop {
        *model = start.clone();
        (proof.global, proof.unverified, proof.not_loaded) = (None, None, None);
        proof.after.clear();
        let first_edit = model.journal().len();
        let mut guard = Guard {
            local: Local::new(checks.local),
            original: &original,
            start: &start,
            checks,
            proof: &mut proof,
            each: None,
        };
        let outcome = pipeline::optimize_watched(model, &work, Some(&mut guard));
        let (local, each) = (guard.local, guard.each);
        proof.local = local.report;
        let began = Instant::now();
        let found = match (local.wrong, each) {
            (Some(wrong), _) => Err(wrong),
            (None, each @ Some(_)) => Ok(each),
            (None, None) if checks.when == When::Local => Ok(None),
            (None, None) if model.journal().len() == first_edit && !is_converted(&original, &start) => {
                Ok(None)
            }
            // The last pass that changed something was the last to be compared.
            (None, None) if checks.when == When::Each && proof.global.is_some() => Ok(None),
            (None, None) => Ok(whole([&original, &start], model, checks, &mut proof, options.progress)),
        };
        let loads = matches!(&found, Ok(Some(found)) if found.loads);
        let wrong = match found {
            Err(wrong) => Some(wrong),
            Ok(Some(found)) => Some(blame([&original, &start], model, &work, checks, &found)?),
            Ok(None) => None,
        };
        proof.milliseconds += began.elapsed().as_secs_f64() * 1e3;
        let Some(mut wrong) = wrong else { return Ok((outcome, proof)) };

        wrong.reproducer = reproducer(&start, &work, checks, &wrong, loads).map(Box::new);
        tracing::warn!(
            "{} of {} is wrong at edit {} ({}: {}); it is reverted",
            wrong.rule,
            wrong.pass,
            wrong.edit,
            wrong.value,
            wrong.difference
        );
        let bar = (wrong.pass.clone(), wrong.rule.clone());
        let again = work.barred.contains(&bar);
        proof.reverted.push(wrong);
        if again || proof.reverted.len() > MOST_REVERTS {
            *model = start;
            return Err(GuardError::Hopeless(proof.reverted.len()));
        }
        work.barred.push(bar);
    }
}

/// Where models were found to differ.
#[derive(Clone, Debug)]
struct Found {
    value: String,
    difference: String,
    /// ONNX Runtime does not load the second model; nothing is said of what it computes.
    loads: bool,
}

impl Found {
    /// What is found of two models: in what they differ, or with `loads` that ONNX Runtime does not load the second one.
    fn between(first: &Model, second: &Model, checks: &Options, loads: bool) -> Option<Self> {
        match loads {
            true => Self::not_loaded(&Runtime::get().ok()?.takes(second).err()?),
            false => Self::of(verify_inside(first, second, &checks.comparison, &Silent).as_ref()),
        }
    }

    fn not_loaded(error: &RuntimeError) -> Option<Self> {
        let difference = format!("ONNX Runtime loads only the original: {error}");
        Some(Self { value: String::new(), difference, loads: true })
    }

    /// What a report says, when it says that models differ.
    fn of(compared: Result<&Report, &VerifyError>) -> Option<Self> {
        match compared {
            Ok(report) => {
                let OutputReport { name, difference, mismatch, .. } = report.first_difference.as_ref()?;
                let apart = || {
                    difference.as_ref().map(|d| match d.max_rel {
                        0.0 => "only bits differ that change no number".to_owned(),
                        apart => format!("numbers differ by {apart:.1e} of their scale"),
                    })
                };
                let difference = mismatch.clone().or_else(apart).unwrap_or_default();
                Some(Self { value: name.clone(), difference, loads: false })
            }
            Err(error @ (VerifyError::Run { which: Which::Second, .. } | VerifyError::Interface(_))) => {
                Some(Self { value: String::new(), difference: error.to_string(), loads: false })
            }
            Err(_) => None,
        }
    }
}

/// How what became of a model compares with it, as [`optimize`] finds out in the end; or why nothing can be said: the original does not run.
pub fn compared(
    original: &Model,
    model: &Model,
    checks: &mut Options,
    progress: &dyn Progress,
) -> Result<Compared, String> {
    let mut proof = Proof::default();
    let found = whole([original; 2], model, checks, &mut proof, progress);
    match (proof.global, found) {
        (Some(report), _) => Ok(Compared::of(&report)),
        (None, Some(_)) => Ok(Compared::BROKEN),
        (None, None) => Err(proof.unverified.unwrap_or_default()),
    }
}

/// Compares the whole models. Where the original does not run, nothing is said but why, and whether ONNX Runtime loads the result. `start` is the original
/// at the operator sets of the result.
fn whole(
    [original, start]: [&Model; 2],
    model: &Model,
    checks: &mut Options,
    proof: &mut Proof,
    progress: &dyn Progress,
) -> Option<Found> {
    proof.loaded_by = None;
    if may_run_forever(original) {
        if checks.comparison.engine != Engine::Native {
            proof.fallback = Some("a Loop has no largest number of iterations".to_owned());
        }
        checks.comparison.engine = Engine::Native;
        checks.instead = None;
    }
    let engines = Engines { first: checks.comparison.engine, instead: checks.instead };
    let loads = checks.loads;
    let compare = |engine: Engine| {
        checks.comparison.engine = engine;
        checks.comparison.rounding = declared(model).max(engine.own_rounding());
        verify_inside(original, model, &checks.comparison, progress)
    };
    // A runtime may be older than the operator set that was asked for.
    let may_be_too_new = !loads && is_converted(original, model);
    let refused = |error: &VerifyError| match error {
        VerifyError::Run { which: Which::First, .. } => true,
        VerifyError::Run { which: Which::Second, error, .. } => may_be_too_new || error.is_about_support(),
        _ => false,
    };
    let (compared, fallback) = engines.work(refused, compare);
    proof.fallback = fallback.or(proof.fallback.take());
    match compared {
        Err(VerifyError::Undetermined(why)) => {
            proof.unverified = Some(why);
            unloadable(start, model, checks, proof)
        }
        Err(error @ (VerifyError::Run { which: Which::First, .. } | VerifyError::Sample(_))) => {
            proof.unverified = Some(error.to_string());
            unloadable(start, model, checks, proof)
        }
        compared => {
            let found = Found::of(compared.as_ref());
            let ran = compared.is_ok() && checks.comparison.engine != Engine::Native;
            proof.global = compared.ok();
            if found.is_none() && !ran {
                return unloadable(start, model, checks, proof);
            }
            found
        }
    }
}

/// What computes the same must also load where models are run: what ONNX Runtime says where it is found, and loads the model that the passes were given and
/// not what they made of it. One that it did not load before, such as one of operator sets that are too new for it, is only reported.
fn unloadable(start: &Model, model: &Model, checks: &Options, proof: &mut Proof) -> Option<Found> {
    let runtime = Runtime::get().ok().filter(|_| checks.instead == Some(Engine::Ort))?;
    proof.not_loaded = None;
    let Err(error) = runtime.takes(model) else {
        proof.loaded_by = Some(runtime.version().unwrap_or_default());
        return None;
    };
    if runtime.takes(start).is_err() {
        proof.not_loaded = Some(error.to_string());
        return None;
    }
    proof.global = None;
    Found::not_loaded(&error)
}

/// Whether a model was converted to other operator sets.
fn is_converted(original: &Model, model: &Model) -> bool {
    original.opset_imports(original.main()) != model.opset_imports(model.main())
}

/// A small part of the model as it was before the wrong change, on which its pass does the same again.
fn reproducer(
    start: &Model,
    work: &pipeline::Options<'_>,
    checks: &Options,
    wrong: &Wrong,
    loads: bool,
) -> Option<Model> {
    let options =
        |passes, stop_after| pipeline::Options { passes, stop_after, progress: &Silent, ..work.clone() };
    let first = start.journal().len();
    let mut before = start.clone();
    pipeline::optimize(
        &mut before,
        &options(work.passes.clone(), Some((wrong.edit - 1).saturating_sub(first))),
    );
    let alone: Vec<_> = work.passes.iter().copied().filter(|pass| *pass.name == *wrong.pass).collect();
    let mut shows = |part: &Model| {
        let mut changed = part.clone();
        let mut local = Local::new(Duration::from_secs(5));
        pipeline::optimize_watched(&mut changed, &options(alone.clone(), None), Some(&mut local));
        match local.wrong {
            Some(found) => found.rule == wrong.rule,
            None => {
                let fired = changed.journal().iter().any(|entry| entry.rule == wrong.rule);
                let is_loaded = || !loads || Found::between(part, part, checks, loads).is_none();
                fired && is_loaded() && Found::between(part, &changed, checks, loads).is_some()
            }
        }
    };
    let deadline = Instant::now() + REDUCING;
    Some(super::reduce::reduce(&before, Some(deadline), &mut shows)?.model)
}

/// Units in the last place by which all changes together may differ, as far as they promise, to first order.
pub fn declared(model: &Model) -> f64 {
    let ulps = model.journal().iter().map(|entry| match entry.accuracy {
        Accuracy::Rounding { ulps } if ulps.is_finite() => ulps,
        _ => 0.0,
    });
    ulps.sum()
}

/// The change that makes the difference: the first one after which models differ.
fn blame(
    [original, start]: [&Model; 2],
    model: &Model,
    work: &pipeline::Options<'_>,
    checks: &Options,
    found: &Found,
) -> Result<Wrong, GuardError> {
    let first = start.journal().len();
    if is_converted(original, start)
        && let Some(Found { value, difference, .. }) = Found::between(original, start, checks, found.loads)
    {
        return Err(GuardError::Converted { value, difference });
    }
    // After `right` changes the models agree, after `wrong` changes they do not.
    let (mut right, mut wrong) = (0, model.journal().len() - first);
    let mut found = found.clone();
    let mut partly = start.clone();
    while right + 1 < wrong {
        let middle = right.midpoint(wrong);
        let options = pipeline::Options { stop_after: Some(middle), progress: &Silent, ..work.clone() };
        let mut candidate = start.clone();
        pipeline::optimize(&mut candidate, &options);
        match Found::between(original, &candidate, checks, found.loads) {
            Some(difference) => {
                (wrong, found) = (middle, difference);
            }
            None => (right, partly) = (middle, candidate),
        }
    }
    let entry = &model.journal()[first + wrong - 1];
    Ok(Wrong {
        pass: entry.pass.clone(),
        rule: entry.rule.clone(),
        edit: first + wrong,
        nodes: entry.consumed.iter().map(|&node| partly.node_label(node)).collect(),
        value: found.value.into(),
        difference: found.difference,
        reproducer: None,
    })
}

/// Sees every change and every pass.
struct Guard<'a> {
    local: Local,
    original: &'a Model,
    start: &'a Model,
    checks: &'a mut Options,
    proof: &'a mut Proof,
    /// What a comparison after a pass found.
    each: Option<Found>,
}

impl Witness for Guard<'_> {
    fn before(&mut self, model: &Model, facts: &Inference, rewrite: &Rewrite) {
        self.local.before(model, facts, rewrite);
    }

    fn after(&mut self, model: &Model, facts: &Inference, is_made: bool) -> bool {
        self.local.after(model, facts, is_made)
    }

    fn passed(&mut self, model: &Model, pass: &'static str) -> bool {
        if self.checks.when == When::Each && self.local.wrong.is_none() {
            let start = Instant::now();
            self.proof.global = None;
            self.each = whole([self.original, self.start], model, self.checks, self.proof, &Silent);
            let compared = self.proof.global.as_ref().map(Compared::of);
            self.proof.after.extend(compared.map(|compared| After { pass, compared }));
            self.proof.milliseconds += start.elapsed().as_secs_f64() * 1e3;
        }
        self.each.is_none()
    }
}
