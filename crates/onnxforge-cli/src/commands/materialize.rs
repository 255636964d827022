//! `onnxforge materialize`: a skeleton with weights.

use std::path::PathBuf;

use onnxforge::io::Source;
use onnxforge::io::load::from_message;
use onnxforge::redact::materialize;

use super::{ExternalArg, Written};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, forbid_inputs};

/// Give a redacted model random weights of the same distributions.
///
/// The same seed gives the same weights.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What `redact` wrote.
    skeleton: PathBuf,
    /// Where to write the model.
    #[arg(short, long)]
    output: PathBuf,
    /// Seed for the weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where to store weights.
    #[arg(long, value_enum, default_value = "auto")]
    external: ExternalArg,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    forbid_inputs(&args.output, std::slice::from_ref(&args.skeleton))?;
    output.files.require_folders([&args.output])?;
    let Source { mut message, mut files, .. } = output.files.open(&args.skeleton)?;
    let named = |error: String| Failure::at(&args.skeleton, error);
    materialize(&mut message, args.seed).map_err(|error| named(error.to_string()))?;
    let model = from_message(message, &mut files).map_err(|error| named(error.to_string()))?;
    Written::new(output.save(&model, &args.output, args.external)?).show(output)?;
    Ok(Verdict::Yes)
}
