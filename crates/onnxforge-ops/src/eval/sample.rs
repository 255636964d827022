//! Synthetic inputs for a model: of the declared types, with values that make sense where they go.
//!
//! Shapes are those of a [`Search`]. Floats are normally distributed, or lie around numbers at which the model does something else: where trees
//! split, what is compared or clipped, the ends of what is quantized. Integers that select (indices of a Gather) stay within what they select from,
//! lengths of sequences within the sequences; other integers are 0 or 1, like masks that pad at the end of rows but never hide a whole row. A single
//! integer or boolean differs from one seed to the next. Strings are those that the model itself knows: categories and vocabularies.
//!
//! [`Manner::Varied`] reaches further, at the risk that a model refuses it: masks pad at either end, integers that are no masks take more values than 0
//! and 1, those that are compared with something (ids with that of the padding) are equal to it now and then, some words are unknown, optional
//! inputs are missing, and sequences have several elements.

mod numbers;
mod purpose;

use std::collections::HashMap;
use std::ops::Range;

use half::{bf16, f16};
use num_complex::Complex;

use super::boxes;
use super::declared::fit;
use super::shapes::{Search, Shapes, Wanted};
use crate::array::Typed;
use crate::eval_call::{Memory, check_deadline};
use crate::kernel::convert::{Rounding, convert};
use crate::kernel::parallel::{PARALLEL, each_piece};
use crate::{Array, OpError, Value};
pub use numbers::Flavour;
use numbers::{chosen, wide};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::tensor::element_count;
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::value::Def;
use onnxforge_ir::{DType, Model, Type};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::clock::Instant;
use onnxforge_proto::random::Random;
use purpose::Purpose;
pub use purpose::{handed_on, tables};

/// An array of synthetic elements; integers that select are below `range`.
pub fn array(
    dtype: DType,
    shape: &[usize],
    range: Option<i64>,
    flavour: Flavour,
    seed: u64,
) -> Result<Array, String> {
    let mut maker = Maker { flavour, ..Maker::new(&Options { seed, ..Options::default() }) };
    maker.tensor(dtype, shape, &Purpose { range, ..Purpose::default() }).map_err(|obstacle| match obstacle {
        Obstacle::Budget(error) => error.to_string(),
        Obstacle::Other(why) => why,
    })
}

/// How far inputs go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// What hardly any model refuses.
    #[default]
    Plain,
    /// What shows more of a model.
    Varied,
}

/// How inputs are generated.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the random numbers start from.
    pub seed: u64,
    /// How far they go.
    pub manner: Manner,
    /// Sizes of named dimensions.
    pub dims: HashMap<String, usize>,
    /// Shapes of inputs, by name. They must fit the declarations.
    pub shapes: HashMap<String, Vec<usize>>,
    /// Bytes that all of them together may take.
    pub memory: u64,
    /// When they have to be done.
    pub deadline: Option<Instant>,
}

impl Default for Options {
    fn default() -> Self {
        let (seed, manner, memory) = (0, Manner::Plain, 16 << 30);
        Self { seed, manner, dims: HashMap::new(), shapes: HashMap::new(), memory, deadline: None }
    }
}

/// Why inputs cannot be generated.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SampleError {
    /// A shape contradicts a declaration.
    #[error("{0}")]
    Shape(String),
    /// No sizes are found at which the model can run.
    #[error("no sizes were found at which the model can run ({0})")]
    Sizes(String),
    /// Somebody has to give the input.
    #[error("the input {name} cannot be generated: {why}")]
    Input {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// It takes more memory or time than it may.
    #[error("making up the input {name}: {error}")]
    Budget {
        /// Its name.
        name: String,
        /// What is used up.
        error: OpError,
    },
}

/// A value for every input of the model's graph that has no default and is not one of `given`, at the smallest sizes at which the model can run.
pub fn sample(
    model: &Model,
    options: &Options,
    given: &HashMap<String, Value>,
) -> Result<HashMap<String, Value>, SampleError> {
    check_shapes(model, options)?;
    let wanted = Wanted {
        dims: options.dims.clone(),
        shapes: options.shapes.clone(),
        ones_first: true,
        deadline: options.deadline,
        ..Wanted::default()
    };
    let mut search = Search::new(model, wanted.with_given(given));
    let Some(shapes) = search.next() else {
        let why = search.refusal().map_or_else(|| "none is left to try".to_owned(), ToString::to_string);
        return Err(SampleError::Sizes(why));
    };
    sample_at(model, &shapes, options, given)
}

