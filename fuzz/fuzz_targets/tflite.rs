//! Any bytes as a file of TensorFlow Lite: a sound model or an error with one line, in memory that is bounded by the input.

#![no_main]

use std::path::Path;

use libfuzzer_sys::{Corpus, fuzz_target};
use onnxforge::blob::Blob;
use onnxforge::formats::tflite::decode;
use onnxforge_fuzz::{Counting, reads_soundly};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let input = Blob::from(bytes);
    let read = || decode(&input, Path::new("x.tflite")).and_then(|source| source.into_model());
    reads_soundly(bytes.len(), read);
    Corpus::Keep
});
