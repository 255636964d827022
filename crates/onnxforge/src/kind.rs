//! What kind of network a model is, and the passes on request that are chosen for it.

use onnxforge_analysis::fingerprint::{Class, Fingerprint, may_choose};
use onnxforge_ir::Model;
use serde::Serialize;

use crate::selection::Selection;

/// What kind of network a model is.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    /// Its class.
    pub class: Class,
    /// How sure that is, from 0 to 1.
    pub confidence: f64,
    /// What it was concluded from, in words.
    pub reasons: Vec<String>,
    /// Passes that run on request only, and that the class chose.
    pub chosen: Vec<Chosen>,
}

/// A pass that the class of a model chose.
#[derive(Clone, Debug, Serialize)]
pub struct Chosen {
    /// The pass.
    pub pass: &'static str,
    /// Why it pays.
    pub why: String,
}

impl Kind {
    /// Chooses passes for the model. Answers what kind of network it is, where that had to be found out.
    pub(crate) fn choose(model: &Model, selection: &mut Selection) -> Option<Self> {
        if !may_choose(model) && !tracing::enabled!(tracing::Level::INFO) {
            return None;
        }
        let seen = Fingerprint::of(model);
        let chosen = selection.choose(&seen);
        for fit in seen.passes() {
            tracing::info!("{} matters: {}", fit.pass, fit.why);
        }
        let fits = seen.passes().iter().filter(|fit| chosen.iter().any(|pass| pass.name == fit.pass));
        let chosen = fits.map(|fit| Chosen { pass: fit.pass, why: fit.why.clone() }).collect();
        Some(Self { chosen, ..Self::from(seen) })
    }

    /// What kind of network an optimized model is: the same as before, and quicker to see.
    pub(crate) fn of(model: &Model) -> Self {
        Fingerprint::of(model).into()
    }
}

impl From<Fingerprint> for Kind {
    fn from(seen: Fingerprint) -> Self {
        let Fingerprint { class, confidence, reasons, .. } = seen;
        Self { class, confidence, reasons, chosen: Vec::new() }
    }
}
