//! Running other programs: each one announced, timed, and named when it fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

/// The folder that holds this repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A cargo command, run in the root of the repository.
pub fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    command
}

/// Runs `command`, says what and how long, and fails unless it ends well.
pub fn step(title: &str, command: &mut Command) -> Result<()> {
    step_or(title, command, &[])
}

/// Like [`step`], but the exit codes `also_good` are no failure.
pub fn step_or(title: &str, command: &mut Command, also_good: &[i32]) -> Result<()> {
    println!("==> {title}: {}", shown(command));
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() && !status.code().is_some_and(|code| also_good.contains(&code)) {
        bail!("{title} failed after {seconds:.1} s ({status})");
    }
    println!("==> {title}: {seconds:.1} s");
    Ok(())
}

/// What `command` writes to standard output; fails unless it ends well.
pub fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("cannot start {}", shown(command)))?;
    ensure!(
        done.status.success(),
        "{} failed ({}): {}",
        shown(command),
        done.status,
        String::from_utf8_lossy(&done.stderr).trim()
    );
    String::from_utf8(done.stdout).context("the output is not UTF-8")
}

/// A command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(name)
        .chain(command.get_args())
        .map(|part| part.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The folder that cargo builds into.
pub fn target_folder() -> Result<PathBuf> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let folder = metadata.get("target_directory").and_then(|it| it.as_str());
    folder.map(PathBuf::from).context("cargo metadata has no target_directory")
}

/// How much a build is optimized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As for tests.
    Dev,
    /// As for everyday work.
    Release,
    /// As for users, and for measurements.
    Dist,
}

impl Profile {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }

    /// Where cargo puts what it builds.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release | Self::Dist => self.name(),
        }
    }
}

/// Builds the command line; its path. One that was built before is used when ONNXFORGE_BIN names it.
pub fn build_cli(profile: Profile) -> Result<PathBuf> {
    build("the command line", profile, &["onnxforge-cli"])
}

/// The same, with the program of `onnxforge study` beside it.
pub fn build_with_study(profile: Profile) -> Result<PathBuf> {
    build("the command line and the study", profile, &["onnxforge-cli", "onnxforge-study"])
}

fn build(title: &str, profile: Profile, packages: &[&str]) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("ONNXFORGE_BIN") {
        return std::path::absolute(given).context("ONNXFORGE_BIN");
    }
    let mut build = cargo(&["build", "--profile", profile.name()]);
    build.args(packages.iter().flat_map(|package| ["--package", package]));
    step(&format!("build {title}"), &mut build)?;
    let name = format!("onnxforge{}", std::env::consts::EXE_SUFFIX);
    Ok(target_folder()?.join(profile.folder()).join(name))
}
