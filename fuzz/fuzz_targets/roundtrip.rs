//! Any model: saved and loaded again it is the same, to the bit.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use onnxforge::io::{LoadOptions, load_bytes, to_bytes};
use onnxforge_fuzz::{Counting, decode, encode};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let load = |bytes: &[u8]| load_bytes(bytes.to_vec(), None, &LoadOptions::default());
    let Ok(model) = load(bytes) else { return Corpus::Reject };
    // Without a folder, external data is missing, and the model cannot be written.
    let Ok(first) = to_bytes(&model) else { return Corpus::Keep };
    let again = load(&first).expect("what was saved can be loaded");
    if let Err(broken) = again.validate() {
        panic!("an invariant does not hold: {broken}");
    }
    let second = to_bytes(&again).expect("what was loaded from one place can be saved");
    assert!(first == second, "saving is not stable");

    // Nodes that were in order stay where they are, so nothing at all may have changed.
    let original = decode(bytes).expect("it was loaded");
    let saved = decode(&first).expect("it was loaded");
    let names = |graph: &onnxforge::proto::schema::GraphProto| -> Vec<_> {
        graph.node.iter().map(|node| (node.op_type.clone(), node.output.clone())).collect()
    };
    let in_order = match (&original.graph, &saved.graph) {
        (Some(before), Some(after)) => names(before) == names(after),
        _ => true,
    };
    if in_order {
        assert!(encode(&original) == encode(&saved), "saving lost something");
    }
    Corpus::Keep
});
