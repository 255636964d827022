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

/// Characters of an error line; names in a model may be of any length.
const LONGEST: usize = 1000;

/// Why a command could not do its work: bad input, told in one line with file, place and cure.
#[derive(Debug)]
pub struct Failure(pub String);

impl Failure {
    /// Tells the user and gives the exit code.
    #[allow(clippy::print_stderr)]
    pub fn report(self) -> ExitCode {
        // One line that can be read, whatever a file name or an attribute contains.
        let mut line: String =
            self.0.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
        if self.0.chars().nth(LONGEST).is_some() {
            line.push('…');
        }
        eprintln!("error: {line}");
        ExitCode::from(2)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
