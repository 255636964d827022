//! Files to models that are valid.

use std::path::Path;

use onnxforge_convert::Format;
use onnxforge_ir::io::{LoadError, LoadOptions, Source};
use onnxforge_ir::mended::Mend;
use onnxforge_ir::value::Port;
use onnxforge_ir::{Model, Type, ValueId};
use onnxforge_ops::check::{Problem, Rule, Severity, check};
use onnxforge_ops::infer::Inference;

use crate::error::{Error, Invalid};

/// Rules that a model may break without losing its meaning. Operators that nobody knows stay as they are.
pub const HARMLESS: &[Rule] = &[
    Rule::DomainSpelling,
    Rule::MissingShape,
    Rule::MissingType,
    Rule::RuntimeOperator,
    Rule::TopologicalOrder,
    Rule::UnknownOperator,
];

/// Loads the model in a file, and makes sure that it is valid, once what runtimes accept anyway is mended
/// ([`Model::mended`]). [`crate::io::load`] takes also what is not.
pub fn load(path: impl AsRef<Path>) -> Result<Model, Error> {
    load_valid(open(path.as_ref(), &LoadOptions::default())?, &[])
}

/// Decodes a file: an ONNX model, or one of a format that can be read ([`Format`]).
pub fn open(path: &Path, options: &LoadOptions) -> Result<Source, LoadError> {
    match Format::found_in(path) {
        Some(format) => format.open(path),
        None => Source::open(path, options),
    }
}

/// The same for a file that is decoded already. `accepted` are rules that it may break, because what is to be done next takes
/// care of them.
pub fn load_valid(mut source: Source, accepted: &[Rule]) -> Result<Model, Error> {
    source.mend();
    let problems = check(&source.message, &mut source.files);
    let matters = |problem: &Problem| {
        problem.severity == Severity::Error
            && !accepted.contains(&problem.rule)
            && !HARMLESS.contains(&problem.rule)
    };
    let mut errors = problems.into_iter().filter(matters);
    match errors.next() {
        Some(first) => Err(Invalid { first, more: errors.count() }.into()),
        None => {
            let mut model = source.into_model()?;
            declare_outputs(&mut model);
            Ok(model)
        }
    }
}

/// Declares the types of outputs that have none, as far as they follow.
fn declare_outputs(model: &mut Model) {
    let is_open = |port: &Port| matches!(port.declared(), Type::Unknown | Type::Tensor(None, _));
    let ports = model.scope(model.main()).outputs();
    let open: Vec<(usize, ValueId)> =
        ports.iter().enumerate().filter(|(_, port)| is_open(port)).map(|(i, port)| (i, port.value)).collect();
    if open.is_empty() {
        return;
    }
    let known = Inference::of(model);
    let mut typed = 0;
    for (index, value) in open {
        if let Some(ty) = known.declaration(value) {
            model.set_output_type(index, ty);
            typed += 1;
        }
    }
    if typed > 0 {
        model.note_mended(Mend::Typed { outputs: typed });
    }
}
