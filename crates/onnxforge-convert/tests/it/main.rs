//! Conversions to other formats and back.

mod hostile;
mod random;
mod tflite;
