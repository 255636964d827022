//! Floats in vectors, as wide as the processor has them.

use pulp::{Arch, Simd};

/// Compiles `work` for the vectors of this processor, too, and calls that. It should be a loop whose body is inlined.
pub fn in_vectors<R>(work: impl FnOnce() -> R) -> R {
    Arch::new().dispatch(work)
}

/// A float of which vectors are made.
#[allow(missing_docs)]
pub trait Lane: Copy + Send + Sync + 'static {
    /// As many of them as the processor computes with at once.
    type Vector<S: Simd>: Copy;
    /// The whole vectors of a slice.
    fn vectors<S: Simd>(data: &[Self]) -> &[Self::Vector<S>];
    /// The whole vectors of a slice, to be changed.
    fn vectors_mut<S: Simd>(data: &mut [Self]) -> &mut [Self::Vector<S>];
    fn splat<S: Simd>(simd: S, x: Self) -> Self::Vector<S>;
    /// The elements of a slice that has less than a whole vector, and zeros after them.
    fn partial<S: Simd>(simd: S, data: &[Self]) -> Self::Vector<S>;
    /// Writes the first elements of a vector to a slice that has room for less than a whole one.
    fn write_partial<S: Simd>(simd: S, data: &mut [Self], vector: Self::Vector<S>);
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn times<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a · b + c`, rounded once where the processor can do that.
    fn times_plus<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// The sum of the elements.
    fn sum<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;
}

macro_rules! lane {
    ($float:ty, $vector:ident: $whole:ident, $whole_mut:ident, $splat:ident, $partial:ident, $write_partial:ident, $add:ident, $mul:ident, $mul_add:ident, $sum:ident) => {
        impl Lane for $float {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn vectors<S: Simd>(data: &[Self]) -> &[S::$vector] {
                S::$whole(data).0
            }

            #[inline(always)]
            fn vectors_mut<S: Simd>(data: &mut [Self]) -> &mut [S::$vector] {
                S::$whole_mut(data).0
            }

            #[inline(always)]
            fn splat<S: Simd>(simd: S, x: Self) -> S::$vector {
                simd.$splat(x)
            }

            #[inline(always)]
            fn partial<S: Simd>(simd: S, data: &[Self]) -> S::$vector {
                simd.$partial(data)
            }

            #[inline(always)]
            fn write_partial<S: Simd>(simd: S, data: &mut [Self], vector: S::$vector) {
                simd.$write_partial(data, vector);
            }

            #[inline(always)]
            fn plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }

            #[inline(always)]
            fn times<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }

            #[inline(always)]
            fn times_plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$mul_add(a, b, c)
            }

            #[inline(always)]
            fn sum<S: Simd>(simd: S, a: S::$vector) -> Self {
                simd.$sum(a)
            }
        }
    };
}

lane!(f32, f32s: as_simd_f32s, as_mut_simd_f32s, splat_f32s, partial_load_f32s, partial_store_f32s, add_f32s, mul_f32s, mul_add_e_f32s, reduce_sum_f32s);
lane!(f64, f64s: as_simd_f64s, as_mut_simd_f64s, splat_f64s, partial_load_f64s, partial_store_f64s, add_f64s, mul_f64s, mul_add_e_f64s, reduce_sum_f64s);
