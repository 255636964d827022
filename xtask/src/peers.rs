//! `cargo xtask bench optimize`: the whole command beside those of onnxsim and OnnxSlim, in one run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::{fresh, print_table, size, timed_copy};
use crate::measure::{Usage, median, watch};
use crate::step::{Profile, build_cli, target_folder};
use crate::{python, zoo};

/// The models of the comparison, with where their weights are.
const SUBJECTS: [(&str, &str); 6] = [
    ("bert_base.torchscript", "inline"),
    ("gpt2.torchscript", "inline"),
    ("vit_base.torchscript", "inline"),
    ("yolov8n.torchscript", "inline"),
    ("resnet50.torchscript", "inline"),
    ("tinyllama.dynamo", "split"),
];

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Models of the zoo whose name contains one of these, instead of the default six
    names: Vec<String>,
    /// Where to work, in a folder of its own; TinyLlama needs 14 GB
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How often each program runs
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Leave the peers out
    #[arg(long)]
    alone: bool,
    /// Another build of onnxforge, for example of an earlier commit, that runs in the same rounds
    #[arg(long, value_name = "PROGRAM")]
    other: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let cli = build_cli(Profile::Dist)?;
    let peers = if options.alone { None } else { Some(python::peers()?) };
    let parent = match &options.dir {
        Some(folder) => folder.clone(),
        None => target_folder()?,
    };
    std::fs::create_dir_all(&parent).with_context(|| parent.display().to_string())?;
    let heading = [
        "model",
        "MB",
        "nodes",
        "cp s",
        "onnxforge s",
        "by other",
        "onnxsim s",
        "onnxslim s",
        "× faster",
        "× cp",
        "anon MB",
        "peers MB",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    for (name, external) in subjects(options)? {
        let work = tempfile::Builder::new().prefix("peers-").tempdir_in(&parent)?;
        let folder = work.path().join("model");
        let model = folder.join("model.onnx");
        zoo::materialize(&cli, &name, &model, external)?;
        rows.push(measure(&name, &cli, peers.as_deref(), &model, options)?);
    }
    print_table(&rows);
    println!(
        "\nMedians of {} interleaved runs of the whole commands, files in the page cache, without verification. by other: our time \
         by that of the other build (--other). × faster: the faster peer's time by ours. anon: peak of memory that is not a part of a file. A peer that fails is shown as -.",
        options.runs
    );
    Ok(())
}

fn subjects(options: &Options) -> Result<Vec<(String, &'static str)>> {
    if options.names.is_empty() {
        return Ok(SUBJECTS.map(|(name, external)| (name.to_owned(), external)).to_vec());
    }
    let all = zoo::skeletons()?.into_iter().map(|(name, _)| name);
    let chosen = all.filter(|name| options.names.iter().any(|part| name.contains(part)));
    Ok(chosen.map(|name| (name, "auto")).collect())
}

fn measure(
    name: &str,
    cli: &Path,
    peers: Option<&Path>,
    model: &Path,
    options: &Options,
) -> Result<[String; 12]> {
    let folder = model.parent().context("the model has no folder")?;
    let target = folder.with_extension("out");
    let external = folder.join("model.onnx.data").exists() || size(folder)? > 2_000_000_000;
    let (mut copies, mut ours, mut others) = (Vec::new(), Vec::<Usage>::new(), Vec::<Usage>::new());
    let (mut sim, mut slim) = (Vec::<Usage>::new(), Vec::<Usage>::new());
    // The first round only warms the page cache.
    for round in 0..=options.runs {
        let (copied, _) = timed_copy(folder, &target)?;
        // Whoever comes first finds other things in the caches, so builds take turns.
        let other = |turn: usize| match &options.other {
            Some(other) if round % 2 == turn => optimize(other, model, &target).map(Some),
            _ => Ok(None),
        };
        let before = other(0)?;
        let usage = optimize(cli, model, &target)?;
        let after = other(1)?;
        if round > 0 {
            copies.push(copied);
            ours.push(usage);
            others.extend(before.or(after));
        }
        if let Some(python) = peers.filter(|_| round > 0) {
            fresh(&target)?;
            let mut onnxsim = Command::new(python.with_file_name("onnxsim"));
            onnxsim.arg(model).arg(target.join("model.onnx"));
            let mut onnxslim = Command::new(python.with_file_name("onnxslim"));
            onnxslim.arg(model).arg(target.join("slim.onnx"));
            if external {
                onnxsim.arg("--save-as-external-data");
                onnxslim.arg("--save-as-external-data");
            }
            sim.extend(watch(onnxsim.stderr(std::process::Stdio::null())).ok());
            fresh(&target)?;
            slim.extend(watch(onnxslim.stderr(std::process::Stdio::null())).ok());
        }
    }
    fresh(&target)?;
    let mut command = Command::new(cli);
    command
        .arg("optimize")
        .arg(model)
        .arg("-o")
        .arg(target.join("model.onnx"))
        .args(["--json", "-", "--verify", "off"]);
    let report: serde_json::Value = serde_json::from_str(&crate::step::output(&mut command)?)?;
    std::fs::remove_dir_all(&target)?;
    let seconds = |usages: &[Usage]| median(usages.iter().map(|usage| usage.seconds));
    let most = |usages: &[Usage]| usages.iter().map(|usage| usage.anonymous).max().unwrap_or(0) as f64 / 1e6;
    let (copied, own, sim_time, slim_time) = (median(copies), seconds(&ours), seconds(&sim), seconds(&slim));
    let shown =
        |value: f64, digits: usize| if value.is_nan() { "-".to_owned() } else { format!("{value:.digits$}") };
    // Each round by itself, so that what slows the machine down for a while slows both.
    let ratios = ours.iter().zip(&others).map(|(ours, other)| ours.seconds / other.seconds);
    Ok([
        name.to_owned(),
        format!("{:.0}", size(folder)? as f64 / 1e6),
        format!("{} → {}", report["before"]["nodes"], report["after"]["nodes"]),
        shown(copied, 3),
        shown(own, 3),
        shown(median(ratios), 3),
        shown(sim_time, 2),
        shown(slim_time, 2),
        shown(sim_time.min(slim_time) / own, 1),
        shown(own / copied, 2),
        format!("{:.0}", most(&ours)),
        format!("{:.0} / {:.0}", most(&sim), most(&slim)),
    ])
}

/// The time and memory of the whole command.
fn optimize(cli: &Path, model: &Path, target: &Path) -> Result<Usage> {
    fresh(target)?;
    let mut command = Command::new(cli);
    command.arg("optimize").arg(model).arg("-o").arg(target.join("model.onnx"));
    watch(command.args(["--quiet", "--verify", "off"]))
}
