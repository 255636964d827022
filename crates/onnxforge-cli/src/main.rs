//! The command line of onnxforge.

mod commands;
mod failure;
mod output;
mod progress;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;
use crate::failure::Verdict;
use crate::output::{JsonTarget, Output};

/// Makes ONNX models smaller, faster and understandable, and proves that nothing changed.
#[derive(Debug, Parser)]
#[command(name = "onnxforge", version, max_term_width = 100, propagate_version = true)]
#[command(
    after_help = "Exit codes: 0 good; 1 the answer is no (check failed, not equal); 2 bad input or usage."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Write the result as JSON, to FILE or to standard output.
    #[arg(long, global = true, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<JsonTarget>,

    /// Say nothing but errors.
    #[arg(short, long, global = true)]
    quiet: bool,

    /// Say more; twice for even more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,

    /// Accept external data behind links that leave the model's folder (caches store weights that way).
    #[arg(long, global = true)]
    follow_links: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match (cli.quiet, cli.verbose) {
        (true, _) => tracing::Level::ERROR,
        (_, 0) => tracing::Level::WARN,
        (_, 1) => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    let colour = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_ansi(colour)
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
    let output = Output::new(cli.json, cli.quiet, cli.follow_links);
    match cli.command.run(&output) {
        Ok(Verdict::Yes) => ExitCode::SUCCESS,
        Ok(Verdict::No) => ExitCode::from(1),
        Err(failure) => failure.report(),
    }
}
