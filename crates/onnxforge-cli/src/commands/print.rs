//! `onnxforge print`: the model in the ONNX notation.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use onnxforge::io::load::read_message;
use onnxforge::text::{PrintOptions, print};

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Print a model in the ONNX notation; `parse` reads it back exactly.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Write to a file instead of standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print `...` for tensors with more elements than this; such a text is for reading only.
    #[arg(long, value_name = "N", default_value_t = 65536)]
    max_elements: usize,
    /// Print every tensor in full.
    #[arg(long, conflicts_with = "max_elements")]
    full: bool,
    /// For people: no long tensors, no documentation, no metadata.
    #[arg(long, conflicts_with_all = ["full", "max_elements"])]
    brief: bool,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let message = read_message(&args.model)?;
    let options = if args.brief {
        PrintOptions::brief()
    } else {
        PrintOptions { max_elements: (!args.full).then_some(args.max_elements), ..PrintOptions::default() }
    };
    let text = print(&message, &options);
    match &args.output {
        None => output.stdout(|out| out.write_all(text.as_bytes()))?,
        Some(path) => {
            let write = || -> io::Result<()> {
                let mut file = BufWriter::new(File::create(path)?);
                file.write_all(text.as_bytes())?;
                file.flush()
            };
            write()
                .map_err(|error| Failure::Input(format!("{}: cannot be written: {error}", path.display())))?;
        }
    }
    Ok(Verdict::Yes)
}
