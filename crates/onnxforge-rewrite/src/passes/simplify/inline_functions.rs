//! inline_functions: calls of local functions become the nodes of the functions.
//!
//! **Matches** calls of local functions in the graph and its bodies (`inline`), also those that other functions made; then the
//! functions that nothing calls any more go (`uncalled`).
//! **Accuracy** `BitExact`.
//! **Proof** A call is defined as the nodes of its function: inputs stand for what the caller gives, or nothing; references to
//! attributes for the caller's attributes, the function's defaults, or nothing.
//! **Trust** The results of a call are the results of the function's nodes, whatever their shape.
//! **Never** functions that call themselves, attributes that hold graphs, operators that mean something else in the operator sets
//! of the model.
//!
//! Runs on request only: functions tell how a model was built, and runtimes replace some of them as a whole.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use crate::passes::pass;
use crate::{Skip, Skipped, Workbench};
use onnxforge_ir::io::plain_attribute;
use onnxforge_ir::scope::ScopeKind;
use onnxforge_ir::{Accuracy, Model, NodeId, Operand, ScopeId, Trust};
use onnxforge_ops::apply;
use onnxforge_ops::callee::{Functions, bindings};

pass!(inline_functions {
    stage: Canonicalize,
    runs: OnRequest,
    trusts: [Spliced],
    accuracy: Accuracy::BitExact,
    run,
});

/// Most nodes that a model may grow to: functions that call each other twice in a long chain would fill any memory.
const MAX_NODES: usize = 1 << 18;

fn run(bench: &mut Workbench<'_>, skipped: &mut Vec<Skipped>) -> usize {
    let functions = Functions::of(bench.model);
    let calls = |model: &Model, id: NodeId| functions.get(model.node(id).op()).is_some();
    let mut edits = 0;
    let mut checked = HashMap::new();
    let graph = bench.model.scopes_within(bench.model.main());
    let inside = graph.iter().flat_map(|&scope| bench.model.nodes_in(scope).map(|(id, _)| id));
    let mut open: VecDeque<NodeId> = inside.filter(|&id| calls(bench.model, id)).collect();
    while let Some(id) = open.pop_front() {
        if bench.is_spent() {
            break;
        }
        match inline(bench, &functions, &mut checked, id) {
            Ok(()) => {
                edits += 1;
                let made = bench.model.journal().last().map(|entry| entry.produced.clone());
                open.extend(made.into_iter().flatten().filter(|&id| calls(bench.model, id)));
            }
            Err(Skip { reason: Some(reason), culprit }) => {
                skipped.push(Skipped { rule: "inline", node: id, reason, culprit });
            }
            Err(_) => {}
        }
    }
    if edits > 0 {
        // What is known inside of functions holds for all calls; now each call can be known by itself.
        bench.infer();
    }
    let uncalled = uncalled(bench.model, &functions);
    if !uncalled.is_empty() && !bench.is_spent() && bench.drop_functions(PASS.name, &uncalled).is_ok() {
        edits += 1;
    }
    edits
}

/// Replaces one call.
fn inline(
    bench: &mut Workbench<'_>,
    functions: &Functions,
    checked: &mut HashMap<ScopeId, Result<(), Skip>>,
    id: NodeId,
) -> Result<(), Skip> {
    let model = &*bench.model;
    let node = model.node(id);
    let function = functions.get(node.op()).filter(|_| node.is_live()).ok_or(Skip::NOT_HERE)?;
    checked.entry(function).or_insert_with(|| check(model, functions, function)).clone()?;
    let scope = model.scope(function);
    if node.inputs().len() > scope.inputs().len() || node.outputs().len() > scope.outputs().len() {
        return Err(Skip::because("the call does not fit the function"));
    }
    let size: usize =
        model.scopes_within(function).iter().map(|&scope| model.scope(scope).node_count()).sum();
    if model.node_count().saturating_add(size) > MAX_NODES {
        return Err(Skip::because("the model would become too large"));
    }
    let cx = bench.cx(PASS.author(), "inline", Accuracy::BitExact);
    let mut change = cx.change(&[id]);
    let inputs: Vec<Operand> = node.inputs().iter().map(|&input| input.into()).collect();
    let attributes = bindings(model, id, function, None);
    let wanted = |index: usize| cx.read_output(id, index).is_some();
    let results = change.splice(&cx, id, function, &inputs, Some(attributes), &wanted)?;
    for (index, result) in results.into_iter().enumerate() {
        if let Some(output) = cx.read_output(id, index) {
            change.hand_over(&cx, output, result);
        }
    }
    change.trust(Trust::Spliced);
    bench.commit(change)
}

/// The functions that are called from a graph or function, directly or not.
fn reached_from(model: &Model, functions: &Functions, root: ScopeId) -> BTreeSet<ScopeId> {
    let mut found = BTreeSet::new();
    let mut open = vec![root];
    while let Some(next) = open.pop() {
        let nodes = model.scopes_within(next).into_iter().flat_map(|scope| model.nodes_in(scope));
        let called = nodes.filter_map(|(_, node)| functions.get(node.op()));
        open.extend(called.filter(|&function| found.insert(function)).collect::<Vec<_>>());
    }
    found
}

fn uncalled(model: &Model, functions: &Functions) -> Vec<ScopeId> {
    let reached = reached_from(model, functions, model.main());
    model.functions().iter().copied().filter(|function| !reached.contains(function)).collect()
}

/// Whether calls of a function can be replaced at all: it ends, its attributes are plain, and each of its operators means the
/// same in the graph.
fn check(model: &Model, functions: &Functions, function: ScopeId) -> Result<(), Skip> {
    if reached_from(model, functions, function).contains(&function) {
        return Err(Skip::because("the function calls itself"));
    }
    if let ScopeKind::Function(rest) = model.scope(function).kind()
        && rest.attribute_proto.iter().any(|default| plain_attribute(default).is_none())
    {
        return Err(Skip::because("an attribute of the function holds a graph"));
    }
    let mut seen = HashSet::new();
    for (_, node) in model.scopes_within(function).into_iter().flat_map(|scope| model.nodes_in(scope)) {
        if !seen.insert(node.op()) {
            continue;
        }
        let domain = &node.op().domain;
        let (here, there) = (model.opset(function, domain), model.opset(model.main(), domain));
        if there.is_none() {
            return Err(Skip::because("the model does not import an operator set of the function"));
        }
        if here == there || functions.get(node.op()).is_some() {
            continue;
        }
        let since = |opset: Option<i64>| Some(apply::call(node, opset, None)?.signature?.since);
        if since(here).is_none() || since(here) != since(there) {
            return Err(Skip::because("the model's operator set has another version of an operator"));
        }
    }
    Ok(())
}
