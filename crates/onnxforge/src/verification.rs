//! Whether two models compute the same.

use std::collections::{BTreeMap, HashMap};

use onnxforge_ir::Model;
use onnxforge_ir::types::{DeclaredDim, Type};
use onnxforge_ir::value::Port;
use onnxforge_ops::Value;
use onnxforge_proto::progress::{Progress, Silent};
use onnxforge_verify::blocks::{Pairs, verify_blocks};
use onnxforge_verify::engine::{Choice, Engine, Engines, may_run_forever};
use onnxforge_verify::{self as verify, Moment, Report, VerifyError, Which};
use serde::Serialize;

use crate::Error;

/// How two models are compared.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Which engine runs them. Where ONNX Runtime was not asked for and cannot run the first, the native one takes over.
    pub engine: Choice,
    /// How many inputs are tried.
    pub samples: usize,
    /// What synthetic inputs start from.
    pub seed: u64,
    /// Inputs that are given; others are synthetic.
    pub given: HashMap<String, Value>,
    /// Sizes of named dimensions in synthetic inputs; others take several.
    pub dims: HashMap<String, usize>,
    /// The largest difference, as a share of the largest magnitude of an output, that is accepted; without it a float64 run judges.
    pub tolerance: Option<f64>,
    /// Compare block by block wherever a value has one name in both models, for models that do not fit into memory.
    pub by_blocks: bool,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            engine: Choice::Auto,
            samples: 3,
            seed: 0,
            given: HashMap::new(),
            dims: HashMap::new(),
            tolerance: None,
            by_blocks: false,
        }
    }
}

/// How two models compare.
#[derive(Debug, Serialize)]
pub struct Verified {
    /// What was found.
    #[serde(flatten)]
    pub report: Report,
    /// Why another engine than ONNX Runtime computed, where that was to.
    pub fallback: Option<String>,
    /// Sizes of named dimensions of the first model that the second has fixed; no others were tried.
    pub fixed: BTreeMap<String, usize>,
}

/// Named dimensions of the inputs of `first` that are numbers in `second`.
fn fixed(first: &Model, second: &Model) -> BTreeMap<String, usize> {
    let shapes = |model: &Model| -> HashMap<String, Vec<DeclaredDim>> {
        let ports = model.scope(model.main()).inputs().iter();
        let shape = |port: &Port| match port.declared() {
            Type::Tensor(_, Some(shape)) => {
                Some((model.value(port.value).name().to_string(), shape.to_vec()))
            }
            _ => None,
        };
        ports.filter_map(shape).collect()
    };
    let others = shapes(second);
    let pairs = shapes(first).into_iter().filter_map(|(name, shape)| Some((shape, others.get(&name)?)));
    let mut fixed: BTreeMap<String, Option<usize>> = BTreeMap::new();
    for (mine, theirs) in pairs.filter(|(mine, theirs)| mine.len() == theirs.len()) {
        for pair in mine.iter().zip(theirs) {
            if let (DeclaredDim::Named(name), DeclaredDim::Size(size)) = pair
                && let Some(size) = usize::try_from(*size).ok().filter(|&size| size > 0)
            {
                // Two sizes of one name are none.
                let known = fixed.entry(name.to_string()).or_insert(Some(size));
                *known = known.filter(|&known| known == size);
            }
        }
    }
    fixed.into_iter().filter_map(|(name, size)| Some((name, size?))).collect()
}

/// Compares what two models compute: the first is the reference.
pub fn verify(first: &Model, second: &Model, options: &VerifyOptions) -> Result<Verified, Error> {
    verify_with(first, second, options, &Silent)
}

/// The same, with somebody who hears about progress.
pub fn verify_with(
    first: &Model,
    second: &Model,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<Verified, Error> {
    options.engine.check()?;
    // Inputs that are given have the sizes that they have.
    let mut fixed = if options.given.is_empty() { fixed(first, second) } else { BTreeMap::new() };
    fixed.retain(|name, _| !options.dims.contains_key(name));
    let mut dims = options.dims.clone();
    dims.extend(fixed.clone());
    let compare = |engine: Engine| {
        let comparison = verify::Options {
            samples: options.samples,
            seed: options.seed,
            given: options.given.clone(),
            dims: dims.clone(),
            tolerance: options.tolerance,
            ..verify::Options::new(engine)
        };
        match options.by_blocks {
            true => verify_blocks(first, second, &Pairs::by_name(first, second)?, &comparison, progress),
            false => verify::verify(first, second, &comparison, progress),
        }
    };
    // What ONNX Runtime never could run, the native engine may. A second model that it cannot run although it can the first is an answer.
    let refused = |error: &VerifyError| matches!(error, VerifyError::Run { which: Which::First, .. });
    let engines = match options.by_blocks {
        // Only the native engine can be stopped.
        _ if may_run_forever(first) || may_run_forever(second) => Engines::only(Engine::Native),
        true => options.engine.engines_for_results(),
        false => options.engine.engines(),
    };
    let (report, fallback) = engines.work(refused, compare);
    let report = match report {
        Err(VerifyError::Undetermined(why)) => Report::of_nothing(engines.first, why),
        // The first model ran.
        Err(error @ VerifyError::Run { which: Which::Second, when: Moment::Running(_), .. }) => {
            Report::of_difference(engines.first, "", &error.to_string())
        }
        report => report?,
    };
    Ok(Verified { report, fallback, fixed })
}

/// The largest differences of samples, as shares of the largest magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
    /// What 99 of 100 stay below.
    pub p99: f64,
    /// Whether none differs at all.
    pub all_zero: bool,
    /// Ten times what 99 of 100 samples stay below.
    pub recommended_tolerance: f64,
}

impl Sweep {
    /// The distribution of these differences.
    pub fn of(differences: &[f64]) -> Self {
        let mut sorted = differences.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = sorted.len().saturating_sub(1);
            sorted.get((share * last as f64).ceil() as usize).copied().unwrap_or(0.0)
        };
        let p99 = at(0.99);
        Self {
            min: at(0.0),
            max: at(1.0),
            mean: sorted.iter().sum::<f64>() / sorted.len().max(1) as f64,
            p99,
            all_zero: sorted.iter().all(|&difference| difference == 0.0),
            recommended_tolerance: 10.0 * p99,
        }
    }
}
