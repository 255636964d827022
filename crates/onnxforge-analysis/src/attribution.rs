//! Which pass does what: alone on a model as it is, and as one of all.

use serde::Serialize;

use onnxforge_ir::Model;
use onnxforge_ops::infer::Inference;
use onnxforge_proto::progress::{Progress, Silent, Unit};
use onnxforge_rewrite::passes::Pass;
use onnxforge_rewrite::passes::pipeline::{self, Options};
use onnxforge_verify::Verdict;
use onnxforge_verify::guard::{self, Compared, GuardError, Proof, When};
use onnxforge_verify::local::Wrong;

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
    /// Changes that were found wrong; what passes do among all is without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reverted: Vec<Wrong>,
}

impl Attribution {
    /// Whether nothing wrong was found.
    pub fn is_good(&self) -> bool {
        let compared =
            self.passes.iter().flat_map(|share| [share.accuracy_isolated, share.accuracy_cumulative]);
        self.reverted.is_empty() && compared.flatten().all(|found| found.verdict != Verdict::Different)
    }
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
    let options = Options { passes: passes.to_vec(), progress, ..Options::default() };
    let (all, proof) = match &mut checks {
        Some(checks) => {
            checks.when = When::Each;
            guard::optimize(&mut together, &options, checks)?
        }
        None => (pipeline::optimize(&mut together, &options), Proof::default()),
    };
    let Proof { mut unverified, after: compared, reverted, .. } = proof;
    let facts = Inference::of(model);
    let mut shares = Vec::new();
    progress.begin("passes", passes.len() as u64, Unit::Passes);
    for (pass, among_all) in passes.iter().zip(&all.passes) {
        onnxforge_proto::cancel::checkpoint();
        let mut alone = model.clone();
        let outcome = pipeline::alone(&mut alone, facts.clone(), pass);
        let mut share = Share {
            pass: pass.name,
            isolated: outcome.nodes,
            cumulative: among_all.nodes,
            accuracy_isolated: None,
            accuracy_cumulative: None,
        };
        let last = compared.iter().rev().find(|after| after.pass == pass.name);
        share.accuracy_cumulative = last.map(|after| after.compared);
        if let Some(checks) = checks.as_mut().filter(|_| outcome.edits > 0 && unverified.is_none()) {
            match guard::compared(model, &alone, checks, &Silent) {
                Ok(compared) => share.accuracy_isolated = Some(compared),
                Err(reason) => unverified = Some(reason),
            }
        }
        shares.push(share);
        progress.advance(1);
    }
    progress.end();
    let (nodes, after) = (model.node_count(), together.node_count());
    Ok(Attribution { nodes, after, passes: shares, unverified, reverted })
}
