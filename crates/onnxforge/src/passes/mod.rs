//! The passes: one file each, and [`pipeline`], which runs them.

pub mod pipeline;
pub mod targets;

mod cancel_transposes;
mod clean_up_qdq;
mod cleanup_attention;
mod constant_math;
mod decompose_layernorm;
mod eliminate_common_subexpressions;
mod eliminate_dead_nodes;
mod eliminate_duplicate_constants;
mod eliminate_expand_identity;
mod eliminate_idempotent_ops;
mod eliminate_identity_ops;
mod eliminate_neutral_operands;
mod eliminate_noop_reshapes;
mod eliminate_noop_transposes;
mod eliminate_optionals;
mod eliminate_redundant_transposes;
mod eliminate_scatter_overwrite;
mod eliminate_sequences;
mod eliminate_unused_initializers;
mod eliminate_zero_bias;
mod eliminate_zero_rnn_state;
mod fold_cast_chains;
mod fold_constant_of_shape_cast;
mod fold_constants;
pub(crate) mod fuse_attention;
mod fuse_attention_qkv;
mod fuse_conv_batchnorm;
mod fuse_conv_bias;
mod fuse_conv_relu;
mod fuse_conv_scale;
mod fuse_gelu;
mod fuse_gemm;
mod fuse_hard_sigmoid;
mod fuse_instance_norm;
mod fuse_layer_norm;
mod fuse_log_softmax;
mod fuse_matmul_add;
mod fuse_matmul_add_3d;
mod fuse_pad;
mod fuse_rms_norm;
mod fuse_rotary_embedding;
mod fuse_scale_into_weights;
mod fuse_softplus;
mod inline_constant_if;
mod inline_functions;
mod layout;
mod merge_concats;
mod merge_reduces;
mod merge_reshapes;
mod merge_scalar_arithmetic;
mod merge_slices;
mod merge_transposes;
mod norms;
mod ort_bias_gelu;
mod ort_conv_activation;
mod ort_gemm_activation;
mod ort_matmul;
mod ort_quick_gelu;
mod ort_skip_layer_norm;
mod replace_einsum;
mod reshape_target;
mod rotary;
mod rotary_angles;
mod simplify_clips;
mod simplify_shape_chains;
mod simplify_where;
mod slice_cuts;
mod split_from_slices;
mod unroll_loops;

use crate::ir::Accuracy;
use crate::rewrite::{Rule, Skipped, Workbench};

/// A named change to models.
pub struct Pass {
    /// File name, and the name on the command line.
    pub name: &'static str,
    /// Its source, which begins with what it does and why that is right.
    source: &'static str,
    /// What it does.
    pub work: Work,
}

/// What a pass does.
pub enum Work {
    /// Applies rules until none fires.
    Rules(&'static [&'static dyn Rule]),
    /// Looks at the model as a whole. Answers how many changes it made.
    Model {
        /// The most that it may change results.
        accuracy: Accuracy,
        /// The work.
        run: fn(&mut Workbench<'_>, &mut Vec<Skipped>) -> usize,
    },
}

