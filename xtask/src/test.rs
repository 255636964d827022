//! `cargo xtask test`: every test there is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::step::{build_cli, cargo, root, step, step_or, target_folder};

/// Exit code of pytest when no test matches.
const NO_TESTS: i32 = 5;

pub fn run(filter: Option<&str>, python: bool) -> Result<()> {
    // First what can be missing on a new machine, so that it is said before minutes of building.
    let python = if python { Some(crate::python::environment()?) } else { None };
    let mut rust = cargo(&["test", "--workspace"]);
    rust.args(filter);
    if let Some(python) = &python {
        rust.env("ONNXFORGE_CASES", cases(python)?);
        rust.env("ORT_DYLIB_PATH", crate::python::onnxruntime(python)?);
    }
    step("Rust tests", &mut rust)?;
    let Some(python) = python else { return Ok(()) };
    let binary = build_cli()?;
    let mut pytest = Command::new(python);
    pytest.current_dir(root()).env("ONNXFORGE_BIN", binary);
    pytest.args(["-m", "pytest", "tests/python", "--durations=5", "-p", "no:cacheprovider"]);
    if let Some(filter) = filter {
        pytest.args(["-k", filter]);
    }
    let also_good: &[i32] = if filter.is_some() { &[NO_TESTS] } else { &[] };
    step_or("Python tests", &mut pytest, also_good)
}

/// Many random graphs.
pub fn graphs(count: u64, seed: u64) -> Result<()> {
    let python = crate::python::environment()?;
    let mut test = cargo(&["test", "--package", "onnxforge", "--test", "random_graphs"]);
    test.env("ONNXFORGE_GRAPHS", count.to_string()).env("ONNXFORGE_SEED", seed.to_string());
    test.env("ORT_DYLIB_PATH", crate::python::onnxruntime(&python)?);
    step(&format!("{count} random graphs from seed {seed} on"), &mut test)
}

/// The folder with the test cases of the onnx package, written when it is not there.
pub fn cases(python: &Path) -> Result<PathBuf> {
    let folder = target_folder()?.join("backend-cases");
    let script = root().join("tests/python/backend_cases.py");
    let newer =
        |a: &Path, b: &Path| Some(a.metadata().ok()?.modified().ok()? > b.metadata().ok()?.modified().ok()?);
    if newer(&folder, &script) != Some(true) {
        step("write the test cases of the onnx package", Command::new(python).arg(script).arg(&folder))?;
    }
    Ok(folder)
}
