//! `onnxforge study lab`: the experiments of a study that build models of their own.

mod forms;
mod products;

use onnxforge_cli::failure::{Failure, Verdict};
use onnxforge_cli::output::Output;

/// Experiments that build models of their own.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, clap::Subcommand)]
enum Experiment {
    Forms(forms::Args),
    Products(products::Args),
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    match &args.experiment {
        Experiment::Forms(args) => forms::run(args, output),
        Experiment::Products(args) => products::run(args, output),
    }
}
