//! Any model: printed in the ONNX notation and parsed again it is the same.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use onnxforge::text::{PrintOptions, parse, print};
use onnxforge_fuzz::{Counting, decode, same};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Ok(model) = decode(bytes) else { return Corpus::Reject };
    let options = PrintOptions { max_elements: None, ..PrintOptions::default() };
    let printed = print(&model, &options);
    match parse(&printed) {
        Ok(again) => assert!(same(&model, &again), "the message changed:\n{printed}"),
        Err(error) => panic!("what was printed cannot be parsed: {error:?}\n{printed}"),
    }
    Corpus::Keep
});
