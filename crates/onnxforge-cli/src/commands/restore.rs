//! `onnxforge restore`: tags for a model that another tool made from a tagged one.

use std::path::PathBuf;

use onnxforge::hierarchy::coverage::{Coverage, Thresholds, coverage};
use onnxforge::hierarchy::restore::{matched, recorded};
use onnxforge::hierarchy::store::{self, WriteOptions};
use onnxforge::hierarchy::{Hierarchy, Tags};
use serde::Serialize;

use super::ExternalArg;
use super::hierarchy::{PolicyArgs, Source};
use super::tag::write_beside;
use crate::failure::{Failure, Verdict};
use crate::files::{WrittenFile, show_files};
use crate::output::Output;

/// Recover the modules of a model that another tool converted.
///
/// They are found by the names of results that the model shares with one whose modules are known.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model that lost its tags.
    optimized: PathBuf,
    /// The model that it was made from.
    #[arg(long, value_name = "MODEL")]
    from: PathBuf,
    /// The PyTorch model's modules as JSON; a sidecar beside the model of --from is found by itself.
    #[arg(long, value_name = "FILE.json")]
    modules: Option<PathBuf>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Where to write the tagged model; the same path replaces it.
    #[arg(short, long)]
    output: PathBuf,
    /// Where to store weights.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    coverage: Coverage,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_folders([&args.output])?;
    let source = Source { model: args.from.clone(), modules: args.modules.clone() };
    let (original, known) = source.load(output)?;
    let mut model = output.files.load(&args.optimized)?;
    let facts = recorded(&model, &original, &known);
    let (matched, nodes) = (matched(&model, &original), model.node_count());
    if nodes > 0 && facts.anchors.is_empty() || nodes > 1 && matched * 10 < nodes {
        let text = format_args!(
            "{matched} of {nodes} nodes have a result whose name {} knows; was it made from that model?",
            args.from.display()
        );
        return Err(Failure::at(&args.optimized, text));
    }
    store::strip(&mut model, store::Strip::Ours);
    let hierarchy = Hierarchy::of(&model, Some(&facts));
    let policy = args.policy.resolve(&known);
    store::write(&mut model, &hierarchy, &policy, WriteOptions::default());
    let mut files = output.save(&model, &args.output, args.external)?;
    files.extend(write_beside(&args.output, &model, &hierarchy, &policy, output)?);
    let coverage =
        coverage(&model, &hierarchy, &Tags::new(hierarchy.table(), &policy), &Thresholds::default());
    let report = Report { schema: 1, coverage, files };
    output.result(&report, |out| {
        let counts = report.coverage.counts;
        writeln!(
            out,
            "{} nodes: {} exact, {} inferred, {} unknown",
            counts.nodes, counts.exact, counts.inferred, counts.root
        )?;
        show_files(&report.files, out)
    })?;
    Ok(Verdict::Yes)
}
