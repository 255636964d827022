//! `onnxforge strip`: a model without metadata.

use std::path::PathBuf;

use onnxforge::hierarchy::store::{self, Strip};

use super::{ExternalArg, Written};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};

/// Remove the metadata that `tag` or exporters wrote into a model.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write the result; the same path replaces the model.
    #[arg(short, long)]
    output: PathBuf,
    /// Remove what exporters wrote, too: nothing tells of modules any more.
    #[arg(long, conflicts_with = "traces")]
    all: bool,
    /// Remove only lines of source code and paths of the machine that exported.
    #[arg(long)]
    traces: bool,
    /// Where to store weights.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_folders([&args.output])?;
    let mut model = output.files.load(&args.model)?;
    let what = match (args.all, args.traces) {
        (true, _) => Strip::All,
        (_, true) => Strip::Traces,
        _ => Strip::Ours,
    };
    let gone = store::strip(&mut model, what);
    let files = output.save(&model, &args.output, args.external)?;
    let mut written = Written::new(files);
    written.notes.push(format!("removed {} entries", grouped(gone as u64)));
    written.show(output)?;
    Ok(Verdict::Yes)
}
