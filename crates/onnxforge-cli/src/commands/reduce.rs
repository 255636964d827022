//! `onnxforge reduce`: the smallest part of a model that still shows a failure.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use onnxforge::io::{External, SaveOptions, save};
use onnxforge::ir::Model;
use onnxforge::passes::pipeline;
use onnxforge::progress::Unit;
use onnxforge::verify::guard;
use onnxforge::verify::reduce::reduce;
use serde::Serialize;

use crate::arguments::{Checks, SelectionArgs};
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::{Output, forbid_inputs};

/// Shrink a model that makes a command or the optimizer fail.
///
/// Removes nodes and outputs as long as the failure persists; values that a part needs but does not compute become inputs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write the smallest model.
    #[arg(short, long)]
    output: PathBuf,
    /// The command that fails, run by the shell; `{}` stands for the model file. Default: optimize and verify.
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// Count only failures whose output contains this text.
    #[arg(long, value_name = "TEXT", requires = "command")]
    expect: Option<String>,
    /// Stop after this many seconds, with the smallest model so far.
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    checks: Checks,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    nodes_before: usize,
    nodes: usize,
    /// How many parts were tried.
    tried: usize,
    /// Whether no node and no output can be taken away any more.
    is_minimal: bool,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let passes = args.selection.passes()?;
    if args.command.as_ref().is_some_and(|command| !command.contains("{}")) {
        return Err(Failure::new("--command needs {} where the file of a part goes".to_owned()));
    }
    forbid_inputs(&args.output, std::slice::from_ref(&args.model))?;
    output.files.require_folders([&args.output])?;
    let model = output.files.load(&args.model)?;
    let folder = tempfile::tempdir()?;
    let part = folder.path().join("part.onnx");
    let bar = output.progress();
    let mut failure = None;
    let mut shows = |candidate: &Model| {
        bar.advance(1);
        let shown = match &args.command {
            Some(command) => fails(command, args.expect.as_deref(), candidate, &part),
            None => {
                let options = pipeline::Options { passes: passes.clone(), ..pipeline::Options::default() };
                args.checks.resolve(candidate, output).map(|mut checks| {
                    let optimized = guard::optimize(&mut candidate.clone(), &options, &mut checks);
                    optimized.map_or(true, |(_, proof)| !proof.reverted.is_empty())
                })
            }
        };
        shown.unwrap_or_else(|error| {
            failure.get_or_insert(error);
            false
        })
    };
    bar.begin("trying parts", model.node_count() as u64, Unit::Nodes);
    let reduced = reduce(&model, Some(Instant::now() + Duration::from_secs(args.seconds)), &mut shows);
    bar.end();
    let Some(reduced) = reduced else {
        return Err(failure.unwrap_or_else(|| {
            let what = if args.command.is_some() {
                "the command does not fail"
            } else {
                "optimizing it gives nothing wrong"
            };
            Failure::at(&args.model, format_args!("{what}, so there is nothing to reduce"))
        }));
    };
    let files = output.save(&reduced.model, &args.output, External::Auto)?;
    let report = Report {
        schema: 1,
        nodes_before: model.node_count(),
        nodes: reduced.model.node_count(),
        tried: reduced.tried,
        is_minimal: reduced.is_minimal,
        files,
    };
    output.result(&report, |out| report.show(out))?;
    Ok(Verdict::Yes)
}

/// Whether the command fails for a part, in the way that is expected.
fn fails(command: &str, expect: Option<&str>, part: &Model, path: &Path) -> Result<bool, Failure> {
    save(part, path, &SaveOptions { external: External::Auto })?;
    let path = path.display().to_string();
    let quoted =
        if cfg!(windows) { format!("\"{path}\"") } else { format!("'{}'", path.replace('\'', "'\\''")) };
    let line = command.replace("{}", &quoted);
    let mut shell = if cfg!(windows) { Command::new("cmd") } else { Command::new("sh") };
    let flag = if cfg!(windows) { "/C" } else { "-c" };
    let done = shell
        .args([flag, &line])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("the shell does not run: {error}")))?;
    if let Some(code @ (126 | 127)) = done.status.code().filter(|_| !cfg!(windows)) {
        return Err(Failure::new(format!("{command:?} cannot be run (exit code {code} of the shell)")));
    }
    let printed =
        || String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    Ok(!done.status.success() && expect.is_none_or(|text| printed().contains(text)))
}

impl Report {
    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let end = if self.is_minimal { "nothing can be taken away any more" } else { "time was up" };
        writeln!(
            out,
            "{} of {} nodes still show it ({} parts tried; {end})",
            self.nodes, self.nodes_before, self.tried
        )?;
        show_files(&self.files, out)
    }
}
