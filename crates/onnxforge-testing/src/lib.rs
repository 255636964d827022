//! What tests and fuzz targets of several crates share. Helpers of one crate's tests stand beside those tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod choices;
pub mod fields;
#[cfg(feature = "graphs")]
pub mod graphs;
pub mod memory;

use std::path::{Path, PathBuf};

/// How often a property is tried: `PROPTEST_CASES`, or this often.
pub fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

/// A file or folder of the repository, by its path from the root.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// What an environment variable says that a test cannot do without. Such a test is ignored unless somebody asks for it.
///
/// # Panics
/// If the variable is not set.
pub fn required(variable: &str) -> std::ffi::OsString {
    std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set; `cargo xtask test` sets it"))
}

/// The models that come with the repository, in `examples` and `tests/data`.
///
/// # Panics
/// If they are not there.
pub fn models() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["examples", "tests/data"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(repository(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "onnx"))
        .collect();
    found.sort();
    assert!(found.len() > 20);
    found
}
