//! Models of old operator sets, converted to newer ones.
//!
//! [`upgrade`] takes the graph of a model and each of its functions from the version of the standard operators that it imports
//! to a later one, one version after the other. Where an operator changes with a version, one of three things happens:
//!
//! - The new version means the same for every call of the old one. That is computed from the signatures: it takes the same
//!   inputs and attributes with the same defaults, and perhaps more (`table::follows`). The node stays.
//! - `table::STEPS` lists an adapter. It says what the node becomes so that the same is computed.
//! - Neither, or the adapter finds something that it cannot carry over: the model stays as it is, and the error names the
//!   node and the hint.
//!
//! Adapters know one step each and nothing of the ones before and after. What they make goes through the same door as the
//! changes of passes: the driver checks that new nodes are valid calls at the version of the step, and the journal lists
//! every edit. All of them are bit-exact. Other domains than the standard one stay at their version.

mod adapter;
mod attention;
mod index;
mod norm;
mod parameters;
mod resize;
mod scan;
mod softmax;
mod table;
mod values;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use self::adapter::{Old, Refusal};
use crate::{Author, Budget, Workbench};
use onnxforge_ir::{Accuracy, Model, NodeId, ScopeId, Trust};
use onnxforge_ops::apply;
use onnxforge_ops::callee::Functions;
use onnxforge_ops::check::Rule;
use onnxforge_ops::infer::Inference;
use onnxforge_ops::signature::{Lookup, ir_for_opset, signature};

pub use self::table::{NEWEST, NEWEST_OF_RUNTIMES, OLDEST};

/// The rules that a model may break before it is converted, because it does not afterwards: operators that are withdrawn in its
/// version, and functions of another version than the graph.
pub const CONVERTED: &[Rule] = &[Rule::DeprecatedOperator, Rule::FunctionOpset];

/// The name under which the journal lists the edits, and why their shapes stay where inference does not know them: an adapter says what the old
/// call becomes so that the same is computed, which includes the shape.
pub const AUTHOR: Author = Author { name: "upgrade", trusts: &[Trust::Upgraded] };

/// Why a model cannot be converted. It is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum UpgradeError {
    #[error("opset {to} is not known here; the newest is {NEWEST}")]
    Unknown { to: i64 },
    #[error("{place} has opset {from}, which is newer than {to}; models are converted upwards only")]
    Downwards { place: String, from: i64, to: i64 },
    #[error("{place} has opset {from}, and conversion starts at {OLDEST}; export it anew")]
    TooOld { place: String, from: i64 },
    #[error("{place} imports no version of ai.onnx, but calls its operator {op}; add the import")]
    NoImport { place: String, op: String },
    #[error("the model holds training graphs, which are not converted; remove training_info")]
    Training,
    #[error("{node}: opset {opset} has no such operator, so nobody knows what it means in another one")]
    NoOperator { node: String, opset: i64 },
    #[error("{node}: opset {to} has withdrawn the operator; {hint}")]
    Withdrawn { node: String, to: i64, hint: String },
    #[error(
        "the step {rule} of the conversion may change bits of the result; leave the opset as it is, or accept that"
    )]
    NotExact { rule: String },
    #[error("{node}: this call cannot be taken from opset {} to {to}: {why}", to - 1)]
    Node { node: String, to: i64, why: String },
}

/// What was converted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The version that the graph had; none where it does not use the standard operators.
    pub from: Option<i64>,
    /// The version that the graph and all functions have now.
    pub to: i64,
    /// IR version before.
    pub ir_from: i64,
    /// IR version now.
    pub ir_to: i64,
    /// Functions that had another version.
    pub functions: usize,
    /// How many nodes were made anew because their operator changed, by operator and the version that changed it.
    pub steps: Vec<Converted>,
}

/// Nodes that a change of an operator made other ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Converted {
    /// The operator.
    pub operator: String,
    /// The version that changed it.
    pub opset: i64,
    /// How many nodes.
    pub nodes: usize,
}

/// Converts the graph and the functions of a model to version `to` of the standard operators, or says why that cannot be done and
/// leaves the model as it is.
///
/// The IR version becomes that of the first onnx release that carried the version, if it is lower: runtimes that know the one
/// know the other, and what an old IR version forbids (constants that are no inputs) need not be avoided.
pub fn upgrade(model: &mut Model, to: i64) -> Result<Report, UpgradeError> {
    let roots = roots(model, to)?;
    let ir = |model: &Model| model.header().ir_version.unwrap_or(0);
    let mut report = Report {
        from: roots.iter().find(|(scope, _)| *scope == model.main()).map(|(_, from)| *from),
        to,
        ir_from: ir(model),
        ir_to: ir(model),
        functions: roots.iter().filter(|(scope, from)| *scope != model.main() && *from < to).count(),
        steps: Vec::new(),
    };
    if roots.iter().all(|(_, from)| *from == to) {
        return Ok(report);
    }
    let mut work = model.clone();
    work.raise_ir_version(ir_for_opset("", to).unwrap_or(0));
    let facts = Inference::of(&work);
    let budget = Budget { growth: u64::MAX, time: Duration::ZERO, result: 0, ..Budget::default() };
    let mut bench = Workbench::new(&mut work, facts, budget);
    let functions = Functions::of(bench.model);
    let mut counts: BTreeMap<(i64, String), usize> = BTreeMap::new();
    for (root, from) in roots {
        for version in from + 1..=to {
            bench.model.set_opset(root, "", version);
            for id in changing(bench.model, &functions, root, version) {
                if bench.model.node(id).is_live() && step(&mut bench, id, version)? {
                    let operator = bench.model.node(id).op().to_string();
                    *counts.entry((version, operator)).or_default() += 1;
                }
            }
        }
    }
    let converted = |((opset, operator), nodes)| Converted { operator, opset, nodes };
    report.steps = counts.into_iter().map(converted).collect();
    report.ir_to = ir(&work);
    *model = work;
    Ok(report)
}