/// Whether shapes fit what is declared, and sizes that are set.
fn check_shapes(model: &Model, options: &Options) -> Result<(), SampleError> {
    for port in model.scope(model.main()).inputs() {
        let name = model.value(port.value).name();
        let (Some(shape), Type::Tensor(_, Some(dims))) = (options.shapes.get(&**name), port.declared())
        else {
            continue;
        };
        fit(name, &dims, shape).map_err(SampleError::Shape)?;
        for (dim, &size) in dims.iter().zip(shape) {
            if let DeclaredDim::Named(dim) = dim
                && let Some(&set) = options.dims.get(&**dim)
                && set != size
            {
                let why = format!("{dim} is {size} in the shape of {name}, and set to {set}");
                return Err(SampleError::Shape(why));
            }
        }
    }
    Ok(())
}

/// The same at these shapes.
pub fn sample_at(
    model: &Model,
    shapes: &Shapes,
    options: &Options,
    given: &HashMap<String, Value>,
) -> Result<HashMap<String, Value>, SampleError> {
    let mut maker = Maker { is_padded: true, ..Maker::new(options) };
    let mut inputs = HashMap::new();
    for port in model.scope(model.main()).inputs() {
        let (name, declared) = (model.value(port.value).name(), port.declared());
        let has_default = matches!(model.value(port.value).def(), Def::Input { default: Some(_), .. });
        if has_default || given.contains_key(&**name) {
            continue;
        }
        let shape = options.shapes.get(&**name).or_else(|| shapes.inputs.get(&**name));
        let purpose = Purpose::of(model, &shapes.inference, port.value);
        let name = name.to_string();
        let value = match maker.value(&declared, shape, &purpose) {
            Ok(value) => value,
            Err(Obstacle::Budget(error)) => return Err(SampleError::Budget { name, error }),
            Err(Obstacle::Other(why)) => return Err(SampleError::Input { name, why }),
        };
        maker.memory.hold(value.byte_len());
        let value = match value {
            Value::Tensor(array) if array.dtype().kind() == Kind::Float => {
                let regions = boxes::ordered(model, port.value, array);
                regions.map_err(|error| SampleError::Budget { name: name.clone(), error })?.into()
            }
            value => value,
        };
        inputs.insert(name, value);
    }
    Ok(inputs)
}

/// Why a value cannot be generated.
enum Obstacle {
    Budget(OpError),
    Other(String),
}

impl From<OpError> for Obstacle {
    fn from(error: OpError) -> Self {
        match error {
            OpError::TooLarge { .. } | OpError::TimeOut => Self::Budget(error),
            other => Self::Other(other.to_string()),
        }
    }
}

struct Maker {
    random: Random,
    seed: u64,
    flavour: Flavour,
    manner: Manner,
    /// Integers that select nothing are 1 in some part of each row, and 0 around it.
    is_padded: bool,
    memory: Memory,
    deadline: Option<Instant>,
}

impl Maker {
    fn new(options: &Options) -> Self {
        Self {
            random: Random::new(options.seed),
            seed: options.seed,
            flavour: Flavour::Normal,
            manner: options.manner,
            is_padded: false,
            memory: Memory::new(options.memory),
            deadline: options.deadline,
        }
    }

    fn value(
        &mut self,
        declared: &Type,
        shape: Option<&Vec<usize>>,
        purpose: &Purpose,
    ) -> Result<Value, Obstacle> {
        match declared {
            Type::Tensor(Some(dtype), declared) => {
                let size = |dim: &DeclaredDim| match dim {
                    DeclaredDim::Size(size) => usize::try_from(*size).unwrap_or(usize::MAX),
                    DeclaredDim::Named(_) | DeclaredDim::Unknown => 1,
                };
                let shape = match (shape, declared) {
                    (Some(shape), _) => shape.clone(),
                    // Shapes of elements are found nowhere.
                    (None, Some(dims)) => dims.iter().map(size).collect(),
                    (None, None) => return Err(Obstacle::Other("its rank is not declared".to_owned())),
                };
                Ok(self.tensor(*dtype, &shape, purpose)?.into())
            }
            Type::Sequence(element) => {
                let count = if self.manner == Manner::Varied { 1 + self.random.below(3) } else { 1 };
                let elements = (0..count).map(|_| self.value(element, shape, purpose));
                Ok(Value::Sequence(elements.collect::<Result<Vec<_>, _>>()?.into()))
            }
            Type::Optional(_) if self.manner == Manner::Varied && self.seed % 2 == 1 => {
                Ok(Value::Optional(None))
            }
            Type::Optional(element) => {
                let element = self.value(element, shape, purpose)?;
                Ok(Value::Optional(Some(Box::new(element))))
            }
            other => Err(Obstacle::Other(format!("it is declared as {other}"))),
        }
    }

