//! Files to models that are valid.

use std::path::Path;

use onnxforge_ir::Model;
use onnxforge_ir::io::{LoadOptions, Source};
use onnxforge_ops::check::{Problem, Rule, Severity, check};

use crate::error::{Error, Invalid};

/// Rules that a model may break without losing its meaning.
pub const HARMLESS: &[Rule] = &[Rule::MissingShape, Rule::RuntimeOperator];

/// Loads the model in a file, and makes sure that it is valid. [`crate::io::load`] takes also what is not.
pub fn load(path: impl AsRef<Path>) -> Result<Model, Error> {
    load_valid(Source::open(path.as_ref(), &LoadOptions::default())?, &[])
}

/// The same for a file that is decoded already. `accepted` are rules that it may break, because what is to be done next takes
/// care of them.
pub fn load_valid(mut source: Source, accepted: &[Rule]) -> Result<Model, Error> {
    let problems = check(&source.message, &mut source.files);
    let matters = |problem: &Problem| {
        problem.severity == Severity::Error
            && !accepted.contains(&problem.rule)
            && !HARMLESS.contains(&problem.rule)
    };
    let mut errors = problems.into_iter().filter(matters);
    match errors.next() {
        Some(first) => Err(Invalid { first, more: errors.count() }.into()),
        None => Ok(source.into_model()?),
    }
}
