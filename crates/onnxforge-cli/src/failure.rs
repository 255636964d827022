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

/// Why a command could not do its work: one line with file, place and cure.
#[derive(Debug)]
pub enum Failure {
    /// Bad input or usage.
    Input(String),
    /// Nobody reads standard output any more; there is nothing to say.
    Closed,
}

impl Failure {
    /// Tells the user and gives the exit code.
    #[allow(clippy::print_stderr)]
    pub fn report(self) -> ExitCode {
        match self {
            Self::Input(message) => {
                // One line, whatever a file name or an attribute contains.
                let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                eprintln!("error: {line}");
                ExitCode::from(2)
            }
            Self::Closed => ExitCode::SUCCESS,
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Input(error.to_string())
    }
}
