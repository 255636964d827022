//! Virtual environments of our own: `.venv/` with exactly what `tests/python/requirements.txt` pins, `.venv-peers/` with the
//! tools that we compare ourselves with, which pin other versions, `.venv-torch/` with PyTorch, and `.venv-coreml/` with coremltools; and our own package in them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};

use crate::step::{Profile, output, root, step, target_folder};

/// Python in an environment, whether or not that exists.
fn interpreter(folder: &Path) -> PathBuf {
    let inside = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    folder.join(inside)
}

/// Python in the environment of the tests, whether or not that exists.
pub fn existing() -> PathBuf {
    interpreter(&root().join(".venv"))
}

/// Makes the environment of the tests, or brings it up to date; Python in it.
pub fn environment() -> Result<PathBuf> {
    up_to_date(".venv", "tests/python/requirements.txt")
}

/// The same for the tools that we compare ourselves with.
pub fn peers() -> Result<PathBuf> {
    up_to_date(".venv-peers", "tests/python/peers.txt")
}

/// The same for PyTorch, which is large.
pub fn torch() -> Result<PathBuf> {
    up_to_date(".venv-torch", "tests/torch/requirements.txt")
}

/// The same for coremltools, which wants an older NumPy.
pub fn coreml() -> Result<PathBuf> {
    up_to_date(".venv-coreml", "tests/coreml/requirements.txt")
}

/// Builds the wheel of the Python package; its path. One that was built before is used when ONNXFORGE_WHEEL names it.
pub fn build_wheel(python: &Path, profile: Profile) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("ONNXFORGE_WHEEL") {
        return std::path::absolute(given).context("ONNXFORGE_WHEEL");
    }
    let folder = target_folder()?.join("wheels").join(profile.folder());
    drop(std::fs::remove_dir_all(&folder));
    let mut build = Command::new(python);
    build.current_dir(root()).args(["-m", "maturin", "build", "--out"]).arg(&folder);
    build.args(["--profile", profile.name()]);
    step("build the wheel", &mut build)?;
    let built = std::fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheels: Vec<PathBuf> =
        built.filter(|path| path.extension().is_some_and(|kind| kind == "whl")).collect();
    match &wheels[..] {
        [wheel] => Ok(wheel.clone()),
        found => Err(anyhow!("{} has {} wheels instead of one", folder.display(), found.len())),
    }
}

/// Installs a wheel in an environment, whatever version was there. What it depends on is there already.
pub fn install(python: &Path, wheel: &Path) -> Result<()> {
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "--disable-pip-version-check", "--quiet"]);
    install.args(["--force-reinstall", "--no-deps"]).arg(wheel);
    step("install the wheel", &mut install)
}

/// `cargo xtask wheel`: the wheel that users get.
pub fn wheel() -> Result<()> {
    let wheel = build_wheel(&environment()?, Profile::Dist)?;
    println!("{}: {:.1} MB", wheel.display(), wheel.metadata()?.len() as f64 / 1e6);
    Ok(())
}

fn up_to_date(folder: &str, requirements: &'static str) -> Result<PathBuf> {
    let folder = root().join(folder);
    let python = interpreter(&folder);
    // The requirements as they were last installed.
    let stamp = folder.join("installed.txt");
    let wanted = std::fs::read_to_string(root().join(requirements)).context(requirements)?;
    let works = Command::new(&python).args(["-c", ""]).output().is_ok_and(|done| done.status.success());
    if works && std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    if !works {
        create(&folder)?;
    }
    // Without a stamp an installation that fails half-way is done again.
    drop(std::fs::remove_file(&stamp));
    let mut install = Command::new(&python);
    install.current_dir(root());
    install.args(["-m", "pip", "install", "--disable-pip-version-check"]);
    install.args(["--quiet", "--requirement", requirements]);
    step("install Python packages", &mut install)?;
    std::fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())?;
    Ok(python)
}

/// The library of the environment's ONNX Runtime.
pub fn onnxruntime(python: &Path) -> Result<PathBuf> {
    // libonnxruntime.so.1.2.3, libonnxruntime.1.2.3.dylib or onnxruntime.dll.
    let script = "import glob, onnxruntime, os; print(glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), \
                  'capi', '*onnxruntime.[sd0-9]*'))[0])";
    let found = output(Command::new(python).args(["-c", script])).context("ONNX Runtime has no library")?;
    Ok(PathBuf::from(found.trim()))
}

fn create(folder: &Path) -> Result<()> {
    let system = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let version = output(Command::new(&system).args([
        "-c",
        "import sys; print('%d.%d' % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))",
    ]))
    .map_err(|_| {
        anyhow!(
            "the Python tests need Python 3.11 or later, and {} is not that; install it, name it in the \
             environment variable PYTHON, or leave these tests out with --no-python",
            system.to_string_lossy()
        )
    })?;
    let mut venv = Command::new(&system);
    venv.args(["-m", "venv", "--clear"]).arg(folder);
    let title = format!("make {} with Python {}", folder.display(), version.trim());
    step(&title, &mut venv)?;
    ensure!(
        interpreter(folder).exists(),
        "{} has no interpreter; is the venv module of Python installed?",
        folder.display()
    );
    Ok(())
}
