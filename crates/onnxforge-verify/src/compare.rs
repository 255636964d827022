//! How far two results are apart.

use half::{bf16, f16};
use serde::Serialize;

use onnxforge_ir::DType;
use onnxforge_ops::{Array, Value};

/// How far a result is from the one that was expected.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Every bit is the same.
    pub identical: bool,
    /// The largest difference of two elements.
    pub max_abs: f64,
    /// That difference as a share of the largest expected magnitude, or of a thousand times the largest that differs where that is less.
    pub max_rel: f64,
    /// The most numbers of the type that lie between two elements; only for floats.
    pub ulps: Option<u64>,
    /// The cosine of the angle between both, taken as vectors.
    pub cosine: f64,
}

/// Why two results cannot be compared element by element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mismatch {
    /// Another element type, shape or form.
    #[error("{0} became {1}")]
    Type(String, String),
    /// NaN or an infinity on one side only, or different ones.
    #[error("what is not a finite number differs")]
    NotFinite,
    /// One of both has no result.
    #[error("a result is missing")]
    Missing,
    /// Elements that are no numbers.
    #[error("the texts differ")]
    Text,
}

/// The tensors that a value is made of, in order.
pub fn tensors(value: &Value) -> Vec<&Array> {
    match value {
        Value::Tensor(array) => vec![array],
        Value::Sequence(values) => values.iter().flat_map(tensors).collect(),
        Value::Optional(Some(value)) => tensors(value),
        Value::Optional(None) => Vec::new(),
        Value::Map(map) => map.values().flat_map(tensors).collect(),
    }
}

/// The largest share of the scale that one unit in the last place of a float in the value is. `None` where it has none.
pub fn unit(value: &Value) -> Option<f64> {
    let units = tensors(value).into_iter().filter_map(|array| array.dtype().epsilon());
    units.reduce(f64::max)
}

/// The numbers of a value, in order.
pub fn numbers(value: &Value) -> Option<Vec<f64>> {
    let mut all = Vec::new();
    for array in tensors(value) {
        all.extend(array.to_f64s().ok()?);
    }
    Some(all)
}

/// The numbers of a value that have one scale: those of a tensor, and those of all maps of a sequence, whose keys are like columns.
pub fn parts(value: &Value) -> Option<Vec<Vec<f64>>> {
    match value {
        Value::Sequence(values) if !values.iter().any(|value| matches!(value, Value::Map(_))) => {
            let parts = values.iter().map(parts).collect::<Option<Vec<_>>>()?;
            Some(parts.into_iter().flatten().collect())
        }
        _ => Some(vec![numbers(value)?]),
    }
}

/// Whether elements of two tensors that are no floats are not the same, each.
pub fn unequal(a: &Array, b: &Array) -> Option<Vec<bool>> {
    fn each<T: PartialEq>(a: &[T], b: &[T]) -> Vec<bool> {
        a.iter().zip(b).map(|(x, y)| x != y).collect()
    }
    Some(match a.dtype() {
        DType::I64 => each(a.slice::<i64>().ok()?, b.slice::<i64>().ok()?),
        DType::U64 => each(a.slice::<u64>().ok()?, b.slice::<u64>().ok()?),
        _ => each(&a.to_f64s().ok()?, &b.to_f64s().ok()?),
    })
}

/// The shapes of the tensors of a value.
pub fn shapes(value: &Value) -> Vec<Vec<usize>> {
    tensors(value).into_iter().map(|array| array.shape().to_vec()).collect()
}

/// Whether a value has an element that is not NaN or infinite, or no elements at all.
pub fn says_something(value: &Value) -> bool {
    let tensors = tensors(value);
    let is_empty = tensors.iter().all(|array| array.is_empty());
    let has_finite = |array: &&Array| match array.dtype() {
        DType::F32 => array.slice::<f32>().is_ok_and(|x| x.iter().any(|x| x.is_finite())),
        DType::F64 => array.slice::<f64>().is_ok_and(|x| x.iter().any(|x| x.is_finite())),
        DType::F16 => array.slice::<f16>().is_ok_and(|x| x.iter().any(|x| x.is_finite())),
        DType::BF16 => array.slice::<bf16>().is_ok_and(|x| x.iter().any(|x| x.is_finite())),
        _ => !array.is_empty(),
    };
    is_empty || tensors.iter().any(has_finite)
}

/// The columns of a tensor's last axis, over several runs, that have been nothing but NaN.
#[derive(Clone, Debug, Default)]
pub struct Columns(Vec<Option<usize>>);

