//! Any bytes: a sound model or an error with one line, in memory that is bounded by the input.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use onnxforge::io::{LoadOptions, load_bytes};
use onnxforge_fuzz::{Counting, reads_soundly};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let input = bytes.to_vec();
    reads_soundly(bytes.len(), || load_bytes(input, None, &LoadOptions::default()));
    Corpus::Keep
});