    fn tensor(&mut self, dtype: DType, shape: &[usize], purpose: &Purpose) -> Result<Array, Obstacle> {
        // A number that every type with this many bits has.
        let most = 1u64 << (dtype.bits().clamp(2, 64) - 1);
        let range = purpose.range.map(|range| u64::try_from(range).unwrap_or(1).clamp(1, most));
        let (flavour, is_varied) = (self.flavour, self.manner == Manner::Varied);
        // A single number is not the same in any two samples in a row.
        let alone = (element_count(shape) == Some(1)).then_some(self.seed);
        let spans = self.spans(shape);
        let row = shape.last().copied().unwrap_or(1).max(1);
        let is_kept = |index: usize| {
            spans.as_ref().map(|spans| spans[index / row % spans.len()].contains(&(index % row)))
        };
        let length = purpose.length.and_then(|length| u64::try_from(length).ok());
        let is_free = range.is_none() && length.is_none() && !purpose.is_mask && !purpose.is_shape;
        let is_small = dtype.bits() <= 8 && self.is_padded;
        let integer = |random: &mut Random, index: usize| match (range, length, is_kept(index)) {
            (None, Some(longest), _) => 1 + random.below(longest.max(1)) as i64,
            _ if is_free && is_small => random.bits() as i64,
            _ if is_free && is_varied => wide(random, dtype.kind() == Kind::Signed),
            (None, None, Some(kept)) => i64::from(kept),
            _ => flavour.integer(random, index, range),
        };
        let levelled = |random: &mut Random, index: usize| match purpose.is_shape {
            false if is_varied && random.below(4) == 0 => {
                let level = chosen(purpose.levels_at(index % row), random)?;
                let fits = range.is_none_or(|range| level >= 0.0 && level < range as f64);
                (fits && level.fract() == 0.0).then_some(level as i64)
            }
            _ => None,
        };
        let integer = |random: &mut Random, index: usize| {
            levelled(random, index).unwrap_or_else(|| integer(random, index))
        };
        let float = move |random: &mut Random, index: usize| {
            let other = flavour.float(random, index, dtype);
            let levels = purpose.levels_at(index % row);
            // Most are near such a number, some are the number itself.
            match (!purpose.levels.is_empty()).then(|| random.below(8)) {
                Some(0) => chosen(levels, random).unwrap_or(other),
                Some(1..=4) => {
                    chosen(levels, random).map_or(other, |level| level + other * 0.1 * level.abs().max(1e-2))
                }
                _ => other,
            }
        };
        macro_rules! integers {
            ($type:ty) => {
                self.filled(shape, |random, index| match alone {
                    Some(seed) if range.is_none() && length.is_none() && flavour == Flavour::Normal => {
                        [1, 3, 0, 2][(seed % 4) as usize] as $type
                    }
                    _ => integer(random, index) as $type,
                })
            };
        }
        let is_plain = purpose.levels.is_empty();
        match dtype {
            DType::F32 if is_plain => {
                self.spread(shape, |random, index| flavour.float(random, index, dtype) as f32)
            }
            DType::F32 => self.filled(shape, |random, index| float(random, index) as f32),
            DType::F64 => self.filled(shape, float),
            DType::F16 => self.filled(shape, |random, index| f16::from_f64(float(random, index))),
            DType::BF16 => self.filled(shape, |random, index| bf16::from_f64(float(random, index))),
            DType::C64 => self.filled(shape, |random, index| {
                Complex::new(float(random, index) as f32, float(random, index) as f32)
            }),
            DType::C128 => {
                self.filled(shape, |random, index| Complex::new(float(random, index), float(random, index)))
            }
            DType::Bool => self.filled(shape, |random, index| match alone {
                Some(seed) => seed % 2 == 0,
                None => is_kept(index).unwrap_or_else(|| Flavour::Normal.integer(random, index, None) != 0),
            }),
            DType::I8 => integers!(i8),
            DType::I16 => integers!(i16),
            DType::I32 => integers!(i32),
            DType::I64 => integers!(i64),
            DType::U8 => integers!(u8),
            DType::U16 => integers!(u16),
            DType::U32 => integers!(u32),
            DType::U64 => integers!(u64),
            DType::String => {
                let Some(count) = element_count(shape) else {
                    return Err(Obstacle::Other(format!("its shape {shape:?} is too large")));
                };
                self.memory.check((count as u64).saturating_mul(size_of::<Blob>() as u64))?;
                let word = |random: &mut Random| match purpose.words.len() {
                    _ if is_varied && random.below(8) == 0 => Blob::from(b"an unknown word".to_vec()),
                    0 => Blob::from(vec![b'a' + random.below(26) as u8]),
                    known => purpose.words[random.below(known as u64) as usize].clone(),
                };
                Ok(Array::strings(shape, (0..count).map(|_| word(&mut self.random)).collect())?)
            }
            // Types without a Rust type come by way of one that holds every number of theirs.
            _ if dtype.kind() == Kind::Float => {
                let array = self.filled(shape, |random, index| float(random, index) as f32)?;
                Ok(convert(&array, dtype, Rounding::default(), &self.memory)?)
            }
            _ => {
                let array = integers!(i8)?;
                Ok(convert(&array, dtype, Rounding::default(), &self.memory)?)
            }
        }
    }

