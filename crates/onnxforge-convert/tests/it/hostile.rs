//! Files that are damaged: an error, and nothing else.

use std::path::Path;

use onnxforge_convert::tflite;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::random::Random;

use crate::coreml;
use crate::tflite::{between, converted, model};

const GRAPH: &str = "g (float[N,2,4,4] x) => (float[N,2] y) <float[2,2,1,1] w = {1, 0.5, -1, 2}, int64[2] a = {2, 3}> { c = Conv(x, w)  r = Relu(c)  y = ReduceMean<keepdims=0>(r, a) }";

/// One of floats, and one of integers.
fn files() -> [Vec<u8>; 2] {
    let integers = between("c = Conv(d, w, b)  r = Relu(c)");
    [GRAPH, &integers].map(|graph| converted(&model(graph)).unwrap())
}

/// Reads it; whatever comes out, it comes out.
fn read(bytes: Vec<u8>) -> bool {
    let source = tflite::decode(&Blob::from(bytes), Path::new("x.tflite"));
    source.is_ok_and(|source| source.into_model().is_ok())
}

#[test]
fn truncated_anywhere() {
    for whole in files() {
        assert!(read(whole.clone()));
        // The last bytes are weights and tables that are in use.
        assert!((0..whole.len()).all(|end| !read(whole[..end].to_vec()) || end + 16 > whole.len()));
    }
}

#[test]
fn damaged_anywhere() {
    for whole in files() {
        for (at, value) in (0..whole.len()).flat_map(|at| [0, 1, 0x7f, 0x80, 0xff].map(|value| (at, value))) {
            let mut bytes = whole.clone();
            bytes[at] = value;
            read(bytes);
        }
    }
}

#[test]
fn damaged_in_several_places() {
    let (wholes, mut random) = (files(), Random::new(7));
    for round in 0..6000 {
        let mut bytes = wholes[round % 2].clone();
        for _ in 0..=random.below(8) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        read(bytes);
    }
}

/// The same for the two files of a package.
fn read_package([program, weights]: [Vec<u8>; 2]) -> bool {
    let source = onnxforge_convert::coreml::decode(
        &Blob::from(program),
        &Blob::from(weights),
        Path::new("x.mlpackage"),
    );
    source.is_ok_and(|source| source.into_model().is_ok())
}

fn package() -> [Vec<u8>; 2] {
    // Weights that lie in a file of their own.
    let graph = GRAPH.replace(
        "[2,2,1,1] w = {1, 0.5, -1, 2}",
        "[2,2,2,2] w = {1, 0.5, -1, 2, 1, 0.5, -1, 2, 1, 0.5, -1, 2, 1, 0.5, -1, 2}",
    );
    coreml::converted(&model(&graph), &coreml::settings(17, false)).unwrap()
}

#[test]
fn packages_that_are_damaged_anywhere() {
    let whole = package();
    assert!(read_package(whole.clone()));
    for file in 0..2 {
        for end in 0..whole[file].len() {
            let mut files = whole.clone();
            files[file].truncate(end);
            read_package(files);
        }
        for at in 0..whole[file].len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut files = whole.clone();
                files[file][at] = value;
                read_package(files);
            }
        }
    }
}

#[test]
fn packages_that_are_damaged_in_several_places() {
    let (whole, mut random) = (package(), Random::new(11));
    for _ in 0..3000 {
        let mut files = whole.clone();
        for _ in 0..=random.below(8) {
            let file = &mut files[0];
            let at = random.below(file.len() as u64) as usize;
            file[at] = random.below(256) as u8;
        }
        read_package(files);
    }
}
