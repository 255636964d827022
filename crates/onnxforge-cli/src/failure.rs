//! How a command can end.

use std::any::Any;
use std::error::Error;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use onnxforge::io::{LoadError, SaveError};
use onnxforge::runtime::{Missing, RuntimeError};
use serde::Serialize;

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

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The command is not one.
    Usage,
    /// A file cannot be read, or is no model.
    Load,
    /// A model contradicts itself or the standard.
    Invalid,
    /// A file cannot be written.
    Save,
    /// ONNX Runtime is missing, or refuses a model.
    Runtime,
    /// What was asked for cannot be done.
    Request,
}

/// Why a command could not do its work: bad input, told in one line with file, place and cure.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// Its kind.
    pub kind: Kind,
    /// The line.
    pub message: String,
    /// The file that it is about.
    pub path: Option<PathBuf>,
    /// The place in the model that it is about.
    pub place: Option<String>,
}

impl Failure {
    /// A failure that is about no file.
    pub fn new(message: impl Display) -> Self {
        Self { kind: Kind::Request, message: message.to_string(), path: None, place: None }
    }

    /// A failure that is about a file.
    pub fn at(path: &Path, message: impl Display) -> Self {
        Self { path: Some(path.to_owned()), ..Self::new(format!("{}: {message}", path.display())) }
    }

    /// The same about a file, unless it is about one already or about something else than a model.
    pub fn about(self, path: &Path) -> Self {
        match (&self.path, self.kind) {
            (None, Kind::Request) => Self { place: self.place, ..Self::at(path, self.message) },
            _ => self,
        }
    }

    /// The same, of another kind.
    pub fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

/// One line that can be read, whatever a file name or an attribute contains.
impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readable = |c: char| if c.is_control() { ' ' } else { c };
        let line: String = self.message.chars().map(readable).take(LONGEST).collect();
        let more = if self.message.chars().nth(LONGEST).is_some() { "…" } else { "" };
        write!(f, "{line}{more}")
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut failure = Self::new(&error);
        let any: &dyn Any = match (&error as &dyn Any).downcast_ref::<onnxforge::Error>() {
            Some(onnxforge::Error::Load(error)) => error,
            Some(onnxforge::Error::Save(error)) => error,
            Some(onnxforge::Error::Runtime(error)) => error,
            _ => &error,
        };
        if let Some(error) = any.downcast_ref::<LoadError>() {
            let (LoadError::Open { path, .. }
            | LoadError::NotAModel { path, .. }
            | LoadError::Model { path, .. }) = error;
            (failure.kind, failure.path) = (Kind::Load, Some(path.clone()));
            if let LoadError::Model { source, .. } = error {
                (failure.kind, failure.place) = (Kind::Invalid, Some(source.place()));
            }
        } else if let Some(error) = any.downcast_ref::<SaveError>() {
            (failure.kind, failure.path) = (Kind::Save, Some(error.path().to_owned()));
            if matches!(error, SaveError::TooLarge { .. }) {
                failure.message.push_str(" (--external split)");
            }
        } else if any.is::<Missing>() || any.is::<&'static Missing>() || any.is::<RuntimeError>() {
            failure.kind = Kind::Runtime;
        }
        failure
    }
}
