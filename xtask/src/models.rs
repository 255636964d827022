//! `cargo xtask bench shapes|models|speed|oracle|passes|census|transposes|results`: inference, evaluation and passes on whole models.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::step::{Profile, build_cli, output, root, step, target_folder};
use crate::{python, zoo};

/// Which models, and where they may take space.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Models of the zoo whose name contains one of these; the default depends on the task
    names: Vec<String>,
    /// Where to work, in a folder of its own; the largest model needs 6 GB
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The models in this folder, and in folders inside, instead of those of the zoo
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
}

/// Which models, and what they are made for.
#[derive(Debug, clap::Args)]
pub struct Converted {
    #[command(flatten)]
    pub models: Options,
    /// Convert to this operator set first
    #[arg(long, default_value = "keep")]
    pub opset: String,
    /// What the models are made for
    #[arg(long, default_value = "portable")]
    pub target: String,
}

/// Which models, and whether peers run too.
#[derive(Debug, clap::Args)]
pub struct Compared {
    #[command(flatten)]
    models: Options,
    /// Leave the peers out
    #[arg(long)]
    alone: bool,
}

/// Shares of values with a known shape: onnxforge, onnx, ONNX Runtime.
pub fn shapes(options: &Options) -> Result<()> {
    let (cli, python) = tools()?;
    let mut command = script(&python, "shapes.py");
    command.arg(cli).args(&options.names);
    step("shape inference, three tools", &mut command)
}

/// Our float32 results against ONNX Runtime without optimizations.
pub fn accuracy(options: &Options) -> Result<()> {
    let (cli, python) = tools()?;
    println!("{:32} error", "model");
    let mut failed = 0;
    for_each(options, &[""], |name, model| {
        let mut command = script(&python, "native.py");
        command.arg("accuracy").arg(&cli).arg(model).args(sizes(name));
        let shown = match output(&mut command) {
            Ok(text) => text.trim().to_owned(),
            Err(error) => {
                failed += 1;
                format!("{error:#}").lines().last().unwrap_or_default().to_owned()
            }
        };
        println!("{name:32} {shown}");
        Ok(())
    })?;
    let mut command = script(&python, "native.py");
    command.arg("wheels").arg(&cli).arg(target_folder()?.join("wheels"));
    print!("{}", output(&mut command)?);
    ensure!(failed == 0, "{failed} models could not be compared");
    Ok(())
}

/// Our time against ONNX Runtime's.
pub fn speed(options: &Options) -> Result<()> {
    let (cli, python) = tools()?;
    for_each(options, &["bert_base.torchscript", "resnet50.torchscript"], |name, model| {
        let mut command = script(&python, "native.py");
        command.arg("speed").arg(&cli).arg(model).args(sizes(name));
        print!("{name}: {}", output(&mut command)?);
        Ok(())
    })
}

/// The rounding of ONNX Runtime's float32 against our float64 run, value by value.
pub fn oracle(options: &Options) -> Result<()> {
    let (cli, python) = tools()?;
    let models = ["bert_base.torchscript", "gpt2.torchscript", "resnet50.torchscript", "yolov8n.torchscript"];
    for_each(options, &models, |name, model| {
        let mut command = script(&python, "native.py");
        command.arg("oracle").arg(&cli).arg(model).args(sizes(name));
        println!("\n### {name}\n\n{}", output(&mut command)?);
        Ok(())
    })
}

/// What the passes leave of the zoo, in which orders, and whether it computes the same.
pub fn passes(options: &Converted) -> Result<()> {
    each_alone(options, "passes.py", &[""])
}

/// Which models `optimize` compares with their originals, and at which sizes; and whether anything runs those that it does not.
pub fn compared(folders: &[PathBuf]) -> Result<()> {
    let (cli, python) = tools()?;
    let runtime = python::onnxruntime(&python)?;
    let mut command = script(&python, "compared.py");
    command.env("ORT_DYLIB_PATH", runtime).arg(cli).args(folders);
    step("comparisons with originals", &mut command)
}

