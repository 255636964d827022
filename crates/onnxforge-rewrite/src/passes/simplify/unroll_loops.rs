//! unroll_loops: a Loop of few turns becomes the nodes of its turns.
//!
//! **Matches** Loop whose number of turns is known: its limit is a constant, and the condition is true before it and after every
//! turn; or the condition is false at first. One turn always, none if nothing reads a scan output, more only where the nodes of
//! all turns are no more than those of the loop.
//! **Accuracy** `BitExact`.
//! **Proof** Turns run one after the other: each gets its number, a true condition and what the turn before handed on. A scan output
//! is what the turns give, stacked along a new first axis.
//! **Trust** What a Loop gives is what its body gives in the last iteration, or all iterations stacked, whatever the shape.
//! **Never** a loop that its body may end; bodies that draw random numbers more than once; a counter that is declared with axes.
//!
//! Nodes that depend on nothing but constants and the number of the turn do not count, for they will be folded; nor do those
//! that only tell whether the loop goes on, which are not needed.

use std::collections::HashSet;

use crate::passes::pass;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::types::Type;
use onnxforge_ir::value::{Port, Use};
use onnxforge_ir::{Accuracy, NodeId, ScopeId, Trust, ValueId};
use onnxforge_ops::{Array, OpError};

pass!(unroll_loops { stage: Canonicalize, needs: ["Loop"], trusts: [Spliced], rules: [UNROLL] });

static UNROLL: At = At {
    name: "unroll",
    accuracy: Accuracy::BitExact,
    ops: &["Loop"],
    apply: |cx, id| {
        unrolled(cx, id, |cost| cost.turns.max(cost.all) <= MAX_NODES && cost.lasting <= cost.inside + 1)
    },
};

/// Most nodes that the turns of a loop become.
const MAX_NODES: usize = 64;

/// What unrolling a loop of several turns costs, in nodes.
pub struct Cost {
    /// How many turns there are.
    pub turns: usize,
    /// The nodes of a turn.
    pub inside: usize,
    /// The nodes of all turns.
    pub all: usize,
    /// Those of them that will not be folded.
    pub lasting: usize,
}

/// Inputs of the node and of the body before the values that are carried: a number and a condition.
const BEFORE: usize = 2;

/// The nodes of all turns instead of a Loop, if that is affordable.
pub fn unrolled(cx: &Cx<'_>, id: NodeId, affordable: fn(&Cost) -> bool) -> Result<Change, Skip> {
    let node = cx.node(id);
    let body = cx.call(id)?.graph("body")?;
    let scope = cx.model.scope(body);
    let carried = node.inputs().iter().skip(BEFORE).copied();
    let mut carried: Vec<Operand> = carried.map(Operand::from).collect();
    let fits = scope.inputs().len() == BEFORE + carried.len()
        && scope.outputs().len() > carried.len()
        && node.outputs().len() < scope.outputs().len()
        && !carried.contains(&Operand::Absent);
    if !fits {
        return Err(Skip::because("the body does not fit the loop"));
    }
    let turns = turns(cx, id, body)?;
    let first_scan = carried.len();
    let is_scan = |&index: &usize| cx.read_output(id, index).is_some();
    let scans: Vec<usize> = (first_scan..node.outputs().len()).filter(is_scan).collect();
    check_cost(cx, id, body, turns, scans.len(), affordable)?;
    let mut change = cx.change(&[id]);
    let mut rows: Vec<Vec<Operand>> = vec![Vec::new(); scans.len()];
    let mut truth = None;
    for turn in 1..=turns {
        let truth = match truth {
            Some(truth) => truth,
            None => *truth.insert(number(&mut change, "condition", Array::scalar(true))?),
        };
        let count = number(&mut change, "turn", Array::scalar(turn as i64 - 1))?;
        let inputs: Vec<Operand> = [count, truth].into_iter().chain(carried).collect();
        // The first output says whether there is another turn; what is carried after the last one has to be read.
        let wanted = |index: usize| match index.checked_sub(1) {
            Some(output) => cx.read_output(id, output).is_some() || output < first_scan && turn < turns,
            None => false,
        };
        let results = change.splice(cx, id, body, &inputs, None, &wanted)?;
        carried = results[1..=first_scan].to_vec();
        for (&scan, rows) in scans.iter().zip(&mut rows) {
            rows.push(results[1 + scan]);
        }
    }
    for (index, result) in carried.into_iter().enumerate() {
        if let Some(output) = cx.read_output(id, index) {
            change.hand_over(cx, output, result);
        }
    }
    for (&scan, rows) in scans.iter().zip(rows) {
        let all = stacked(cx, id, &mut change, rows);
        change.replace(cx.node(id).output(scan).ok_or(Skip::NOT_HERE)?, all);
    }
    change.trust(Trust::Spliced);
    Ok(change)
}

