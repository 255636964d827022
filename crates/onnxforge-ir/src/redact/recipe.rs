//! What the elements of a tensor look like from afar.

use serde::{Deserialize, Serialize};

use crate::dtype::Kind;
use crate::tensor::{Element, TensorError};
use crate::{DType, Tensor};

/// A tensor with no more different elements than this is described by them.
const FEW: usize = 8;

/// The distribution of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Recipe {
    /// A few different elements: masks, constants, flags.
    Choice {
        /// The packed bytes of each in hexadecimal.
        values: Vec<String>,
        /// How often each occurs.
        counts: Vec<u64>,
    },
    /// Each element is the one before plus `step`: positions.
    Range {
        /// The first element.
        start: i64,
        /// The difference of neighbours.
        step: i64,
    },
    /// Integers between two bounds: indices.
    Uniform {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// Numbers around a mean: weights.
    Normal {
        /// Mean of the finite elements.
        mean: f64,
        /// Their standard deviation.
        std: f64,
        /// The smallest of them.
        min: f64,
        /// The largest of them.
        max: f64,
    },
}

/// Sums over a stream of numbers.
#[derive(Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        if self.count == 0.0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn normal(&self) -> Recipe {
        let std = if self.count > 0.0 { (self.squares / self.count).max(0.0).sqrt() } else { 0.0 };
        // Squares of the very largest numbers overflow.
        let or_zero = |value: f64| if value.is_finite() { value } else { 0.0 };
        Recipe::Normal { mean: or_zero(self.mean), std: or_zero(std), min: self.min, max: self.max }
    }
}

impl Recipe {
    /// Describes `tensor` in one pass over its elements.
    pub fn measure(tensor: &Tensor) -> Result<Self, TensorError> {
        if let Some(choice) = few_elements(tensor)? {
            return Ok(choice);
        }
        let mut moments = Moments::default();
        let mut range: Option<(i64, i64)> = None;
        let mut in_steps = true;
        let mut last = 0i64;
        for (index, element) in tensor.elements()?.enumerate() {
            let integer = match element {
                Element::Float(value) => {
                    moments.add(value);
                    continue;
                }
                Element::Complex(real, imaginary) => {
                    moments.add(real);
                    moments.add(imaginary);
                    continue;
                }
                Element::Int(value) => value,
                Element::Uint(value) => i64::try_from(value).unwrap_or(i64::MAX),
                Element::Bool(value) => value.into(),
                Element::Bytes(_) => continue,
            };
            moments.add(integer as f64);
            match (index, range) {
                (0, _) => range = Some((integer, 0)),
                (1, Some((start, _))) => range = Some((start, integer.wrapping_sub(last))),
                (_, Some((_, step))) => in_steps &= integer.wrapping_sub(last) == step,
                _ => {}
            }
            last = integer;
        }
        Ok(match range {
            Some((start, step)) if in_steps => Self::Range { start, step },
            Some(_) if tensor.dtype().bits() > 8 => {
                Self::Uniform { min: moments.min as i64, max: moments.max as i64 }
            }
            _ => moments.normal(),
        })
    }
}

/// The different elements of a tensor with whole-byte elements, if they are few.
fn few_elements(tensor: &Tensor) -> Result<Option<Recipe>, TensorError> {
    let bits = tensor.dtype().bits();
    if bits < 8 || tensor.dtype() == DType::String {
        return Ok(None);
    }
    let bytes = tensor.bytes()?;
    let mut found: Vec<(&[u8], u64)> = Vec::new();
    for element in bytes.chunks_exact(bits as usize / 8) {
        match found.iter().position(|(value, _)| *value == element) {
            Some(at) => found[at].1 += 1,
            None if found.len() == FEW => return Ok(None),
            None => found.push((element, 1)),
        }
    }
    // Eight different ones of eight say everything about a tensor; that is too much.
    if found.len() == tensor.len() && tensor.len() > 1 && tensor.dtype().kind() == Kind::Float {
        return Ok(None);
    }
    found.sort_unstable();
    Ok(Some(Recipe::Choice {
        values: found
            .iter()
            .map(|(value, _)| value.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect(),
        counts: found.iter().map(|(_, count)| *count).collect(),
    }))
}