/// Nodes that exact rewrites leave, and bits that differ in ONNX Runtime.
pub fn exact(options: &Options) -> Result<()> {
    let (cli, python) = tools()?;
    println!("| model | nodes | exact | default | bits that differ |\n|---|---|---|---|---|");
    let mut failed = Vec::new();
    for_each(options, &[""], |name, model| {
        let mut command = script(&python, "exact.py");
        if !command.arg(&cli).arg(name).arg(model).status()?.success() {
            failed.push(name.to_owned());
        }
        Ok(())
    })?;
    ensure!(failed.is_empty(), "bits differ: {}", failed.join(", "));
    Ok(())
}

/// Conversions to newer operator sets, beside those of onnx.
pub fn upgrade() -> Result<()> {
    let (cli, python) = tools()?;
    let mut command = script(&python, "conversions.py");
    step("conversions of two tools", command.arg(cli).arg(crate::test::cases(&python)?))
}

/// Our results beside those of other tools, on the models of a folder.
pub fn results(folder: &Path) -> Result<()> {
    let (cli, python) = tools()?;
    let mut command = script(&python, "peer_results.py");
    command.env("ORT_DYLIB_PATH", python::onnxruntime(&python)?).arg(cli).arg(folder);
    step("results of other tools", &mut command)
}

/// Attention in ONNX Runtime, as three kinds of operators, without a cache and with one.
pub fn attention() -> Result<()> {
    let python = python::environment()?;
    step("three kinds of attention", &mut script(&python, "attention_speed.py"))?;
    step("three kinds of attention with a cache", &mut script(&python, "grouped_attention_speed.py"))
}

/// One token of a LLaMA with a cache: the export, ONNX Runtime's own optimization, ours, and what onnxruntime-genai's builder writes.
pub fn decoding(arguments: &[String]) -> Result<()> {
    let python = python::torch()?;
    let mut command = Command::new(&python);
    command.env("ORT_DYLIB_PATH", python::onnxruntime(&python)?).current_dir(root());
    command.arg("tests/torch/decoding_speed.py").arg(build_cli(Profile::Dist)?).args(arguments);
    step("one token with a cache", &mut command)
}

/// Products of a batch with weights, with all axes or as matrices.
pub fn products() -> Result<()> {
    let (cli, python) = tools()?;
    step("two forms of products of a batch with weights", script(&python, "products_speed.py").arg(cli))
}

/// How many nodes ONNX Runtime runs, for models as they were and for what we make of them.
pub fn census(options: &Options) -> Result<()> {
    let (cli, python) = tools()?;
    let runtime = python::onnxruntime(&python)?;
    let mut failed = Vec::new();
    println!("model                            original  portable  at 23     ort       at 23");
    let run_nodes = |model: &Path| -> Result<u64> {
        let folder = model.parent().context("the model has no folder")?;
        let mut census = Command::new(&cli);
        census.env("ORT_DYLIB_PATH", &runtime).env("TMPDIR", folder).arg("census").arg(model);
        let found: serde_json::Value = serde_json::from_str(&output(census.args(["--json", "-"]))?)?;
        found["models"][0]["run_nodes"].as_u64().context("no number of nodes")
    };
    for_each(options, &[""], |name, model| {
        let mut counts = vec![run_nodes(model)?];
        for target in ["portable", "ort"] {
            for opset in ["keep", "23"] {
                let folder = tempfile::tempdir_in(model.parent().context("the model has no folder")?)?;
                let made = folder.path().join("model.onnx");
                let mut optimize = Command::new(&cli);
                optimize.arg("optimize").arg(model).arg("-o").arg(&made).args(["--verify", "off"]);
                output(optimize.args(["--target", target, "--opset", opset]))?;
                counts.push(run_nodes(&made)?);
            }
        }
        if counts.iter().any(|&count| count > counts[0]) {
            failed.push(name.to_owned());
        }
        let shown: String = counts.iter().map(|count| format!("{count:<10}")).collect();
        println!("{name:32} {shown}");
        Ok(())
    })?;
    ensure!(failed.is_empty(), "ONNX Runtime runs more nodes than for the original: {}", failed.join(", "));
    Ok(())
}

