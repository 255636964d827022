//! Random graphs: what is written is refused, or computes the same once it is read back.
//!
//! `ONNXFORGE_GRAPHS` says how many are tried, `ONNXFORGE_SEED` where to start.

use onnxforge_testing::graphs::Graph;

use onnxforge_ir::Model;

use crate::coreml;
use crate::tflite::{close, converted, numbers, read, run};

/// Nodes of a graph: with more, one that has no place in the format is among them too often.
const NODES: usize = 3;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn what_is_written_computes_the_same() {
    tries(|model| Some(read(converted(model).ok()?)));
}

#[test]
fn what_is_written_as_a_package_computes_the_same() {
    let settings = coreml::settings(17, false);
    tries(|model| Some(coreml::read(coreml::converted(model, &settings).ok()?)));
}

/// Tries graphs; `back` converts one and reads it back, if it is not refused.
fn tries(back: impl Fn(&Model) -> Option<Model>) {
    let (start, count) = (number("ONNXFORGE_SEED", 0), number("ONNXFORGE_GRAPHS", 600));
    let mut written = 0;
    for seed in start..start + count {
        let graph = Graph::random(seed, NODES);
        // What the format makes of tensors without elements, each runtime decides.
        if graph.sizes.values().any(|&size| size == 0) {
            continue;
        }
        let model = graph.model_of_ends();
        let Some(back) = back(&model) else { continue };
        written += 1;
        for ((name, a), (_, b)) in run(&model, &graph.inputs).iter().zip(run(&back, &graph.inputs)) {
            close(numbers(a), numbers(&b))
                .unwrap_or_else(|why| panic!("seed {seed}, {name}: {why}\n{}", graph.text));
        }
    }
    assert!(written > count / 10, "only {written} of {count} were written");
}
