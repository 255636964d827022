//! What is known of a value before it is computed.
//!
//! Facts are proofs: a fact holds in every run that succeeds. What is not known is a fresh symbol or `None`, never a guess.

use std::fmt;
use std::sync::Arc;

use super::array::Array;
use super::value::Value;
use onnxforge_ir::DType;
use onnxforge_ir::dim::{Dim, Symbols};

/// Longest tensor of integers whose elements are followed symbolically.
pub const MAX_SYMBOLIC_ELEMENTS: usize = 1024;

/// What is known of a value.
#[derive(Clone, Debug, Default)]
pub enum Fact {
    /// A tensor.
    Tensor(TensorFact),
    /// A sequence; `element` holds for every element.
    Sequence {
        /// What holds for every element.
        element: Box<Fact>,
        /// Each element, when their number is known.
        items: Option<Arc<Vec<Fact>>>,
    },
    /// A value or nothing; `present` when it is known which.
    Optional {
        /// What holds for the value if there is one.
        element: Box<Fact>,
        /// Whether there is one, if that is known.
        present: Option<bool>,
    },
    /// Keys to values.
    Map,
    /// Nothing.
    #[default]
    Unknown,
}

/// What is known of a tensor.
#[derive(Clone, Debug, Default)]
pub struct TensorFact {
    /// Element type.
    pub dtype: Option<DType>,
    /// Dimensions; `None` when not even their number is known.
    pub shape: Option<Vec<Dim>>,
    /// Elements.
    pub value: Option<Known>,
}

/// The elements of a tensor, known before it is computed.
#[derive(Clone, Debug)]
pub enum Known {
    /// All of them.
    Array(Array),
    /// Integers (or booleans, as 0 and 1), row-major, as expressions.
    Dims(Arc<[Dim]>),
}

impl TensorFact {
    /// A tensor of this type and shape.
    pub fn new(dtype: DType, shape: Vec<Dim>) -> Self {
        Self { dtype: Some(dtype), shape: Some(shape), value: None }
    }

    /// A constant.
    pub fn constant(array: Array) -> Self {
        let shape = array.shape().iter().map(|&dim| Dim::from(dim as i64)).collect();
        Self { dtype: Some(array.dtype()), shape: Some(shape), value: Some(Known::Array(array)) }
    }

    /// The constant, when every element is known as a number.
    pub fn array(&self) -> Option<&Array> {
        match &self.value {
            Some(Known::Array(array)) => Some(array),
            _ => None,
        }
    }

    /// The elements of a small tensor of integers or booleans.
    pub fn dims(&self) -> Option<Vec<Dim>> {
        match &self.value {
            Some(Known::Dims(dims)) => Some(dims.to_vec()),
            Some(Known::Array(array)) if array.len() <= MAX_SYMBOLIC_ELEMENTS => {
                Some(array.to_i64s().ok()?.into_iter().map(Dim::from).collect())
            }
            _ => None,
        }
    }

    /// The elements of a tensor of integers that are all numbers.
    pub fn ints(&self) -> Option<Vec<i64>> {
        match &self.value {
            Some(Known::Dims(dims)) => dims.iter().map(Dim::as_const).collect(),
            Some(Known::Array(array)) => array.to_i64s().ok(),
            None => None,
        }
    }

    /// The shape, when every dimension is a number.
    pub fn static_shape(&self) -> Option<Vec<usize>> {
        self.shape.as_ref()?.iter().map(|dim| usize::try_from(dim.as_const()?).ok()).collect()
    }
}

impl From<TensorFact> for Fact {
    fn from(fact: TensorFact) -> Self {
        Self::Tensor(fact)
    }
}

impl Fact {
    /// What is known of a tensor; nothing when it is none.
    pub fn tensor(&self) -> Option<&TensorFact> {
        match self {
            Self::Tensor(fact) => Some(fact),
            _ => None,
        }
    }

    /// What is known of a value that is there: everything.
    pub fn of(value: &Value, symbols: &mut Symbols) -> Self {
        match value {
            Value::Tensor(array) => TensorFact::constant(array.clone()).into(),
            Value::Sequence(values) => {
                let items = values.iter().map(|value| Self::of(value, symbols)).collect();
                Self::sequence(items, symbols)
            }
            Value::Optional(value) => Self::Optional {
                element: Box::new(value.as_deref().map_or(Self::Unknown, |value| Self::of(value, symbols))),
                present: Some(value.is_some()),
            },
            Value::Map(_) => Self::Map,
        }
    }

    /// The same without knowledge of elements.
    pub fn without_elements(self) -> Self {
        match self {
            Self::Tensor(fact) => TensorFact { value: None, ..fact }.into(),
            Self::Sequence { element, items } => Self::Sequence {
                element: Box::new(element.without_elements()),
                items: items
                    .map(|items| Arc::new(items.iter().cloned().map(Self::without_elements).collect())),
            },
            Self::Optional { element, present } => {
                Self::Optional { element: Box::new(element.without_elements()), present }
            }
            other => other,
        }
    }

    /// A sequence of these elements.
    pub fn sequence(items: Vec<Fact>, symbols: &mut Symbols) -> Self {
        let element = items.split_first().map_or(Self::Unknown, |(first, rest)| {
            rest.iter().fold(first.clone(), |common, item| common.join(item, symbols))
        });
        Self::Sequence { element: Box::new(element), items: Some(Arc::new(items)) }
    }

