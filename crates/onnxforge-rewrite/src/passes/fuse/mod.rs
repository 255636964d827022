//! Passes that recognise what is decomposed and call the operator for it, or move work into weights.

pub mod fuse_attention;
pub mod fuse_attention_qkv;
pub mod fuse_conv_batchnorm;
pub mod fuse_conv_bias;
pub mod fuse_conv_relu;
pub mod fuse_conv_scale;
pub mod fuse_gelu;
pub mod fuse_gemm;
pub mod fuse_hard_sigmoid;
pub mod fuse_hard_swish;
pub mod fuse_instance_norm;
pub mod fuse_layer_norm;
pub mod fuse_log_softmax;
pub mod fuse_matmul_add;
pub mod fuse_matmul_add_3d;
pub mod fuse_pad;
pub mod fuse_rms_norm;
pub mod fuse_rotary_embedding;
pub mod fuse_scale_into_weights;
pub mod fuse_softplus;
