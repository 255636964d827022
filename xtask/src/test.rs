//! `cargo xtask test`: every test there is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::step::{Profile, build_with_study, cargo, output, root, step, step_or, target_folder};

/// Exit code of pytest when no test matches.
const NO_TESTS: i32 = 5;

/// Which tests run, besides those in Rust.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Those in Python.
    pub python: bool,
    /// Those with PyTorch.
    pub torch: bool,
    /// Those of the report's page, in Chromium.
    pub browser: bool,
}

pub fn run(filter: Option<&str>, kinds: Kinds) -> Result<()> {
    // First what can be missing on a new machine, so that it is said before minutes of building.
    let python = if kinds.python { Some(crate::python::environment()?) } else { None };
    let torch = if kinds.torch { Some(crate::python::torch()?) } else { None };
    // What evaluates packages of Core ML elsewhere than on a Mac is made for Linux.
    let coreml =
        if kinds.python && cfg!(target_os = "linux") { Some(crate::python::coreml()?) } else { None };
    if let Some(python) = python.as_ref().filter(|_| kinds.browser) {
        find_browser(python)?;
    }
    let mut rust = cargo(&["test", "--workspace"]);
    rust.args(filter);
    match &python {
        // With all that they need, those run that are ignored without.
        Some(python) => {
            rust.env("ONNXFORGE_CASES", cases(python)?);
            rust.env("ORT_DYLIB_PATH", crate::python::onnxruntime(python)?);
            rust.args(["--", "--include-ignored"]);
        }
        None => println!("==> tests that need the onnx package or ONNX Runtime are ignored"),
    }
    step("Rust tests", &mut rust)?;
    let Some(python) = python else { return Ok(()) };
    let binary = build_with_study(Profile::Dev)?;
    let wheel = crate::python::build_wheel(&python, Profile::Dev)?;
    crate::python::install(&python, &wheel)?;
    let mut tests = pytest(&python, "tests/python", filter);
    tests.args(["--numprocesses=auto", "--dist=worksteal"]).env("ONNXFORGE_BIN", &binary);
    tests.env("ONNXFORGE_WHEEL", &wheel);
    if !kinds.browser {
        println!("==> the tests in Chromium are skipped");
        tests.args(["--without", "chromium"]);
    }
    let also_good: &[i32] = if filter.is_some() { &[NO_TESTS] } else { &[] };
    step_or("Python tests", &mut tests, also_good)?;
    match coreml {
        Some(coreml) => {
            let mut tests = pytest(&coreml, "tests/coreml", filter);
            step_or("Core ML tests", tests.env("ONNXFORGE_BIN", &binary), also_good)?;
        }
        None => {
            println!("==> the tests with coremltools are skipped, which evaluate packages on Linux only");
        }
    }
    let Some(torch) = torch else {
        println!("==> the tests with PyTorch are skipped");
        return Ok(());
    };
    crate::python::install(&torch, &wheel)?;
    step_or("PyTorch tests", &mut pytest(&torch, "tests/torch", filter), also_good)
}

/// The tests of a folder; what they skip has to be listed.
fn pytest(python: &Path, folder: &str, filter: Option<&str>) -> Command {
    let mut pytest = Command::new(python);
    pytest.current_dir(root()).args(["-m", "pytest", folder, "--durations=5", "-p", "no:cacheprovider"]);
    pytest.args(["-p", "strict_skips"]).env("PYTHONPATH", root().join("tests"));
    if let Some(filter) = filter {
        pytest.args(["-k", filter]);
    }
    pytest
}

/// Fails where there is no Chromium, with what to do about it.
fn find_browser(python: &Path) -> Result<()> {
    let script = "import browser, sys; sys.exit(None if browser.chromium() else browser.HINT)";
    let mut find = Command::new(python);
    find.args(["-c", script]).env("PYTHONPATH", root().join("tests/python"));
    output(&mut find).context("leave the tests in Chromium out with --no-browser, or give them one")?;
    Ok(())
}

/// Many random graphs.
pub fn graphs(count: u64, seed: u64) -> Result<()> {
    let python = crate::python::environment()?;
    let mut test = cargo(&["test", "--package", "onnxforge-verify", "--test", "it", "random_graphs"]);
    test.env("ONNXFORGE_GRAPHS", count.to_string()).env("ONNXFORGE_SEED", seed.to_string());
    test.env("ORT_DYLIB_PATH", crate::python::onnxruntime(&python)?);
    test.args(["--", "--include-ignored"]);
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
