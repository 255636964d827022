//! What inference finds wrong with a model that is held: calls that cannot work, and declared element types that are others.

use super::problem::{Here, Place, Problem, Rule, Severity, Step};
use crate::OpError;
use crate::infer::declare::same_elements;
use crate::infer::{Conflict, ConflictKind, Inference};
use onnxforge_ir::{Model, NodeId};

/// Places with more contradictions than this are not told one by one.
const MOST: usize = 100;

/// Contradictions that inference finds, as problems. Calls that cannot work and element types that are declared as others
/// are errors, as runtimes refuse both; a shape that is declared as another is a warning, as they go by what follows.
pub fn conflicts(model: &Model) -> Vec<Problem> {
    let known = Inference::of(model);
    known.conflicts().iter().take(MOST).filter_map(|conflict| problem(model, &known, conflict)).collect()
}

fn problem(model: &Model, known: &Inference, conflict: &Conflict) -> Option<Problem> {
    let place = place(model, conflict.node)?;
    let message = conflict.kind.to_string();
    let (rule, severity) = match &conflict.kind {
        // What is not evaluated here is not wrong.
        ConflictKind::Call(OpError::Invalid(_)) => (Rule::Call, Severity::Error),
        ConflictKind::Call(_) => return None,
        ConflictKind::Declared { value, declared, .. } => {
            let severity = match same_elements(declared, known.fact(*value)) {
                true => Severity::Warning,
                false => Severity::Error,
            };
            (Rule::TypeConflict, severity)
        }
    };
    Some(Problem { rule, severity, place, message })
}

/// Where a node stands: the graphs and nodes around it, from the outside in.
fn place(model: &Model, node: NodeId) -> Option<Place> {
    let mut around = vec![node];
    let mut scope = model.scope(model.node(node).scope());
    while let Some(holder) = scope.holder() {
        around.push(holder);
        scope = model.scope(model.node(holder).scope());
    }
    fn within(model: &Model, rest: &mut Vec<NodeId>, here: &Here<'_>) -> Option<Place> {
        let Some(node) = rest.pop() else { return Some(here.place()) };
        let scope = model.node(node).scope();
        let kind = if model.functions().contains(&scope) { "function" } else { "graph" };
        let graph = here.at(Step::named(kind, model.scope(scope).name()));
        let index = model.nodes_in(scope).position(|(id, _)| id == node)?;
        within(model, rest, &graph.at(Step::held(index, model.node(node))))
    }
    within(model, &mut around, &Here::model())
}
