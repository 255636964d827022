//! TODO family.

use super::def::OpDef;

/// The operators of this family.
pub static OPS: &[OpDef] = &[];
