//! `cargo xtask fuzz`: the targets in `fuzz/`, with libFuzzer, on stable Rust.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use crate::step::{Profile, build_cli, cargo, output, root, step};

/// What the coverage-guided search needs, by way of the code generator instead of a nightly flag.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1";

/// Larger files make slow seeds.
const MAX_SEED: u64 = 64 << 10;

pub fn run(target: &str, seconds: u64) -> Result<()> {
    let known = targets()?;
    let chosen: Vec<&str> = match target {
        "all" => known.iter().map(String::as_str).collect(),
        one if known.iter().any(|name| name == one) => vec![one],
        other => bail!("there is no fuzz target {other:?}; there are {} and all", known.join(", ")),
    };
    let built = build(&chosen)?;
    let models = model_seeds()?;
    let mut failed = Vec::new();
    for name in chosen {
        let seeds = match name {
            "text" => text_seeds(&models)?,
            "tflite" | "coreml" => converted_seeds(name)?,
            _ => models.clone(),
        };
        if !fuzz(name, &built.join(name), &seeds, seconds)? {
            failed.push(name);
        }
    }
    ensure!(failed.is_empty(), "found by {}", failed.join(", "));
    Ok(())
}

/// Names of the targets: the files in `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "rs") {
            found.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    found.sort();
    Ok(found)
}

/// Builds the targets; the folder that they are in.
fn build(names: &[&str]) -> Result<PathBuf> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let triple = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc does not say what it runs on")?;
    let folder = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder).join("fuzz"),
        None => root().join("fuzz/target"),
    };
    let mut build = cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    // With a target named, build scripts and macros are not instrumented.
    build.args(["--target", triple]).arg("--target-dir").arg(&folder);
    for name in names {
        build.args(["--bin", name]);
    }
    build.env("RUSTFLAGS", RUSTFLAGS).env_remove("CARGO_ENCODED_RUSTFLAGS");
    step("build the fuzz targets", &mut build)?;
    Ok(folder.join(triple).join("release"))
}

/// A folder with the small models of the repository and, where the Python packages are installed, the ONNX node cases.
fn model_seeds() -> Result<PathBuf> {
    let seeds = root().join("fuzz/corpus/seeds/models");
    std::fs::create_dir_all(&seeds)?;
    for folder in ["examples", "tests/data"] {
        for entry in std::fs::read_dir(root().join(folder))? {
            let path = entry?.path();
            let is_model = path.extension().is_some_and(|ending| ending == "onnx");
            if is_model && path.metadata()?.len() <= MAX_SEED {
                std::fs::copy(&path, seeds.join(path.file_name().unwrap_or_default()))?;
            }
        }
    }
    let cases = seeds.join("cases");
    let python = crate::python::existing();
    if !cases.exists() && python.exists() {
        let mut write = Command::new(python);
        write.arg(root().join("tests/python/corpus.py")).arg(&cases);
        step("write the ONNX node cases", &mut write)?;
    }
    Ok(seeds)
}

/// A folder with the models of `models` in the ONNX notation.
fn text_seeds(models: &Path) -> Result<PathBuf> {
    let seeds = root().join("fuzz/corpus/seeds/text");
    std::fs::create_dir_all(&seeds)?;
    let cli = build_cli(Profile::Release)?;
    let mut folders = vec![models.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let target = seeds.join(path.file_stem().unwrap_or_default());
            if !target.exists() {
                // What cannot be printed is no seed.
                let printed = Command::new(&cli).arg("print").arg(path).output()?;
                if printed.status.success() && printed.stdout.len() as u64 <= MAX_SEED {
                    std::fs::write(target, printed.stdout)?;
                }
            }
        }
    }
    Ok(seeds)
}

/// A folder with files of another format: what becomes of the small models of the repository. Of a package it is the model.
fn converted_seeds(format: &str) -> Result<PathBuf> {
    let seeds = root().join("fuzz/corpus/seeds").join(format);
    std::fs::create_dir_all(&seeds)?;
    let cli = build_cli(Profile::Release)?;
    for folder in ["examples", "tests/data"] {
        for entry in std::fs::read_dir(root().join(folder))? {
            let path = entry?.path();
            if path.extension().is_none_or(|ending| ending != "onnx") || path.metadata()?.len() > MAX_SEED {
                continue;
            }
            let seed = seeds.join(path.file_stem().unwrap_or_default());
            let is_package = format == "coreml";
            let target = seed.with_extension(if is_package { "mlpackage" } else { format });
            // What has no place in the format is no seed.
            let mut convert = Command::new(&cli);
            convert.args(["-q", "convert", "--verify", "off"]).arg(path).arg("-o").arg(&target);
            if convert.output()?.status.success() && is_package {
                std::fs::rename(
                    target.join("Data/com.apple.CoreML/model.mlmodel"),
                    seed.with_extension("mlmodel"),
                )?;
                std::fs::remove_dir_all(target)?;
            }
        }
    }
    Ok(seeds)
}

/// Runs one target; whether it found nothing.
fn fuzz(name: &str, binary: &Path, seeds: &Path, seconds: u64) -> Result<bool> {
    let corpus = root().join("fuzz/corpus").join(name);
    let artifacts = root().join("fuzz/artifacts").join(name);
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let log = artifacts.with_extension("log");
    println!("==> fuzz {name} for {seconds} s; the log is {}", log.display());
    let (start, began) = (Instant::now(), SystemTime::now());
    let status = Command::new(binary)
        .args([&corpus, seeds])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-max_total_time={seconds}"))
        .args(["-rss_limit_mb=2048", "-timeout=10", "-print_final_stats=1"])
        .stderr(File::create(&log)?)
        .status()
        .with_context(|| binary.display().to_string())?;
    let mut said = String::new();
    File::open(&log)?.read_to_string(&mut said)?;
    let statistic = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("?", str::trim).to_owned()
    };
    let coverage = said.lines().rev().find_map(|line| line.split_once("cov: ")?.1.split(' ').next());
    println!(
        "==> fuzz {name}: {:.0} s, {} runs, {} edges covered, {} MB at most",
        start.elapsed().as_secs_f64(),
        statistic("stat::number_of_executed_units:"),
        coverage.unwrap_or("?"),
        statistic("stat::peak_rss_mb:"),
    );
    if status.success() {
        return Ok(true);
    }
    let why = said.lines().find(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
    println!("==> fuzz {name} failed ({status}): {}", why.unwrap_or("see the log").trim());
    for entry in std::fs::read_dir(&artifacts)? {
        let entry = entry?;
        if entry.metadata()?.modified()? >= began {
            println!("    {0}\n    again: {1} {0}", entry.path().display(), binary.display());
        }
    }
    Ok(false)
}
