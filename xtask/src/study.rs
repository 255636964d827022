//! `cargo xtask study`: every experiment on the whole zoo, into docs/study.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::step::{Profile, build_with_study, root, step};
use crate::{python, zoo};

/// Where models get their weights, 21 GB of them; they are kept, so that a study that was interrupted resumes.
const MODELS: &str = "target/study/zoo";

/// The classes that models should have, written down beforehand.
const LABELS: &str = "tests/python/data/fingerprints.txt";

#[derive(Debug, clap::Args)]
pub struct Settings {
    /// What `onnxforge study` is told besides, such as `--no-bench`
    #[arg(last = true)]
    options: Vec<String>,
}

pub fn run(settings: &Settings) -> Result<()> {
    let (cli, python) = (build_with_study(Profile::Release)?, python::environment()?);
    let folder = root().join(MODELS);
    for (name, _) in zoo::skeletons()? {
        let target = folder.join(format!("{name}.onnx"));
        if !target.exists() {
            zoo::materialize(&cli, &name, &target, "split")?;
        }
    }
    // Paths as anybody has them: they are written into the results.
    let mut study = Command::new(cli);
    study.current_dir(root()).env("ORT_DYLIB_PATH", python::onnxruntime(&python)?);
    study.args(["study", MODELS, "-o", "docs/study", "--labels", LABELS]).args(&settings.options);
    let done = step("every experiment on every model", &mut study);
    if done.is_ok() {
        println!("{} may go now", Path::new(MODELS).display());
    }
    done
}
