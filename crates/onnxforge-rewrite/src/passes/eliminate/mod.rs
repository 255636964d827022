//! Passes that remove what does nothing: nodes, operands and constants whose absence changes no result.

pub mod eliminate_common_subexpressions;
pub mod eliminate_dead_nodes;
pub mod eliminate_duplicate_constants;
pub mod eliminate_expand_identity;
pub mod eliminate_idempotent_ops;
pub mod eliminate_identity_operands;
pub mod eliminate_identity_ops;
pub mod eliminate_noop_reshapes;
pub mod eliminate_noop_transposes;
pub mod eliminate_optionals;
pub mod eliminate_redundant_transposes;
pub mod eliminate_scatter_overwrite;
pub mod eliminate_sequences;
pub mod eliminate_softmax_before_argmax;
pub mod eliminate_unused_initializers;
pub mod eliminate_zero_bias;
pub mod eliminate_zero_rnn_state;
