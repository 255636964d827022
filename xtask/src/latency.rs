//! `cargo xtask bench latency`: ONNX Runtime's time for models as they were and for what we make of them, and whether fewer nodes
//! are faster. `onnxforge bench` measures.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use onnxforge_figures::plots::{Point, Scatter};
use onnxforge_figures::statistics::{pearson, spearman};
use serde_json::Value;

use crate::models::{Converted, for_each, script, tools};
use crate::python;
use crate::step::{output, root};

/// Kinds of models, with how the names of theirs begin.
const FAMILIES: [(&str, &[&str]); 5] = [
    ("CNN", &["resnet", "mobilenet", "efficientnet", "yolo"]),
    ("encoder transformer", &["bert", "distilbert", "roberta"]),
    ("decoder", &["gpt2", "llama2l", "tinyllama", "phi", "gemma"]),
    ("vision transformer", &["vit", "deit", "mobilevit"]),
    ("audio", &["wav2vec2", "whisper"]),
];

/// What is measured unless told otherwise: all but the models of several gigabytes.
pub const DEFAULT: [&str; 11] = [
    "resnet",
    "mobilenet",
    "efficientnet",
    "yolo",
    "bert",
    "gpt2",
    "llama2l",
    "vit",
    "deit",
    "wav2vec2",
    "whisper",
];

/// The part of the document that is measured lies between these lines.
const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->\n";

#[derive(Debug, clap::Args)]
pub struct Settings {
    #[command(flatten)]
    converted: Converted,
    /// Sessions of each model
    #[arg(long, default_value = "6")]
    sessions: String,
    /// Seconds of runs of each model
    #[arg(long, default_value = "6")]
    seconds: String,
    /// Threads of ONNX Runtime
    #[arg(long, default_value = "1")]
    threads: String,
    /// Write the tables into docs/latency.md and the plot into docs/latency.svg
    #[arg(long)]
    write: bool,
}

/// What was measured of a zoo model: as it was, and ours beside it.
struct Row {
    name: String,
    family: usize,
    /// Nodes in the file, and after ONNX Runtime's own rewriting.
    nodes: [f64; 2],
    run_nodes: [f64; 2],
    milliseconds: [f64; 2],
    /// Megabytes at most.
    memory: [f64; 2],
    /// Median and interval: how many times as fast as the original, as what ONNX Runtime saves of it, and at loading.
    speed: [f64; 3],
    beside_offline: [f64; 3],
    load_speed: [f64; 3],
}

