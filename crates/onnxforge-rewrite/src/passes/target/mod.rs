//! Passes that only some targets want.

pub mod decompose_layernorm;
pub mod decompose_split;
pub mod ort_attention;
pub mod ort_bias_gelu;
pub mod ort_conv_activation;
pub mod ort_gelu;
pub mod ort_gemm_activation;
pub mod ort_matmul;
pub mod ort_quick_gelu;
pub mod ort_skip_layer_norm;
pub mod tflite_activations;
pub mod tflite_conv;
pub mod tflite_conv_transpose;
pub mod tflite_fully_connected;
pub mod tflite_norms;
pub mod tflite_pool;
pub mod tflite_resize;
pub mod tflite_softmax;
