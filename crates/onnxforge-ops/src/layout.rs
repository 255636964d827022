//! Operators that give the elements of a tensor another shape or order, repeat them, pad them or leave some out.

pub(super) mod axes;
pub(super) mod numbered;
mod pad;
pub(super) mod parameter;
mod permute;
mod repeat;
mod reshape;
mod reverse;
mod slice;
mod trilu;

use super::def::Category::Manipulation;
use super::def::OpDef;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("CenterCropPad", Manipulation, pad::infer_center_crop_pad, pad::center_crop_pad),
    OpDef::new("DepthToSpace", Manipulation, permute::infer_depth_to_space, permute::depth_to_space)
        .layout_only(),
    OpDef::new("Expand", Manipulation, repeat::infer_expand, repeat::expand).layout_only(),
    OpDef::new("Flatten", Manipulation, axes::infer_flatten, axes::flatten).layout_only(),
    OpDef::new("Pad", Manipulation, pad::infer_pad, pad::pad),
    OpDef::new("Reshape", Manipulation, reshape::infer_reshape, reshape::reshape).layout_only(),
    OpDef::new("ReverseSequence", Manipulation, reverse::infer_reverse, reverse::reverse).layout_only(),
    OpDef::new("Slice", Manipulation, slice::infer_slice, slice::slice).layout_only(),
    OpDef::new("SpaceToDepth", Manipulation, permute::infer_space_to_depth, permute::space_to_depth)
        .layout_only(),
    OpDef::new("Squeeze", Manipulation, axes::infer_squeeze, axes::squeeze).layout_only(),
    OpDef::new("Tile", Manipulation, repeat::infer_tile, repeat::tile).layout_only(),
    OpDef::new("Transpose", Manipulation, permute::infer_transpose, permute::transpose).layout_only(),
    OpDef::new("Trilu", Manipulation, trilu::infer_trilu, trilu::trilu),
    OpDef::new("Unsqueeze", Manipulation, axes::infer_unsqueeze, axes::unsqueeze).layout_only(),
];
