//! `cargo xtask bench default`: the default command, verification included, beside the unverified ones of onnxsim and OnnxSlim, and beside
//! loading and running the original once in ONNX Runtime.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::bench::{fresh, print_table, size};
use crate::measure::{Usage, median, watch};
use crate::step::{Profile, build_cli, output, root, target_folder};
use crate::{python, zoo};

/// Models with more bytes than this are not measured.
const LARGEST: u64 = 1 << 30;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Models of the zoo whose name contains one of these, instead of all up to 1 GB
    names: Vec<String>,
    /// Models in this folder instead of those of the zoo
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// How often each program runs
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

pub fn run(options: &Options) -> Result<()> {
    let cli = build_cli(Profile::Dist)?;
    let peers = python::peers()?;
    let work = tempfile::Builder::new().prefix("default-").tempdir_in(target_folder()?)?;
    let heading = [
        "model",
        "MB",
        "onnxforge s",
        "onnxsim s",
        "onnxslim s",
        "load+run s",
        "× faster",
        "of 2 × load+run + 0.5",
        "peak MB",
        "runtime MB",
        "ratio",
        "verdict",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    for (name, given) in subjects(options)? {
        let folder = work.path().join(&name);
        let model = match given {
            Some(path) => path,
            None => {
                let model = folder.join("model.onnx");
                zoo::materialize(&cli, &name, &model, "auto")?;
                model
            }
        };
        let bytes = if folder.exists() { size(&folder)? } else { size_beside(&model)? };
        if bytes <= LARGEST {
            rows.push(measure(&name, bytes, &cli, &peers, &model, &work.path().join("out"), options.runs)?);
            print_table(&rows[rows.len() - 1..]);
        }
        drop(std::fs::remove_dir_all(&folder));
    }
    println!();
    print_table(&rows);
    println!(
        "\nMedians of {} interleaved runs of the whole commands, files in the page cache. onnxforge: the default, verified; onnxsim, onnxslim: their \
         defaults, unverified. load+run: one session and one run of the original in ONNX Runtime, at the sizes of our first sample, without starting Python. × faster: the faster \
         peer's time by ours. peak MB, runtime MB: resident memory of our process, and of one that loads and runs the original.",
        options.runs
    );
    Ok(())
}

/// What ONNX Runtime takes to load and run a model at sizes as reports show them: `batch=2, seq=3`. Null where it does not run it.
pub fn load_and_run(python: &Path, model: &Path, sizes: &str) -> serde_json::Value {
    let mut command = Command::new(python);
    command.arg(root().join("scripts/load_and_run.py")).arg(model);
    command.args(sizes.split(", ").filter(|size| !size.is_empty()));
    output(&mut command).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn subjects(options: &Options) -> Result<Vec<(String, Option<PathBuf>)>> {
    let is_chosen =
        |name: &str| options.names.is_empty() || options.names.iter().any(|part| name.contains(part));
    let Some(folder) = &options.models else {
        let all = zoo::skeletons()?.into_iter().map(|(name, _)| name);
        return Ok(all.filter(|name| is_chosen(name)).map(|name| (name, None)).collect());
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|kind| kind == "onnx") && is_chosen(&name) {
            found.push((name, Some(path)));
        }
    }
    found.sort();
    Ok(found)
}

/// Bytes of a model and of what lies beside it under its name.
fn size_beside(model: &Path) -> Result<u64> {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = model.parent().context("the model has no folder")?;
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&stem) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

fn measure(
    name: &str,
    bytes: u64,
    cli: &Path,
    peers: &Path,
    model: &Path,
    target: &Path,
    runs: usize,
) -> Result<[String; 12]> {
    let environment = peers.parent().and_then(Path::parent).context("the environment of the peers")?;
    let (mut ours, mut sim, mut slim) = (Vec::<Usage>::new(), Vec::<Usage>::new(), Vec::<Usage>::new());
    let (mut loads, mut peaks) = (Vec::new(), Vec::new());
    let mut verdict = serde_json::Value::Null;
    // The first round only warms the page cache.
    for round in 0..=runs {
        fresh(target)?;
        let report = target.join("report.json");
        let mut own = Command::new(cli);
        own.arg("optimize").arg(model).arg("-o").arg(target.join("model.onnx")).arg("--json").arg(&report);
        let usage = watch(own.arg("--quiet").env("VIRTUAL_ENV", environment))?;
        let found: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&report)?)?;
        verdict = found["verification"]["global"]["verdict"].clone();
        if round == 0 {
            continue;
        }
        ours.push(usage);
        let sizes = &found["verification"]["global"]["sizes"][0];
        let reference = load_and_run(peers, model, sizes.as_str().unwrap_or_default());
        loads.extend(reference["seconds"].as_f64());
        peaks.extend(reference["peak"].as_u64());
        for (program, usages) in [("onnxsim", &mut sim), ("onnxslim", &mut slim)] {
            fresh(target)?;
            let mut peer = Command::new(peers.with_file_name(program));
            peer.arg(model).arg(target.join("model.onnx"));
            usages.extend(watch(peer.stderr(Stdio::null())).ok());
        }
    }
    drop(std::fs::remove_dir_all(target));
    let seconds = |usages: &[Usage]| median(usages.iter().map(|usage| usage.seconds));
    let (own, load) = (seconds(&ours), median(loads));
    let peer = seconds(&sim).min(seconds(&slim));
    let peak = ours.iter().map(|usage| usage.resident).max().unwrap_or(0) as f64 / 1e6;
    let runtime = peaks.into_iter().max().unwrap_or(0) as f64 / 1e6;
    let shown = |value: f64, digits: usize| {
        if value.is_finite() { format!("{value:.digits$}") } else { "-".to_owned() }
    };
    Ok([
        name.to_owned(),
        format!("{:.0}", bytes as f64 / 1e6),
        shown(own, 2),
        shown(seconds(&sim), 2),
        shown(seconds(&slim), 2),
        shown(load, 2),
        shown(peer / own, 2),
        shown(own / (2.0 * load + 0.5), 2),
        shown(peak, 0),
        shown(runtime, 0),
        shown(peak / runtime, 2),
        verdict.as_str().unwrap_or("-").to_owned(),
    ])
}
