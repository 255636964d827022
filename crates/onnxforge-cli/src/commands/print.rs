//! `onnxforge print`: the model in the ONNX notation.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use onnxforge::io::Source;
use onnxforge::proto::schema::ModelProto;
use onnxforge::text::{self, PrintOptions};
use serde::Serialize;

use super::Written;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, forbid_inputs};

/// Print a model in the ONNX text notation.
///
/// `parse` reads it back exactly. On a terminal, long tensors are abbreviated unless --full is given.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Write to a file instead of standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print `...` for tensors with more elements than this; such a text is for reading only.
    #[arg(long, value_name = "N")]
    max_elements: Option<usize>,
    /// Print every tensor in full, also on a terminal.
    #[arg(long, conflicts_with = "max_elements")]
    full: bool,
    /// For people: no long tensors, no documentation, no metadata.
    #[arg(long, conflicts_with_all = ["full", "max_elements"])]
    brief: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    text: String,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    output.files.require_folders(&args.output)?;
    let Source { message, .. } = output.files.open(&args.model)?;
    let options = options(args, output);
    match &args.output {
        Some(path) => {
            forbid_inputs(path, std::slice::from_ref(&args.model))?;
            let files = output.files.write(path, |out| write(&message, &options, out))?;
            Written::new(files).show(output)?;
        }
        None if output.wants_json() => {
            output.result(&Report { schema: 1, text: text::print(&message, &options) }, |_| Ok(()))?;
        }
        None => output.stdout(|out| write(&message, &options, out))?,
    }
    Ok(Verdict::Yes)
}

fn options(args: &Args, output: &Output) -> PrintOptions {
    let on_terminal = args.output.is_none() && !output.wants_json() && io::stdout().is_terminal();
    match (args.brief, args.max_elements) {
        (true, _) => PrintOptions::brief(),
        (_, Some(limit)) => PrintOptions { max_elements: Some(limit), ..PrintOptions::default() },
        (_, None) if on_terminal && !args.full => {
            PrintOptions { max_elements: PrintOptions::brief().max_elements, ..PrintOptions::default() }
        }
        _ => PrintOptions::default(),
    }
}

/// Streams the text, which may be many times as long as the model.
fn write(message: &ModelProto, options: &PrintOptions, out: &mut dyn Write) -> io::Result<()> {
    struct Adapter<'a> {
        out: &'a mut dyn Write,
        failure: Option<io::Error>,
    }
    impl fmt::Write for Adapter<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.out.write_all(text.as_bytes()).map_err(|error| {
                self.failure = Some(error);
                fmt::Error
            })
        }
    }
    let mut adapter = Adapter { out, failure: None };
    match (text::write(message, options, &mut adapter), adapter.failure) {
        (_, Some(error)) => Err(error),
        (result, None) => result.map_err(io::Error::other),
    }
}
