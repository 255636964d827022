//! Conversions to other formats and back.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod coreml;
mod hostile;
mod random;
mod tflite;
