//! `cargo xtask bench verify`: what verification costs and says, and what it says of other tools' results.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::default_run::load_and_run;
use crate::measure::{median, watch};
use crate::models::{self, for_each, tools};
use crate::python;

#[derive(Debug, clap::Args)]
pub struct Settings {
    #[command(flatten)]
    models: models::Options,
    /// How many seeds each model is optimized with
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// What computes
    #[arg(long, default_value = "auto")]
    engine: String,
    /// Verify what onnxsim and OnnxSlim make of the models, too
    #[arg(long)]
    peers: bool,
}

struct Bench<'a> {
    cli: PathBuf,
    python: PathBuf,
    runtime: PathBuf,
    peers: Option<PathBuf>,
    settings: &'a Settings,
}

pub fn run(settings: &Settings) -> Result<()> {
    let (cli, python) = tools()?;
    let runtime = python::onnxruntime(&python)?;
    let peers = settings.peers.then(python::peers).transpose()?;
    let bench = Bench { cli, python, runtime, peers, settings };
    println!(
        "| model | edits checked | not tried | local checks, s | comparison, s | load and run, s | comparison by that | memory, MB | values inside | verdicts | false alarms |\n\
         |---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut alarms = 0;
    for_each(&settings.models, &crate::latency::DEFAULT, |name, model| {
        alarms += bench.model(name, model)?;
        Ok(())
    })?;
    ensure!(alarms == 0, "{alarms} false alarms");
    Ok(())
}

impl Bench<'_> {
    /// Prints the rows of a model. Answers how many false alarms there were.
    fn model(&self, name: &str, model: &Path) -> Result<usize> {
        let folder = tempfile::tempdir_in(model.parent().context("the model has no folder")?)?;
        let (made, report) = (folder.path().join("made.onnx"), folder.path().join("report.json"));
        let (mut local, mut global, mut reference) = (Vec::new(), Vec::new(), Vec::new());
        let (mut verdicts, mut alarms, mut memory) = (Vec::new(), 0, 0);
        let mut last = Value::Null;
        for seed in 0..self.settings.seeds {
            let mut command = self.command("optimize", &[model]);
            command.arg("-o").arg(&made).args(["--allow-revert", "--seed", &seed.to_string()]);
            command.args(["--engine", &self.settings.engine]).arg("--json").arg(&report);
            let usage = watch(command.stderr(Stdio::null()))?;
            memory = memory.max(usage.anonymous);
            last = serde_json::from_slice(&std::fs::read(&report)?)?;
            local.push(last["milliseconds"]["local_checks"].as_f64().unwrap_or(f64::NAN) / 1e3);
            global.push(last["milliseconds"]["comparison"].as_f64().unwrap_or(f64::NAN) / 1e3);
            let proof = &last["verification"];
            let said = proof["global"]["verdict"].as_str().or(proof["unverified"].as_str()).unwrap_or("none");
            if !verdicts.contains(&said.to_owned()) {
                verdicts.push(said.to_owned());
            }
            alarms += proof["reverted"].as_array().map_or(0, Vec::len);
            if seed < 3 {
                let sizes = proof["global"]["sizes"][0].as_str().unwrap_or_default();
                reference.extend(load_and_run(&self.python, model, sizes)["seconds"].as_f64());
            }
        }
        let proof = &last["verification"];
        let tried = proof["local"]["unchecked"].as_object();
        let untried: u64 = tried.map_or(0, |reasons| reasons.values().filter_map(Value::as_u64).sum());
        let (compared, reference) = (median(global), median(reference));
        println!(
            "| {name} | {} | {untried} | {:.2} | {compared:.2} | {reference:.2} | {:.2} | {:.0} | {}{} | {} | {alarms} |",
            proof["local"]["checked"],
            median(local),
            compared / reference,
            memory as f64 / 1e6,
            proof["global"]["inside"],
            if proof["global"]["by_blocks"] == true { ", by blocks" } else { "" },
            verdicts.join(", "),
        );
        drop(std::fs::remove_file(&made));
        for tool in self.peers.iter().flat_map(|_| ["onnxsim", "onnxslim"]) {
            println!("| {name}, {tool} | {} |", self.second_opinion(tool, model, &made)?);
            drop(std::fs::remove_file(&made));
        }
        Ok(alarms)
    }

    /// What `verify` says of another tool's result.
    fn second_opinion(&self, tool: &str, model: &Path, made: &Path) -> Result<String> {
        let program = self.peers.as_ref().context("no peers")?.with_file_name(tool);
        let mut command = Command::new(program);
        command.arg(model).arg(made).stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status()?.success() || !made.exists() {
            return Ok("the tool fails".to_owned());
        }
        let done = self.command("verify", &[model, made]).args(["--json", "-"]).output()?;
        let Ok(found) = serde_json::from_slice::<Value>(&done.stdout) else {
            return Ok(String::from_utf8_lossy(&done.stderr).trim().to_owned());
        };
        let outputs = found["outputs"].as_array().cloned().unwrap_or_default();
        let worst =
            outputs.iter().filter_map(|output| output["difference"]["max_rel"].as_f64()).fold(0.0, f64::max);
        let mismatch = outputs.iter().find_map(|output| output["mismatch"].as_str()).unwrap_or_default();
        Ok(format!("{}, {worst:.1e} {mismatch}", found["verdict"].as_str().unwrap_or_default()))
    }

    fn command(&self, name: &str, models: &[&Path]) -> Command {
        let mut command = Command::new(&self.cli);
        command.env("ORT_DYLIB_PATH", &self.runtime).arg(name).args(models);
        command
    }
}
