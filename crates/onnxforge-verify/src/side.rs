//! One of two models that are compared, ready to run.

use std::collections::{BTreeSet, HashMap};

use crate::engine::{Engine, Ready};
use crate::input_names;
use crate::report::{Moment, VerifyError, Which};
use crate::samples::Inputs;
use onnxforge_ir::Model;
use onnxforge_ops::Value;
use onnxforge_proto::clock::Instant;

/// One of the two models, and what runs it.
pub struct Side<'m> {
    which: Which,
    /// The inputs that it takes.
    takes: BTreeSet<String>,
    run: Ready<'m>,
    /// What inputs are called that have another name in the first model.
    pub renamed: HashMap<String, String>,
}

impl<'m> Side<'m> {
    pub fn new(which: Which, model: &'m Model, engine: Engine) -> Result<Self, VerifyError> {
        let run = Self::opened(which, model, engine)?;
        Ok(Self { which, takes: input_names(model, true), run, renamed: HashMap::new() })
    }

    fn opened(which: Which, model: &'m Model, engine: Engine) -> Result<Ready<'m>, VerifyError> {
        let start = Instant::now();
        let failed = |error| VerifyError::Run { which, when: Moment::Loading, error };
        let opened = engine.open(model).map_err(failed)?;
        tracing::debug!("the {which} model loaded in {:.1?} ({})", start.elapsed(), engine.name());
        Ok(opened)
    }

    /// The outputs by name.
    pub fn outputs(&mut self, inputs: &Inputs) -> Result<HashMap<String, Value>, VerifyError> {
        let name = |name: &String| self.renamed.get(name).unwrap_or(name).clone();
        let named = inputs.values.iter().map(|(input, value)| (name(input), value.clone()));
        let taken = named.filter(|(name, _)| self.takes.contains(name)).collect();
        let (which, sizes, start) = (self.which, &inputs.sizes, Instant::now());
        let failed = |error| VerifyError::Run { which, when: Moment::Running(sizes.clone()), error };
        let outputs = self.run.run(&taken).map_err(failed)?;
        tracing::debug!("the {which} model ran in {:.1?} ({sizes})", start.elapsed());
        Ok(outputs)
    }
}
