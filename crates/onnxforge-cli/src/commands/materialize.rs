//! `onnxforge materialize`: a skeleton with weights.

use std::path::PathBuf;

use onnxforge::io::load::from_message;
use onnxforge::io::{SaveOptions, save_with};
use onnxforge::redact::materialize;

use super::{ExternalArg, Written, open_message};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, forbid_inputs};
use crate::progress::Bar;

/// Give a redacted model random weights of the same distributions, the same ones for the same seed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What `redact` wrote.
    skeleton: PathBuf,
    /// Where to write the model.
    #[arg(short, long)]
    output: PathBuf,
    /// Other seeds give other weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where weights go.
    #[arg(long, value_enum, default_value = "auto")]
    external: ExternalArg,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    forbid_inputs(&args.output, std::slice::from_ref(&args.skeleton))?;
    let (mut message, mut files) = open_message(&args.skeleton, output)?;
    let named = |error: String| Failure(format!("{}: {error}", args.skeleton.display()));
    materialize(&mut message, args.seed).map_err(|error| named(error.to_string()))?;
    let model = from_message(message, &mut files).map_err(|error| named(error.to_string()))?;
    let options = SaveOptions { external: args.external.into() };
    let saved = save_with(&model, &args.output, &options, &Bar::new(output.shows_progress()))?;
    Written::from(&saved).show(output)?;
    Ok(Verdict::Yes)
}
