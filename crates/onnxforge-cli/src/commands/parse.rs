//! `onnxforge parse`: a model from the ONNX notation.

use std::io::ErrorKind;
use std::path::PathBuf;

use onnxforge::text::parse;

use super::Written;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, forbid_inputs};

/// Read a model in the ONNX text notation and save it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The text, `-` for standard input.
    text: PathBuf,
    /// Where to write the model.
    #[arg(short, long)]
    output: PathBuf,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    forbid_inputs(&args.output, std::slice::from_ref(&args.text))?;
    output.files.require_folders([&args.output])?;
    let read = if args.text.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&args.text)
    };
    let text = read.map_err(|error| {
        let why = match error.kind() {
            ErrorKind::InvalidData => "it is not text; `onnxforge print` shows a binary model".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        Failure::at(&args.text, why)
    })?;
    let message = parse(&text).map_err(|error| {
        Failure::new(format!("{}:{}:{}: {}", args.text.display(), error.line, error.column, error.message))
    })?;
    Written::new(output.files.save_message(&message, &args.output)?).show(output)?;
    Ok(Verdict::Yes)
}
