//! Inputs made up for a model: of the declared types, with values that make sense where they go.
//!
//! Floats are normally distributed. Integers that select (indices of a Gather) stay within what they select from; other
//! integers are 0 or 1, like masks, and the first of them is 1, so that a mask never hides everything. A single integer or boolean differs from
//! one seed to the next.

use std::collections::HashMap;

use half::{bf16, f16};
use num_complex::Complex;

use super::boxes;
use super::declared::Sizes;
use crate::array::Typed;
use crate::eval_call::{Memory, check_deadline};
use crate::infer::Inference;
use crate::kernel::convert::{Rounding, convert};
use crate::{Array, OpError, Value};
use onnxforge_ir::dim::{Dim, Symbols};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::tensor::element_count;
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::value::{Def, Use};
use onnxforge_ir::{DType, Model, Type, ValueId};
use onnxforge_proto::clock::Instant;
use onnxforge_proto::random::Random;

/// Which numbers are made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Normally distributed ones; integers are 0 and 1.
    Normal,
    /// Zeros of both signs.
    Zeros,
    /// Negative ones; integers of both signs.
    Negative,
    /// Close to 0, where what is added to keep divisors from 0 shows.
    Small,
    /// Far from 1, and far from the largest of the type.
    Large,
    /// Closer to 0 than normal numbers are.
    Denormal,
    /// NaN and infinities among others.
    NotFinite,
}

impl Flavour {
    /// A float of this flavour, in a tensor of this type.
    fn float(self, random: &mut Random, index: usize, dtype: DType) -> f64 {
        let normal = random.normal();
        let narrow = dtype.bits() <= 16 && dtype != DType::BF16;
        match self {
            Self::Normal => normal,
            Self::Zeros => [0.0, -0.0][index % 2],
            Self::Negative => -normal.abs(),
            Self::Small => normal * 1e-3,
            Self::Large => normal * if narrow { 64.0 } else { 1e6 },
            Self::Denormal if narrow => normal * 1e-6,
            Self::Denormal => normal * if dtype == DType::F64 { 1e-310 } else { 1e-40 },
            Self::NotFinite => match index % 5 {
                1 => f64::NAN,
                2 => f64::INFINITY,
                4 => f64::NEG_INFINITY,
                _ => normal,
            },
        }
    }

    /// An integer of this flavour: one of `range` where it selects, from the end as well where that is asked for.
    fn integer(self, random: &mut Random, index: usize, range: Option<u64>) -> i64 {
        match (self, range) {
            (Self::Negative, Some(range)) if random.below(2) == 0 => -1 - random.below(range) as i64,
            (_, Some(range)) => random.below(range) as i64,
            (Self::Zeros, None) => 0,
            (Self::Negative, None) => random.below(9) as i64 - 4,
            (Self::Large, None) => random.bits() as i64,
            (_, None) => i64::from(index == 0 || random.below(4) > 0),
        }
    }
}

/// An array of made-up elements; integers that select are below `range`.
pub fn array(
    dtype: DType,
    shape: &[usize],
    range: Option<i64>,
    flavour: Flavour,
    seed: u64,
) -> Result<Array, String> {
    let mut maker = Maker { flavour, ..Maker::new(&Options { seed, ..Options::default() }) };
    maker.tensor(dtype, shape, range).map_err(|obstacle| match obstacle {
        Obstacle::Budget(error) => error.to_string(),
        Obstacle::Other(why) => why,
    })
}

/// How inputs are made up.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the random numbers start from.
    pub seed: u64,
    /// Sizes of named dimensions.
    pub dims: HashMap<String, usize>,
    /// The size of dimensions that neither `dims` nor a shape of another input tells.
    pub default_dim: usize,
    /// Shapes of inputs, by name. They must fit the declarations; other inputs get the same sizes under the same names.
    pub shapes: HashMap<String, Vec<usize>>,
    /// Bytes that all of them together may take.
    pub memory: u64,
    /// When they have to be done.
    pub deadline: Option<Instant>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            dims: HashMap::new(),
            default_dim: 1,
            shapes: HashMap::new(),
            memory: 16 << 30,
            deadline: None,
        }
    }
}