pub fn run(settings: &Settings) -> Result<()> {
    let (cli, python) = tools()?;
    let bench = Bench { cli, runtime: python::onnxruntime(&python)?, python, settings };
    let (mut rows, mut busy, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for_each(&settings.converted.models, &DEFAULT, |name, model| {
        busy.extend(load_average());
        match bench.row(name, model) {
            Ok(row) => {
                println!("{}", row.cells());
                rows.push(row);
            }
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
        Ok(())
    })?;
    let measured = document(settings, &rows, &busy);
    println!("\n{measured}");
    if settings.write {
        let (text, plot) = (root().join("docs/latency.md"), root().join("docs/latency.svg"));
        let old = std::fs::read_to_string(&text).with_context(|| text.display().to_string())?;
        let (head, rest) =
            old.split_once(BEGIN).context("docs/latency.md has no place for what is measured")?;
        let (_, tail) = rest.split_once(END).context("docs/latency.md has no place for what is measured")?;
        std::fs::write(&text, [head, BEGIN, &measured, END, tail].concat())?;
        std::fs::write(&plot, plotted(&rows))?;
    }
    ensure!(failed.is_empty(), "not measured: {}", failed.join("; "));
    Ok(())
}

/// How many programs want to run, ourselves included; only Linux tells.
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

struct Bench<'a> {
    cli: PathBuf,
    python: PathBuf,
    runtime: PathBuf,
    settings: &'a Settings,
}

impl Bench<'_> {
    fn row(&self, name: &str, model: &Path) -> Result<Row> {
        let folder = tempfile::tempdir_in(model.parent().context("the model has no folder")?)?;
        let [ours, offline] = ["ours.onnx", "offline.onnx"].map(|file| folder.path().join(file));
        let Converted { opset, target, .. } = &self.settings.converted;
        let mut optimize = self.command("optimize", &[model]);
        output(
            optimize.arg("-o").arg(&ours).args(["--opset", opset, "--target", target, "--verify", "off"]),
        )?;
        output(script(&self.python, "offline.py").arg(model).arg(&offline))?;
        let census =
            self.asked(self.command("census", &[model, &ours]).args(["--level", "all"]), folder.path());
        let mut bench = self.command("bench", &[&ours, model, &offline]);
        let Settings { sessions, seconds, threads, .. } = self.settings;
        bench.args(["--sessions", sessions, "--seconds", seconds, "--threads", threads, "--warmup", "1"]);
        for size in self.sizes(model)? {
            bench.args(["--set-dim", &size]);
        }
        // Ours comes first: what others are faster than it, it is slower than them, to the bounds of the interval.
        let found = self.asked(&mut bench, folder.path())?;
        let both = |of: &dyn Fn(&Value) -> &Value| {
            [1, 0].map(|which| of(&found["models"][which]).as_f64().unwrap_or(f64::NAN))
        };
        let beside = |which: usize, what: &str| {
            let speed = &found["models"][which]["against_first"][what];
            ["median", "high", "low"].map(|bound| 1.0 / speed[bound].as_f64().unwrap_or(f64::NAN))
        };
        let run_nodes = |which: usize| {
            let nodes = census.as_ref().ok().map(|found| &found["models"][which]["run_nodes"]);
            nodes.and_then(Value::as_f64).unwrap_or(f64::NAN)
        };
        let begins = |(_, names): &(&str, &[&str])| names.iter().any(|part| name.starts_with(part));
        Ok(Row {
            name: name.to_owned(),
            family: FAMILIES.iter().position(begins).context("a model of no family")?,
            nodes: both(&|model| &model["nodes"]),
            run_nodes: [run_nodes(0), run_nodes(1)],
            milliseconds: both(&|model| &model["latency_ms"]["median"]),
            memory: both(&|model| &model["memory"]["peak"]).map(|bytes| bytes / 1e6),
            speed: beside(1, "speed"),
            beside_offline: beside(2, "speed"),
            load_speed: beside(1, "load_speed"),
        })
    }

    fn command(&self, name: &str, models: &[&Path]) -> Command {
        let mut command = Command::new(&self.cli);
        command.env("ORT_DYLIB_PATH", &self.runtime).arg(name).args(models);
        command
    }

    /// What a command answers; "no" is an answer too.
    fn asked(&self, command: &mut Command, folder: &Path) -> Result<Value> {
        let done = command.args(["--json", "-"]).env("TMPDIR", folder).output()?;
        let text = || String::from_utf8_lossy(&done.stderr).trim().to_owned();
        serde_json::from_slice(&done.stdout).with_context(text)
    }

    /// Sizes for the named dimensions: one sequence of 128.
    fn sizes(&self, model: &Path) -> Result<Vec<String>> {
        let card = self.asked(&mut self.command("inspect", &[model]), model.parent().unwrap_or(model))?;
        let inputs = card.pointer("/models/0/inputs").and_then(Value::as_array).context("no inputs")?;
        let mut sizes = Vec::new();
        for input in inputs {
            let declared = input["type"].as_str().unwrap_or_default();
            let shape = declared.split_once('[').map_or("", |(_, shape)| shape.trim_end_matches(']'));
            for dim in shape.split(',').map(str::trim).filter(|dim| dim.starts_with(char::is_alphabetic)) {
                sizes.push(format!("{dim}={}", if dim.contains("batch") { 1 } else { 128 }));
            }
        }
        sizes.sort();
        sizes.dedup();
        Ok(sizes)
    }
}

impl Row {
    /// How many percent of the nodes are gone.
    fn reduction([before, after]: [f64; 2]) -> f64 {
        (1.0 - after / before) * 100.0
    }

