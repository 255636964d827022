//! The commands of onnxforge: for the command line ([`main`]), and for programs that call them ([`call`]).
//!
//! Programs that build on the commands have what commands are made of: how they end ([`failure`]), what they read, write and show
//! ([`files`], [`output`]), and how they work on many things at a time ([`jobs`], [`process`]).

pub mod arguments;
mod call;
mod commands;
pub mod failure;
pub mod files;
pub mod globals;
mod help;
pub mod jobs;
pub mod output;
pub mod process;
pub mod program;
mod progress;
#[cfg(test)]
mod reference;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser};

pub use self::call::{Answer, Call, Ended, Event, call};
use self::commands::Command;
pub use self::failure::{Failure, Kind, Verdict};
pub use self::files::MEMORY;
use self::globals::Globals;

/// Makes ONNX models smaller, faster and understandable, and verifies that nothing changed.
#[derive(Debug, Parser)]
#[command(name = "onnxforge", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "`onnxforge help COMMAND` shows the options of a command.\n\
                  Exit codes: 0 good; 1 the answer is no (check failed, not equal); 2 bad input or usage.")]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    globals: Globals,
}

impl Cli {
    /// The definition of the command line, its commands in groups.
    fn definition() -> clap::Command {
        help::grouped(Self::command(), commands::GROUPS)
    }

    /// What words ask for; the program's name comes first.
    fn of(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut definition = Self::definition();
        let found = definition.try_get_matches_from_mut(words)?;
        Self::from_arg_matches(&found).map_err(|error| error.format(&mut definition))
    }
}

/// The command line: `words` are those of the shell, the program's name first. `program` starts it again in another process. The exit code.
pub fn main(words: impl IntoIterator<Item = OsString>, program: Vec<OsString>) -> u8 {
    match Cli::of(words) {
        Ok(Cli { command, globals }) => globals.run(program, |output| command.run(output)),
        Err(error) => program::explain(&error),
    }
}
