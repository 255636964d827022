//! Operators that ONNX Runtime adds to the standard (`com.microsoft`).

use super::def::OpDef;

/// The operators of this family.
pub static OPS: &[OpDef] = &[];
