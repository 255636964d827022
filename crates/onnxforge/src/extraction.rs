//! Modules as models of their own.

mod file_names;

use std::collections::HashMap;

use onnxforge_hierarchy::extract::{Boundary, ExtractError, Extraction, Extractor};
use onnxforge_hierarchy::select::select;
use onnxforge_hierarchy::{Hierarchy, Policy, Tags, restore, store};
use onnxforge_ir::io::LinkPolicy;
use onnxforge_ir::io::external::ExternalFiles;
use onnxforge_ir::io::message::to_inline_message;
use onnxforge_ir::{Model, ValueId};
use onnxforge_ops::Value;
use onnxforge_ops::check::{Severity, check};
use onnxforge_ops::infer::Inference;
use onnxforge_verify as verify;
use onnxforge_verify::VerifyError;
use onnxforge_verify::engine::Choice;
use onnxforge_verify::parts::{Compared, Observed, compare_part, observe};
use serde::Serialize;

pub use self::file_names::FileNames;
use crate::Error;

/// What is cut out of a model, and how that is verified.
#[derive(Clone, Debug, Default)]
pub struct ExtractOptions {
    /// Only this call of a module that is called several times, counted from 0.
    pub call: Option<usize>,
    /// Which modules have tags; as the model was tagged without it.
    pub policy: Option<Policy>,
    /// Run the whole model and each part on the same values, and compare bit for bit.
    pub comparison: Option<PartComparison>,
}

/// How parts are compared with the whole.
#[derive(Clone, Debug, Default)]
pub struct PartComparison {
    /// Which engine runs them.
    pub engine: Choice,
    /// Inputs of the whole model that are given; others are synthetic.
    pub given: HashMap<String, Value>,
    /// Sizes of named dimensions in synthetic inputs.
    pub dims: HashMap<String, usize>,
}

/// What was cut out.
#[derive(Debug)]
pub struct Extracted {
    /// The modules that have nodes, in the order of the table.
    pub parts: Vec<Part>,
    /// Modules that a pattern fits but that have no nodes, and why.
    pub without_nodes: Vec<String>,
}

/// A module as a model of its own.
#[derive(Debug, Serialize)]
pub struct Part {
    /// The model.
    #[serde(skip)]
    pub model: Model,
    /// What it has to do with the rest.
    #[serde(flatten)]
    pub boundary: Boundary,
    /// What is wrong with it as a model.
    pub problems: Vec<String>,
    /// How it compares with the whole, where that was asked for.
    pub verified: Option<Compared>,
}

impl Part {
    /// Whether it is valid, and nothing says that it computes something else than the whole does.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
            && !matches!(self.verified, Some(Compared::Different(_) | Compared::NotRun(_)))
    }
}

/// Cuts modules out of a model. `module` is a path such as `encoder.layer.0`, a tag such as `/BertModel/BertEncoder`, or a pattern
/// (`*` for one level, `**` for any number), for which modules without nodes are skipped.
pub fn extract(
    model: &Model,
    hierarchy: &Hierarchy,
    module: &str,
    options: &ExtractOptions,
) -> Result<Extracted, Error> {
    let policy = options.policy.clone().unwrap_or_else(|| hierarchy.policy());
    let paths = select(hierarchy, &Tags::new(hierarchy.table(), &policy), module)?;
    let facts = Inference::of(model);
    let extractor = Extractor::new(model, hierarchy, &facts);
    let is_pattern = module.contains('*');
    let (mut cuts, mut without_nodes) = (Vec::new(), Vec::new());
    for path in &paths {
        match extractor.extract(path, options.call) {
            Ok(cut) => cuts.push(cut),
            Err(error @ (ExtractError::NoNodes { .. } | ExtractError::Bodies { .. })) if is_pattern => {
                without_nodes.push(error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }
    let comparison = match &options.comparison {
        Some(comparison) => Some(comparison.observe(model, &facts, &cuts)?),
        None => None,
    };
    let is_tagged = store::is_tagged(model);
    let part = |mut cut: Extraction| {
        if is_tagged {
            // The table goes with the nodes.
            let recorded = restore::recorded(&cut.cut.model, model, hierarchy);
            let inner = Hierarchy::of(&cut.cut.model, Some(&recorded));
            store::write(&mut cut.cut.model, &inner, &policy, store::WriteOptions::default());
        }
        let verified = comparison.as_ref().map(|(observed, options)| {
            let compared = compare_part(&cut.cut, observed, options);
            compared.unwrap_or_else(|error| Compared::NotRun(error.to_string()))
        });
        Part { problems: problems(&cut.cut.model), model: cut.cut.model, boundary: cut.boundary, verified }
    };
    Ok(Extracted { parts: cuts.into_iter().map(part).collect(), without_nodes })
}

impl PartComparison {
    /// The values at the ends of all parts, in one run of the whole model.
    fn observe(
        &self,
        model: &Model,
        facts: &Inference,
        cuts: &[Extraction],
    ) -> Result<(Observed, verify::Options), Error> {
        self.engine.check()?;
        let options = |engine| verify::Options {
            samples: 1,
            given: self.given.clone(),
            dims: self.dims.clone(),
            ..verify::Options::new(engine)
        };
        let ends = cuts.iter().flat_map(|part| part.cut.inputs.iter().chain(&part.cut.outputs)).copied();
        let mut ends: Vec<ValueId> = ends.collect();
        ends.sort();
        ends.dedup();
        let refused = |error: &VerifyError| matches!(error, VerifyError::Run { .. });
        let run = |engine| {
            let options = options(engine);
            observe(model, &ends, facts, &options).map(|observed| (observed, options))
        };
        Ok(self.engine.engines().work(refused, run).0?)
    }
}

/// What is wrong with a part as a model.
fn problems(model: &Model) -> Vec<String> {
    let message = match to_inline_message(model) {
        Ok(message) => message,
        Err(error) => return vec![error.to_string()],
    };
    let found = check(&message, &mut ExternalFiles::new(None, LinkPolicy::default()));
    let errors = found.iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| format!("{}: {}", problem.place, problem.message)).collect()
}
