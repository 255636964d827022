//! The original and what was made of it, run on the same inputs.

use std::collections::{BTreeMap, HashMap, HashSet};

use onnxforge_ir::dtype::DType;
use onnxforge_ir::{Model, ValueId};
use onnxforge_ops::eval::sample::{self, sample};
use onnxforge_ops::eval::{self, Session};
use onnxforge_ops::{Array, Value};
use onnxforge_proto::Str;
use onnxforge_proto::progress::{Progress, Unit};
use onnxforge_verify::compare::numbers;
use onnxforge_verify::memory;

use super::{Float16Error, Float16Options, OutputError};

/// Values beyond this stay in 32 bits: the largest float16 is eight times as large, which real inputs need that synthetic ones do not show.
const LARGEST: f64 = 65_504.0 / 8.0;
/// The smallest float16 that has all of its digits.
pub const SMALLEST: f64 = 6.103_515_625e-5;
/// Into how many parts the values of a run are split at most, so that they fit into memory.
const MOST_PARTS: usize = 64;

pub fn running(wide: bool) -> eval::Options {
    eval::Options { wide, memory: memory::allowed(), keep_constants: false, ..eval::Options::default() }
}

/// The original on synthetic inputs.
pub struct Trials<'m> {
    model: &'m Model,
    pub inputs: Vec<HashMap<String, Value>>,
    /// Its outputs, every float in 64 bits.
    outputs: Vec<Vec<(Str, Value)>>,
}

impl<'m> Trials<'m> {
    /// Runs the original; says why where that is not possible.
    pub fn new(model: &'m Model, options: &Float16Options, progress: &dyn Progress) -> Result<Self, String> {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let session = Session::new(model, running(true));
        progress.begin("samples", options.samples as u64, Unit::Runs);
        for index in 0..options.samples.max(1) {
            let settings = sample::Options {
                seed: options.seed.wrapping_add(index as u64),
                dims: options.dims.clone(),
                ..sample::Options::default()
            };
            let mut values = sample(model, &settings, &options.given).map_err(|error| error.to_string())?;
            values.extend(options.given.clone());
            outputs.push(session.run(&values).map_err(|error| error.to_string())?);
            inputs.push(values);
            progress.advance(1);
        }
        progress.end();
        Ok(Self { model, inputs, outputs })
    }

    /// The largest and the smallest magnitude, but for 0, that values take; nothing of those that do not fit into memory.
    pub fn ranges(&self, values: &HashSet<ValueId>) -> HashMap<ValueId, Range> {
        let mut wanted: Vec<ValueId> = values.iter().copied().collect();
        wanted.sort_unstable();
        let session = Session::new(self.model, running(true));
        let mut found: HashMap<ValueId, Range> = HashMap::new();
        let mut parts = 1;
        'split: while parts <= MOST_PARTS {
            found.clear();
            for part in wanted.chunks(wanted.len().div_ceil(parts).max(1)) {
                for inputs in &self.inputs {
                    let Ok(values) = session.run_values(inputs, part) else {
                        parts *= 4;
                        continue 'split;
                    };
                    for (&id, value) in part.iter().zip(&values) {
                        let range = numbers(value).map(|numbers| Range::of(numbers.into_iter()));
                        found.entry(id).or_default().extend(range.unwrap_or_default());
                    }
                }
            }
            return found;
        }
        found
    }

    /// How far the outputs of a converted model are from these.
    pub fn compare(
        &self,
        converted: &Session<'_>,
        interface: bool,
    ) -> Result<Vec<OutputError>, Float16Error> {
        let broken = |why: String| Float16Error::Broken { why };
        let mut worst: BTreeMap<usize, OutputError> = BTreeMap::new();
        for (inputs, expected) in self.inputs.iter().zip(&self.outputs) {
            let found =
                converted.run(&narrowed(inputs, interface)).map_err(|error| broken(error.to_string()))?;
            for (place, ((name, wanted), (_, got))) in expected.iter().zip(&found).enumerate() {
                let (Some(wanted), Some(got)) = (numbers(wanted), numbers(got)) else { continue };
                if wanted.len() != got.len() {
                    continue;
                }
                let name = name.to_string();
                if wanted.iter().zip(&got).any(|(wanted, got)| wanted.is_finite() && !got.is_finite()) {
                    return Err(Float16Error::NotFinite { output: name });
                }
                let error = difference(&wanted, &got);
                let entry = worst.entry(place).or_insert(OutputError { name, error });
                entry.error = entry.error.max(error);
            }
        }
        Ok(worst.into_values().collect())
    }
}

/// Inputs as a model with narrow ones takes them.
pub fn narrowed(inputs: &HashMap<String, Value>, interface: bool) -> HashMap<String, Value> {
    let narrow = |value: &Value| match value {
        Value::Tensor(array) if interface && array.dtype() == DType::F32 => {
            let numbers = array.slice::<f32>().ok()?.iter().map(|&x| half::f16::from_f32(x)).collect();
            Array::new(array.shape(), numbers).ok().map(Value::from)
        }
        _ => None,
    };
    inputs
        .iter()
        .map(|(name, value)| (name.clone(), narrow(value).unwrap_or_else(|| value.clone())))
        .collect()
}

/// The largest difference, as a share of the largest magnitude.
fn difference(wanted: &[f64], got: &[f64]) -> f64 {
    let scale = wanted.iter().copied().filter(|x| x.is_finite()).fold(0.0, |most: f64, x| most.max(x.abs()));
    let finite = wanted.iter().zip(got).filter(|(wanted, got)| wanted.is_finite() && got.is_finite());
    let most = finite.map(|(wanted, got)| (wanted - got).abs()).fold(0.0, f64::max);
    if most == 0.0 { 0.0 } else { most / scale }
}

/// The magnitudes that a value takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    pub largest: f64,
}

impl Range {
    pub fn of(numbers: impl Iterator<Item = f64>) -> Self {
        Self { largest: numbers.filter(|x| x.is_finite()).fold(0.0, |most, x| most.max(x.abs())) }
    }

    fn extend(&mut self, other: Self) {
        self.largest = self.largest.max(other.largest);
    }

    /// Why 16 bits do not hold it.
    pub fn problem(self) -> Option<String> {
        match self.largest {
            large if large > LARGEST => Some(format!("values up to {large:.1e}")),
            small if small > 0.0 && small < SMALLEST => Some(format!("no value above {small:.1e}")),
            _ => None,
        }
    }
}