/// How many Transposes are left, of models that are made for it and of the zoo.
pub fn transposes(options: &Compared) -> Result<()> {
    let (cli, python) = tools()?;
    let peers = if options.alone { "-".into() } else { python::peers()? };
    let runtime = python::onnxruntime(&python)?;
    let command = || {
        let mut command = script(&python, "layouts.py");
        command.env("ORT_DYLIB_PATH", &runtime).arg(&cli).arg(&peers);
        command
    };
    if options.models.names.is_empty() {
        ensure!(command().status()?.success(), "layouts.py failed");
    }
    for_each(&options.models, &["yolov8n", "mobilevit_small"], |name, model| {
        ensure!(command().arg(name).arg(model).status()?.success(), "layouts.py failed for {name}");
        Ok(())
    })
}

/// Runs a script on each of the models in a process of its own.
fn each_alone(options: &Converted, name: &str, default: &[&str]) -> Result<()> {
    let (cli, python) = tools()?;
    let mut failed = Vec::new();
    for_each(&options.models, default, |model_name, model| {
        let mut command = script(&python, name);
        command.arg(&cli).arg(model_name).arg(model).arg(&options.opset).arg(&options.target);
        if !command.status()?.success() {
            failed.push(model_name.to_owned());
        }
        Ok(())
    })?;
    ensure!(failed.is_empty(), "not as it should be: {}", failed.join(", "));
    Ok(())
}

pub fn tools() -> Result<(PathBuf, PathBuf)> {
    Ok((build_cli(Profile::Dist)?, python::environment()?))
}

pub fn script(python: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    command.arg(root().join("tests/python").join(name));
    command
}

/// Sizes of the symbolic dimensions.
fn sizes(name: &str) -> &'static [&'static str] {
    let large = ["tinyllama", "phi", "gemma"].iter().any(|family| name.starts_with(family));
    if large { &["batch=1", "seq=16"] } else { &["batch=1", "seq=128"] }
}

/// Materialises the chosen models one after the other and removes each again.
pub fn for_each(
    options: &Options,
    default: &[&str],
    mut visit: impl FnMut(&str, &Path) -> Result<()>,
) -> Result<()> {
    let cli = build_cli(Profile::Dist)?;
    let parent = match &options.dir {
        Some(folder) => folder.clone(),
        None => target_folder()?,
    };
    std::fs::create_dir_all(&parent).with_context(|| parent.display().to_string())?;
    let names = || options.names.iter().map(String::as_str);
    if let Some(folder) = &options.models {
        for model in models_in(folder)? {
            let name = model.strip_prefix(folder)?.to_string_lossy().into_owned();
            if options.names.is_empty() || names().any(|part| name.contains(part)) {
                visit(&name, &model)?;
            }
        }
        return Ok(());
    }
    let chosen: Vec<&str> = if options.names.is_empty() { default.to_vec() } else { names().collect() };
    for (name, _) in zoo::skeletons()? {
        if !chosen.iter().any(|part| name.contains(part)) {
            continue;
        }
        let work = tempfile::Builder::new().prefix("models-").tempdir_in(&parent)?;
        let model = work.path().join("model.onnx");
        zoo::materialize(&cli, &name, &model, "auto")?;
        visit(&name, &model)?;
    }
    Ok(())
}

/// The models in a folder and in folders inside, in order.
fn models_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(models_in(&path)?);
        } else if path.extension().is_some_and(|kind| kind == "onnx") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
