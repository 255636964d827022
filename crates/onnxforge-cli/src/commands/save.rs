//! `onnxforge save`: load and save, nothing else.

use std::path::PathBuf;

use super::{ExternalArg, Written};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Save a model with its weights in the model file or in data files.
///
/// Nothing else changes, except for defects that are repaired on load; a warning lists them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write it; the same path saves in place.
    #[arg(short, long)]
    output: PathBuf,
    /// Where to store weights.
    #[arg(long, value_enum, default_value = "keep")]
    external: ExternalArg,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_folders([&args.output])?;
    let model = output.files.load(&args.model)?;
    let files = output.save(&model, &args.output, args.external)?;
    let mut written = Written::new(files);
    written.mended = model.mended().iter().map(ToString::to_string).collect();
    written.show(output)?;
    Ok(Verdict::Yes)
}
