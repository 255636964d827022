//! Any bytes: decoded or refused; what was decoded is encoded without loss.

#![no_main]

use libfuzzer_sys::fuzz_target;
use onnxforge_fuzz::{Counting, bounded, decode, encode};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|bytes: &[u8]| {
    let Ok(first) = bounded(bytes.len(), || decode(bytes)) else { return };
    let encoded = encode(&first);
    let second = decode(&encoded).expect("what was encoded can be decoded");
    assert!(encode(&second) == encoded, "the encoding is not stable");
    // A message with a NaN is not equal even to its copy.
    assert!(first == second || first != first.clone(), "the message changed");
});
