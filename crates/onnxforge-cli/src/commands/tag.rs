//! `onnxforge tag`: every node learns which module it comes from.

use std::path::{Path, PathBuf};

use onnxforge::hierarchy::consumers::Reach;
use onnxforge::hierarchy::coverage::{Coverage, Thresholds, coverage};
use onnxforge::hierarchy::recorded::Recorded;
use onnxforge::hierarchy::sidecar::{Sidecar, path_for};
use onnxforge::hierarchy::store::{self, Strip, WriteOptions};
use onnxforge::hierarchy::{Hierarchy, Policy, Tags};
use onnxforge::ir::Model;
use serde::Serialize;

use super::ExternalArg;
use super::categories::{ThresholdArgs, breakdown};
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
    /// Write, at each node, which modules read its results, too; `transitive` lists those after them in the sidecar.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "direct", value_name = "HOW")]
    consumers: Option<ConsumersArg>,
    /// Write `module_to_operations` and `operation_hierarchy` into the model, too; the sidecar always has them.
    #[arg(long, requires = "output")]
    operations: bool,
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
    #[command(flatten)]
    thresholds: ThresholdArgs,
}

/// How far from a tensor its consumers may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ConsumersArg {
    /// One node away.
    Direct,
    /// Any number of nodes; in the sidecar only.
    Transitive,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    modules: usize,
    tags: usize,
    /// Nodes, and those of them that are known.
    total_operations: usize,
    tagged_operations: usize,
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
    let thresholds = args.thresholds.resolve()?;
    let mut files = Vec::new();
    let mut stripped = 0;
    if let Some(path) = &args.output {
        if args.strip_traces {
            stripped = store::strip(&mut model, Strip::Traces);
        }
        store::write(
            &mut model,
            &hierarchy,
            &policy,
            WriteOptions { consumers: args.consumers.is_some(), operations: args.operations },
        );
        files = output.save(&model, path, args.external)?;
    }
    let target = args.output.as_ref().unwrap_or(&args.viewed.source.model);
    if !args.no_sidecar {
        let beside = args.sidecar.clone().unwrap_or_else(|| path_for(target));
        let reach = match args.consumers {
            Some(ConsumersArg::Transitive) => Some(
                Reach::of(&model, &hierarchy)
                    .map_err(|error| Failure::at(&args.viewed.source.model, error))?,
            ),
            _ => None,
        };
        let sidecar = Sidecar {
            model: &model,
            file: file_name(target),
            hierarchy: &hierarchy,
            tags: &tags,
            policy: &policy,
            thresholds: &thresholds,
            reach: reach.as_ref(),
        };
        files.extend(write_sidecar(&beside, &sidecar, output)?);
    }
    let unreadable = hierarchy.unreadable().iter();
    let found = coverage(&model, &hierarchy, &tags, &thresholds);
    let report = Report {
        schema: 1,
        modules: hierarchy.table().len(),
        tags: tags.own().count(),
        total_operations: found.counts.nodes,
        tagged_operations: found.counts.known(),
        coverage: found,
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
        breakdown(found, out)?;
        if report.stripped > 0 {
            writeln!(out, "removed {} traces", report.stripped)?;
        }
        show_files(&report.files, out)
    })?;
    Ok(Verdict::Yes)
}

/// The name of a model's file.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes the sidecar of a model where it is found by its name, with what is usual in one.
pub fn write_beside(
    path: &Path,
    model: &Model,
    hierarchy: &Hierarchy,
    policy: &Policy,
    output: &Output,
) -> Result<Vec<WrittenFile>, Failure> {
    let (tags, thresholds) = (Tags::new(hierarchy.table(), policy), Thresholds::default());
    let file = file_name(path);
    let sidecar =
        Sidecar { model, file, hierarchy, tags: &tags, policy, thresholds: &thresholds, reach: None };
    write_sidecar(&path_for(path), &sidecar, output)
}

fn write_sidecar(beside: &Path, sidecar: &Sidecar<'_>, output: &Output) -> Result<Vec<WrittenFile>, Failure> {
    let ours = |recorded: &Recorded| recorded.fingerprint.is_some();
    if beside.is_file() && read_table(beside, output).is_ok_and(|recorded| !ours(&recorded)) {
        let text = "this is a module table that somebody made, no sidecar; move it, or say --no-sidecar";
        return Err(Failure::at(beside, text));
    }
    output.files.write(beside, |out| Ok(serde_json::to_writer(out, sidecar)?))
}
