//! The numbers that operators compute with.

use half::{bf16, f16};

use super::lane::Lane;
use crate::array::Typed;

/// A real number. Integers wrap around, as every runtime does.
#[allow(missing_docs)]
pub trait Number: Typed + PartialOrd + num_traits::NumCast {
    const ZERO: Self;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// The quotient; integers are truncated. `None` for an integer divided by zero.
    fn div(self, other: Self) -> Option<Self>;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn is_nan(self) -> bool;
    fn to_f64(self) -> f64;
    /// The nearest number of this type; integers truncate and saturate.
    fn from_f64(value: f64) -> Self;
}

/// A 32- or 64-bit float.
#[allow(missing_docs)]
pub trait Float:
    Number + num_traits::Float + num_traits::FloatConst + num_traits::NumAssignOps + Lane
{
    fn erf(self) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline]
            fn div(self, other: Self) -> Option<Self> {
                if other == 0 { None } else { Some(self.wrapping_div(other)) }
            }
            #[inline]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline]
            #[allow(unused_comparisons)]
            fn abs(self) -> Self { if self < 0 { self.wrapping_neg() } else { self } }
            #[inline]
            fn is_nan(self) -> bool { false }
            #[inline]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline]
            fn from_f64(value: f64) -> Self { value as $type }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! floats {
    ($($type:ty, $zero:expr, $one:expr, $from:expr;)*) => {$(
        impl Number for $type {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            #[inline]
            fn add(self, other: Self) -> Self { self + other }
            #[inline]
            fn sub(self, other: Self) -> Self { self - other }
            #[inline]
            fn mul(self, other: Self) -> Self { self * other }
            #[inline]
            fn div(self, other: Self) -> Option<Self> { Some(self / other) }
            #[inline]
            fn neg(self) -> Self { -self }
            #[inline]
            fn abs(self) -> Self { num_traits::Float::abs(self) }
            #[inline]
            fn is_nan(self) -> bool { num_traits::Float::is_nan(self) }
            #[inline]
            fn to_f64(self) -> f64 { self.into() }
            #[inline]
            fn from_f64(value: f64) -> Self { $from(value) }
        }
    )*};
}

floats! {
    f32, 0.0, 1.0, |value| value as f32;
    f64, 0.0, 1.0, |value| value;
    f16, f16::ZERO, f16::ONE, f16::from_f64;
    bf16, bf16::ZERO, bf16::ONE, bf16::from_f64;
}

impl Float for f32 {
    fn erf(self) -> Self {
        libm::erff(self)
    }
}

impl Float for f64 {
    fn erf(self) -> Self {
        libm::erf(self)
    }
}
