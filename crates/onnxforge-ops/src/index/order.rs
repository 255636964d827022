//! An order of all elements of a type, for sorting.

use std::cmp::Ordering;

use half::{bf16, f16};
use num_complex::Complex;

use crate::array::{Code, Elem};
use onnxforge_proto::blob::Blob;

/// An element with a total order. What is not a number is equal to itself and greater than every number.
pub trait Ordered: Elem {
    /// How the elements compare; elements that are equal are the same element.
    fn order(&self, other: &Self) -> Ordering;
}

macro_rules! by_ord {
    ($($type:ty),*) => {$(
        impl Ordered for $type {
            fn order(&self, other: &Self) -> Ordering {
                self.cmp(other)
            }
        }
    )*};
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Ordered for $type {
            fn order(&self, other: &Self) -> Ordering {
                self.partial_cmp(other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
            }
        }
    )*};
}

by_ord!(i8, i16, i32, i64, u8, u16, u32, u64, bool, Code);
floats!(f32, f64, f16, bf16);

impl<T: Ordered> Ordered for Complex<T>
where
    Complex<T>: Elem,
{
    fn order(&self, other: &Self) -> Ordering {
        self.re.order(&other.re).then_with(|| self.im.order(&other.im))
    }
}

/// Strings compare byte by byte.
impl Ordered for Blob {
    fn order(&self, other: &Self) -> Ordering {
        self[..].cmp(&other[..])
    }
}
