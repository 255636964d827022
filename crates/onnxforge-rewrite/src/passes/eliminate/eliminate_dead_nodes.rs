//! eliminate_dead_nodes: nodes that no output depends on go away, in bodies and functions too.
//!
//! **Matches** nodes none of whose outputs is read, then those that only such nodes read.
//! **Accuracy** `BitExact`.
//! **Proof** ONNX operators have no side effects: what nobody reads changes nothing.

use crate::passes::pass;
use crate::{Skip, Skipped, Workbench};
use onnxforge_ir::{Accuracy, NodeId, ScopeId};

pass!(eliminate_dead_nodes { stage: Canonicalize, accuracy: Accuracy::BitExact, run });

fn run(bench: &mut Workbench<'_>, _: &mut Vec<Skipped>) -> usize {
    let mut edits = 0;
    let scopes: Vec<ScopeId> = bench.model.scopes().map(|(id, _)| id).collect();
    for scope in scopes {
        let mut nodes: Vec<NodeId> = bench.model.nodes_in(scope).map(|(id, _)| id).collect();
        nodes.reverse();
        for node in nodes {
            if !bench.is_spent() && remove(bench, node).is_ok() {
                edits += 1;
            }
        }
    }
    edits
}

fn remove(bench: &mut Workbench<'_>, id: NodeId) -> Result<(), Skip> {
    let node = bench.model.node(id);
    let read = |value| !bench.model.value(value).uses().is_empty() || bench.model.value(value).is_pinned();
    if !node.is_live() || node.outputs().iter().flatten().any(|&value| read(value)) {
        return Err(Skip::NOT_HERE);
    }
    let change = bench.cx(PASS.author(), "unread", Accuracy::BitExact).change(&[id]);
    bench.commit(change)
}