/// How often the body runs.
fn turns(cx: &Cx<'_>, id: NodeId, body: ScopeId) -> Result<usize, Skip> {
    let only = |value: ValueId| match cx.ints(value)?[..] {
        [number] => Ok(number),
        _ => Err(Skip::at(Reason::NotConstant, value)),
    };
    let (most, condition) = (cx.node(id).input(0), cx.node(id).input(1));
    let goes_on = condition.map_or(Ok(1), only);
    if goes_on.as_ref().is_ok_and(|&truth| truth == 0) {
        return Ok(0);
    }
    let most = only(most.ok_or_else(|| Skip::because("nothing limits the number of turns"))?)?;
    if most <= 0 {
        return Ok(0);
    }
    goes_on?;
    let has_axes = |port: &Port| matches!(port.declared(), Type::Tensor(_, Some(shape)) if !shape.is_empty());
    if cx.model.scope(body).inputs().iter().take(BEFORE).any(has_axes) {
        return Err(Skip::because("its counter or condition is declared with axes"));
    }
    let after = cx.model.scope(body).outputs().first().ok_or(Skip::NOT_HERE)?.value;
    if most > 1 && only(after).ok() != Some(1) {
        return Err(Skip::at(Reason::Rule("its body may end it"), after));
    }
    usize::try_from(most).map_err(|_| Reason::MoreNodes.into())
}

/// The nodes of several turns must be affordable.
fn check_cost(
    cx: &Cx<'_>,
    id: NodeId,
    body: ScopeId,
    turns: usize,
    scans: usize,
    affordable: fn(&Cost) -> bool,
) -> Result<(), Skip> {
    if turns == 0 && scans > 0 {
        return Err(Skip::because("nothing tells the shape of a scan output without turns"));
    }
    if turns <= 1 {
        return Ok(());
    }
    let inside = cx.model.nodes_inside(id);
    let is_random = |&inner: &NodeId| {
        cx.call(inner).is_ok_and(|call| {
            call.def.random || call.signature.is_some_and(|signature| !signature.deterministic)
        })
    };
    if inside.iter().any(is_random) {
        return Err(Reason::Random.into());
    }
    let stacking = scans.saturating_mul(turns.saturating_add(1));
    let all = turns.saturating_mul(inside.len()).saturating_add(stacking);
    let lasting = turns.saturating_mul(lasting_nodes(cx, body)).saturating_add(stacking);
    let cost = Cost { turns, inside: inside.len(), all, lasting };
    if affordable(&cost) { Ok(()) } else { Err(Reason::MoreNodes.into()) }
}

/// How many nodes of a body will not be folded when the number of the turn is known.
fn lasting_nodes(cx: &Cx<'_>, body: ScopeId) -> usize {
    let scope = cx.model.scope(body);
    let mut known: HashSet<ValueId> = scope.inputs().iter().take(BEFORE).map(|port| port.value).collect();
    let mut lasting = 0;
    for (id, node) in cx.model.nodes_in(body) {
        let decides = |output: &Option<ValueId>| output.is_none_or(|output| only_decides(cx, body, output));
        if node.outputs().iter().all(decides) {
            continue;
        }
        let inside = cx.model.nodes_inside(id).len();
        let mut inputs = node.inputs().iter().flatten();
        let is_known = |value: &ValueId| known.contains(value) || cx.model.constant(*value).is_some();
        if inside == 0 && cx.call(id).is_ok() && inputs.all(is_known) {
            known.extend(node.outputs().iter().flatten());
        } else if !node.op().is("Identity") {
            lasting += 1 + inside;
        }
    }
    lasting
}

/// Whether nothing reads a value but the loop, which asks whether it goes on.
fn only_decides(cx: &Cx<'_>, body: ScopeId, value: ValueId) -> bool {
    cx.model.value(value).uses().iter().all(|used| *used == Use::Output { scope: body, index: 0 })
}

fn number(change: &mut Change, hint: &str, array: Array) -> Result<Operand, Skip> {
    Ok(change.constant(hint, array.to_tensor().map_err(OpError::from)?))
}

/// What the turns give, along a new first axis.
fn stacked(cx: &Cx<'_>, id: NodeId, change: &mut Change, rows: Vec<Operand>) -> Operand {
    let axes = (cx.opset(id) >= 13).then(|| change.ints("axes", &[0]));
    let with_axis = |change: &mut Change, row: Operand| match axes {
        Some(axes) => change.op("Unsqueeze", [row, axes], []),
        None => change.op("Unsqueeze", [row], [("axes", vec![0]).into()]),
    };
    let mut rows: Vec<Operand> = rows.into_iter().map(|row| with_axis(change, row)).collect();
    match rows.len() {
        1 => rows.remove(0),
        _ => change.call(onnxforge_ir::Op::standard("Concat"), rows, 1, [("axis", 0).into()]).output(0),
    }
}
