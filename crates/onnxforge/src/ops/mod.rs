//! Operators: what the ONNX standard says about each of them.

pub mod signature;
