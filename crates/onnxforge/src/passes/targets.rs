//! What a model is made for.
//!
//! A target adds passes, which run when all others have found what they find, and leaves out those whose results it cannot use.

use super::{
    Pass, decompose_layernorm, fuse_attention, fuse_gelu, fuse_hard_sigmoid, fuse_instance_norm,
    fuse_layer_norm, fuse_rms_norm, fuse_rotary_embedding, ort_bias_gelu, ort_conv_activation,
    ort_gemm_activation, ort_matmul, ort_quick_gelu,
};

/// What a model is made for.
#[derive(Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Passes that only it wants, in the order in which they run.
    pub adds: &'static [&'static Pass],
    /// Passes that it does not want.
    pub omits: &'static [&'static Pass],
}

/// Every runtime: operators of the standard only.
pub static PORTABLE: Target = Target {
    name: "portable",
    summary: "Every runtime: operators of the standard only",
    adds: &[],
    omits: &[],
};

/// ONNX Runtime.
pub static ORT: Target = Target {
    name: "ort",
    summary: "ONNX Runtime: its own operators where it runs them as fast or faster",
    adds: &[
        &ort_bias_gelu::PASS,
        &ort_quick_gelu::PASS,
        &ort_matmul::PASS,
        &ort_conv_activation::PASS,
        &ort_gemm_activation::PASS,
    ],
    omits: &[],
};

/// Converters to TensorFlow Lite.
pub static TFLITE: Target = Target {
    name: "tflite",
    summary: "Converters to TensorFlow Lite: LayerNormalization in primitive operators, nothing fused into newer ones",
    adds: &[&decompose_layernorm::PASS],
    omits: &[
        &fuse_hard_sigmoid::PASS,
        &fuse_instance_norm::PASS,
        &fuse_layer_norm::PASS,
        &fuse_rms_norm::PASS,
        &fuse_gelu::PASS,
        &fuse_rotary_embedding::PASS,
        &fuse_attention::PASS,
    ],
};

/// Converters to Core ML.
pub static COREML: Target = Target {
    name: "coreml",
    summary: "Converters to Core ML: LayerNormalization and Gelu, but attention in primitive operators",
    adds: &[],
    omits: &[&fuse_rms_norm::PASS, &fuse_rotary_embedding::PASS, &fuse_attention::PASS],
};

/// The targets, the default first.
pub static TARGETS: [&Target; 4] = [&PORTABLE, &ORT, &TFLITE, &COREML];

impl Target {
    /// The passes that run for it unless others are asked for.
    pub fn passes(&self) -> impl Iterator<Item = &'static Pass> {
        let wanted = |pass: &&'static Pass| !self.omits.iter().any(|omitted| omitted.name == pass.name);
        super::defaults().filter(wanted).chain(self.adds.iter().copied())
    }
}

/// The passes that only some targets want, each once.
pub fn added() -> impl Iterator<Item = &'static Pass> {
    TARGETS.iter().flat_map(|target| target.adds.iter().copied())
}
