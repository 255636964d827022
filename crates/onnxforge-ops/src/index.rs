//! Elements read and written by index, and indices of elements.

mod gather;
mod one_hot;
mod order;
mod scatter;
mod select;
mod suppress;
mod top_k;
mod unique;

use super::def::Category::Indexing;
use super::def::OpDef;
use super::error::{OpError, invalid};

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("Compress", Indexing, select::infer_compress, select::compress).layout_only(),
    OpDef::new("Gather", Indexing, gather::infer_gather, gather::gather).layout_only(),
    OpDef::new("GatherElements", Indexing, gather::infer_gather_elements, gather::gather_elements)
        .layout_only(),
    OpDef::new("GatherND", Indexing, gather::infer_gather_nd, gather::gather_nd).layout_only(),
    OpDef::new("NonMaxSuppression", Indexing, suppress::infer_suppress, suppress::suppress),
    OpDef::new("NonZero", Indexing, select::infer_nonzero, select::nonzero),
    OpDef::new("OneHot", Indexing, one_hot::infer_one_hot, one_hot::one_hot),
    OpDef::new("Scatter", Indexing, scatter::infer_scatter, scatter::scatter_elements),
    OpDef::new("ScatterElements", Indexing, scatter::infer_scatter, scatter::scatter_elements),
    OpDef::new("ScatterND", Indexing, scatter::infer_scatter, scatter::scatter_nd),
    OpDef::new("TensorScatter", Indexing, scatter::infer_tensor_scatter, scatter::tensor_scatter),
    OpDef::new("TopK", Indexing, top_k::infer_top_k, top_k::top_k),
    OpDef::new("Unique", Indexing, unique::infer_unique, unique::unique),
];

/// The place that `index` means on an axis of `dim` places: negative ones count from the end.
fn place(index: i64, dim: usize) -> Result<usize, OpError> {
    let shifted = if index < 0 { index.checked_add(dim as i64) } else { Some(index) };
    match shifted.and_then(|index| usize::try_from(index).ok()).filter(|&index| index < dim) {
        Some(index) => Ok(index),
        None => invalid(format!("the index {index} on an axis of {dim}")),
    }
}
