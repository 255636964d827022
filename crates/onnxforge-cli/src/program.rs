//! What the programs of this project have in common: how a program runs and ends.

use std::ffi::OsString;
use std::io::IsTerminal;

use crate::failure::{FAILED, Failure, Verdict};
use crate::files::Files;
use crate::globals::{Globals, JsonTarget};
use crate::output::Output;
use crate::process;

/// Exit code of a command whose answer is no.
const NO: u8 = 1;

impl Globals {
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