    /// Which part of each row of a tensor of several rows counts, if it may be a mask. The first row counts as a whole.
    fn spans(&mut self, shape: &[usize]) -> Option<Vec<Range<usize>>> {
        /// How many rows differ.
        const ROWS: usize = 64;
        let row = shape.last().copied().filter(|_| self.is_padded && shape.len() > 1)?;
        let is_varied = self.manner == Manner::Varied;
        let shorter = |random: &mut Random| {
            let length = 1 + random.below((row as u64).saturating_sub(1).max(1)) as usize;
            if is_varied && random.below(2) == 0 { row.saturating_sub(length)..row } else { 0..length }
        };
        Some((0..ROWS).map(|index| if index == 0 { 0..row } else { shorter(&mut self.random) }).collect())
    }

    /// The same as [`filled`](Self::filled), on all cores, for an `element` that makes one normally distributed number.
    fn spread<T: Typed>(
        &mut self,
        shape: &[usize],
        element: impl Fn(&mut Random, usize) -> T + Sync,
    ) -> Result<Array, Obstacle> {
        /// How many elements are made between two looks at the clock, and by one core at a time.
        const STEP: usize = 1 << 20;
        const PIECE: usize = 1 << 12;
        /// Draws for a normally distributed number.
        const DRAWS: u64 = 2;
        let Some(count) = element_count(shape) else {
            return Err(Obstacle::Other(format!("its shape {shape:?} is too large")));
        };
        self.memory.check((count as u64).saturating_mul(size_of::<T>() as u64))?;
        let mut elements = vec![T::default(); count];
        let start = &self.random;
        for (step, part) in elements.chunks_mut(STEP).enumerate() {
            check_deadline(self.deadline)?;
            each_piece(part, PIECE, PARALLEL, &|place, piece| {
                let first = step * STEP + place * PIECE;
                let mut random = start.after(DRAWS * first as u64);
                let made = (first..).map(|index| element(&mut random, index));
                piece.iter_mut().zip(made).for_each(|(slot, made)| *slot = made);
            });
        }
        self.random = self.random.after(DRAWS * count as u64);
        Ok(Array::new(shape, elements)?)
    }

    /// An array of what `element` gives, within memory and time.
    fn filled<T: Typed>(
        &mut self,
        shape: &[usize],
        element: impl Fn(&mut Random, usize) -> T,
    ) -> Result<Array, Obstacle> {
        /// How many elements are made between two looks at the clock.
        const STEP: usize = 1 << 16;
        let Some(count) = element_count(shape) else {
            return Err(Obstacle::Other(format!("its shape {shape:?} is too large")));
        };
        self.memory.check((count as u64).saturating_mul(size_of::<T>() as u64))?;
        let mut elements = Vec::with_capacity(count);
        while elements.len() < count {
            check_deadline(self.deadline)?;
            let end = count.min(elements.len() + STEP);
            elements.extend((elements.len()..end).map(|index| element(&mut self.random, index)));
        }
        Ok(Array::new(shape, elements)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cores_make_the_numbers_of_one() {
        let (shape, dtype) = ([(1 << 20) + 777], DType::F32);
        for flavour in [Flavour::Normal, Flavour::NotFinite, Flavour::Zeros] {
            let found = array(dtype, &shape, None, flavour, 3).unwrap();
            let mut random = Random::new(3);
            for (index, found) in found.slice::<f32>().unwrap().iter().enumerate() {
                let expected = flavour.float(&mut random, index, dtype) as f32;
                assert_eq!(found.to_bits(), expected.to_bits(), "{flavour:?} at {index}");
            }
        }
    }
}
