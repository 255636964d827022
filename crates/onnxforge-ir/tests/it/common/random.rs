//! Random models and random edits of them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use onnxforge_ir::{Accuracy, Def, Model, NodeId, Op, Operand, Rewrite, Tensor, ValueId};
use onnxforge_proto::schema::GraphProto;
use onnxforge_testing::choices::Choices;

use super::{graph, if_node, node};

fn rewrite(consumed: &[NodeId]) -> Rewrite {
    Rewrite::new("test", "rule", Accuracy::BitExact, consumed)
}

/// What a value is computed from, without names and without identities.
fn term(m: &Model, value: ValueId, memo: &mut HashMap<ValueId, u64>) -> u64 {
    if let Some(&known) = memo.get(&value) {
        return known;
    }
    let mut hash = DefaultHasher::new();
    match m.value(value).def() {
        Def::Input { .. } => (0, m.value(value).name()).hash(&mut hash),
        Def::Constant { .. } => {
            let tensor = m.constant(value).unwrap();
            if let Ok([folded]) = tensor.to_i64s().as_deref() {
                return *folded as u64; // What was folded stands for itself.
            }
            (1, &*tensor.bytes().unwrap()).hash(&mut hash);
        }
        Def::Node { node, index } => {
            let node = m.node(*node);
            if node.op().is("Identity") {
                return term(m, node.input(0).unwrap(), memo);
            }
            (2, index, node.op()).hash(&mut hash);
            for input in node.inputs() {
                input.map(|input| term(m, input, memo)).hash(&mut hash);
            }
            for body in node.bodies() {
                let ports = m.scope(body).outputs().iter();
                ports.map(|port| term(m, port.value, memo)).collect::<Vec<_>>().hash(&mut hash);
            }
        }
        Def::Removed => panic!("{:?} is read but gone", m.value(value).name()),
    }
    let found = hash.finish();
    memo.insert(value, found);
    found
}

/// What the outputs are computed from.
pub fn meaning(m: &Model) -> Vec<u64> {
    let mut memo = HashMap::new();
    m.scope(m.main()).outputs().iter().map(|port| term(m, port.value, &mut memo)).collect()
}

/// A graph whose nodes read what stands before them and what is `visible` around it.
pub fn random_graph(
    choices: &mut Choices<'_>,
    visible: &[String],
    depth: usize,
    count: &mut usize,
) -> GraphProto {
    let mut visible = visible.to_vec();
    let mut constants = Vec::new();
    for _ in 0..choices.below(3) {
        *count += 1;
        visible.push(format!("c{count}"));
        constants.push(format!("c{count}: {} 1", choices.below(2)));
    }
    let mut nodes = Vec::new();
    let mut own = Vec::new();
    for _ in 0..2 + choices.below(7) {
        *count += 1;
        let (output, a, b) = (format!("v{count}"), choices.one(&visible), choices.one(&visible));
        nodes.push(match choices.below(if depth < 2 { 6 } else { 4 }) {
            0 => node(&format!("{output} = Relu({a})")),
            1 => node(&format!("{output} = Add({a}, {b})")),
            2 => node(&format!("{output} = Identity({a})")),
            3 => node(&format!("{output} = Clip({a}, , {b})")),
            _ => {
                let bodies = [0, 1].map(|_| random_graph(choices, &visible, depth + 1, count));
                let [then, other] = bodies;
                if_node(&format!("{output} = If({a})"), then, other)
            }
        });
        visible.push(output.clone());
        own.push(output);
    }
    let mut outputs: Vec<String> =
        own.iter().filter(|_| depth == 0 && choices.below(4) == 1).cloned().collect();
    if outputs.is_empty() {
        outputs.push(choices.one(&own));
    }
    let constants: Vec<&str> = constants.iter().map(String::as_str).collect();
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    graph(if depth == 0 { &["x", "p"] } else { &[] }, &constants, nodes, &outputs)
}

/// An edit that must be possible, or `None` where there is no occasion for one of this kind.
pub fn random_edit(m: &Model, choices: &mut Choices<'_>) -> Option<Rewrite> {
    let kind = choices.below(6);
    let all: Vec<NodeId> = m.nodes().map(|(id, _)| id).collect();
    let exposed = |value: ValueId| m.value(value).is_exposed();
    let result = |id: NodeId| m.node(id).output(0).unwrap();
    let operands =
        |id: NodeId| m.node(id).inputs().iter().map(|&input| input.into()).collect::<Vec<Operand>>();
    let candidates: Vec<NodeId> = all
        .iter()
        .copied()
        .filter(|&id| match kind {
            0 => m.value(result(id)).uses().is_empty(),
            2 => m.node(id).op().is("Identity"),
            _ => true,
        })
        .collect();
    if kind == 5 {
        let unused: Vec<ValueId> = m
            .values()
            .filter(|(_, v)| v.constant().is_some() && v.uses().is_empty())
            .map(|(id, _)| id)
            .collect();
        let mut edit = rewrite(&[]);
        edit.drop_constant(*unused.get(choices.below(unused.len()))?);
        return Some(edit);
    }
    let id = *candidates.get(choices.below(candidates.len()))?;
    let mut edit = rewrite(&[id]);
    match kind {
        0 => {}
        1 => {
            let copy = edit.node(m.node(id).op().clone(), operands(id), 1, m.node(id).attrs().to_vec());
            let identity = edit.node(Op::standard("Identity"), [copy.output(0)], 1, vec![]);
            edit.redefine(result(id), identity.output(0));
        }
        2 => {
            let target = m.node(id).input(0)?;
            let input = matches!(m.value(target).def(), Def::Input { .. });
            if exposed(result(id))
                && (input || exposed(target) || m.scope_of(target) != Some(m.node(id).scope()))
            {
                return None;
            }
            edit.redefine(result(id), target);
        }
        3 => {
            let folded = term(m, result(id), &mut HashMap::new());
            let constant = edit.constant("folded", Tensor::from_i64s(&[folded as i64]));
            edit.redefine(result(id), constant);
        }
        _ => {
            // Another node that computes the same, wherever it stands in the scope.
            let twin = all.into_iter().find(|&other| {
                other != id
                    && (m.node(other).scope(), m.node(other).op()) == (m.node(id).scope(), m.node(id).op())
                    && m.node(other).inputs() == m.node(id).inputs()
                    && m.node(other).bodies().next().is_none()
                    && !(exposed(result(id)) && exposed(result(other)))
            })?;
            edit = rewrite(&[id, twin]);
            let one = edit.node(m.node(id).op().clone(), operands(id), 1, vec![]);
            edit.redefine(result(id), one.output(0));
            edit.redefine(result(twin), one.output(0));
        }
    }
    Some(edit)
}
