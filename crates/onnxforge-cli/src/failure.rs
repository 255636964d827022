//! How a command can end.

use std::any::Any;
use std::error::Error;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use onnxforge::hierarchy::select::NoModule;
use onnxforge::interface::InterfaceError;
use onnxforge::io::{LoadError, SaveError};
use onnxforge::profile::ProfileError;
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

/// Exit code of a command that could not do its work.
pub(crate) const FAILED: u8 = 2;

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

/// Why a command could not do its work: bad input, reported in one line with file, place and fix.
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
        if let Some(hint) = hint(&error) {
            failure.message.push_str(hint);
        }
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
        } else if any.is::<Missing>() || any.is::<&'static Missing>() || any.is::<RuntimeError>() {
            failure.kind = Kind::Runtime;
        }
        if let Some(ProfileError::Missing(_) | ProfileError::Runtime(_)) = any.downcast_ref() {
            failure.kind = Kind::Runtime;
        }
        failure
    }
}

/// The command or option that helps, for errors of the library that have one.
fn hint(error: &dyn Any) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<onnxforge::Error>() {
        return match error {
            onnxforge::Error::Load(error) => hint(error),
            onnxforge::Error::Save(error) => hint(error),
            onnxforge::Error::Interface(error) => hint(error),
            onnxforge::Error::NoModule(error) => hint(error),
            _ => None,
        };
    }
    if error.downcast_ref().is_some_and(LoadError::is_text) {
        return Some("; `onnxforge parse` reads models in the ONNX notation");
    }
    if let Some(SaveError::TooLarge { .. }) = error.downcast_ref() {
        return Some(" (--external split)");
    }
    if let Some(InterfaceError::NoValue { near: None, .. }) = error.downcast_ref() {
        return Some("; `onnxforge infer` lists them");
    }
    if let Some(NoModule { near: None, .. }) = error.downcast_ref() {
        return Some("; `onnxforge tree` lists them");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnxforge::io::LoadOptions;

    #[test]
    fn errors_of_the_library_name_the_command_that_helps() {
        let unknown = |near: Option<&str>| NoModule { wanted: "a".into(), near: near.map(str::to_owned) };
        let message = |error: onnxforge::Error| Failure::from(error).message;
        assert_eq!(
            message(unknown(None).into()),
            "the model has no module \"a\"; `onnxforge tree` lists them"
        );
        assert_eq!(message(unknown(Some("b")).into()), "the model has no module \"a\"; did you mean \"b\"?");
        let value = InterfaceError::NoValue { name: "a".into(), near: None };
        assert!(message(value.into()).ends_with("`onnxforge infer` lists them"));
        let text = onnxforge::io::load_bytes(b"ir_version: 8".to_vec(), None, &LoadOptions::default());
        assert!(Failure::from(text.unwrap_err()).message.ends_with("reads models in the ONNX notation"));
    }
}