    /// What holds for both: dimensions that are not provably equal become fresh symbols.
    pub fn join(&self, other: &Fact, symbols: &mut Symbols) -> Fact {
        match (self, other) {
            (Self::Tensor(a), Self::Tensor(b)) => a.join(b, symbols).into(),
            (Self::Sequence { element: a, items: x }, Self::Sequence { element: b, items: y }) => {
                // The element of an empty sequence is anything.
                let empty =
                    |items: &Option<Arc<Vec<Fact>>>| items.as_ref().is_some_and(|items| items.is_empty());
                let element = match (empty(x), empty(y)) {
                    (true, false) => (**b).clone(),
                    (false, true) => (**a).clone(),
                    _ => a.join(b, symbols),
                };
                let items = match (x, y) {
                    (Some(x), Some(y)) if x.len() == y.len() => {
                        Some(Arc::new(x.iter().zip(y.iter()).map(|(a, b)| a.join(b, symbols)).collect()))
                    }
                    _ => None,
                };
                Self::Sequence { element: Box::new(element), items }
            }
            (Self::Optional { element: a, present: x }, Self::Optional { element: b, present: y }) => {
                let element = match (x, y) {
                    (Some(false), _) if matches!(**a, Self::Unknown) => (**b).clone(),
                    (_, Some(false)) if matches!(**b, Self::Unknown) => (**a).clone(),
                    _ => a.join(b, symbols),
                };
                Self::Optional { element: Box::new(element), present: x.filter(|x| Some(*x) == *y) }
            }
            (Self::Map, Self::Map) => Self::Map,
            _ => Self::Unknown,
        }
    }

    /// Whether the value, which was computed, is one that the fact allows. The second half of "eval ⊑ infer": symbols
    /// may stand for any number, so only what is stated outright can be contradicted.
    pub fn admits(&self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Self::Unknown, _) | (Self::Map, Value::Map(_)) => Ok(()),
            (Self::Tensor(fact), Value::Tensor(array)) => fact.admits(array),
            (Self::Sequence { element, items }, Value::Sequence(values)) => {
                if items.as_ref().is_some_and(|items| items.len() != values.len()) {
                    return Err(format!("the sequence has {} elements", values.len()));
                }
                values.iter().try_for_each(|value| element.admits(value))?;
                let items = items.iter().flat_map(|items| items.iter());
                items.zip(values.iter()).try_for_each(|(fact, value)| fact.admits(value))
            }
            (Self::Optional { present: Some(present), .. }, Value::Optional(value))
                if *present != value.is_some() =>
            {
                Err(format!("present is {}", value.is_some()))
            }
            (Self::Optional { element, .. }, Value::Optional(value)) => {
                value.as_deref().map_or(Ok(()), |value| element.admits(value))
            }
            _ => Err(format!("it is {}", value.form())),
        }
    }
}

impl TensorFact {
    fn join(&self, other: &Self, symbols: &mut Symbols) -> Self {
        let shape = match (&self.shape, &other.shape) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                let dim = |(a, b): (&Dim, &Dim)| if a == b { a.clone() } else { symbols.fresh().into() };
                Some(a.iter().zip(b).map(dim).collect())
            }
            _ => None,
        };
        let value = match (self.dims(), other.dims()) {
            (Some(a), Some(b)) if a == b && self.shape == other.shape => self.value.clone(),
            _ => None,
        };
        Self { dtype: self.dtype.filter(|dtype| Some(*dtype) == other.dtype), shape, value }
    }

    fn admits(&self, array: &Array) -> Result<(), String> {
        if self.dtype.is_some_and(|dtype| dtype != array.dtype()) {
            return Err(format!("the element type is {}", array.dtype()));
        }
        if let Some(shape) = &self.shape {
            let fits = |(dim, &size): (&Dim, &usize)| dim.as_const().is_none_or(|dim| dim == size as i64);
            if shape.len() != array.rank() || !shape.iter().zip(array.shape()).all(fits) {
                return Err(format!("the shape is {:?}", array.shape()));
            }
        }
        if let (Some(Known::Dims(dims)), Ok(found)) = (&self.value, array.to_i64s()) {
            let fits = |(dim, found): (&Dim, &i64)| dim.as_const().is_none_or(|dim| dim == *found);
            if dims.len() != found.len() || !dims.iter().zip(&found).all(fits) {
                return Err(format!("the elements are {found:?}"));
            }
        }
        if let Some(Known::Array(constant)) = &self.value
            && !constant.same_bits(array)
        {
            return Err(format!("the value is {array:?}"));
        }
        Ok(())
    }

    /// In the ONNX notation, symbols by name: `float[batch,3]`.
    pub fn display<'a>(&'a self, symbols: &'a Symbols) -> impl fmt::Display + 'a {
        struct Shown<'a>(&'a TensorFact, &'a Symbols);
        impl fmt::Display for Shown<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0.dtype.map_or("?", DType::name))?;
                let Some(shape) = &self.0.shape else { return f.write_str("[..]") };
                f.write_str("[")?;
                for (index, dim) in shape.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{}", dim.display(self.1))?;
                }
                f.write_str("]")
            }
        }
        Shown(self, symbols)
    }
}
