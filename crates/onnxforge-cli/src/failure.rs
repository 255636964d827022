//! How a command can end.

use std::process::ExitCode;

/// The answer of a command that could do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Good.
    Yes,
    /// The answer is no.
    No,
}

/// Why a command could not do its work: bad input, told in one line with file, place and cure.
#[derive(Debug)]
pub struct Failure(pub String);

impl Failure {
    /// Tells the user and gives the exit code.
    #[allow(clippy::print_stderr)]
    pub fn report(self) -> ExitCode {
        // One line, whatever a file name or an attribute contains.
        let line: String = self.0.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        eprintln!("error: {line}");
        ExitCode::from(2)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
