//! `cargo xtask lint`: formatting and clippy.

use anyhow::Result;

use crate::step::{cargo, step};

pub fn run() -> Result<()> {
    step("formatting", &mut cargo(&["fmt", "--all", "--check"]))?;
    let fuzz = ["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"];
    step("formatting of the fuzz targets", &mut cargo(&fuzz))?;
    let mut clippy = cargo(&["clippy", "--workspace", "--all-targets"]);
    clippy.args(["--", "-D", "warnings"]);
    step("clippy", &mut clippy)?;
    let mut bare = cargo(&["clippy", "-p", "onnxforge", "--no-default-features"]);
    bare.args(["--", "-D", "warnings"]);
    step("clippy without features", &mut bare)
}