    fn cells(&self) -> String {
        let arrow = |[before, after]: [f64; 2]| format!("{before:.0} → {after:.0}");
        let speed = |[median, low, high]: [f64; 3]| {
            let bold = if low > 1.0 || high < 1.0 { "**" } else { "" };
            format!("{bold}{median:.3}{bold} [{low:.3}, {high:.3}]")
        };
        format!(
            "| {} | {} | {} | {:.2} → {:.2} | {} | {} | {} | {} |",
            self.name,
            arrow(self.nodes),
            arrow(self.run_nodes),
            self.milliseconds[0],
            self.milliseconds[1],
            speed(self.speed),
            speed(self.beside_offline),
            speed(self.load_speed),
            arrow(self.memory)
        )
    }
}

/// The part of the document that is measured.
fn document(settings: &Settings, rows: &[Row], busy: &[f64]) -> String {
    let Converted { opset, target, .. } = &settings.converted;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let [least, most] = [f64::min, f64::max].map(|of| busy.iter().copied().reduce(of).unwrap_or(f64::NAN));
    let mut text = format!(
        "`cargo xtask bench latency --target {target} --opset {opset} --sessions {} --seconds {} --threads {} --write`, on a machine \
         of {cores} cores whose load average was {least:.1} to {most:.1} meanwhile, this measurement included.\n\n\
         | model | nodes in the file | nodes that run | run, ms | speed | beside ONNX Runtime offline | speed of loading | peak memory, MB |\n\
         |---|---|---|---|---|---|---|---|\n",
        settings.sessions, settings.seconds, settings.threads
    );
    for row in rows {
        text += &(row.cells() + "\n");
    }
    let faster = rows.iter().filter(|row| row.speed[1] > 1.0).count();
    let slower = rows.iter().filter(|row| row.speed[2] < 1.0).count();
    let noise = rows.len() - faster - slower;
    text += &format!(
        "\nAgainst the original: {faster} faster, {slower} slower, {noise} noise.\n\n\
         | family | models | nodes in the file, speed | nodes that run, speed | nodes in the file, speed of loading |\n|---|---|---|---|---|\n"
    );
    let families = FAMILIES.iter().enumerate().map(|(place, (name, _))| (*name, Some(place)));
    for (name, family) in std::iter::once(("all", None)).chain(families) {
        let rows: Vec<&Row> =
            rows.iter().filter(|row| family.is_none_or(|family| row.family == family)).collect();
        let cell = |of: &dyn Fn(&Row) -> (f64, f64)| {
            let pairs: Vec<(f64, f64)> =
                rows.iter().map(|row| of(row)).filter(|pair| pair.0.is_finite()).collect();
            match (pearson(&pairs), spearman(&pairs)) {
                (Some(pearson), Some(spearman)) => format!("{pearson:+.2}, {spearman:+.2}"),
                _ => "-".to_owned(),
            }
        };
        text += &format!(
            "| {name} | {} | {} | {} | {} |\n",
            rows.len(),
            cell(&|row| (Row::reduction(row.nodes), row.speed[0])),
            cell(&|row| (Row::reduction(row.run_nodes), row.speed[0])),
            cell(&|row| (Row::reduction(row.nodes), row.load_speed[0])),
        );
    }
    text
}

fn plotted(rows: &[Row]) -> String {
    let point = |row: &Row| Point {
        title: row.name.clone(),
        group: row.family,
        x: Row::reduction(row.nodes),
        y: row.speed[0],
        interval: Some((row.speed[1], row.speed[2])),
    };
    let plot = Scatter {
        title: "Nodes removed and speed in ONNX Runtime",
        x: "nodes removed from the file, %",
        y: "speed against the original",
        groups: &FAMILIES.map(|(name, _)| name.to_owned()),
        points: &rows.iter().map(point).collect::<Vec<_>>(),
        line: Some(1.0),
        logarithmic: true,
        regression: None,
    };
    plot.svg()
}
