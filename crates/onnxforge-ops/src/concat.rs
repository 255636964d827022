//! Tensors put together and taken apart: Concat, Split.

mod join;
mod split;

pub(super) use join::{concat_arrays, concat_shapes, stack_arrays};
pub(super) use split::{chunks, split_array};

use super::def::Category::Manipulation;
use super::def::OpDef;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("Concat", Manipulation, join::infer_concat, join::concat),
    OpDef::new("Split", Manipulation, split::infer_split, split::split).layout_only(),
];
