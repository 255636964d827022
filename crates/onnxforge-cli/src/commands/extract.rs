//! `onnxforge extract`: a module as a model of its own.

use std::io::{self, Write};
use std::path::PathBuf;

use onnxforge::extraction::{FileNames, Part, PartComparison};
use onnxforge::hierarchy::extract::End;
use onnxforge::verify::parts::Compared;
use onnxforge::{ExtractOptions, extract};
use serde::Serialize;

use super::ExternalArg;
use super::hierarchy::{View, Viewed};
use crate::arguments::{EngineArg, given, named_size};
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::{Output, forbid_inputs, table};

/// Cut a module out of a model, as a model that runs on its own.
///
/// Weights, called functions and whatever computes from constants alone come along; what the module reads besides becomes inputs, what others
/// read of it becomes outputs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    viewed: Viewed,
    /// The module: a path such as encoder.layer.0, a tag such as /BertModel/BertEncoder, or a pattern (`*` for one level, `**` for any
    /// number).
    #[arg(short, long, value_name = "MODULE")]
    module: String,
    /// Where to write the model; for a pattern an existing folder, which gets one file per module. Without it, only what the module takes and gives is told.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Only this call of a module that is called several times, counted from 0.
    #[arg(long, value_name = "N")]
    call: Option<usize>,
    /// Run the whole model and what was cut out on the same values, and compare bit for bit.
    #[arg(long)]
    verify: bool,
    /// What computes for that.
    #[arg(long, value_enum, default_value = "auto", requires = "verify")]
    engine: EngineArg,
    /// Inputs of the whole model for that; others are synthetic.
    #[arg(long, value_name = "FILE.npz", requires = "verify")]
    inputs: Option<PathBuf>,
    /// The size of a named dimension of the whole model's inputs for that.
    #[arg(long, value_name = "NAME=N", value_parser = named_size, requires = "verify")]
    set_dim: Vec<(String, usize)>,
    /// Where to store weights.
    #[arg(long, value_enum, default_value = "auto")]
    external: ExternalArg,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    parts: Vec<Written>,
    /// Modules that a pattern fits but that have no nodes, and why.
    without_nodes: Vec<String>,
}

/// A module, and the files that hold it.
#[derive(Debug, Serialize)]
struct Written {
    #[serde(flatten)]
    part: Part,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let several = args.module.contains('*');
    if let Some(target) = &args.output {
        let one_of_them = target.join("module.onnx");
        output.files.require_folders([if several { &one_of_them } else { target }])?;
        let (wrong, hint) = match several {
            true => (target.is_file(), "a pattern needs a folder for its files"),
            false => (target.is_dir(), "this is a folder; one module needs the name of a file"),
        };
        if wrong {
            return Err(Failure::at(target, hint));
        }
    }
    let View { model, hierarchy, policy, .. } = args.viewed.load(output)?;
    let comparison = match args.verify {
        true => Some(PartComparison {
            engine: args.engine.into(),
            given: given(args.inputs.as_deref(), &model, output)?,
            dims: args.set_dim.iter().cloned().collect(),
        }),
        false => None,
    };
    let options = ExtractOptions { call: args.call, policy: Some(policy), comparison };
    let found = extract(&model, &hierarchy, &args.module, &options)
        .map_err(|error| Failure::from(error).about(&args.viewed.source.model))?;
    let is_good = found.parts.iter().all(Part::is_good);
    let mut names = FileNames::default();
    let mut report = Report { schema: 1, parts: Vec::new(), without_nodes: found.without_nodes };
    for part in found.parts {
        let mut files = Vec::new();
        if let Some(target) = &args.output {
            let path = if several { target.join(names.of(&part.boundary.module)) } else { target.clone() };
            forbid_inputs(&path, &args.viewed.source.files())?;
            files = output.save(&part.model, &path, args.external)?;
        }
        report.parts.push(Written { part, files });
    }
    output.result(&report, |out| show(&report, several, out))?;
    Ok(if is_good { Verdict::Yes } else { Verdict::No })
}

fn show(report: &Report, several: bool, out: &mut dyn Write) -> io::Result<()> {
    for Written { part, files } in &report.parts {
        let boundary = &part.boundary;
        let name = if boundary.module.is_empty() { "the model" } else { &boundary.module };
        let feeders = match boundary.feeders {
            0 => String::new(),
            feeders => format!(", {feeders} of them computing from constants for it"),
        };
        let calls = if boundary.calls > 1 { format!(", {} calls", boundary.calls) } else { String::new() };
        writeln!(out, "{name}: {} nodes{feeders}{calls}", boundary.nodes)?;
        if !several {
            ends("input", "made by", "the model's input", &boundary.inputs, out)?;
            ends("output", "read by", "the model's output", &boundary.outputs, out)?;
            for shared in boundary.shared.iter().take(10) {
                writeln!(out, "shared: {} comes from {}, too", shared.node, shared.with.join(", "))?;
            }
            if boundary.shared.len() > 10 {
                writeln!(out, "… and {} more shared nodes", boundary.shared.len() - 10)?;
            }
        }
        if boundary.left_out > 0 {
            writeln!(
                out,
                "{} nodes of it stand in bodies of other nodes and are skipped",
                boundary.left_out
            )?;
        }
        for problem in &part.problems {
            writeln!(out, "INVALID: {problem}")?;
        }
        match &part.verified {
            Some(Compared::Identical) => {
                writeln!(out, "computes what the whole model computes there, bit for bit")?;
            }
            Some(Compared::Different(what)) => writeln!(out, "DIFFERS from the whole model: {what}")?,
            Some(Compared::NotRun(why)) => writeln!(out, "NOT compared: {why}")?,
            Some(Compared::InBody) => {
                writeln!(out, "not compared: it stands in the body of a node, whose values no run shows")?;
            }
            None => {}
        }
        show_files(files, out)?;
    }
    for error in &report.without_nodes {
        writeln!(out, "skipped: {error}")?;
    }
    Ok(())
}

fn ends(kind: &str, other: &str, own: &str, ends: &[End], out: &mut dyn Write) -> io::Result<()> {
    if ends.is_empty() {
        return Ok(());
    }
    let mut rows = table(&[kind, "type", other]);
    for end in ends {
        let modules =
            end.modules.iter().map(|path| if path.is_empty() { "the model itself" } else { path.as_str() });
        let modules = modules.collect::<Vec<_>>().join(", ");
        rows.add_row([end.name.as_str(), &end.ty, if modules.is_empty() { own } else { &modules }]);
    }
    writeln!(out, "{rows}")
}
