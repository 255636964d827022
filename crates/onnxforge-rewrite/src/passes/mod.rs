//! The passes: a file each, in rooms by what they do, and [`pipeline`], which runs them.

pub mod eliminate;
pub mod fuse;
pub mod layout;
mod pass;
pub mod pipeline;
pub mod recognize;
pub mod simplify;
pub mod target;
pub mod targets;

use self::pass::pass;
pub use self::pass::{Pass, Runs, Stage, Work};

/// Every pass in the order in which they run within a stage, and in which documents list them: those for every target, those of some targets,
/// those on request.
pub static PASSES: &[&Pass] = &[
    &eliminate::eliminate_identity_ops::PASS,
    &simplify::fold_constants::PASS,
    &simplify::inline_constant_if::PASS,
    &simplify::unroll_loops::PASS,
    &eliminate::eliminate_sequences::PASS,
    &eliminate::eliminate_optionals::PASS,
    &eliminate::eliminate_noop_reshapes::PASS,
    &eliminate::eliminate_noop_transposes::PASS,
    &eliminate::eliminate_expand_identity::PASS,
    &eliminate::eliminate_idempotent_ops::PASS,
    &eliminate::eliminate_scatter_overwrite::PASS,
    &eliminate::eliminate_softmax_before_argmax::PASS,
    &simplify::fold_cast_chains::PASS,
    &simplify::fold_constant_of_shape_cast::PASS,
    &eliminate::eliminate_identity_operands::PASS,
    &simplify::simplify_where::PASS,
    &simplify::simplify_clips::PASS,
    // Before the sum becomes part of a bias.
    &fuse::fuse_hard_sigmoid::PASS,
    &simplify::simplify_shape_chains::PASS,
    &simplify::merge_reshapes::PASS,
    &simplify::merge_reduces::PASS,
    &simplify::merge_slices::PASS,
    &simplify::merge_concats::PASS,
    &simplify::replace_einsum::PASS,
    &simplify::unflatten_matmul::PASS,
    &simplify::squeeze_transposes::PASS,
    &eliminate::eliminate_redundant_transposes::PASS,
    &simplify::cleanup_attention::PASS,
    &simplify::cleanup_qdq::PASS,
    &eliminate::eliminate_zero_rnn_state::PASS,
    &eliminate::eliminate_zero_bias::PASS,
    &eliminate::eliminate_common_subexpressions::PASS,
    &eliminate::eliminate_duplicate_constants::PASS,
    &eliminate::eliminate_dead_nodes::PASS,
    &eliminate::eliminate_unused_initializers::PASS,
    &fuse::fuse_conv_batchnorm::PASS,
    &fuse::fuse_conv_bias::PASS,
    &fuse::fuse_conv_scale::PASS,
    &fuse::fuse_pad::PASS,
    &fuse::fuse_hard_swish::PASS,
    &fuse::fuse_instance_norm::PASS,
    &fuse::fuse_layer_norm::PASS,
    &fuse::fuse_rms_norm::PASS,
    &fuse::fuse_gelu::PASS,
    &fuse::fuse_rotary_embedding::PASS,
    &fuse::fuse_attention::PASS,
    &layout::cancel_transposes::PASS,
    &layout::merge_transposes::PASS,
    &fuse::fuse_scale_into_weights::PASS,
    &simplify::merge_scalar_arithmetic::PASS,
    &fuse::fuse_matmul_add_3d::PASS,
    &fuse::fuse_matmul_add::PASS,
    &fuse::fuse_gemm::PASS,
    &simplify::merge_slices_into_split::PASS,
    &simplify::merge_gathers::PASS,
    &simplify::merge_min_max::PASS,
    &fuse::fuse_conv_relu::PASS,
    &target::ort_attention::PASS,
    &target::ort_gelu::PASS,
    &target::ort_bias_gelu::PASS,
    &target::ort_quick_gelu::PASS,
    &target::ort_matmul::PASS,
    &target::ort_conv_activation::PASS,
    &target::ort_gemm_activation::PASS,
    &target::decompose_layernorm::PASS,
    &target::decompose_split::PASS,
    &target::tflite_activations::PASS,
    &target::tflite_norms::PASS,
    &target::tflite_softmax::PASS,
    &target::tflite_conv::PASS,
    &target::tflite_conv_transpose::PASS,
    &target::tflite_pool::PASS,
    &target::tflite_resize::PASS,
    &target::tflite_fully_connected::PASS,
    &simplify::inline_functions::PASS,
    &simplify::unroll_all_loops::PASS,
    &fuse::fuse_log_softmax::PASS,
    &fuse::fuse_softplus::PASS,
    &fuse::fuse_attention_qkv::PASS,
    &target::ort_skip_layer_norm::PASS,
];

/// The passes of a stage that run for the target `portable`, in order.
pub fn of_stage(stage: Stage) -> impl Iterator<Item = &'static Pass> {
    defaults().filter(move |pass| pass.stage == stage)
}

/// The passes that run unless others, or another target, are asked for.
pub fn defaults() -> impl Iterator<Item = &'static Pass> {
    targets::PORTABLE.passes()
}

/// Every pass: those that run by default, those of targets, and those on request.
pub fn all() -> impl Iterator<Item = &'static Pass> {
    PASSES.iter().copied()
}

/// The pass of this name.
pub fn find(name: &str) -> Option<&'static Pass> {
    all().find(|pass| pass.name == name)
}
