//! `onnxforge completions`: for the shell.

use clap::CommandFactory;

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "onnxforge", &mut script);
    output.stdout(|out| out.write_all(&script))?;
    Ok(Verdict::Yes)
}
