//! The example of README runs, to the letter. A binary of its own: it changes the current folder.

#![allow(clippy::print_stdout)]

use std::path::Path;

#[rustfmt::skip]
fn example() -> Result<(), onnxforge::Error> {
    // README begins
use onnxforge::{Opset, Options, VerifyOptions};

let model = onnxforge::load("examples/tiny_bert.onnx")?;
let optimized = onnxforge::optimize(model, &Options { opset: Opset::Version(23), ..Options::default() })?;
println!("{} nodes became {}", optimized.report.before.nodes, optimized.report.after.nodes);
optimized.save("target/tiny_bert.onnx")?;

let (first, second) = (onnxforge::load("examples/tiny_bert.onnx")?, onnxforge::load("target/tiny_bert.onnx")?);
println!("{:?}", onnxforge::verify(&first, &second, &VerifyOptions::default())?.report.verdict);
    // README ends
    Ok(())
}

#[test]
fn the_example_of_readme_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let between = |text: &str, begin: &str, end: &str| {
        let (_, rest) = text.split_once(begin).unwrap();
        rest.split_once(end).unwrap().0.trim().to_owned()
    };
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let written = between(&readme, "```rust\n", "```");
    assert_eq!(written, between(include_str!("readme.rs"), "// README begins\n", "// README ends"));
    // Where the example finds its model, and may write.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("examples")).unwrap();
    std::fs::create_dir_all(folder.path().join("target")).unwrap();
    std::fs::copy(root.join("examples/tiny_bert.onnx"), folder.path().join("examples/tiny_bert.onnx"))
        .unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    example().unwrap();
}
