//! `onnxforge save`: load and save, nothing else.

use std::path::PathBuf;

use onnxforge::io::{SaveOptions, save_with};

use super::{ExternalArg, Written, load_model};
use crate::failure::{Failure, Verdict};
use crate::output::Output;
use crate::progress::Bar;

/// Load a model and save it, with its weights where you want them; nothing else changes.
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
    let model = load_model(&args.model, output)?;
    let options = SaveOptions { external: args.external.into() };
    let saved = save_with(&model, &args.output, &options, &Bar::new(output.shows_progress()))?;
    Written::from(&saved).show(output)?;
    Ok(Verdict::Yes)
}