impl Pass {
    /// A pass that applies rules. `source` begins with what it does, in lines that start with `//!`.
    pub const fn rules(
        name: &'static str,
        source: &'static str,
        rules: &'static [&'static dyn Rule],
    ) -> Self {
        Self { name, source, work: Work::Rules(rules) }
    }

    const fn model(
        name: &'static str,
        source: &'static str,
        accuracy: Accuracy,
        run: fn(&mut Workbench<'_>, &mut Vec<Skipped>) -> usize,
    ) -> Self {
        Self { name, source, work: Work::Model { accuracy, run } }
    }

    /// What it does, when and why that is right: the text at the head of its file.
    pub fn text(&self) -> String {
        let lines = self.source.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    /// What it does, in one line.
    pub fn summary(&self) -> String {
        let text = self.text();
        let first = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        first.split_once(": ").map_or(first.clone(), |(_, summary)| summary.to_owned())
    }

    /// Whether it runs only where it is asked for.
    pub fn is_optional(&self) -> bool {
        OPTIONAL.iter().any(|(_, passes)| passes.iter().any(|pass| pass.name == self.name))
    }

    /// When it runs.
    pub fn stage(&self) -> Stage {
        let holds = |(_, passes): &&(Stage, &[&Self])| passes.iter().any(|pass| pass.name == self.name);
        if targets::added().any(|pass| pass.name == self.name) {
            return Stage::Aim;
        }
        STAGES.iter().chain(OPTIONAL).find(holds).map_or(Stage::Tidy, |(stage, _)| *stage)
    }

    /// The most that it may change results.
    pub fn accuracy(&self) -> Accuracy {
        match self.work {
            Work::Model { accuracy, .. } => accuracy,
            Work::Rules(rules) => rules.iter().fold(Accuracy::BitExact, |worst, rule| {
                if rule.accuracy() > worst { rule.accuracy() } else { worst }
            }),
        }
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// When a pass runs: a stage starts where the one before finds nothing any more, and runs what that ran as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Removes detours, so that the same thing always looks the same.
    Tidy,
    /// Recognises what was spelled out, and calls the operator for it.
    Fuse,
    /// Lets what is left work in the order of axes that takes the fewest Transposes. Fusions know the axes of the exporters only.
    Arrange,
    /// Saves more by forms in which fusions would recognise nothing.
    Settle,
    /// Says it as the target wants it.
    Aim,
}

impl Stage {
    /// The stages in order.
    pub const ALL: [Self; 5] = [Self::Tidy, Self::Fuse, Self::Arrange, Self::Settle, Self::Aim];
}

/// The passes that run unless others are asked for, by stage and in the order in which they run.
pub static STAGES: &[(Stage, &[&Pass])] = &[
    (
        Stage::Tidy,
        &[
            &eliminate_identity_ops::PASS,
            &fold_constants::PASS,
            &inline_constant_if::PASS,
            &unroll_loops::PASS,
            &eliminate_sequences::PASS,
            &eliminate_optionals::PASS,
            &eliminate_noop_reshapes::PASS,
            &eliminate_noop_transposes::PASS,
            &eliminate_expand_identity::PASS,
            &eliminate_idempotent_ops::PASS,
            &eliminate_scatter_overwrite::PASS,
            &fold_cast_chains::PASS,
            &fold_constant_of_shape_cast::PASS,
            &eliminate_neutral_operands::PASS,
            &simplify_where::PASS,
            &simplify_clips::PASS,
            // Before the sum becomes part of a bias.
            &fuse_hard_sigmoid::PASS,
            &simplify_shape_chains::PASS,
            &merge_reshapes::PASS,
            &merge_reduces::PASS,
            &merge_slices::PASS,
            &merge_concats::PASS,
            &replace_einsum::PASS,
            &eliminate_redundant_transposes::PASS,
            &cleanup_attention::PASS,
            &clean_up_qdq::PASS,
            &eliminate_zero_rnn_state::PASS,
            &eliminate_zero_bias::PASS,
            &eliminate_common_subexpressions::PASS,
            &eliminate_duplicate_constants::PASS,
            &eliminate_dead_nodes::PASS,
            &eliminate_unused_initializers::PASS,
        ],
    ),
    (
        Stage::Fuse,
        &[
            &fuse_conv_batchnorm::PASS,
            &fuse_conv_bias::PASS,
            &fuse_conv_scale::PASS,
            &fuse_pad::PASS,
            &fuse_instance_norm::PASS,
            &fuse_layer_norm::PASS,
            &fuse_rms_norm::PASS,
            &fuse_gelu::PASS,
            &fuse_rotary_embedding::PASS,
            &fuse_attention::PASS,
        ],
    ),
    (Stage::Arrange, &[&cancel_transposes::PASS, &merge_transposes::PASS]),
    (
        Stage::Settle,
        &[
            &fuse_scale_into_weights::PASS,
            &merge_scalar_arithmetic::PASS,
            &fuse_matmul_add_3d::PASS,
            &fuse_matmul_add::PASS,
            &fuse_gemm::PASS,
            &split_from_slices::PASS,
            &fuse_conv_relu::PASS,
        ],
    ),
];

/// The passes that run only where they are asked for, by stage.
pub static OPTIONAL: &[(Stage, &[&Pass])] = &[
    (Stage::Tidy, &[&inline_functions::PASS]),
    (Stage::Fuse, &[&fuse_log_softmax::PASS, &fuse_softplus::PASS]),
    (Stage::Settle, &[&fuse_attention_qkv::PASS]),
    (Stage::Aim, &[&ort_skip_layer_norm::PASS]),
];

/// The passes that run unless others are asked for.
pub fn defaults() -> impl Iterator<Item = &'static Pass> {
    STAGES.iter().flat_map(|(_, passes)| passes.iter().copied())
}

/// Every pass: those that run by default, those of targets, and those on request.
pub fn all() -> impl Iterator<Item = &'static Pass> {
    let optional = OPTIONAL.iter().flat_map(|(_, passes)| passes.iter().copied());
    defaults().chain(targets::added()).chain(optional)
}

/// The pass of this name.
pub fn find(name: &str) -> Option<&'static Pass> {
    all().find(|pass| pass.name == name)
}

/// How a pass file makes its entry: the name is the file's name, and the text at its head the documentation.
macro_rules! pass {
    ($name:ident, $rules:expr) => {
        /// This pass.
        pub static PASS: $crate::passes::Pass = $crate::passes::Pass::rules(
            stringify!($name),
            include_str!(concat!(stringify!($name), ".rs")),
            $rules,
        );
    };
    ($name:ident, $accuracy:expr, $run:expr) => {
        /// This pass.
        pub static PASS: $crate::passes::Pass = $crate::passes::Pass::model(
            stringify!($name),
            include_str!(concat!(stringify!($name), ".rs")),
            $accuracy,
            $run,
        );
    };
}
use pass;
