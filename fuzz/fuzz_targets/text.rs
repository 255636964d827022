//! Any text: parsed or refused; what was parsed is printed and parsed again without loss.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use onnxforge::text::{PrintOptions, parse, print};
use onnxforge_fuzz::{Counting, bounded, same};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(bytes) else { return Corpus::Reject };
    let Ok(model) = bounded(text.len(), || parse(text)) else { return Corpus::Keep };
    let options = PrintOptions { max_elements: None, ..PrintOptions::default() };
    let printed = print(&model, &options);
    match parse(&printed) {
        Ok(again) => assert!(same(&model, &again), "the message changed:\n{printed}"),
        Err(error) => panic!("what was printed cannot be parsed: {error:?}\n{printed}"),
    }
    Corpus::Keep
});
