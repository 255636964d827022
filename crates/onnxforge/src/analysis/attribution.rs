//! Which pass does what: alone on a model as it is, and as one of all.

use serde::Serialize;

use crate::infer::Inference;
use crate::ir::Model;
use crate::passes::Pass;
use crate::passes::pipeline::{self, Options};
use crate::progress::{Progress, Unit};
use crate::verify::guard::{self, Compared, GuardError, When};

/// What passes do with a model.
#[derive(Debug, Serialize)]
pub struct Attribution {
    /// Nodes of the whole model, bodies and functions included.
    pub nodes: usize,
    /// What is left of them after all passes. The difference is the sum of what passes did, each among all.
    pub after: usize,
    /// The passes, in the order in which they ran.
    pub passes: Vec<Share>,
    /// Why results were not compared, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
}

/// What one pass does: changes of the number of nodes, and of results where these are compared.
#[derive(Debug, Serialize)]
pub struct Share {
    /// The pass.
    pub pass: &'static str,
    /// Nodes that it adds, alone on the model as it is.
    pub isolated: i64,
    /// Nodes that it adds as one of all.
    pub cumulative: i64,
    /// How results compare with the original after the pass alone, if it changes anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_isolated: Option<Compared>,
    /// How they compare after its last run among all, with whatever ran before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_cumulative: Option<Compared>,
}

/// What each of `passes` does with a model. With `checks`, results are compared with those of the original after each pass.
pub fn attribute(
    model: &Model,
    passes: &[&'static Pass],
    mut checks: Option<guard::Options>,
    progress: &dyn Progress,
) -> Result<Attribution, GuardError> {
    let mut together = model.clone();
    let options = Options { passes: passes.to_vec(), ..Options::default() };
    let (all, proof) = match &mut checks {
        Some(checks) => {
            checks.when = When::Each;
            let (all, proof) = guard::optimize(&mut together, &options, checks)?;
            (all, Some(proof))
        }
        None => (pipeline::optimize(&mut together, &options), None),
    };
    let mut unverified = proof.as_ref().and_then(|proof| proof.unverified.clone());
    let facts = Inference::of(model);
    let mut shares = Vec::new();
    progress.begin("passes", passes.len() as u64, Unit::Passes);
    for (pass, among_all) in passes.iter().zip(&all.passes) {
        crate::cancel::checkpoint();
        let mut alone = model.clone();
        let outcome = pipeline::alone(&mut alone, facts.clone(), pass);
        let mut share = Share {
            pass: pass.name,
            isolated: outcome.nodes,
            cumulative: among_all.nodes,
            accuracy_isolated: None,
            accuracy_cumulative: None,
        };
        if let (Some(checks), Some(proof)) = (&mut checks, &proof)
            && unverified.is_none()
        {
            let last = proof.after.iter().rev().find(|after| after.pass == pass.name);
            share.accuracy_cumulative = last.map(|after| after.compared);
            if outcome.edits > 0 {
                match guard::compared(model, &alone, checks, progress) {
                    Ok(compared) => share.accuracy_isolated = Some(compared),
                    Err(reason) => unverified = Some(format!("after {}: {reason}", pass.name)),
                }
            }
        }
        shares.push(share);
        progress.advance(1);
    }
    progress.end();
    Ok(Attribution { nodes: model.node_count(), after: together.node_count(), passes: shares, unverified })
}
