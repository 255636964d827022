//! onnxforge
pub mod blob;
pub mod io;
pub mod ir;
pub mod mmap;
pub mod ops;
pub mod proto;
