//! `onnxforge tag`: every node learns which module it comes from.

use std::path::{Path, PathBuf};

use onnxforge::hierarchy::coverage::{Coverage, coverage};
use onnxforge::hierarchy::recorded::Recorded;
use onnxforge::hierarchy::sidecar::{Sidecar, path_for};
use onnxforge::hierarchy::store::{self, Strip, WriteOptions};
use onnxforge::hierarchy::{Hierarchy, Policy, Tags};
use onnxforge::ir::Model;
use serde::Serialize;

use super::ExternalArg;
use super::hierarchy::{View, Viewed, read_table};
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::Output;

/// Write the PyTorch module of every node into a model.
///
/// A sidecar beside the model has all of it. Only metadata is added: `onnxforge compare --exact` finds nothing else. Models of PyTorch's exporter
/// tell it themselves; models of the older one (`dynamo=False`) tell it by names, for which the module table (`--modules`) supplies classes.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    viewed: Viewed,
    /// Where to write the model; the same path replaces it. Without it only the sidecar is written.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Write, at each node, which modules read its results, too.
    #[arg(long, requires = "output")]
    consumers: bool,
    /// Remove lines of source code, with paths of the machine that exported, from the model.
    #[arg(long, requires = "output")]
    strip_traces: bool,
    /// Write the sidecar here instead of beside the model.
    #[arg(long, value_name = "FILE.json", conflicts_with = "no_sidecar")]
    sidecar: Option<PathBuf>,
    /// Write no sidecar.
    #[arg(long, requires = "output")]
    no_sidecar: bool,
    /// Where to store weights.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    modules: usize,
    tags: usize,
    coverage: Coverage,
    /// Module stacks of the exporter that could not be read.
    unreadable: Vec<String>,
    stripped: usize,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_folders(args.output.iter().chain(&args.sidecar))?;
    let View { mut model, hierarchy, policy, tags } = args.viewed.load(output)?;
    if !hierarchy.is_known() && args.viewed.source.modules.is_none() {
        let text = "nothing tells of modules: no exporter's metadata, no scopes in names; give the module table with --modules";
        return Err(Failure::at(&args.viewed.source.model, text));
    }
    let mut files = Vec::new();
    let mut stripped = 0;
    if let Some(path) = &args.output {
        if args.strip_traces {
            stripped = store::strip(&mut model, Strip::Traces);
        }
        store::write(&mut model, &hierarchy, &policy, WriteOptions { consumers: args.consumers });
        files = output.save(&model, path, args.external)?;
    }
    let target = args.output.as_ref().unwrap_or(&args.viewed.source.model);
    if !args.no_sidecar {
        let beside = args.sidecar.clone().unwrap_or_else(|| path_for(target));
        files.extend(write_sidecar(&beside, target, &model, &hierarchy, &policy, output)?);
    }
    let unreadable = hierarchy.unreadable().iter();
    let report = Report {
        schema: 1,
        modules: hierarchy.table().len(),
        tags: tags.own().count(),
        coverage: coverage(&model, &hierarchy, &tags),
        unreadable: unreadable
            .map(|stack| format!("{}: {}", model.node_label(stack.node), stack.problem))
            .collect(),
        stripped,
        files,
    };
    for problem in &report.unreadable {
        tracing::warn!("{problem}");
    }
    output.result(&report, |out| {
        let found = &report.coverage;
        writeln!(
            out,
            "{} modules, {} tags; {} nodes: {} exact, {} inferred, {} unknown",
            report.modules,
            report.tags,
            found.counts.nodes,
            found.counts.exact,
            found.counts.inferred,
            found.counts.root
        )?;
        if report.stripped > 0 {
            writeln!(out, "removed {} traces", report.stripped)?;
        }
        show_files(&report.files, out)
    })?;
    Ok(Verdict::Yes)
}

/// Writes the sidecar of a model.
pub fn write_sidecar(
    beside: &Path,
    path: &Path,
    model: &Model,
    hierarchy: &Hierarchy,
    policy: &Policy,
    output: &Output,
) -> Result<Vec<WrittenFile>, Failure> {
    let tags = Tags::new(hierarchy.table(), policy);
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sidecar = Sidecar { model, file, hierarchy, tags: &tags, policy };
    let ours = |recorded: &Recorded| recorded.fingerprint.is_some();
    if beside.is_file() && read_table(beside, output).is_ok_and(|recorded| !ours(&recorded)) {
        let text = "this is a module table that somebody made, no sidecar; move it, or say --no-sidecar";
        return Err(Failure::at(beside, text));
    }
    output.files.write(beside, |out| Ok(serde_json::to_writer(out, &sidecar)?))
}