/// Why inputs cannot be made up.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SampleError {
    /// A shape contradicts a declaration, or the shape of another input.
    #[error("{0}")]
    Shape(String),
    /// Somebody has to give the input.
    #[error("the input {name} cannot be made up: {why}")]
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

/// A value for every input of the model's graph that has no default and is not one of `given`.
pub fn sample(
    model: &Model,
    inference: &Inference,
    options: &Options,
    given: &HashMap<String, Value>,
) -> Result<HashMap<String, Value>, SampleError> {
    let sizes = known_sizes(model, options, given).map_err(SampleError::Shape)?;
    let mut maker = Maker { sizes, ..Maker::new(options) };
    let mut inputs = HashMap::new();
    for port in model.scope(model.main()).inputs() {
        let name = model.value(port.value).name().to_string();
        let has_default = matches!(model.value(port.value).def(), Def::Input { default: Some(_), .. });
        if has_default || given.contains_key(&name) {
            continue;
        }
        let range = tables(model, inference, port.value).iter().filter_map(Dim::as_const).min();
        let value = match maker.value(&port.declared(), options.shapes.get(&name), range) {
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

/// The sizes of named dimensions that are set, or that shapes show.
fn known_sizes(model: &Model, options: &Options, given: &HashMap<String, Value>) -> Result<Sizes, String> {
    fn dims(declared: &Type) -> Option<&[DeclaredDim]> {
        match declared {
            Type::Tensor(_, dims) => dims.as_deref(),
            Type::Sequence(element) | Type::Optional(element) => dims(element),
            _ => None,
        }
    }
    let mut sizes = Sizes::default();
    let mut set: Vec<_> = options.dims.iter().collect();
    set.sort();
    set.into_iter().for_each(|(name, size)| sizes.set(name, *size));
    for port in model.scope(model.main()).inputs() {
        let (name, declared) = (model.value(port.value).name(), port.declared());
        if let Some(value) = given.get(&**name) {
            sizes.fit_value(name, &declared, value)?;
        } else if let (Some(shape), Some(dims)) = (options.shapes.get(&**name), dims(&declared)) {
            sizes.fit(name, dims, shape)?;
        }
    }
    Ok(sizes)
}

/// Why a value cannot be made up.
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
    sizes: Sizes,
    default_dim: usize,
    memory: Memory,
    deadline: Option<Instant>,
}

impl Maker {
    fn new(options: &Options) -> Self {
        Self {
            random: Random::new(options.seed),
            seed: options.seed,
            flavour: Flavour::Normal,
            sizes: Sizes::default(),
            default_dim: options.default_dim,
            memory: Memory::new(options.memory),
            deadline: options.deadline,
        }
    }

    fn value(
        &mut self,
        declared: &Type,
        shape: Option<&Vec<usize>>,
        range: Option<i64>,
    ) -> Result<Value, Obstacle> {
        match declared {
            Type::Tensor(Some(dtype), declared) => {
                let shape = match (shape, declared) {
                    (Some(shape), _) => shape.clone(),
                    (None, Some(dims)) => dims.iter().map(|dim| self.size(dim)).collect(),
                    (None, None) => return Err(Obstacle::Other("its rank is not declared".to_owned())),
                };
                Ok(self.tensor(*dtype, &shape, range)?.into())
            }
            Type::Sequence(element) => {
                let element = self.value(element, shape, range)?;
                Ok(Value::Sequence(vec![element].into()))
            }
            Type::Optional(element) => {
                let element = self.value(element, shape, range)?;
                Ok(Value::Optional(Some(Box::new(element))))
            }
            other => Err(Obstacle::Other(format!("it is declared as {other}"))),
        }
    }

    fn size(&self, dim: &DeclaredDim) -> usize {
        match dim {
            DeclaredDim::Size(size) => usize::try_from(*size).unwrap_or(usize::MAX),
            DeclaredDim::Named(name) => self.sizes.get(name).unwrap_or_else(|| self.expressed(name)),
            DeclaredDim::Unknown => self.default_dim,
        }
    }

    /// The size of a dimension whose name may be an expression of other names.
    fn expressed(&self, text: &str) -> usize {
        let mut symbols = Symbols::default();
        let dim = Dim::from_param(text, &mut symbols);
        let size = dim.evaluate(&|symbol| {
            let size = self.sizes.get(&symbols.name(symbol)).unwrap_or(self.default_dim);
            i64::try_from(size).ok()
        });
        size.and_then(|size| usize::try_from(size).ok()).unwrap_or(self.default_dim)
    }

    fn tensor(&mut self, dtype: DType, shape: &[usize], range: Option<i64>) -> Result<Array, Obstacle> {
        // A number that every type with this many bits has.
        let most = 1u64 << (dtype.bits().clamp(2, 64) - 1);
        let range = range.map(|range| u64::try_from(range).unwrap_or(1).clamp(1, most));
        let flavour = self.flavour;
        // A single number is not the same in any two samples in a row.
        let alone = (element_count(shape) == Some(1)).then_some(self.seed);
        let float = move |random: &mut Random, index: usize| flavour.float(random, index, dtype);
        macro_rules! integers {
            ($type:ty) => {
                self.filled(shape, move |random, index| match alone {
                    Some(seed) if range.is_none() && flavour == Flavour::Normal => {
                        [1, 3, 0, 2][(seed % 4) as usize] as $type
                    }
                    _ => flavour.integer(random, index, range) as $type,
                })
            };
        }
        match dtype {
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
                None => Flavour::Normal.integer(random, index, None) != 0,
            }),
            DType::I8 => integers!(i8),
            DType::I16 => integers!(i16),
            DType::I32 => integers!(i32),
            DType::I64 => integers!(i64),
            DType::U8 => integers!(u8),
            DType::U16 => integers!(u16),
            DType::U32 => integers!(u32),
            DType::U64 => integers!(u64),
            DType::String => Err(Obstacle::Other("its elements are of type string".to_owned())),
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

/// The sizes of what the elements of a value select from, when it is used to select.
pub fn tables(model: &Model, inference: &Inference, id: ValueId) -> Vec<Dim> {
    let mut found = Vec::new();
    for id in handed_on(model, id) {
        for used in model.value(id).uses() {
            let Use::Input { node, index } = *used else { continue };
            let node = model.node(node);
            let axis = match (&*node.op().name, index) {
                ("Gather" | "GatherElements", 1) => node.attr_int("axis").unwrap_or(0),
                ("RoiAlign", 2) => 0,
                _ => continue,
            };
            let size = node.input(0).and_then(|table| inference.shape(table)).and_then(|shape| {
                let axis = crate::call::axis(axis, shape.len()).ok()?;
                shape.get(axis).cloned()
            });
            // Not every kernel looks whether an image is there; the first one always is.
            let image = node.op().is("RoiAlign") && size.as_ref().and_then(Dim::as_const).is_none();
            found.extend(if image { Some(Dim::from(1)) } else { size });
        }
    }
    found
}

/// A value, and those that operators make of it which hand elements on as they are.
pub(super) fn handed_on(model: &Model, id: ValueId) -> Vec<ValueId> {
    const PASSING: [&str; 9] =
        ["Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Slice", "Expand", "Flatten"];
    let (mut next, mut seen) = (0, vec![id]);
    while let Some(&id) = seen.get(next) {
        next += 1;
        for used in model.value(id).uses() {
            let Use::Input { node, index: 0 } = *used else { continue };
            let node = model.node(node);
            if PASSING.contains(&&*node.op().name) {
                let new = node.outputs().iter().flatten().copied();
                let new: Vec<ValueId> = new.filter(|output| !seen.contains(output)).collect();
                seen.extend(new);
            }
        }
    }
    seen
}
