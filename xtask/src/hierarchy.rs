//! `cargo xtask bench hierarchy`: how much is known of where nodes come from, whether modules can be cut out, and whether all of that
//! survives optimization.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::bench::size;
use crate::measure::{Usage, watch};
use crate::models::{self, for_each, tools};
use crate::python;
use crate::step::root;

/// The least share of nodes whose module is to be known.
const KNOWN: f64 = 0.99;

const NOTHING: [&str; 0] = [];

/// Views of the modules: each must give every tagged module a tag of its own.
const POLICIES: [&[&str]; 4] = [&[], &["--all"], &["--no-torch-nn"], &["--keep", "Linear,Conv2d"]];

#[derive(Debug, clap::Args)]
pub struct Settings {
    #[command(flatten)]
    models: models::Options,
    /// Run only models up to this size, and parts of them; of larger ones only what needs no run is measured
    #[arg(long, default_value = "500MB", value_parser = bytes)]
    max_bytes: u64,
}

/// Reads a size such as 500MB.
fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit.trim() {
        "" | "B" => Some(1),
        "kB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        _ => None,
    };
    let size = unit.and_then(|unit: u64| number.parse::<u64>().ok()?.checked_mul(unit));
    size.ok_or_else(|| format!("{text:?} is no size such as 500MB"))
}

struct Bench<'a> {
    cli: PathBuf,
    runtime: PathBuf,
    settings: &'a Settings,
}