impl Columns {
    /// Looks at a result.
    pub fn see(&mut self, value: &Value) {
        let Value::Tensor(array) = value else { return };
        let width = array.shape().last().copied().unwrap_or(1);
        if array.is_empty() || array.dtype().epsilon().is_none() {
            return;
        }
        self.0.resize(width.max(self.0.len()), Some(0));
        if self.0.iter().take(width).any(Option::is_some) {
            match array.dtype() {
                DType::F32 => self.see_rows(array.slice::<f32>().unwrap_or_default(), width, |x| x.is_nan()),
                DType::F64 => self.see_rows(array.slice::<f64>().unwrap_or_default(), width, |x| x.is_nan()),
                DType::F16 => self.see_rows(array.slice::<f16>().unwrap_or_default(), width, |x| x.is_nan()),
                _ => self.see_rows(array.slice::<bf16>().unwrap_or_default(), width, |x| x.is_nan()),
            }
        }
    }

    fn see_rows<T>(&mut self, elements: &[T], width: usize, is_nan: impl Fn(&T) -> bool) {
        let mut silent = self.0.iter().take(width).filter(|column| column.is_some()).count();
        for row in elements.chunks(width) {
            for (column, x) in self.0.iter_mut().zip(row) {
                match column {
                    Some(_) if !is_nan(x) => {
                        *column = None;
                        silent -= 1;
                    }
                    Some(count) => *count += 1,
                    None => {}
                }
            }
            if silent == 0 {
                break;
            }
        }
    }

    /// Adds what was seen elsewhere.
    pub fn join(&mut self, other: Self) {
        self.0.resize(other.0.len().max(self.0.len()), Some(0));
        for (column, seen) in self.0.iter_mut().zip(other.0) {
            *column = column.zip(seen).map(|(a, b)| a + b);
        }
    }

    /// How many of how many columns hide what they would be, where it is not by chance: nearly all do, or one does in many rows.
    pub fn silent(&self) -> Option<[usize; 2]> {
        /// So many rows are many.
        const ROWS: usize = 24;
        let silent: Vec<usize> = self.0.iter().filter_map(|column| *column).collect();
        let are_most = 3 * silent.len() > 2 * self.0.len();
        (are_most || silent.iter().any(|&rows| rows >= ROWS)).then_some([silent.len(), self.0.len()])
    }
}

/// How far `found` is from `expected`.
pub fn compare(expected: &Value, found: &Value) -> Result<Difference, Mismatch> {
    match (expected, found) {
        (Value::Tensor(a), Value::Tensor(b)) => compare_arrays(a, b),
        (Value::Sequence(a), Value::Sequence(b)) if a.len() == b.len() => {
            a.iter().zip(b.iter()).try_fold(Difference::NONE, |worst, (a, b)| Ok(worst.worse(compare(a, b)?)))
        }
        (Value::Optional(None), Value::Optional(None)) => Ok(Difference::NONE),
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => compare(a, b),
        (Value::Map(a), Value::Map(b)) if a.keys().eq(b.keys()) => a
            .values()
            .zip(b.values())
            .try_fold(Difference::NONE, |worst, (a, b)| Ok(worst.worse(compare(a, b)?))),
        _ => Err(Mismatch::Type(expected.form().to_owned(), found.form().to_owned())),
    }
}

fn compare_arrays(expected: &Array, found: &Array) -> Result<Difference, Mismatch> {
    let described = |array: &Array| format!("{}{:?}", array.dtype(), array.shape());
    if expected.shape() != found.shape() || expected.dtype() != found.dtype() {
        return Err(Mismatch::Type(described(expected), described(found)));
    }
    if expected.same_bits(found) {
        return Ok(Difference::NONE);
    }
    if expected.dtype() == DType::String {
        return Err(Mismatch::Text);
    }
    let numbers = |array: &Array| array.to_f64s().map_err(|_| Mismatch::Text);
    let difference = compare_numbers(&numbers(expected)?, &numbers(found)?)?;
    if difference.max_abs == 0.0 && matches!(expected.dtype(), DType::I64 | DType::U64) {
        // Integers beyond 2^53 whose floats are the same are one apart at least.
        let scale = numbers(expected)?.into_iter().fold(1.0, |scale: f64, x| scale.max(x.abs()));
        return Ok(Difference { max_abs: 1.0, max_rel: 1.0 / scale, ..difference });
    }
    Ok(Difference { ulps: ulps(expected, found), ..difference })
}

/// How many times larger than what differs a number may be to count for the scale.
const MOST_ABOVE: f64 = 1e3;

