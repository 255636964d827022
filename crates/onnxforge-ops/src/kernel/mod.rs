//! Loops that several families of operators share. They know arrays and slices, not operators.

pub mod batched;
pub mod convert;
pub mod fold;
pub mod gemm;
pub mod gemm_int;
pub mod lane;
pub mod line;
pub mod map;
pub mod number;
pub mod numeral;
pub mod parallel;
pub mod product;
pub mod quantize;
pub mod shape;
pub mod small_float;
pub mod sparse;
pub mod strided;
pub mod transcendental;
pub mod widen;
pub mod window;
