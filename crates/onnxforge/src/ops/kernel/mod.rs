//! Loops that several families of operators share. They know arrays and slices, not operators.

pub mod gemm;
pub mod map;
pub mod number;
pub mod random;
pub mod shape;
pub mod sparse;
pub mod strided;
pub mod widen;
