//! The commands of onnxforge: for the command line ([`main`]), and for programs that call them ([`call`]).

mod call;
mod commands;
mod failure;
mod files;
mod jobs;
mod output;
mod process;
mod progress;

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::Parser;
use onnxforge::io::LinkPolicy;

pub use self::call::{Answer, Call, Ended, Event, call};
use self::commands::Command;
pub use self::failure::{Failure, Kind, Verdict};
use self::files::Files;
pub use self::files::MEMORY;
use self::output::{JsonTarget, Output};

/// Exit code of a command whose answer is no.
const NO: u8 = 1;
/// Exit code of a command that could not do its work.
const FAILED: u8 = 2;

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

impl Cli {
    fn level(&self) -> tracing::Level {
        match (self.quiet, self.verbose) {
            (true, _) => tracing::Level::ERROR,
            (_, 0) => tracing::Level::WARN,
            (_, 1) => tracing::Level::INFO,
            _ => tracing::Level::DEBUG,
        }
    }

    fn links(&self) -> LinkPolicy {
        LinkPolicy { follow: self.follow_links }
    }
}

/// The command line: `words` are those of the shell, the program's name first. `program` starts it again in another process. The exit code.
#[allow(clippy::print_stderr)]
pub fn main(words: impl IntoIterator<Item = OsString>, program: Vec<OsString>) -> u8 {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            drop(error.print());
            return u8::try_from(error.exit_code()).unwrap_or(FAILED);
        }
    };
    process::end_with_starter();
    let logged = tracing_subscriber::fmt()
        .with_ansi(std::io::stderr().is_terminal())
        .with_max_level(cli.level())
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .try_init();
    // A program that this one is a part of may have its own; then that hears what there is to say.
    drop(logged);
    let files = Files { links: cli.links(), memory: None };
    let output = Output::console(cli.json, cli.quiet, files, program);
    match cli.command.run(&output) {
        Ok(Verdict::Yes) => 0,
        Ok(Verdict::No) => NO,
        Err(failure) => {
            eprintln!("error: {failure}");
            FAILED
        }
    }
}
