//! Where a pass fires when a model is optimized, and why not elsewhere.

use std::collections::HashSet;

use onnxforge_ir::journal::Entry;
use onnxforge_ir::{Model, NodeId, ValueId};
use onnxforge_proto::progress::{Progress, Silent};
use onnxforge_rewrite::Skipped;
use onnxforge_rewrite::passes::Pass;
use serde::Serialize;

use crate::Error;
use crate::optimize::{Optimized, Options, Verification, optimize_with};
use crate::selection::Selection;

/// What a pass does when a model is optimized.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The pass.
    pub pass: &'static str,
    /// Its edits.
    pub fired: Vec<Fired>,
    /// Matches that it did not rewrite.
    pub skipped: Vec<Left>,
    /// Matches in the model as it is in the file that it did not come to, for other passes changed them before.
    pub elsewhere: Vec<Elsewhere>,
}

/// An edit.
#[derive(Debug, Serialize)]
pub struct Fired {
    /// The rule.
    pub rule: String,
    /// The nodes that it consumed.
    pub nodes: Vec<String>,
}

/// A match that was not rewritten.
#[derive(Debug, Serialize)]
pub struct Left {
    /// The rule.
    pub rule: &'static str,
    /// The node.
    pub node: String,
    /// Why.
    pub reason: String,
    /// The value that stands in the way.
    pub culprit: Option<String>,
}

/// A match that other passes changed.
#[derive(Debug, Serialize)]
pub struct Elsewhere {
    /// The rule that would have fired, or would have given a reason.
    pub rule: String,
    /// The nodes.
    pub nodes: Vec<String>,
    /// The pass that changed them; nothing where only their surroundings changed.
    pub by: Option<String>,
}

/// What the pass does when the model is optimized with these options, which need not select it. Nothing is verified.
pub fn explain(model: Model, pass: &'static Pass, options: &Options) -> Result<Explanation, Error> {
    explain_with(model, pass, options, &Silent)
}

/// The same, with somebody who hears about progress.
pub fn explain_with(
    model: Model,
    pass: &'static Pass,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Explanation, Error> {
    let options = Options { verification: Verification::off(), ..options.clone() };
    let passes = Selection { only: vec![pass], ..Selection::default() };
    let alone = optimize_with(model.clone(), &Options { passes, ..options.clone() }, progress)?;
    let passes = options.passes.clone().with(pass);
    let whole = optimize_with(model, &Options { passes, ..options }, progress)?;
    let (edits, skips) = (edits(&whole, pass), skips(&whole, pass));
    let mut seen = Seen::default();
    edits.iter().for_each(|entry| seen.add(&entry.consumed, entry.redefined.iter().copied()));
    skips.iter().for_each(|skip| seen.add(&[skip.node], results(&whole.model, skip.node)));
    let mut elsewhere = Vec::new();
    for entry in self::edits(&alone, pass) {
        if !seen.has(&entry.consumed, &entry.redefined) {
            elsewhere.push(Elsewhere {
                rule: entry.rule.to_string(),
                nodes: labels(&alone.model, &entry.consumed),
                by: changed_by(&whole.model, &entry.consumed, &entry.redefined),
            });
        }
    }
    for skip in self::skips(&alone, pass) {
        let values: Vec<ValueId> = results(&alone.model, skip.node).collect();
        if !seen.has(&[skip.node], &values) {
            elsewhere.push(Elsewhere {
                rule: skip.rule.to_owned(),
                nodes: labels(&alone.model, &[skip.node]),
                by: changed_by(&whole.model, &[skip.node], &values),
            });
        }
    }
    let fired =
        |entry: &&Entry| Fired { rule: entry.rule.to_string(), nodes: labels(&whole.model, &entry.consumed) };
    let left = |skip: &Skipped| Left {
        rule: skip.rule,
        node: whole.model.node_label(skip.node),
        reason: skip.reason.to_string(),
        culprit: skip.culprit.map(|id| whole.model.value(id).name().to_string()),
    };
    Ok(Explanation {
        pass: pass.name,
        fired: edits.iter().map(fired).collect(),
        skipped: skips.iter().map(left).collect(),
        elsewhere,
    })
}

/// What a pass has come to: nodes, and the values that they compute, which stay when nodes are replaced.
#[derive(Default)]
struct Seen {
    nodes: HashSet<NodeId>,
    values: HashSet<ValueId>,
}

impl Seen {
    fn add(&mut self, nodes: &[NodeId], values: impl Iterator<Item = ValueId>) {
        self.nodes.extend(nodes);
        self.values.extend(values);
    }

    fn has(&self, nodes: &[NodeId], values: &[ValueId]) -> bool {
        nodes.iter().any(|node| self.nodes.contains(node))
            || values.iter().any(|value| self.values.contains(value))
    }
}

fn edits<'o>(optimized: &'o Optimized, pass: &Pass) -> Vec<&'o Entry> {
    optimized.model.journal().iter().filter(|entry| *entry.pass == *pass.name).collect()
}

fn skips<'o>(optimized: &'o Optimized, pass: &Pass) -> &'o [Skipped] {
    let outcome = optimized.passes.iter().find(|outcome| outcome.pass == pass);
    outcome.map_or(&[], |outcome| &outcome.skipped)
}

fn results(model: &Model, node: NodeId) -> impl Iterator<Item = ValueId> {
    model.node(node).outputs().iter().flatten().copied()
}

fn labels(model: &Model, nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(|&node| model.node_label(node)).collect()
}

/// The first pass that consumed one of the nodes, or gave one of the values another definition.
fn changed_by(model: &Model, nodes: &[NodeId], values: &[ValueId]) -> Option<String> {
    let changes = |entry: &&Entry| {
        entry.consumed.iter().any(|node| nodes.contains(node))
            || entry.redefined.iter().any(|value| values.contains(value))
    };
    model.journal().iter().find(changes).map(|entry| entry.pass.to_string())
}
