//! Which passes run.

use onnxforge_analysis::fingerprint::{Unfit, fitting};
use onnxforge_ir::Model;
use onnxforge_ops::check::nearest;
use onnxforge_rewrite::passes::targets::{PORTABLE, TARGETS, Target};
use onnxforge_rewrite::passes::{self, Pass};

/// Which passes run.
#[derive(Clone, Debug)]
pub struct Selection {
    /// What the model is made for: the passes that run unless others are asked for.
    pub target: &'static Target,
    /// Only these, stage by stage in this order; the target's where the list is empty.
    pub only: Vec<&'static Pass>,
    /// Not these.
    pub skip: Vec<&'static Pass>,
}

impl Default for Selection {
    fn default() -> Self {
        Self { target: &PORTABLE, only: Vec::new(), skip: Vec::new() }
    }
}

/// Why passes cannot be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// There is no such pass.
    #[error("no pass is called {name:?}{}", near.map(|near| format!("; did you mean {near}?")).unwrap_or_default())]
    Unknown {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        near: Option<&'static str>,
    },
    /// One pass undoes what another makes.
    #[error("{adds} is for models without what {omits} makes; ask for one of them")]
    Opposed {
        /// A pass that a target adds.
        adds: &'static str,
        /// One that it leaves out.
        omits: &'static str,
    },
}

/// The pass of this name.
pub fn find_pass(name: &str) -> Result<&'static Pass, SelectionError> {
    passes::find(name.trim()).ok_or_else(|| SelectionError::Unknown {
        name: name.to_owned(),
        near: nearest(name, passes::all().map(|pass| pass.name)),
    })
}

impl Selection {
    /// The passes of these names alone.
    pub fn only<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, SelectionError> {
        let only = names.into_iter().map(find_pass).collect::<Result<_, _>>()?;
        Ok(Self { only, ..Self::default() })
    }

    /// The selected passes.
    pub fn passes(&self) -> Result<Vec<&'static Pass>, SelectionError> {
        let mut chosen: Vec<&'static Pass> =
            if self.only.is_empty() { self.target.passes().collect() } else { self.only.clone() };
        // The passes of a target go together.
        let by_name = !self.only.is_empty();
        for target in TARGETS.into_iter().filter(|_| by_name) {
            let asked = |pass: &&'static Pass| chosen.contains(pass);
            if let (Some(adds), Some(omits)) = (target.adds().find(asked), target.omits().find(asked)) {
                return Err(SelectionError::Opposed { adds: adds.name, omits: omits.name });
            }
        }
        chosen.retain(|pass| !self.skip.contains(pass));
        Ok(chosen)
    }

    /// Whether the model is made for this target: its passes run, and not others that were asked for by name.
    pub fn is_for(&self, target: &Target) -> bool {
        self.only.is_empty() && self.target == target
    }

    /// Those of the passes that may find something in a model, and the others; all of them where they were asked for by name.
    pub(crate) fn fitting(
        &self,
        model: &Model,
        chosen: &[&'static Pass],
    ) -> (Vec<&'static Pass>, Vec<Unfit>) {
        if !self.only.is_empty() {
            return (chosen.to_vec(), Vec::new());
        }
        let (fit, unfit) = fitting(model, chosen);
        for Unfit { pass, why } in &unfit {
            tracing::info!("{} is skipped: {why}", pass.name);
        }
        (fit, unfit)
    }
}
