//! The models in `zoo/`: real exports without their weights, which `onnxforge materialize` makes again.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;

use crate::step::{Profile, build_cli, root, step};

const ENDING: &str = ".onnx.gz";

/// Names and paths of the skeletons, in order.
pub fn skeletons() -> Result<Vec<(String, PathBuf)>> {
    let folder = root().join("zoo");
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(name) = file.strip_suffix(ENDING) {
            found.push((name.to_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

pub fn list() -> Result<()> {
    let found = skeletons()?;
    ensure!(!found.is_empty(), "zoo/ holds no skeleton");
    let width = found.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut lines = String::new();
    for (name, path) in &found {
        let bytes = path.metadata()?.len();
        lines += &format!("{name:<width$} {:>6} kB\n", bytes.div_ceil(1000));
    }
    match io::stdout().write_all(lines.as_bytes()) {
        // Whoever reads this may have read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

pub fn materialize_all(names: &[String], folder: &Path, external: &str) -> Result<()> {
    // Unknown names before the first gigabyte is written.
    names.iter().try_for_each(|name| find(name).map(drop))?;
    let cli = build_cli(Profile::Release)?;
    for name in names {
        let target = folder.join(format!("{name}.onnx"));
        materialize(&cli, name, &target, external)?;
    }
    Ok(())
}

fn find(name: &str) -> Result<PathBuf> {
    let found = skeletons()?;
    if let Some((_, path)) = found.iter().find(|(known, _)| known == name) {
        return Ok(path.clone());
    }
    let similar: Vec<&str> = found
        .iter()
        .map(|(known, _)| known.as_str())
        .filter(|known| known.starts_with(name.split('.').next().unwrap_or(name)))
        .collect();
    if similar.is_empty() {
        bail!("the zoo has no model {name:?}; `cargo xtask zoo list` shows what there is");
    }
    bail!("the zoo has no model {name:?}, but it has {}", similar.join(" and "));
}

/// Writes the model `name` with weights to `target`.
pub fn materialize(cli: &Path, name: &str, target: &Path, external: &str) -> Result<()> {
    let packed = find(name)?;
    let mut skeleton = tempfile::Builder::new().suffix(".onnx").tempfile()?;
    let mut unpacked = GzDecoder::new(File::open(&packed)?);
    io::copy(&mut unpacked, &mut skeleton).with_context(|| packed.display().to_string())?;
    if let Some(folder) = target.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut command = Command::new(cli);
    command.arg("materialize").arg(skeleton.path());
    command.arg("-o").arg(target).args(["--external", external, "--quiet"]);
    step(&format!("materialize {name}"), &mut command)
}
