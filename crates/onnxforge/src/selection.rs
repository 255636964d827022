//! Which passes run.

use onnxforge_analysis::fingerprint::{Fingerprint, Unfit, fitting};
use onnxforge_ir::Model;
use onnxforge_ops::check::nearest;
use onnxforge_proto::Str;
use onnxforge_rewrite::passes::targets::{ORT, PORTABLE, TARGETS, Target};
use onnxforge_rewrite::passes::{self, Pass, Work};

/// Which passes run.
#[derive(Clone, Debug)]
pub struct Selection {
    /// What the model is made for: the passes that run unless others are asked for.
    pub target: &'static Target,
    /// Only these, stage by stage in this order; the target's where the list is empty.
    pub only: Vec<&'static Pass>,
    /// These as well as the target's; not beside `only`.
    pub also: Vec<&'static Pass>,
    /// Not these.
    pub skip: Vec<&'static Pass>,
    /// Nor these rules of passes.
    pub skip_rules: Vec<(&'static Pass, &'static str)>,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            target: &PORTABLE,
            only: Vec::new(),
            also: Vec::new(),
            skip: Vec::new(),
            skip_rules: Vec::new(),
        }
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
    /// The pass has no such rule.
    #[error("{pass} has no rule {rule:?}; it has {rules}")]
    NoRule {
        /// The pass.
        pass: &'static str,
        /// What was asked for.
        rule: String,
        /// The rules that it has.
        rules: String,
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
        near: nearest(name, passes::all().map(|pass| pass.name)).or_else(|| containing(name)),
    })
}

/// A pass, or with `PASS.RULE` one of its rules.
pub fn find_rule(name: &str) -> Result<(&'static Pass, Option<&'static str>), SelectionError> {
    let Some((pass, rule)) = name.trim().split_once('.') else { return Ok((find_pass(name)?, None)) };
    let pass = find_pass(pass)?;
    let rules = match pass.work {
        Work::Rules(rules) => rules,
        Work::Model { .. } => &[],
    };
    let found = rules.iter().map(|each| each.name()).find(|each| *each == rule);
    let names = || rules.iter().map(|each| each.name()).collect::<Vec<_>>().join(", ");
    let none = || SelectionError::NoRule { pass: pass.name, rule: rule.to_owned(), rules: names() };
    Ok((pass, Some(found.ok_or_else(none)?)))
}

/// The first pass whose name has a word in it.
fn containing(word: &str) -> Option<&'static str> {
    let word = word.trim().to_ascii_lowercase();
    let is_word = word.len() >= 3;
    passes::all().map(|pass| pass.name).find(|name| is_word && name.contains(&word))
}

impl Selection {
    /// The passes of these names alone.
    pub fn only<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, SelectionError> {
        let only = names.into_iter().map(find_pass).collect::<Result<_, _>>()?;
        Ok(Self { only, ..Self::default() })
    }

    /// The selected passes.
    pub fn passes(&self) -> Result<Vec<&'static Pass>, SelectionError> {
        let mut chosen: Vec<&'static Pass> = match self.only.is_empty() {
            true => {
                passes::all().filter(|pass| pass.runs_for(self.target) || self.also.contains(pass)).collect()
            }
            false => self.only.clone(),
        };
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

    /// The rules that are skipped while their passes run.
    pub(crate) fn barred(&self) -> Vec<(Str, Str)> {
        self.skip_rules.iter().map(|(pass, rule)| (pass.name.into(), (*rule).into())).collect()
    }

    /// The same, with this pass in any case.
    pub(crate) fn with(mut self, pass: &'static Pass) -> Self {
        self.skip.retain(|skipped| *skipped != pass);
        self.skip_rules.retain(|(skipped, _)| *skipped != pass);
        let list = if self.only.is_empty() { &mut self.also } else { &mut self.only };
        if !list.contains(&pass) {
            list.push(pass);
        }
        self
    }

    /// Chooses passes on request that pay for this kind of network; none where passes were asked for by name, or for converters, about which
    /// measurements say nothing. Answers what was chosen.
    pub(crate) fn choose(&mut self, kind: &Fingerprint) -> Vec<&'static Pass> {
        if !self.only.is_empty() || ![&PORTABLE, &ORT].contains(&self.target) {
            return Vec::new();
        }
        let fits = kind.passes().iter().filter(|fit| fit.chosen);
        let chosen: Vec<&'static Pass> = fits
            .filter_map(|fit| passes::find(fit.pass))
            .filter(|pass| !self.skip.contains(pass) && !self.also.contains(pass))
            .collect();
        self.also.extend(&chosen);
        chosen
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