/// How far numbers are from those that were expected.
pub fn compare_numbers(expected: &[f64], found: &[f64]) -> Result<Difference, Mismatch> {
    if expected.len() != found.len() {
        let counted = |numbers: &[f64]| format!("{} numbers", numbers.len());
        return Err(Mismatch::Type(counted(expected), counted(found)));
    }
    let (mut max_abs, mut scale, mut product, mut squares) = (0.0f64, 0.0f64, 0.0, [0.0, 0.0]);
    let mut differing: f64 = 0.0;
    for (&x, &y) in expected.iter().zip(found) {
        if !x.is_finite() || !y.is_finite() {
            if x == y || x.is_nan() && y.is_nan() {
                continue;
            }
            return Err(Mismatch::NotFinite);
        }
        max_abs = max_abs.max((x - y).abs());
        scale = scale.max(x.abs());
        if x != y {
            differing = differing.max(x.abs().max(y.abs()));
        }
        product += x * y;
        squares = [squares[0] + x * x, squares[1] + y * y];
    }
    // The huge numbers of a mask, which are the same on both sides, are no scale for the others.
    let scale = scale.min(MOST_ABOVE * differing);
    let norm = (squares[0] * squares[1]).sqrt();
    Ok(Difference {
        identical: false,
        max_abs,
        max_rel: if scale > 0.0 { max_abs / scale } else { max_abs },
        ulps: None,
        cosine: if norm > 0.0 { product / norm } else { f64::from(u8::from(max_abs == 0.0)) },
    })
}

impl Difference {
    /// No difference.
    pub const NONE: Self = Self { identical: true, max_abs: 0.0, max_rel: 0.0, ulps: Some(0), cosine: 1.0 };

    /// The worse of two, in each respect.
    pub fn worse(self, other: Self) -> Self {
        Self {
            identical: self.identical && other.identical,
            max_abs: self.max_abs.max(other.max_abs),
            max_rel: self.max_rel.max(other.max_rel),
            ulps: self.ulps.max(other.ulps),
            cosine: self.cosine.min(other.cosine),
        }
    }
}

/// The most numbers that lie between two elements.
fn ulps(a: &Array, b: &Array) -> Option<u64> {
    macro_rules! furthest {
        ($type:ty, $signed:ty) => {{
            // Bits of floats are ordered like the floats, but for the sign.
            let place = |x: &$type| {
                let bits = x.to_bits() as $signed;
                i128::from(if bits < 0 { <$signed>::MIN.wrapping_sub(bits) } else { bits })
            };
            let (a, b) = (a.slice::<$type>().ok()?, b.slice::<$type>().ok()?);
            let finite = a.iter().zip(b).filter(|(x, y)| x.is_finite() && y.is_finite());
            let apart = finite.map(|(x, y)| (place(x) - place(y)).unsigned_abs());
            apart.max().map(|most| u64::try_from(most).unwrap_or(u64::MAX)).or(Some(0))
        }};
    }
    match a.dtype() {
        DType::F32 => furthest!(f32, i32),
        DType::F64 => furthest!(f64, i64),
        DType::F16 => furthest!(f16, i16),
        DType::BF16 => furthest!(bf16, i16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(numbers: &[f32]) -> Value {
        Array::vector(numbers.to_vec()).into()
    }

    #[test]
    fn neighbours_are_one_unit_apart() {
        let next = f32::from_bits(1f32.to_bits() + 1);
        let found = compare(&vector(&[1.0, 2.0]), &vector(&[next, 2.0])).unwrap();
        assert_eq!((found.ulps, found.identical), (Some(1), false));
        let across = compare(&vector(&[f32::from_bits(1)]), &vector(&[-f32::from_bits(1)])).unwrap();
        assert_eq!(across.ulps, Some(2));
        let zeros = compare(&vector(&[0.0]), &vector(&[-0.0])).unwrap();
        assert_eq!((zeros.ulps, zeros.max_abs, zeros.identical), (Some(0), 0.0, false));
    }

    #[test]
    fn what_is_not_finite_must_be_the_same() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert!(compare(&vector(&[nan, inf, 1.0]), &vector(&[nan, inf, 1.5])).is_ok());
        assert_eq!(compare(&vector(&[inf]), &vector(&[-inf])).unwrap_err(), Mismatch::NotFinite);
        assert_eq!(compare(&vector(&[1.0]), &vector(&[nan])).unwrap_err(), Mismatch::NotFinite);
    }

    #[test]
    fn other_shapes_and_types_are_no_results() {
        let ints = Value::from(Array::vector(vec![1i64]));
        assert!(matches!(compare(&vector(&[1.0]), &ints), Err(Mismatch::Type(..))));
        assert!(matches!(compare(&vector(&[1.0]), &vector(&[1.0, 1.0])), Err(Mismatch::Type(..))));
    }
}
