//! Passes that only some targets want.

pub mod decompose_layernorm;
pub mod ort_bias_gelu;
pub mod ort_conv_activation;
pub mod ort_gemm_activation;
pub mod ort_matmul;
pub mod ort_quick_gelu;
pub mod ort_skip_layer_norm;
