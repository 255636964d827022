//! Whether two models compute the same, and whether a difference is rounding or error.
//!
//! Both models run on the same inputs, at several sizes of every symbolic dimension. Where results are not the same to the bit, the
//! float64 run of the first model judges: the second is right when it is no further from that than the first is, up to a few
//! units in the last place. Where both agree in 64 bits, it may be a little further: another order of summing does that.

pub mod bench;
pub mod blocks;
mod branches;
pub mod compare;
pub mod draws;
pub mod engine;
pub mod guard;
mod judge;
pub mod local;
pub mod memory;
pub mod parts;
pub mod profile;
pub mod reduce;
mod region;
mod report;
pub mod runtime;
mod samples;
mod side;
mod steps;
mod whole;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use self::blocks::Pairs;
use self::draws::Apart;
use self::engine::Engine;
pub use self::report::{Moment, OutputReport, Report, Verdict, VerifyError, Which};
use self::whole::Work;
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::{Def, Model, Type, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::infer::Inference;
use onnxforge_proto::progress::Progress;
use onnxforge_proto::schema::ValueInfoProto;

/// What to run.
#[derive(Debug)]
pub struct Options {
    /// What computes.
    pub engine: Engine,
    /// Number of synthetic inputs.
    pub samples: usize,
    /// What they start from.
    pub seed: u64,
    /// Inputs that are given; others are synthetic.
    pub given: HashMap<String, Value>,
    /// Sizes of named dimensions; others take several.
    pub dims: HashMap<String, usize>,
    /// The largest difference, as a share of the largest magnitude, that is accepted; without it the float64 run judges.
    pub tolerance: Option<f64>,
    /// Bytes that the values of a run may take.
    pub memory: u64,
    /// What was made from another model is compared with it block by block.
    pub by_blocks: bool,
    /// The second model must run wherever the first does, also where dimensions of one name differ. Otherwise such sizes are only listed.
    pub runs_wherever: bool,
    /// No further sample is begun where all sizes are fixed and the first model has run for so long.
    pub time: Option<Duration>,
    /// Units in the last place, at the scale of a result, that are known to be rounding; the float64 run judges only beyond.
    pub rounding: f64,
    /// Results that differ in a bit are different: signs of zeros and payloads of NaN count too.
    pub exact: bool,
}

impl Options {
    /// Two synthetic inputs, judged by the float64 run.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            samples: 2,
            seed: 0,
            given: HashMap::new(),
            dims: HashMap::new(),
            tolerance: None,
            memory: memory::allowed(),
            by_blocks: false,
            runs_wherever: false,
            time: None,
            rounding: 0.0,
            exact: false,
        }
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
        Some(Apart { differs: Some((name, how)), .. }) => {
            return Ok(Report::of_difference(options.engine, name, how));
        }
        Some(Apart { models: [first, second], pairs, renamed, .. }) => {
            Work { models: [first, second], pairs: pairs.clone(), inside: 0, renamed: renamed.clone() }
        }
        None => Work::of(first, second)?,
    };
    work.compare(work.models[0], options, progress)
}

/// Compares two models, one of which was made from the other, at their outputs and at values that both compute.
pub fn verify_inside(
    first: &Model,
    second: &Model,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report, VerifyError> {
    if options.by_blocks {
        return blocks::verify_blocks(first, second, &Pairs::by_id(first, second), options, progress);
    }
    if let Some(Apart { models: [first, second], pairs, renamed, differs }) = draws::apart(first, second)? {
        if let Some((name, how)) = differs {
            return Ok(Report::of_difference(options.engine, &name, &how));
        }
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
    let mut pairs: Vec<(String, String)> = if by_name {
        a.iter().map(|name| (name.clone(), name.clone())).collect()
    } else {
        a.into_iter().zip(b).collect()
    };
    // A graph may list a value twice.
    let mut seen = BTreeSet::new();
    pairs.retain(|pair| seen.insert(pair.clone()));
    Ok(pairs)
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
