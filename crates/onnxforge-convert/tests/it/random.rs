//! Random graphs: what is written is refused, or computes the same once it is read back.
//!
//! `ONNXFORGE_GRAPHS` says how many are tried, `ONNXFORGE_SEED` where to start, and `ONNXFORGE_KEEP` a folder that gets models, files and inputs, for
//! `tests/python/litert.py graphs` and `tests/coreml/random_graphs.py`.

use std::fs::File;
use std::path::Path;

use onnxforge_ir::Model;
use onnxforge_ir::io::{SaveOptions, save};
use onnxforge_ops::Array;
use onnxforge_ops::eval::npz;
use onnxforge_testing::graphs::Graph;

use crate::coreml;
use crate::tflite::{close, converted, numbers, read, run};

/// Nodes of a graph: with more, one that has no place in the format is among them too often.
const NODES: usize = 3;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Writes what another runtime needs to try a graph.
fn keep(folder: &Path, graph: &Graph, model: &Model, file: Option<&[u8]>) {
    let place = |ending: &str| folder.join(format!("{}.{ending}", graph.seed));
    if let Some(file) = file {
        std::fs::write(place("tflite"), file).unwrap();
    }
    save(model, &place("onnx"), &SaveOptions::default()).unwrap();
    let read =
        model.scope(model.main()).inputs().iter().map(|port| model.value(port.value).name().to_string());
    let arrays: Vec<(String, &Array)> =
        read.map(|name| (name.clone(), numbers(&graph.inputs[&name]))).collect();
    let arrays: Vec<(&str, &Array)> = arrays.iter().map(|(name, array)| (name.as_str(), *array)).collect();
    npz::write(File::create(place("npz")).unwrap(), &arrays).unwrap();
}

#[test]
fn what_is_written_computes_the_same() {
    let folder = std::env::var_os("ONNXFORGE_KEEP");
    tries(|graph, model| {
        let file = converted(model).ok()?;
        if let Some(folder) = &folder {
            keep(Path::new(folder), graph, model, Some(&file));
        }
        Some(read(file))
    });
}

#[test]
fn what_is_written_as_a_package_computes_the_same() {
    let settings = coreml::settings(17, false);
    let folder = std::env::var_os("ONNXFORGE_KEEP");
    tries(|graph, model| {
        let files = coreml::converted(model, &settings).ok()?;
        if let Some(folder) = &folder {
            keep(Path::new(folder), graph, model, None);
        }
        Some(coreml::read(files))
    });
}

/// Tries graphs; `back` converts one and reads it back, if it is not refused.
fn tries(back: impl Fn(&Graph, &Model) -> Option<Model>) {
    let (start, count) = (number("ONNXFORGE_SEED", 0), number("ONNXFORGE_GRAPHS", 600));
    let mut written = 0;
    for seed in start..start + count {
        let graph = Graph::random(seed, NODES);
        // What the format makes of tensors without elements, each runtime decides.
        if graph.sizes.values().any(|&size| size == 0) {
            continue;
        }
        let model = graph.model_of_ends();
        let Some(back) = back(&graph, &model) else { continue };
        written += 1;
        for ((name, a), (_, b)) in run(&model, &graph.inputs).iter().zip(run(&back, &graph.inputs)) {
            close(numbers(a), numbers(&b))
                .unwrap_or_else(|why| panic!("seed {seed}, {name}: {why}\n{}", graph.text));
        }
    }
    assert!(written > count / 10, "only {written} of {count} were written");
}
