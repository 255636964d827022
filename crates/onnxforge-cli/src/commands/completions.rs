//! `onnxforge completions`: for the shell.

use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: u32,
    text: &'a str,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::definition(), "onnxforge", &mut script);
    let text = String::from_utf8_lossy(&script);
    output.result(&Report { schema: 1, text: &text }, |out| out.write_all(&script))?;
    Ok(Verdict::Yes)
}
