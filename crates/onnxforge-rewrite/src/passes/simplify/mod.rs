//! Passes that say the same with less: constants computed once, chains merged, control flow and detours resolved.

pub mod cleanup_attention;
pub mod cleanup_qdq;
pub mod fold_cast_chains;
pub mod fold_constant_of_shape_cast;
pub mod fold_constants;
pub mod inline_constant_if;
pub mod inline_functions;
pub mod merge_concats;
pub mod merge_gathers;
pub mod merge_min_max;
pub mod merge_reduces;
pub mod merge_reshapes;
pub mod merge_scalar_arithmetic;
pub mod merge_slices;
pub mod merge_slices_into_split;
pub mod replace_einsum;
pub mod simplify_clips;
pub mod simplify_shape_chains;
pub mod simplify_where;
pub mod squeeze_transposes;
pub mod unflatten_matmul;
pub mod unroll_all_loops;
pub mod unroll_loops;
