//! eliminate_common_subexpressions: what is computed twice is computed once.
//!
//! **Matches** nodes of one operator with the same inputs and attributes (`same_call`), the later of which goes; and integer
//! tensors whose elements are the same expressions of the inputs' dimensions (`same_elements`).
//! **Accuracy** `BitExact`.
//! **Proof** Operators are functions of their inputs and attributes, bit for bit, and the earlier result is there wherever the later one was read. Equal
//! expressions are equal integers in every run.
//! **Trust** A call on the same operands has the same results, and therefore the same shapes, also where inference names each unknown size anew
//! (`same_call`).
//! **Never** operators that draw random numbers, nodes with bodies, operators of unknown domains; where both results are outputs.

use std::collections::HashMap;

use crate::passes::pass;
use crate::{Cx, Skip, Skipped, Workbench};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::{Accuracy, NodeId, Op, ScopeId, Trust, ValueId};
use onnxforge_ops::fact::Known;

pass!(eliminate_common_subexpressions {
    stage: Canonicalize,
    trusts: [SameCall],
    accuracy: Accuracy::BitExact,
    run,
});

/// What a node computes: operator, inputs, attributes and number of outputs.
type Key = (Op, Vec<Option<ValueId>>, Vec<u8>, usize);

fn run(bench: &mut Workbench<'_>, skipped: &mut Vec<Skipped>) -> usize {
    let mut edits = 0;
    let scopes: Vec<ScopeId> = bench.model.scopes().map(|(id, _)| id).collect();
    for scope in scopes {
        let mut calls: HashMap<Key, NodeId> = HashMap::new();
        let mut integers: HashMap<Vec<u8>, ValueId> = HashMap::new();
        let nodes: Vec<NodeId> = bench.model.nodes_in(scope).map(|(id, _)| id).collect();
        for id in nodes {
            if bench.is_spent() {
                return edits;
            }
            if !bench.model.node(id).is_live() {
                continue;
            }
            let cx = bench.cx(PASS.author(), "same_call", Accuracy::BitExact);
            let done = match key(&cx, id) {
                Some(key) => {
                    match calls.get(&key).copied().filter(|&first| bench.model.node(first).is_live()) {
                        Some(first) => merge(bench, id, first),
                        None => {
                            calls.insert(key, id);
                            Err(Skip::NOT_HERE)
                        }
                    }
                }
                None => Err(Skip::NOT_HERE),
            };
            let done = match done {
                Err(Skip { reason: None, .. }) => same_elements(bench, id, &mut integers),
                done => done,
            };
            match done {
                Ok(()) => edits += 1,
                Err(Skip { reason: Some(reason), culprit }) => {
                    skipped.push(Skipped { rule: "same_call", node: id, reason, culprit });
                }
                Err(_) => {}
            }
        }
    }
    edits
}

/// Lets the readers of a node read the same outputs of an earlier one.
fn merge(bench: &mut Workbench<'_>, id: NodeId, first: NodeId) -> Result<(), Skip> {
    let cx = bench.cx(PASS.author(), "same_call", Accuracy::BitExact);
    let mut change = cx.change(&[id]);
    change.trust(Trust::SameCall);
    change.substitute(first, id);
    for (index, output) in cx.node(id).outputs().iter().enumerate() {
        if let (Some(output), Some(same)) = (*output, cx.node(first).output(index)) {
            change.replace(output, same);
        }
    }
    bench.commit(change)
}

/// A tensor of integers that an earlier value of the scope holds already.
fn same_elements(
    bench: &mut Workbench<'_>,
    id: NodeId,
    known: &mut HashMap<Vec<u8>, ValueId>,
) -> Result<(), Skip> {
    let cx = bench.cx(PASS.author(), "same_elements", Accuracy::BitExact);
    let [Some(output)] = *cx.node(id).outputs() else { return Err(Skip::NOT_HERE) };
    let fact = cx.facts.tensor(output).ok_or(Skip::NOT_HERE)?;
    let (Some(Known::Dims(dims)), Some(shape), Some(dtype)) = (&fact.value, &fact.shape, fact.dtype) else {
        return Err(Skip::NOT_HERE);
    };
    if dims.iter().all(Dim::is_const) {
        return Err(Skip::NOT_HERE);
    }
    let key = format!("{dtype} {shape:?} {dims:?}").into_bytes();
    match known.get(&key).copied().filter(|&first| cx.model.value(first).is_live()) {
        Some(first) => {
            let change = cx.forward(id, first)?;
            bench.commit(change)
        }
        None => {
            known.insert(key, output);
            Err(Skip::NOT_HERE)
        }
    }
}

/// What the node computes, when that is told by its inputs and attributes.
fn key(cx: &Cx<'_>, id: NodeId) -> Option<Key> {
    let node = cx.node(id);
    let call = cx.call(id).ok()?;
    let deterministic = call.signature.is_some_and(|signature| signature.deterministic) && !call.def.random;
    if !deterministic || node.bodies().next().is_some() || node.inputs().is_empty() {
        return None;
    }
    let mut attrs: Vec<_> = node.attrs().iter().filter(|attr| !call.is_default(attr)).collect();
    attrs.sort_by(|a, b| a.name.cmp(&b.name));
    let mut bytes = Vec::new();
    for attr in attrs {
        bytes.extend(attr.name.as_bytes());
        bytes.push(0);
        attr.value.encode(&mut bytes)?;
    }
    let mut inputs = node.inputs().to_vec();
    if call.def.commutative && call.since() >= 7 && inputs.len() == 2 {
        inputs.sort_unstable();
    }
    Some((node.op().clone(), inputs, bytes, node.outputs().len()))
}
