//! The program `onnxforge-study`: experiments on many models, made of what the commands of `onnxforge` answer.

mod args;
mod corpus;
mod experiments;
mod lab;
mod page;
mod plan;
mod program;
mod step;
mod study;
mod subject;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use onnxforge_cli::failure::Failure;
use onnxforge_cli::globals::Globals;
use onnxforge_cli::program::explain;

/// Run all experiments on many models; write tables, plots and a page.
///
/// Answers are kept in the folder of the results: a study that was interrupted resumes.
#[derive(Debug, Parser)]
#[command(name = "onnxforge-study", bin_name = "onnxforge study", version, max_term_width = 100)]
#[command(subcommand_negates_reqs = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    study: Option<args::Args>,

    #[command(subcommand)]
    lab: Option<Lab>,

    /// How to start onnxforge, word by word; without this, the one beside this program or in the PATH.
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    program: Vec<OsString>,

    #[command(flatten)]
    globals: Globals,
}

#[derive(Debug, clap::Subcommand)]
enum Lab {
    #[command(hide = true)]
    Lab(lab::Args),
}

fn main() -> ExitCode {
    let Cli { study, lab, program, globals } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error).into(),
    };
    let code = globals.run(program::located(program), |output| match (lab, study) {
        (Some(Lab::Lab(args)), _) => lab::run(&args, output),
        (None, Some(args)) => study::run(&args, output),
        // The parser asks for one of them.
        (None, None) => Err(Failure::new("no models were named")),
    });
    code.into()
}
