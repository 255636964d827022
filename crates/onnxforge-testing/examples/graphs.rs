//! Writes random graphs as models, with an archive of inputs for each.
//!
//!     cargo run -p onnxforge-testing --features graphs --example graphs -- FOLDER COUNT [SEED]

use std::fs::File;
use std::path::Path;

use onnxforge_ops::eval::npz;
use onnxforge_ops::{Array, Value};
use onnxforge_testing::graphs::Graph;

/// Nodes of a graph, as in the tests of conversions.
const NODES: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, count, rest @ ..] = &words[..] else { return Err("FOLDER COUNT [SEED]".into()) };
    let (count, first): (u64, u64) = (count.parse()?, rest.first().map_or(Ok(0), |seed| seed.parse())?);
    for seed in first..first + count {
        let graph = Graph::random(seed, NODES);
        if graph.sizes.values().any(|&size| size == 0) {
            continue;
        }
        let path = Path::new(folder).join(format!("{seed:05}.onnx"));
        std::fs::write(&path, graph.bytes())?;
        let tensor = |(name, value): (&'_ String, &'_ Value)| match value {
            Value::Tensor(array) => Some((name.clone(), array.clone())),
            _ => None,
        };
        let inputs: Vec<(String, Array)> = graph.inputs.iter().filter_map(tensor).collect();
        let inputs: Vec<(&str, &Array)> = inputs.iter().map(|(name, array)| (&**name, array)).collect();
        npz::write(File::create(path.with_extension("npz"))?, &inputs)?;
    }
    Ok(())
}
