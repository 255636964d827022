//! Files that are damaged: an error, and nothing else.

use std::path::Path;

use onnxforge_convert::tflite;
use onnxforge_proto::blob::Blob;
use onnxforge_proto::random::Random;

use crate::tflite::{between, converted, model};

/// One of floats, and one of integers.
fn files() -> [Vec<u8>; 2] {
    let floats = "g (float[N,2,4,4] x) => (float[N,2] y) <float[2,2,1,1] w = {1, 0.5, -1, 2}, int64[2] a = {2, 3}> { c = Conv(x, w)  r = Relu(c)  y = ReduceMean<keepdims=0>(r, a) }";
    let integers = between("c = Conv(d, w, b)  r = Relu(c)");
    [floats, &integers].map(|graph| converted(&model(graph)).unwrap())
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
