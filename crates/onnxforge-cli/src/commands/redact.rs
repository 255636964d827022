//! `onnxforge redact`: the graph without its weights.

use std::path::PathBuf;

use onnxforge::io::Source;
use onnxforge::redact::{RedactOptions, redact};

use super::Written;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, bytes, forbid_inputs};

/// Remove the weights of a model, so that it can be shared.
///
/// Names, types, shapes, integers in attributes, small tensors and the distribution of each large one stay; `materialize` gives it random weights.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to write the skeleton.
    #[arg(short, long)]
    output: PathBuf,
    /// Keep tensors with fewer bytes than this: axes, shapes, epsilons.
    #[arg(long, value_name = "BYTES", default_value_t = RedactOptions::default().keep_below)]
    keep_below: u64,
    /// Replace all names by hashes and drop documentation and metadata; SALT makes the hashes yours.
    #[arg(long, value_name = "SALT", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    hash_names: Option<String>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    forbid_inputs(&args.output, std::slice::from_ref(&args.model))?;
    output.files.require_folders([&args.output])?;
    let Source { mut message, mut files, .. } = output.files.open(&args.model)?;
    let options = RedactOptions { keep_below: args.keep_below, hash_names: args.hash_names.clone() };
    let done = redact(&mut message, &mut files, &options).map_err(|error| Failure::at(&args.model, error))?;
    let mut written = Written::new(output.files.save_message(&message, &args.output)?);
    written.notes.push(format!("took {} out of {} tensors", bytes(done.bytes), done.tensors));
    written.show(output)?;
    Ok(Verdict::Yes)
}
