//! `onnxforge save`: load and save, nothing else.

use std::path::PathBuf;

use super::{ExternalArg, Written};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Load and save a model, with its weights where you want them.
///
/// Nothing else changes, unless the model has to be mended: a warning says what was.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write it; the same path saves in place.
    #[arg(short, long)]
    output: PathBuf,
    /// Where weights go.
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
