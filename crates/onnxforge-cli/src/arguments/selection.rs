//! Which passes run.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use onnxforge::Selection;
use onnxforge::passes::Pass;
use onnxforge::passes::targets::{PORTABLE, TARGETS, Target};
use onnxforge::selection::{SelectionError, find_pass, find_rule};

use crate::failure::Failure;

/// Which passes run.
#[derive(Debug, clap::Args)]
pub struct SelectionArgs {
    /// Run only these passes, stage by stage in this order; `onnxforge passes` lists them.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    passes: Vec<String>,
    /// Skip these passes; PASS.RULE skips one rule of a pass.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    skip: Vec<String>,
    /// Runtime or format to optimize for.
    #[arg(long, value_parser = target(), conflicts_with = "passes")]
    target: Option<&'static Target>,
}

/// Reads the name of a target.
fn target() -> impl TypedValueParser<Value = &'static Target> {
    let names = TARGETS.iter().map(|target| PossibleValue::new(target.name).help(target.summary));
    PossibleValuesParser::new(names)
        .map(|name| TARGETS.into_iter().find(|target| target.name == name).unwrap_or(&PORTABLE))
}

impl SelectionArgs {
    /// What is selected.
    pub fn resolve(&self) -> Result<Selection, Failure> {
        let named = |names: &[String]| names.iter().map(|name| find(name)).collect::<Result<_, _>>();
        let only = named(&self.passes)?;
        let (mut skip, mut skip_rules) = (Vec::new(), Vec::new());
        for name in &self.skip {
            match find_rule(name).map_err(listed)? {
                (pass, None) => skip.push(pass),
                (pass, Some(rule)) => skip_rules.push((pass, rule)),
            }
        }
        let target = self.target.unwrap_or(&PORTABLE);
        Ok(Selection { target, only, skip, skip_rules, ..Selection::default() })
    }

    /// What is selected, for a look at one pass: where no target is given, one that runs it.
    pub fn resolve_for(&self, pass: &Pass) -> Result<Selection, Failure> {
        let selection = self.resolve()?;
        let runs = |target: &&&Target| pass.runs_for(target);
        Ok(match (self.target, TARGETS.iter().find(runs)) {
            (None, Some(target)) => Selection { target, ..selection },
            _ => selection,
        })
    }

    /// The selected passes.
    pub fn passes(&self) -> Result<Vec<&'static Pass>, Failure> {
        Ok(self.resolve()?.passes()?)
    }
}

/// The pass of this name, or what might have been meant.
pub fn find(name: &str) -> Result<&'static Pass, Failure> {
    find_pass(name).map_err(listed)
}

fn listed(error: SelectionError) -> Failure {
    match error {
        SelectionError::Unknown { near: None, .. } => {
            Failure::new(format_args!("{error}; `onnxforge passes` lists them"))
        }
        _ => error.into(),
    }
}