pub fn run(settings: &Settings) -> Result<()> {
    let (cli, python) = tools()?;
    let bench = Bench { cli, runtime: python::onnxruntime(&python)?, settings };
    println!(
        "| model | nodes | exact | inferred | unknown | with parameters, known | tags | topology | modules cut out, identical \
         | nodes after | unknown after | modules after, identical | tag | one layer | missed |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let (mut measured, mut missed) = (0, Vec::new());
    for_each(&settings.models, &crate::latency::DEFAULT, |name, model| {
        let row = bench.model(name, model).with_context(|| name.to_owned())?;
        println!("| {name} | {} | {} |", row.cells.join(" | "), row.missed.join(", "));
        measured += 1;
        missed.extend(row.missed.iter().map(|bar| format!("{name}: {bar}")));
        Ok(())
    })?;
    ensure!(measured > 0, "no model of the zoo has such a name; `cargo xtask zoo list` shows what there is");
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// What was measured of a model, and the bars that it missed.
#[derive(Default)]
struct Row {
    cells: Vec<String>,
    missed: Vec<String>,
}

impl Row {
    fn cell(&mut self, text: impl ToString) {
        self.cells.push(text.to_string());
    }

    fn bar(&mut self, reached: bool, name: &str) {
        if !reached {
            self.missed.push(name.to_owned());
        }
    }
}

impl Bench<'_> {
    fn model(&self, name: &str, model: &Path) -> Result<Row> {
        let folder = model.parent().context("the model has no folder")?;
        let runs = size(folder)? <= self.settings.max_bytes;
        let table = table(name, folder)?;
        let tagged = folder.join("tagged.onnx");
        let tag = self.tag(model, &table, &tagged)?;
        let mut row = Row::default();
        self.coverage(&tagged, &mut row)?;
        self.tags(model, &table, &mut row)?;
        self.topology(model, &tagged, runs, &mut row)?;
        self.parts(&tagged, runs, "extraction", &mut row)?;
        let layer = self.layer(&tagged, folder)?;
        self.survival(&tagged, folder, runs, &mut row)?;
        row.cell(shown(&tag));
        row.cell(
            layer.map_or_else(|| "none".to_owned(), |(path, usage)| format!("{path}: {}", shown(&usage))),
        );
        Ok(row)
    }

    fn tag(&self, model: &Path, table: &[PathBuf], tagged: &Path) -> Result<Usage> {
        let mut command = self.command("tag", &[model]);
        command.args(modules(table)).arg("-o").arg(tagged);
        watch(&mut command)
    }

    /// How many nodes are known, of all and of those that compute with parameters.
    fn coverage(&self, tagged: &Path, row: &mut Row) -> Result<()> {
        let found = self.ask("coverage", &[tagged], &NOTHING)?;
        for key in ["nodes", "exact", "inferred", "root"] {
            row.cell(count(&found[key])?);
        }
        let users = &found["with_parameters"];
        let (all, unknown) = (count(&users["nodes"])?, count(&users["root"])?);
        row.cell(format!("{} of {all}", all - unknown));
        row.bar(unknown == 0, "nodes with parameters known");
        let share = found["coverage"].as_f64().context("no coverage")?;
        row.bar(share >= KNOWN, &format!("{:.1} % of nodes known", share * 100.0));
        Ok(())
    }

    /// How many tags each view gives; each must mean one module.
    fn tags(&self, model: &Path, table: &[PathBuf], row: &mut Row) -> Result<()> {
        let mut counts = Vec::new();
        for policy in POLICIES {
            let args = modules(table).into_iter().chain(policy.iter().map(|arg| PathBuf::from(*arg)));
            let told = count(&self.ask("tag", &[model], &args.collect::<Vec<_>>())?["tags"])?;
            let sidecar = self.sidecar(model)?;
            // The next view must not be made from this one.
            std::fs::remove_file(beside(model))?;
            let expected = sidecar["expected_hierarchy"].as_object().context("no expected_hierarchy")?;
            let paths: BTreeSet<&str> = expected
                .values()
                .filter_map(|paths| match paths.as_array()?.as_slice() {
                    [path] => path.as_str(),
                    _ => None,
                })
                .collect();
            row.bar(
                expected.len() as u64 == told && paths.len() as u64 == told,
                &format!("tags unique {}", policy.join(" ")),
            );
            counts.push(told.to_string());
        }
        row.cell(counts.join(", "));
        Ok(())
    }

    /// Whether tagging changed nothing but metadata, for readers and for runs.
    fn topology(&self, model: &Path, tagged: &Path, runs: bool, row: &mut Row) -> Result<()> {
        let compared = self.ask("compare", &[model, tagged], &["--exact"])?;
        let sameness = compared["sameness"].as_str().context("no answer")?.to_owned();
        row.bar(sameness == "identical", "topology");
        if !runs {
            row.cell(format!("{sameness}, not run"));
            return Ok(());
        }
        let verified = self.ask("verify", &[model, tagged], &["--samples", "1", "--engine", "ort"])?;
        let verdict = verified["verdict"].as_str().context("no verdict")?;
        row.bar(verdict == "identical", "results of the tagged model");
        row.cell(format!("{sameness}, results {verdict}"));
        Ok(())
    }

    /// How many modules can be cut out, and how many of them compute what the whole model does.
    fn parts(&self, tagged: &Path, runs: bool, what: &str, row: &mut Row) -> Result<()> {
        if !runs {
            row.cell("not run");
            return Ok(());
        }
        let found = self.ask("extract", &[tagged], &["-m", "**", "--verify"])?;
        let parts = found["parts"].as_array().context("no parts")?;
        let good = |part: &&Value| {
            part["verified"] == "identical" && part["problems"].as_array().is_some_and(Vec::is_empty)
        };
        let good = parts.iter().filter(good).count();
        row.cell(format!("{good} of {}", parts.len()));
        row.bar(good == parts.len() && good > 0, what);
        Ok(())
    }

    /// Whether everything that is known stays known when passes change the model.
    fn survival(&self, tagged: &Path, folder: &Path, runs: bool, row: &mut Row) -> Result<()> {
        let made = folder.join("made.onnx");
        let output = ["-o".into(), made.clone(), "--verify".into(), "off".into()];
        self.ask("optimize", &[tagged], &output)?;
        let (before, after) = (self.sidecar(tagged)?, self.sidecar(&made)?);
        let unknown = |sidecar: &Value| count(&sidecar["summary"]["nodes"]["root"]);
        // The sidecar and the file itself have to agree.
        let found = self.ask("coverage", &[&made], &NOTHING)?;
        row.cell(count(&found["nodes"])?);
        row.cell(count(&found["root"])?);
        row.bar(count(&found["root"])? <= unknown(&before)?, "nodes known after passes");
        row.bar(paths(&after)?.is_subset(&paths(&before)?), "modules after passes are those before");
        row.bar(self.ask("validate", &[&made], &NOTHING)?["valid"] == true, "validation after passes");
        self.parts(&made, runs, "extraction after passes", row)?;
        forget(&made)
    }

    /// Time and memory of cutting out one of the modules that a model repeats, the largest.
    fn layer(&self, tagged: &Path, folder: &Path) -> Result<Option<(String, Usage)>> {
        let tree = self.ask("tree", &[tagged], &NOTHING)?;
        let modules = tree["modules"].as_array().context("no modules")?;
        let number = |path: &str| path.rsplit('.').next().is_some_and(|last| last.parse::<u32>().is_ok());
        let repeated = modules.iter().filter(|row| row["module"].as_str().is_some_and(number));
        let largest =
            repeated.filter(|row| row["nodes"].as_u64() > Some(0)).max_by_key(|row| row["bytes"].as_u64());
        let Some(path) = largest.and_then(|row| row["module"].as_str()) else { return Ok(None) };
        let part = folder.join("part.onnx");
        let mut command = self.command("extract", &[tagged]);
        command.args(["-m", path]).arg("-o").arg(&part);
        let usage = watch(&mut command)?;
        forget(&part)?;
        Ok(Some((path.to_owned(), usage)))
    }

    fn sidecar(&self, model: &Path) -> Result<Value> {
        let path = beside(model);
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// What a command answers, be that yes or no.
    fn ask<A: AsRef<std::ffi::OsStr>>(&self, name: &str, models: &[&Path], args: &[A]) -> Result<Value> {
        let done = self.command(name, models).args(args).args(["--json", "-"]).output()?;
        if !matches!(done.status.code(), Some(0 | 1)) {
            bail!("{name} failed ({}): {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
        }
        serde_json::from_slice(&done.stdout).with_context(|| format!("{name} answers no JSON"))
    }

    fn command(&self, name: &str, models: &[&Path]) -> Command {
        let mut command = Command::new(&self.cli);
        command.env("ORT_DYLIB_PATH", &self.runtime).arg(name).args(models);
        command
    }
}

/// Writes the module table of a model into `folder`. Models of PyTorch's newer exporter say themselves what it holds.
fn table(name: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    let Some(name) = name.strip_suffix(".torchscript") else { return Ok(Vec::new()) };
    let packed = root().join("zoo/modules").join(format!("{name}.json.gz"));
    let target = folder.join("modules.json");
    let file = File::open(&packed).with_context(|| packed.display().to_string())?;
    std::io::copy(&mut GzDecoder::new(file), &mut File::create(&target)?)
        .with_context(|| packed.display().to_string())?;
    Ok(vec![target])
}

/// The arguments that name a table.
fn modules(table: &[PathBuf]) -> Vec<PathBuf> {
    table.iter().flat_map(|path| ["--modules".into(), path.clone()]).collect()
}

/// The paths of the modules that nodes come from.
fn paths(sidecar: &Value) -> Result<BTreeSet<&str>> {
    let nodes = sidecar["nodes"].as_object().context("no nodes")?;
    let modules = nodes.values().filter_map(|node| node["modules"].as_array());
    Ok(modules.flatten().filter_map(Value::as_str).collect())
}

fn count(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is no number"))
}

fn shown(usage: &Usage) -> String {
    format!("{:.2} s, {:.0} MB", usage.seconds, usage.anonymous as f64 / 1e6)
}

/// The sidecar of a model.
fn beside(model: &Path) -> PathBuf {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    model.with_file_name(format!("{stem}_hierarchy.json"))
}

/// Removes a model with its weights and its sidecar; the disk is not ours alone.
fn forget(model: &Path) -> Result<()> {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    let folder = model.parent().context("the model has no folder")?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.strip_prefix(&*stem).is_some_and(|rest| rest.starts_with(['.', '_'])) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("500MB"), Ok(500_000_000));
        assert_eq!(bytes("12"), Ok(12));
        assert_eq!(bytes("3 GB"), Ok(3_000_000_000));
        for wrong in ["", "MB", "1.5GB", "-1", "5 apples", "99999999999999GB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_model_is_forgotten_with_all_that_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ["made2.onnx", "tagged.onnx", "model.onnx"];
        for name in ["made.onnx", "made.onnx.data", "made_hierarchy.json"].iter().chain(&kept) {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        forget(&folder.path().join("made.onnx")).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["made2.onnx", "model.onnx", "tagged.onnx"]);
    }
}
