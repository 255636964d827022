//! What the programs of this project have in common: options of all commands, and how a program runs and ends.

use std::ffi::OsString;
use std::io::IsTerminal;

use onnxforge::io::LinkPolicy;

use crate::failure::{Failure, Verdict};
use crate::files::Files;
use crate::output::{JsonTarget, Output};
use crate::process;

/// Exit code of a command whose answer is no.
const NO: u8 = 1;
/// Exit code of a command that could not do its work.
pub(crate) const FAILED: u8 = 2;

/// Options that all commands take.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Globals {
    /// Write the result as JSON, to FILE or to standard output.
    #[arg(long, global = true, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<JsonTarget>,

    /// Say nothing but errors.
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// Say more; twice for even more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,

    /// Accept external data behind links that leave the model's folder (caches store weights that way).
    #[arg(long, global = true)]
    pub follow_links: bool,
}

impl Globals {
    /// What is logged.
    pub fn level(&self) -> tracing::Level {
        match (self.quiet, self.verbose) {
            (true, _) => tracing::Level::ERROR,
            (_, 0) => tracing::Level::WARN,
            (_, 1) => tracing::Level::INFO,
            _ => tracing::Level::DEBUG,
        }
    }

    /// What links external data may lie behind.
    pub fn links(&self) -> LinkPolicy {
        LinkPolicy { follow: self.follow_links }
    }

    /// The same options as words, for another program of ours.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        match &self.json {
            Some(JsonTarget::Stdout) => words.push("--json=-".into()),
            Some(JsonTarget::File(path)) => {
                let mut word = OsString::from("--json=");
                word.push(path);
                words.push(word);
            }
            None => {}
        }
        words.extend(self.quiet.then(|| "--quiet".into()));
        words.extend((0..self.verbose).map(|_| "--verbose".into()));
        words.extend(self.follow_links.then(|| "--follow-links".into()));
        words
    }

    /// Does the work of a program's command line; the exit code. `program` starts the commands of `onnxforge` in another process.
    #[allow(clippy::print_stderr)]
    pub fn run(self, program: Vec<OsString>, work: impl FnOnce(&Output) -> Result<Verdict, Failure>) -> u8 {
        process::end_with_starter();
        let logged = tracing_subscriber::fmt()
            .with_ansi(std::io::stderr().is_terminal())
            .with_max_level(self.level())
            .with_writer(std::io::stderr)
            .without_time()
            .with_target(false)
            .try_init();
        // A program that this one is a part of may have its own; then that hears what there is to say.
        drop(logged);
        let files = Files { links: self.links(), memory: None };
        let json = match &self.json {
            Some(JsonTarget::File(path)) => Some(path.clone()),
            _ => None,
        };
        let output = Output::console(self, files, program);
        match output.files.require_folders(&json).and_then(|()| work(&output)) {
            Ok(Verdict::Yes) => 0,
            Ok(Verdict::No) => NO,
            Err(failure) => {
                eprintln!("error: {failure}");
                FAILED
            }
        }
    }
}

/// Shows why words are no command line, or the help that they ask for; the exit code.
pub fn explain(error: &clap::Error) -> u8 {
    drop(error.print());
    u8::try_from(error.exit_code()).unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        globals: Globals,
    }

    #[test]
    fn options_survive_being_handed_over() {
        let given: &[&[&str]] = &[
            &[],
            &["--json=-", "--quiet"],
            &["--json=out.json", "--verbose", "--verbose", "--follow-links"],
        ];
        for given in given {
            let words = Words::try_parse_from(["x"].iter().chain(given.iter())).unwrap();
            assert_eq!(words.globals.words(), *given);
        }
    }
}