/// Fails where a step of a conversion that was done does not keep every bit.
pub fn bit_exact(model: &Model) -> Result<(), UpgradeError> {
    let steps = model.journal().iter().filter(|entry| &*entry.pass == AUTHOR.name);
    match { steps }.find(|entry| entry.accuracy != Accuracy::BitExact) {
        Some(entry) => Err(UpgradeError::NotExact { rule: entry.rule.to_string() }),
        None => Ok(()),
    }
}

/// The graph and the functions that use standard operators, with the versions that they import. All of them can be converted as far
/// as that can be told beforehand.
fn roots(model: &Model, to: i64) -> Result<Vec<(ScopeId, i64)>, UpgradeError> {
    if !(1..=NEWEST).contains(&to) {
        return Err(UpgradeError::Unknown { to });
    }
    let functions = Functions::of(model);
    let mut found = Vec::new();
    for root in std::iter::once(model.main()).chain(model.functions().iter().copied()) {
        let place = || match model.called_as(root) {
            Some(op) => format!("the function {op}"),
            None => "the graph".to_owned(),
        };
        let calls = standard_calls(model, &functions, root);
        let Some(from) = model.opset(root, "") else {
            match calls.first() {
                Some(&id) => {
                    let op = model.node(id).op().to_string();
                    return Err(UpgradeError::NoImport { place: place(), op });
                }
                None => continue,
            }
        };
        if from > to {
            return Err(UpgradeError::Downwards { place: place(), from, to });
        }
        if from < to && from < OLDEST {
            return Err(UpgradeError::TooOld { place: place(), from });
        }
        if from < to {
            calls.iter().try_for_each(|&id| exists(model, id, from, to))?;
        }
        found.push((root, from));
    }
    if found.iter().any(|(_, from)| *from < to) && !model.header().training_info.is_empty() {
        return Err(UpgradeError::Training);
    }
    Ok(found)
}

/// Whether a call is one of an operator that there is in `from`, and in `to` as far as nothing takes its place on the way.
fn exists(model: &Model, id: NodeId, from: i64, to: i64) -> Result<(), UpgradeError> {
    let node = || model.node_label(id);
    let name = &*model.node(id).op().name;
    if apply::call(model.node(id), Some(from), None).is_none() {
        return Err(UpgradeError::NoOperator { node: node(), opset: from });
    }
    match (signature("", name, from), signature("", name, to)) {
        (Lookup::Deprecated(_), Lookup::Deprecated(_)) => {
            let back = (to..=NEWEST).find(|&later| matches!(signature("", name, later), Lookup::Found(_)));
            let hint = match back {
                Some(later) => format!("it is back in {later}, so convert to that or a later one"),
                None => "export the model anew".to_owned(),
            };
            Err(UpgradeError::Withdrawn { node: node(), to, hint })
        }
        _ => Ok(()),
    }
}

/// The calls of standard operators in a graph or function and its bodies. A function of the same name is none.
fn standard_calls(model: &Model, functions: &Functions, root: ScopeId) -> Vec<NodeId> {
    let nodes = model.scopes_within(root).into_iter().flat_map(|scope| model.nodes_in(scope));
    let standard =
        nodes.filter(|(_, node)| node.op().domain.is_empty() && functions.get(node.op()).is_none());
    standard.map(|(id, _)| id).collect()
}

/// The calls of operators that this version changes.
fn changing(model: &Model, functions: &Functions, root: ScopeId, version: i64) -> Vec<NodeId> {
    let mut calls = standard_calls(model, functions, root);
    calls.retain(|&id| table::versions(&model.node(id).op().name, version).is_some());
    calls
}

/// Takes a node over the change of its operator with `version`, which its scope imports already. Answers whether it became
/// another one.
fn step(bench: &mut Workbench<'_>, id: NodeId, version: i64) -> Result<bool, UpgradeError> {
    let name = bench.model.node(id).op().name.clone();
    let refused = |bench: &Workbench<'_>, Refusal(why): Refusal| UpgradeError::Node {
        node: bench.model.node_label(id),
        to: version,
        why,
    };
    let Some(step) = table::find(&name, version) else {
        return match table::stays(bench, id, version) {
            Ok(()) => Ok(false),
            Err(why) => Err(refused(bench, why)),
        };
    };
    let cx = bench.cx(AUTHOR, step.rule, Accuracy::BitExact);
    let change = match Old::new(cx, id, version - 1).and_then(|old| (step.adapt)(&old)) {
        Ok(Some(change)) => change,
        Ok(None) => return Ok(false),
        Err(why) => return Err(refused(bench, why)),
    };
    match bench.commit(change) {
        Ok(()) => Ok(true),
        Err(skip) => {
            let why = Refusal::of_skip(bench.model, &skip);
            Err(refused(bench, why))
        }
    }
}
