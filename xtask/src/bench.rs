//! `cargo xtask bench io`: what saving a model costs, beside what copying its files costs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::measure::{Usage, median, settle, sync_all, watch};
use crate::step::{Profile, build_cli, cargo, output, step, target_folder};
use crate::zoo;

/// Zoo model and where its weights are.
const SUBJECTS: [(&str, &str); 3] =
    [("bert_base.torchscript", "inline"), ("bert_base.torchscript", "split"), ("tinyllama.dynamo", "split")];

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to work, in a folder of its own; needs 14 GB for the default models
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How often each program runs
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Models of the zoo instead of BERT and TinyLlama, each with its weights inside and beside it
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// Leave the models with their weights where they are
    #[arg(long)]
    keep: bool,
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(options.runs > 0, "--runs must not be 0");
    let cli = build_cli(Profile::Dist)?;
    let load_time = build_load_time()?;
    let parent = match &options.dir {
        Some(folder) => folder.clone(),
        None => target_folder()?,
    };
    std::fs::create_dir_all(&parent).with_context(|| parent.display().to_string())?;
    let mut work = tempfile::Builder::new().prefix("bench-").tempdir_in(&parent)?;
    work.disable_cleanup(options.keep);

    let chosen =
        options.models.iter().flat_map(|name| ["inline", "split"].map(|external| (name.as_str(), external)));
    let mut subjects: Vec<(&str, &str)> = chosen.collect();
    if subjects.is_empty() {
        subjects.extend(SUBJECTS);
    }
    let mut rows = vec![
        [
            "model",
            "MB",
            "load ms",
            "cp s",
            "cp+fsync s",
            "onnxforge s",
            "ratio",
            "ratio (fsync)",
            "anon MB",
            "peak MB",
        ]
        .map(str::to_owned),
    ];
    for (name, external) in subjects {
        let folder = work.path().join(format!("{name}-{external}"));
        let model = folder.join("model.onnx");
        zoo::materialize(&cli, name, &model, external)?;
        rows.push(measure(&format!("{name}, {external}"), &cli, &load_time, &model, options.runs)?);
        if !options.keep {
            std::fs::remove_dir_all(&folder)?;
        }
    }
    print_table(&rows);
    println!(
        "\nMedians of {} runs, interleaved, the page cache warm, the disk idle before each. Into a new \
         folder, onnxforge leaves it to the system when files reach the disk, as `cp` does; when it replaces a model it \
         waits, and `cp+fsync` is its like. anon: peak of memory that is not a part of a file; peak: mapped files \
         included.",
        options.runs
    );
    if options.keep {
        println!("The models are in {}", work.path().display());
    }
    Ok(())
}

fn build_load_time() -> Result<PathBuf> {
    let mut build = cargo(&["build", "--profile", Profile::Dist.name(), "--package", "xtask"]);
    build.args(["--example", "load_time"]);
    step("build the timer of loading", &mut build)?;
    let name = format!("load_time{}", std::env::consts::EXE_SUFFIX);
    Ok(target_folder()?.join(Profile::Dist.folder()).join("examples").join(name))
}

/// One row of the table.
fn measure(title: &str, cli: &Path, load_time: &Path, model: &Path, runs: usize) -> Result<[String; 10]> {
    let folder = model.parent().context("the model has no folder")?;
    let copy = folder.with_extension("copy");
    let bytes = size(folder)?;
    let mut timer = Command::new(load_time);
    let load_ms: f64 = output(timer.arg(model).arg(runs.to_string()))?.trim().parse()?;
    let (mut copies, mut durable, mut saves) = (Vec::new(), Vec::new(), Vec::<Usage>::new());
    // The first round only warms the page cache.
    for round in 0..=runs {
        let (copied, synced) = timed_copy(folder, &copy)?;
        fresh(&copy)?;
        let mut save = Command::new(cli);
        save.arg("save").arg(model).arg("-o").arg(copy.join("model.onnx")).arg("--quiet");
        let usage = watch(&mut save)?;
        ensure!(size(&copy)?.abs_diff(bytes) < 4096, "the saved model has another size");
        if round > 0 {
            copies.push(copied);
            durable.push(synced);
            saves.push(usage);
        }
    }
    std::fs::remove_dir_all(&copy)?;
    let (copied, synced) = (median(copies), median(durable));
    let saved = median(saves.iter().map(|usage| usage.seconds));
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let most = |of: fn(&Usage) -> u64| megabytes(saves.iter().map(of).max().unwrap_or(0));
    Ok([
        title.to_owned(),
        megabytes(bytes),
        format!("{load_ms:.1}"),
        format!("{copied:.3}"),
        format!("{synced:.3}"),
        format!("{saved:.3}"),
        format!("{:.2}", saved / copied),
        format!("{:.2}", saved / synced),
        most(|usage| usage.anonymous),
        most(|usage| usage.resident),
    ])
}

/// Seconds that copying the files of `folder` takes, and with the copies brought to the disk.
pub fn timed_copy(folder: &Path, copy: &Path) -> Result<(f64, f64)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    fresh(copy)?;
    let start = Instant::now();
    let done = Command::new("cp").args(files).arg(copy).status()?;
    let copied = start.elapsed().as_secs_f64();
    ensure!(done.success(), "cp failed ({done})");
    sync_all(copy)?;
    Ok((copied, start.elapsed().as_secs_f64()))
}

/// Makes `folder` empty, with nothing left to be written.
pub fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir(folder)?;
    settle()
}

/// Bytes of all files in `folder`.
pub fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

pub fn print_table<const N: usize>(rows: &[[String; N]]) {
    let width = |column: usize| rows.iter().map(|row| row.get(column).map_or(0, String::len)).max();
    println!();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column).unwrap_or(0);
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        println!("{}", cells.collect::<Vec<_>>().join("  "));
    }
}
