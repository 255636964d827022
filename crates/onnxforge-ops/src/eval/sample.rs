//! Inputs made up for a model: of the declared types, with values that make sense where they go.
//!
//! Shapes are those of a [`Search`]. Floats are normally distributed. Integers that select (indices of a Gather) stay within what they select from,
//! lengths of sequences within the sequences; other integers are 0 or 1, like masks that pad at the end of rows but never hide a whole row. A single
//! integer or boolean differs from one seed to the next. Strings are those that the model itself knows: categories and vocabularies.

use std::collections::HashMap;

use half::{bf16, f16};
use num_complex::Complex;

use super::boxes;
use super::declared::fit;
use super::shapes::{Search, Shapes, Wanted};
use crate::array::Typed;
use crate::eval_call::{Memory, check_deadline};
use crate::infer::Inference;
use crate::kernel::convert::{Rounding, convert};
use crate::{Array, OpError, Value};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::tensor::element_count;
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::value::{Def, Use};
use onnxforge_ir::{AttrValue, DType, Model, Node, Type, ValueId};
use onnxforge_proto::blob::Blob;
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
    maker.tensor(dtype, shape, &Purpose { range, ..Purpose::default() }).map_err(|obstacle| match obstacle {
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
    /// Shapes of inputs, by name. They must fit the declarations.
    pub shapes: HashMap<String, Vec<usize>>,
    /// Bytes that all of them together may take.
    pub memory: u64,
    /// When they have to be done.
    pub deadline: Option<Instant>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, dims: HashMap::new(), shapes: HashMap::new(), memory: 16 << 30, deadline: None }
    }
}

/// Why inputs cannot be made up.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SampleError {
    /// A shape contradicts a declaration.
    #[error("{0}")]
    Shape(String),
    /// No sizes are found at which the model can run.
    #[error("no sizes were found at which the model can run ({0})")]
    Sizes(String),
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

/// What elements of an input are for.
#[derive(Clone, Debug, Default)]
struct Purpose {
    /// They select from so many.
    range: Option<i64>,
    /// They are lengths of up to this.
    length: Option<i64>,
    /// Words that the model knows.
    words: Vec<Blob>,
}

impl Purpose {
    fn of(model: &Model, inference: &Inference, id: ValueId) -> Self {
        let range = tables(model, inference, id).iter().filter_map(Dim::as_const).min();
        let length = lengths(model, inference, id).iter().filter_map(Dim::as_const).min();
        let is_text = inference.tensor(id).is_some_and(|fact| fact.dtype == Some(DType::String));
        let words = if is_text { words(model, id) } else { Vec::new() };
        Self { range, length, words }
    }
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
    /// Integers that select nothing are 1 up to some place of each row, and 0 after it.
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
                let element = self.value(element, shape, purpose)?;
                Ok(Value::Sequence(vec![element].into()))
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
        let flavour = self.flavour;
        // A single number is not the same in any two samples in a row.
        let alone = (element_count(shape) == Some(1)).then_some(self.seed);
        let ends = self.ends(shape);
        let row = shape.last().copied().unwrap_or(1).max(1);
        let is_kept = |index: usize| ends.as_ref().map(|ends| index % row < ends[index / row % ends.len()]);
        let length = purpose.length.and_then(|length| u64::try_from(length).ok());
        let integer = |random: &mut Random, index: usize| match (range, length, is_kept(index)) {
            (None, Some(longest), _) => 1 + random.below(longest.max(1)) as i64,
            (None, None, Some(kept)) => i64::from(kept),
            _ => flavour.integer(random, index, range),
        };
        let float = move |random: &mut Random, index: usize| flavour.float(random, index, dtype);
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

    /// Where the rows of a tensor of several rows end, if it may be a mask. The first one is whole.
    fn ends(&mut self, shape: &[usize]) -> Option<Vec<usize>> {
        /// How many rows differ.
        const ROWS: usize = 64;
        let row = shape.last().copied().filter(|_| self.is_padded && shape.len() > 1)?;
        let shorter = |random: &mut Random| 1 + random.below((row as u64).saturating_sub(1).max(1)) as usize;
        Some((0..ROWS).map(|index| if index == 0 { row } else { shorter(&mut self.random) }).collect())
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
    let dim = |node: &Node, input: usize, axis: i64| {
        let shape = inference.shape(node.input(input)?)?;
        shape.get(crate::call::axis(axis, shape.len()).ok()?).cloned()
    };
    used(model, id, &|node, index| match (&*node.op().name, index) {
        ("Gather" | "GatherElements" | "ScatterElements", 1) => {
            dim(node, 0, node.attr_int("axis").unwrap_or(0)).into_iter().collect()
        }
        ("RoiAlign", 2) => dim(node, 0, 0).into_iter().collect(),
        // Each element of an index selects along an axis of its own.
        ("GatherND" | "ScatterND", 1) => {
            let dims = node.input(0).and_then(|table| inference.shape(table));
            dims.map(<[Dim]>::to_vec).unwrap_or_default()
        }
        _ => Vec::new(),
    })
}

/// The lengths that elements of a value are compared with, when they are lengths: of sequences, or of what is taken of an axis.
fn lengths(model: &Model, inference: &Inference, id: ValueId) -> Vec<Dim> {
    used(model, id, &|node, index| {
        let axis = match (&*node.op().name, index) {
            ("LSTM" | "GRU" | "RNN", 4) => Some(node.attr_int("layout").unwrap_or(0)),
            ("TopK", 1) => Some(node.attr_int("axis").unwrap_or(-1)),
            ("ReverseSequence", 1) => Some(node.attr_int("time_axis").unwrap_or(0)),
            _ => None,
        };
        let shape = node.input(0).and_then(|data| inference.shape(data));
        let dim = axis
            .zip(shape)
            .and_then(|(axis, shape)| shape.get(crate::call::axis(axis, shape.len()).ok()?).cloned());
        dim.into_iter().collect()
    })
}

/// What is found at the uses of a value, and of what has the same elements.
fn used<T>(model: &Model, id: ValueId, found: &dyn Fn(&Node, usize) -> Vec<T>) -> Vec<T> {
    let uses = handed_on(model, id).into_iter().flat_map(|id| model.value(id).uses());
    let inputs = uses.filter_map(|used| match *used {
        Use::Input { node, index } => Some((node, index as usize)),
        Use::Output { .. } => None,
    });
    inputs.flat_map(|(node, index)| found(model.node(node), index)).collect()
}

/// The words that nodes which a text reaches have in their attributes and constants.
fn words(model: &Model, id: ValueId) -> Vec<Blob> {
    /// Most words that are listed.
    const MOST: usize = 256;
    let (mut open, mut seen, mut words) = (vec![id], vec![id], Vec::new());
    while let Some(id) = open.pop() {
        for used in model.value(id).uses() {
            let Use::Input { node, .. } = *used else { continue };
            let node = model.node(node);
            for attr in node.attrs() {
                if let AttrValue::Strings(list) = &attr.value {
                    words.extend(list.iter().cloned());
                }
            }
            for constant in node.inputs().iter().flatten().filter_map(|&input| model.constant(input)) {
                words.extend(constant.strings().unwrap_or_default().iter().cloned());
            }
            for &output in node.outputs().iter().flatten() {
                let is_new = !seen.contains(&output);
                if is_new && words.is_empty() {
                    seen.push(output);
                    open.push(output);
                }
            }
        }
    }
    words.truncate(MOST);
    words
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
