//! The editing door: what a rewrite may do, what it may not, and what holds after every one of them.
//! `PROPTEST_CASES` sets the number of random models.

#![allow(clippy::unwrap_used)]

mod common;

use common::random::{Choices, meaning, random_edit, random_graph};
use common::*;
use onnxforge::ir::origin::Fate;
use onnxforge::ir::{Accuracy, Attr, AttrValue, EditError, Model, NodeId, Op, Operand, Rewrite, Tensor};
use onnxforge::proto::schema::ValueInfoProto;
use proptest::prelude::*;

fn rewrite(consumed: &[NodeId]) -> Rewrite {
    Rewrite::new("test", "rule", Accuracy::BitExact, consumed)
}

fn op(name: &str) -> Op {
    Op::standard(name)
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_f32s([values.len()], values).unwrap()
}

fn inputs(model: &Model, names: &[&str]) -> Vec<Operand> {
    names.iter().map(|name| value(model, name).into()).collect()
}

/// Replaces the nodes that compute `gone` by one that computes the last of them.
fn fuse(model: &Model, gone: &[&str], by: &str, from: &[&str]) -> Rewrite {
    let consumed: Vec<NodeId> = gone.iter().map(|name| producer(model, name)).collect();
    let mut edit = rewrite(&consumed);
    let new = edit.node(op(by), inputs(model, from), 1, vec![]);
    edit.redefine(value(model, gone.last().unwrap()), new.output(0));
    edit
}

/// Lets the value `name` be another name for `target`; its node goes.
fn alias(model: &Model, names: &[&str], target: &str) -> Rewrite {
    let consumed: Vec<NodeId> = names.iter().map(|name| producer(model, name)).collect();
    let mut edit = rewrite(&consumed);
    names.iter().for_each(|name| edit.redefine(value(model, name), value(model, target)));
    edit
}

fn chain(nodes: &[&str], outputs: &[&str]) -> Model {
    let constants = ["c: 1 2", "d: 3 4", "e: 5 6 7"];
    model(graph(&["x", "p"], &constants, nodes.iter().map(|text| node(text)).collect(), outputs))
}

/// `y` from an `If` whose first body captures `t` and has the constant `k`.
fn branching() -> Model {
    let then = graph(&[], &["k: 1 2 3"], vec![node("a = Add(t, k)"), node("b = Neg(a)")], &["b"]);
    let other = graph(&[], &[], vec![node("o = Mul(x, c)")], &["o"]);
    let nodes = vec![
        node("t = Relu(x)"),
        node("s = Abs(t)"),
        if_node("i = If(p)", then, other),
        node("y = Add(i, s)"),
    ];
    model(graph(&["x", "p"], &["c: 1 2"], nodes, &["y"]))
}

#[test]
fn one_node_is_replaced() {
    let mut m = chain(&["t = Relu(x)", "y = Neg(t)"], &["y"]);
    let old = producer(&m, "t");
    let edit = fuse(&m, &["t"], "Abs", &["x"]);
    let at = commit(&mut m, edit);
    assert_eq!(listing(&m, m.main()), ["t = Abs(x)", "y = Neg(t)"]);
    let new = producer(&m, "t");
    assert_eq!(m.node(new).name().unwrap().as_ref(), "node_t", "the heir keeps the name");
    assert_eq!((fate(&m, old), fate(&m, producer(&m, "y"))), (Fate::Merged(vec![new]), Fate::Kept));
    let entry = &m.journal()[at];
    assert_eq!((&entry.consumed[..], &entry.produced[..], entry.nodes), (&[old][..], &[new][..], 0));
}

#[test]
fn two_nodes_are_fused() {
    let mut m = chain(&["t = Mul(x, c)", "u = Relu(x)", "y = Add(t, d)"], &["y", "u"]);
    let (mul, add, t) = (producer(&m, "t"), producer(&m, "y"), value(&m, "t"));
    let edit = fuse(&m, &["t", "y"], "Gemm", &["x", "c", "d"]);
    commit(&mut m, edit);
    assert_eq!(listing(&m, m.main()), ["u = Relu(x)", "y = Gemm(x, c, d)"]);
    let new = producer(&m, "y");
    assert_eq!((fate(&m, mul), fate(&m, add)), (Fate::Merged(vec![new]), Fate::Merged(vec![new])));
    assert!(!m.value(t).is_live());
    assert_eq!(m.value(value(&m, "c")).uses().len(), 1);
}

#[test]
fn nodes_are_folded_one_after_the_other() {
    let mut m = chain(&["t = Add(c, d)", "u = Neg(t)", "y = Mul(x, u)"], &["y"]);
    let (add, neg) = (producer(&m, "t"), producer(&m, "u"));
    let mut edit = rewrite(&[add]);
    let sum = edit.constant("sum", floats(&[4.0, 6.0]));
    edit.redefine(value(&m, "t"), sum);
    edit.drop_constant(value(&m, "c"));
    edit.drop_constant(value(&m, "d"));
    let at = commit(&mut m, edit);
    assert_eq!(m.journal()[at].bytes, 8 - 16);
    assert_eq!(fate(&m, add), Fate::Folded(vec![value(&m, "t")]));
    let mut edit = rewrite(&[neg]);
    let negated = edit.constant("u", floats(&[-4.0, -6.0]));
    edit.redefine(value(&m, "u"), negated);
    edit.drop_constant(value(&m, "t"));
    commit(&mut m, edit);
    let u = value(&m, "u");
    assert_eq!((fate(&m, add), fate(&m, neg)), (Fate::Folded(vec![u]), Fate::Folded(vec![u])));
    assert_eq!(m.constant(u).unwrap().bytes().unwrap()[..4], (-4f32).to_le_bytes());
}

#[test]
fn an_identity_goes_away() {
    let mut m = chain(&["t = Relu(x)", "i = Identity(t)", "y = Add(i, i)"], &["y"]);
    let identity = producer(&m, "i");
    let edit = alias(&m, &["i"], "t");
    commit(&mut m, edit);
    assert_eq!(listing(&m, m.main()), ["t = Relu(x)", "y = Add(t, t)"]);
    assert_eq!(fate(&m, identity), Fate::Dead);
    // At an output the output keeps its name, whoever else reads the value.
    let mut m = chain(&["t = Relu(x)", "y = Identity(t)", "u = Neg(t)"], &["y", "u"]);
    let edit = alias(&m, &["y"], "t");
    commit(&mut m, edit);
    assert_eq!(listing(&m, m.main()), ["y = Relu(x)", "u = Neg(y)"]);
    // A constant can become an output too.
    let mut m = chain(&["y = Identity(c)", "u = Neg(c)"], &["y", "u"]);
    let edit = alias(&m, &["y"], "c");
    let at = commit(&mut m, edit);
    assert_eq!((listing(&m, m.main()), m.journal()[at].bytes), (vec!["u = Neg(y)".to_owned()], 0));
}

#[test]
fn an_output_does_not_become_another_name() {
    let mut m = chain(&["y = Identity(x)", "t = Relu(x)", "u = Identity(t)"], &["y", "t", "u"]);
    for (name, target) in [("y", "x"), ("u", "t"), ("y", "p")] {
        let edit = alias(&m, &[name], target);
        assert_eq!(refused(&mut m, edit), EditError::Exposed(name.into(), target.into()));
    }
}

#[test]
fn duplicates_become_one() {
    for outputs in [&["y"][..], &["y", "a"], &["y", "b"]] {
        let mut m = chain(&["a = Relu(x)", "n = Neg(a)", "b = Relu(x)", "y = Add(n, b)"], outputs);
        let mut edit = rewrite(&[producer(&m, "a"), producer(&m, "b")]);
        let one = edit.node(op("Relu"), inputs(&m, &["x"]), 1, vec![]);
        edit.redefine(value(&m, "a"), one.output(0));
        edit.redefine(value(&m, "b"), one.output(0));
        commit(&mut m, edit);
        let kept = if outputs.contains(&"b") { "b" } else { "a" };
        let expected =
            [format!("{kept} = Relu(x)"), format!("n = Neg({kept})"), format!("y = Add(n, {kept})")];
        assert_eq!(listing(&m, m.main()), expected);
    }
}

#[test]
fn bodies_are_edited_like_graphs() {
    let mut m = branching();
    // In a body, with a captured operand; the body's output keeps its name.
    let edit = fuse(&m, &["a", "b"], "Sub", &["t", "k"]);
    commit(&mut m, edit);
    let body = m.node(producer(&m, "b")).scope();
    assert_eq!((listing(&m, body), outputs(&m, body)), (vec!["b = Sub(t, k)".into()], vec!["b".into()]));
    // A captured value gets another definition, then becomes another name.
    let edit = fuse(&m, &["t"], "Exp", &["x"]);
    commit(&mut m, edit);
    let edit = alias(&m, &["t"], "x");
    commit(&mut m, edit);
    assert_eq!(listing(&m, body), ["b = Sub(x, k)"]);
    // Folding inside of a body makes a constant of the body.
    let mut edit = rewrite(&[producer(&m, "b")]);
    let folded = edit.constant("k", floats(&[0.0, 0.0]));
    edit.redefine(value(&m, "b"), folded);
    edit.drop_constant(value(&m, "k"));
    commit(&mut m, edit);
    assert_eq!(m.constants_in(body).map(|(id, _)| id).collect::<Vec<_>>(), [value(&m, "b")]);
}

#[test]
fn a_capture_cannot_see_what_comes_later() {
    let then = graph(&[], &[], vec![node("b = Neg(t)")], &["b"]);
    let other = graph(&[], &[], vec![node("o = Identity(x)")], &["o"]);
    let nodes = vec![
        node("t = Relu(x)"),
        if_node("i = If(p)", then, other),
        node("s = Abs(i)"),
        node("y = Add(i, s)"),
    ];
    let mut m = model(graph(&["x", "p"], &[], nodes, &["y"]));
    let edit = alias(&m, &["t"], "s");
    assert!(matches!(refused(&mut m, edit), EditError::Order(_)));
    let edit = fuse(&m, &["t"], "Neg", &["i"]);
    assert!(matches!(refused(&mut m, edit), EditError::Order(_)));
    // Nothing outside sees what is inside, nothing inside sees the result of its own holder.
    let edit = fuse(&m, &["s"], "Neg", &["b"]);
    assert!(matches!(refused(&mut m, edit), EditError::Order(_)));
    let edit = fuse(&m, &["b"], "Neg", &["i"]);
    assert!(matches!(refused(&mut m, edit), EditError::Order(_)));
}

#[test]
fn bodies_move_to_a_new_node_or_go() {
    let mut m = branching();
    let old = producer(&m, "i");
    let bodies: Vec<_> = m.node(old).bodies().collect();
    let mut edit = rewrite(&[old]);
    let new = edit.node(Op::new("local", "If2"), inputs(&m, &["p"]), 1, m.node(old).attrs().to_vec());
    edit.redefine(value(&m, "i"), new.output(0));
    commit(&mut m, edit);
    let new = producer(&m, "i");
    assert_eq!(m.node(new).bodies().collect::<Vec<_>>(), bodies);
    assert!(bodies.iter().all(|&body| m.scope(body).holder() == Some(new)));
    assert_eq!((m.node_count(), fate(&m, producer(&m, "a"))), (7, Fate::Kept));
    // One body stays, the other goes with everything in it.
    let gone = producer(&m, "a");
    let mut edit = rewrite(&[new]);
    let attr = Attr::new("body", AttrValue::Graph(bodies[1]));
    let call = edit.node(Op::new("local", "Call"), inputs(&m, &["p"]), 1, vec![attr]);
    edit.redefine(value(&m, "i"), call.output(0));
    let at = commit(&mut m, edit);
    assert_eq!((m.journal()[at].nodes, m.journal()[at].bytes), (-2, -12));
    assert_eq!((m.scope(bodies[0]).is_live(), m.scope(bodies[1]).is_live()), (false, true));
    assert_eq!(fate(&m, gone), Fate::Merged(vec![producer(&m, "i")]));
    let edit = fuse(&m, &["i"], "Identity", &["x"]);
    let at = commit(&mut m, edit);
    assert_eq!((m.journal()[at].nodes, m.journal()[at].consumed.len()), (-1, 2));
    assert_eq!(m.value(value(&m, "c")).uses(), []);
}

#[test]
fn constants_are_dropped_replaced_and_shared() {
    let mut m = chain(&["t = Add(x, c)", "u = Add(t, d)", "y = Add(u, e)"], &["y"]);
    let mut edit = rewrite(&[]);
    edit.redefine(value(&m, "d"), value(&m, "c"));
    let at = commit(&mut m, edit);
    assert_eq!((m.journal()[at].bytes, listing(&m, m.main())[1].as_str()), (-8, "u = Add(t, c)"));
    let mut edit = rewrite(&[]);
    let new = edit.constant("new", floats(&[1.0; 5]));
    edit.redefine(value(&m, "e"), new);
    let at = commit(&mut m, edit);
    assert_eq!((m.journal()[at].bytes, m.constant(value(&m, "e")).unwrap().len()), (20 - 12, 5));
    // From a body to the graph around it, not the other way.
    let mut m = branching();
    let mut edit = rewrite(&[]);
    edit.redefine(value(&m, "c"), value(&m, "k"));
    assert!(matches!(refused(&mut m, edit), EditError::Order(_)));
    let mut edit = rewrite(&[]);
    edit.redefine(value(&m, "k"), value(&m, "c"));
    commit(&mut m, edit);
    assert_eq!(m.value(value(&m, "c")).uses().len(), 2);
}

#[test]
fn every_reason_to_refuse() {
    let mut m = chain(&["t = Relu(x)", "u = Neg(t)", "w = Abs(u)", "y = Add(w, c)"], &["y"]);
    let gone = producer(&m, "u");
    let stale = value(&m, "u");
    let fresh = m.clone();
    let edit = alias(&m, &["u"], "t");
    commit(&mut m, edit);
    assert!(matches!(refused(&mut m, rewrite(&[gone])), EditError::Gone(_)));
    let mut edit = rewrite(&[]);
    edit.redefine(stale, value(&m, "c"));
    assert!(matches!(refused(&mut m, edit), EditError::NotRedefinable(_)));
    let mut edit = fuse(&m, &["w"], "Neg", &["t"]);
    edit.node(op("Neg"), [stale.into()], 1, vec![]);
    assert!(matches!(refused(&mut m, edit), EditError::Gone(_)));
    let edit = fuse(&m, &["t", "w"], "Neg", &["t"]);
    assert!(
        matches!(refused(&mut m, edit), EditError::Gone(_)),
        "an operand that the rewrite itself removes"
    );

    let mut m = fresh;
    let mut edit = rewrite(&[]);
    edit.node(op("Neg"), inputs(&m, &["x"]), 1, vec![]);
    assert_eq!(refused(&mut m, edit), EditError::FromNothing);
    let edit = rewrite(&[producer(&m, "t")]);
    assert_eq!(refused(&mut m, edit), EditError::StillRead("t".into()));
    let edit = rewrite(&[producer(&m, "y")]);
    assert_eq!(refused(&mut m, edit), EditError::StillRead("y".into()));
    let mut edit = rewrite(&[]);
    edit.drop_constant(value(&m, "c"));
    assert_eq!(refused(&mut m, edit), EditError::StillRead("c".into()));
    for (name, by) in [("t", "x"), ("x", "p"), ("t", "c")] {
        let mut edit = rewrite(&[producer(&m, "w")]);
        edit.redefine(value(&m, "w"), value(&m, "t"));
        edit.redefine(value(&m, name), value(&m, by));
        assert_eq!(refused(&mut m, edit), EditError::NotRedefinable(name.into()));
    }
    let mut edit = rewrite(&[]);
    edit.drop_constant(value(&m, "x"));
    assert_eq!(refused(&mut m, edit), EditError::NotRedefinable("x".into()));
    let edit = alias(&m, &["t"], "w");
    assert_eq!(refused(&mut m, edit), EditError::Order("t".into()));
    for bad in [Operand::Constant(0), rewrite(&[]).node(op("A"), [], 2, vec![]).output(2)] {
        let mut edit = rewrite(&[producer(&m, "w")]);
        edit.redefine(value(&m, "w"), bad);
        assert_eq!(refused(&mut m, edit), EditError::Operand);
    }
    let mut m = branching();
    let edit = rewrite(&[producer(&m, "t"), producer(&m, "a")]);
    assert_eq!(refused(&mut m, edit), EditError::Scopes);
}

#[test]
fn what_is_named_elsewhere_keeps_its_name() {
    use onnxforge::proto::schema::TensorAnnotation;
    let mut g =
        graph(&["x"], &[], vec![node("t = Relu(x)"), node("i = Identity(t)"), node("y = Neg(i)")], &["y"]);
    g.quantization_annotation =
        vec![TensorAnnotation { tensor_name: Some("i".into()), ..TensorAnnotation::default() }];
    let mut m = model(g);
    let edit = alias(&m, &["i"], "t");
    commit(&mut m, edit);
    assert_eq!(listing(&m, m.main()), ["i = Relu(x)", "y = Neg(i)"]);
    let edit = fuse(&m, &["i", "y"], "Abs", &["x"]);
    assert_eq!(refused(&mut m, edit), EditError::StillRead("i".into()));
}

#[test]
fn functions_are_edited_like_graphs() {
    let mut message = message(graph(&["x"], &[], vec![node("y = F(x)")], &["y"]));
    let nodes = vec![node("t = Relu(x)"), node("i = Identity(t)"), node("y = Neg(i)")];
    message.functions = vec![function("F", &["x"], nodes, &["y"])];
    let mut m = loaded(&message);
    let scope = m.functions()[0];
    let ids: Vec<NodeId> = m.nodes_in(scope).map(|(id, _)| id).collect();
    let mut edit = rewrite(&ids[1..2]);
    edit.redefine(m.node(ids[1]).output(0).unwrap(), m.node(ids[0]).output(0).unwrap());
    commit(&mut m, edit);
    assert_eq!(listing(&m, scope), ["t = Relu(x)", "y = Neg(t)"]);
}

#[test]
fn outputs_are_redefined_one_by_one() {
    let mut m = chain(&["a, , b = Split(x)", "u = Neg(a)", "y = Add(u, b)"], &["y", "b"]);
    let mut edit = rewrite(&[producer(&m, "a")]);
    let new = edit.node(op("Split2"), inputs(&m, &["x"]), 3, vec![]);
    edit.redefine(value(&m, "b"), new.output(0));
    edit.redefine(value(&m, "a"), new.output(2));
    commit(&mut m, edit);
    assert_eq!(listing(&m, m.main()), ["b, b_rule, a = Split2(x)", "u = Neg(a)", "y = Add(u, b)"]);
    // One output from a node of its own, the other another name.
    let mut edit = rewrite(&[producer(&m, "a")]);
    let half =
        edit.node(op("Slice"), [value(&m, "x").into(), Operand::Absent, value(&m, "c").into()], 1, vec![]);
    edit.redefine(value(&m, "b"), half.output(0));
    edit.redefine(value(&m, "a"), value(&m, "x"));
    commit(&mut m, edit);
    assert_eq!(listing(&m, m.main()), ["b = Slice(x, , c)", "u = Neg(x)", "y = Add(u, b)"]);
}

#[test]
fn places_between_two_nodes_do_not_run_out() {
    let mut m = chain(&["t = Relu(x)", "y = Neg(t)"], &["y"]);
    let t = value(&m, "t");
    for _ in 0..40 {
        let mut edit = rewrite(&[m.value(t).node().unwrap()]);
        let first = edit.node(op("Relu"), inputs(&m, &["x"]), 1, vec![]);
        let second = edit.node(op("Identity"), [first.output(0)], 1, vec![]);
        edit.redefine(t, second.output(0));
        commit(&mut m, edit);
    }
    assert_eq!(m.node_count(), 42);
}
/// Edits that must be refused, or made right.
mod regressions {
    use super::*;

    /// `q` takes over the definition of `t`, but in the body `q` is something else.
    #[test]
    fn an_output_does_not_take_over_what_a_body_reads_under_its_name() {
        let then = graph(&[], &[], vec![node("q = Neg(x)"), node("b = Add(q, t)")], &["b"]);
        let other = graph(&[], &[], vec![node("o = Abs(x)")], &["o"]);
        let nodes = vec![node("t = Relu(x)"), node("q = Identity(t)"), if_node("y = If(p)", then, other)];
        let mut m = model(graph(&["x", "p"], &[], nodes, &["y", "q"]));
        let identity = m.nodes_in(m.main()).find(|(_, node)| node.op().is("Identity")).unwrap().0;
        let mut edit = rewrite(&[identity]);
        edit.redefine(m.node(identity).output(0).unwrap(), m.node(identity).input(0).unwrap());
        assert!(matches!(refused(&mut m, edit), EditError::Hidden(_)));
    }

    /// A new node reads what a later new node defines.
    #[test]
    fn new_nodes_do_not_read_what_comes_later() {
        let then = graph(&[], &["k: 1 2"], vec![node("b = Neg(k)")], &["b"]);
        let other = graph(&[], &[], vec![node("o = Abs(x)")], &["o"]);
        let mut m = model(graph(&["x", "p"], &[], vec![if_node("y = If(p)", then, other)], &["y"]));
        let mut edit = rewrite(&[producer(&m, "y")]);
        let first = edit.node(op("Neg"), inputs(&m, &["k"]), 1, vec![]);
        let second = edit.node(op("Abs"), inputs(&m, &["x"]), 1, vec![]);
        edit.redefine(value(&m, "k"), second.output(0));
        edit.redefine(value(&m, "y"), first.output(0));
        sound(&mut m, edit);
    }

    #[test]
    fn two_outputs_do_not_become_one() {
        let mut m = chain(&["a = Relu(x)", "b = Relu(x)"], &["a", "b"]);
        let mut edit = rewrite(&[producer(&m, "a"), producer(&m, "b")]);
        let one = edit.node(op("Relu"), inputs(&m, &["x"]), 1, vec![]);
        edit.redefine(value(&m, "a"), one.output(0));
        edit.redefine(value(&m, "b"), one.output(0));
        assert!(matches!(refused(&mut m, edit), EditError::Exposed(..)));
        let mut edit = rewrite(&[producer(&m, "a"), producer(&m, "b")]);
        let one = edit.constant("k", floats(&[1.0]));
        edit.redefine(value(&m, "a"), one);
        edit.redefine(value(&m, "b"), one);
        assert!(matches!(refused(&mut m, edit), EditError::Exposed(..)));
    }

    #[test]
    fn three_duplicates_become_one_wherever_the_output_is() {
        for outputs in [&["y"][..], &["y", "a"], &["y", "b"], &["y", "d2"]] {
            let nodes = ["a = Relu(x)", "b = Relu(x)", "d2 = Relu(x)", "n = Add(a, b)", "y = Add(n, d2)"];
            let mut m = chain(&nodes, outputs);
            let mut edit = rewrite(&["a", "b", "d2"].map(|name| producer(&m, name)));
            let one = edit.node(op("Relu"), inputs(&m, &["x"]), 1, vec![]);
            ["a", "b", "d2"].iter().for_each(|name| edit.redefine(value(&m, name), one.output(0)));
            commit(&mut m, edit);
        }
    }

    #[test]
    fn several_names_for_a_value_one_of_them_an_output() {
        let mut m = chain(&["t = Relu(x)", "y = Identity(t)", "i = Identity(t)", "z = Neg(i)"], &["y", "z"]);
        let edit = alias(&m, &["y", "i"], "t");
        commit(&mut m, edit);
        assert_eq!(listing(&m, m.main()), ["y = Relu(x)", "z = Neg(y)"]);
    }

    #[test]
    fn two_outputs_do_not_take_over_one_value() {
        let mut m = chain(&["t = Relu(x)", "y = Identity(t)", "z = Identity(t)"], &["y", "z"]);
        let edit = alias(&m, &["y", "z"], "t");
        assert!(matches!(refused(&mut m, edit), EditError::Exposed(..)));
    }

    #[test]
    fn a_value_that_is_read_does_not_become_absent() {
        let mut m = chain(&["t = Relu(x)", "y = Neg(t)"], &["y"]);
        let mut edit = rewrite(&[producer(&m, "t")]);
        edit.redefine(value(&m, "t"), Operand::Absent);
        sound(&mut m, edit);
    }

    #[test]
    fn a_value_gets_only_one_definition() {
        let mut m = chain(&["t = Relu(x)", "y = Neg(t)"], &["y"]);
        let mut edit = rewrite(&[producer(&m, "t")]);
        let first = edit.node(op("Abs"), inputs(&m, &["x"]), 1, vec![]);
        let second = edit.node(op("Exp"), inputs(&m, &["x"]), 1, vec![]);
        edit.redefine(value(&m, "t"), first.output(0));
        edit.redefine(value(&m, "t"), second.output(0));
        sound(&mut m, edit);
    }

    #[test]
    fn constants_in_a_chain_of_names() {
        for pairs in [[("d", "c"), ("e", "d")], [("c", "d"), ("d", "c")], [("c", "c"), ("d", "c")]] {
            let mut m = chain(&["t = Add(c, d)", "y = Add(t, e)"], &["y"]);
            let mut edit = rewrite(&[]);
            pairs.iter().for_each(|(name, target)| edit.redefine(value(&m, name), value(&m, target)));
            sound(&mut m, edit);
        }
    }

    #[test]
    fn a_dropped_constant_is_not_read_by_what_is_new() {
        let mut m = chain(&["t = Add(x, c)", "y = Neg(t)"], &["y"]);
        let mut edit = fuse(&m, &["t"], "Sub", &["x", "c"]);
        edit.drop_constant(value(&m, "c"));
        assert_eq!(refused(&mut m, edit), EditError::StillRead("c".into()));
        let mut edit = rewrite(&[]);
        edit.redefine(value(&m, "c"), value(&m, "d"));
        edit.drop_constant(value(&m, "d"));
        assert_eq!(refused(&mut m, edit), EditError::StillRead("d".into()));
    }

    #[test]
    fn a_constant_dropped_twice_counts_once() {
        let mut m = chain(&["y = Neg(x)"], &["y"]);
        let mut edit = rewrite(&[]);
        edit.drop_constant(value(&m, "c"));
        edit.drop_constant(value(&m, "c"));
        sound(&mut m, edit);
    }

    #[test]
    fn a_node_does_not_read_itself() {
        let mut m = chain(&["t = Relu(x)", "y = Neg(t)"], &["y"]);
        let mut edit = rewrite(&[producer(&m, "t")]);
        let own = edit.clone().node(op("Add"), [], 1, vec![]);
        let new = edit.node(op("Add"), [own.output(0), value(&m, "x").into()], 1, vec![]);
        edit.redefine(value(&m, "t"), new.output(0));
        assert_eq!(refused(&mut m, edit), EditError::Operand);
    }

    #[test]
    fn only_bodies_of_consumed_nodes_move() {
        let mut m = branching();
        let body = m.node(producer(&m, "i")).bodies().next().unwrap();
        let mut edit = rewrite(&[producer(&m, "s")]);
        let attrs = vec![Attr::new("body", AttrValue::Graph(body))];
        let call = edit.node(Op::new("local", "Call"), inputs(&m, &["p"]), 1, attrs.clone());
        edit.redefine(value(&m, "s"), call.output(0));
        refused(&mut m, edit);
        // And only to one node.
        let mut edit = rewrite(&[producer(&m, "i")]);
        edit.node(Op::new("local", "Call"), inputs(&m, &["p"]), 1, attrs.clone());
        let call = edit.node(Op::new("local", "Call"), inputs(&m, &["p"]), 1, attrs);
        edit.redefine(value(&m, "i"), call.output(0));
        refused(&mut m, edit);
    }

    #[test]
    fn a_moved_body_still_sees_what_it_captures() {
        let then = graph(&[], &[], vec![node("b = Neg(t)")], &["b"]);
        let other = graph(&[], &[], vec![node("o = Abs(x)")], &["o"]);
        let nodes = vec![
            node("t = Relu(x)"),
            if_node("i = If(p)", then, other),
            node("r = Abs(i)"),
            node("z = Neg(r)"),
        ];
        let mut m = model(graph(&["x", "p"], &[], nodes, &["r"]));
        let old = producer(&m, "i");
        let mut edit = rewrite(&[old, producer(&m, "z")]);
        let new = edit.node(op("If"), inputs(&m, &["p"]), 1, m.node(old).attrs().to_vec());
        edit.redefine(value(&m, "i"), new.output(0));
        commit(&mut m, edit);
    }

    /// An `If` is replaced by the nodes of its first body, one of which has a body of its own.
    #[test]
    fn a_body_moves_out_of_a_body() {
        let inner = |k: &str| graph(&[], &[], vec![node(&format!("b{k} = Add(a, k)"))], &[&format!("b{k}")]);
        let nested = if_node("n = If(p)", inner("1"), inner("2"));
        let then = graph(&[], &["k: 1 2"], vec![node("a = Neg(x)"), nested], &["n"]);
        let other = graph(&[], &[], vec![node("o = Abs(x)")], &["o"]);
        let nodes = vec![if_node("i = If(p)", then, other), node("y = Abs(i)")];
        let mut m = model(graph(&["x", "p"], &[], nodes, &["y"]));
        let build = |m: &Model, keep: bool| {
            let mut edit = rewrite(&[producer(m, "i")]);
            let a = edit.node(op("Neg"), inputs(m, &["x"]), 1, vec![]);
            let new = edit.node(op("If"), inputs(m, &["p"]), 1, m.node(producer(m, "n")).attrs().to_vec());
            edit.redefine(value(m, "a"), a.output(0));
            edit.redefine(value(m, "i"), new.output(0));
            if keep {
                let k = edit.constant("k", floats(&[1.0, 2.0]));
                edit.redefine(value(m, "k"), k);
            }
            edit
        };
        // The constant of the removed body is still read.
        let edit = build(&m, false);
        sound(&mut m.clone(), edit);
        let edit = build(&m, true);
        commit(&mut m, edit);
    }

    #[test]
    fn an_outer_constant_is_replaced_from_a_body() {
        let then = graph(&[], &[], vec![node("a = Add(x, w)"), node("b = Mul(a, w)")], &["b"]);
        let other = graph(&[], &[], vec![node("o = Abs(x)")], &["o"]);
        let mut m = model(graph(&["x", "p"], &["w: 1 2"], vec![if_node("y = If(p)", then, other)], &["y"]));
        let mut edit = fuse(&m, &["a"], "Sub", &["x", "w"]);
        let new = edit.constant("w2", floats(&[-1.0, -2.0]));
        edit.redefine(value(&m, "w"), new);
        sound(&mut m, edit);
    }

    #[test]
    fn a_constant_in_a_function_can_be_saved() {
        let mut message = message(graph(&["x"], &[], vec![node("y = F(x)")], &["y"]));
        message.functions =
            vec![function("F", &["x"], vec![node("k = Shape(x)"), node("y = Add(x, k)")], &["y"])];
        let mut m = loaded(&message);
        let (shape, _) = m.nodes_in(m.functions()[0]).next().unwrap();
        let mut edit = rewrite(&[shape]);
        let k = edit.constant("k", floats(&[1.0]));
        edit.redefine(m.node(shape).output(0).unwrap(), k);
        sound(&mut m, edit);
    }

    /// `t` is also the name of something in the body, so what is outside cannot be read there under that name.
    #[test]
    fn a_hidden_name_is_not_given_to_a_capture() {
        let then = graph(&[], &[], vec![node("t = Neg(i)"), node("b = Abs(t)")], &["b"]);
        let other = graph(&[], &[], vec![node("o = Abs(x)")], &["o"]);
        let nodes = vec![node("t = Relu(x)"), node("i = Identity(t)"), if_node("y = If(p)", then, other)];
        let mut m = model(graph(&["x", "p"], &[], nodes, &["y"]));
        let identity = producer(&m, "i");
        let mut edit = rewrite(&[identity]);
        edit.redefine(value(&m, "i"), m.node(identity).input(0).unwrap());
        sound(&mut m, edit);
    }

    /// `value_info` may name values that are long gone; a new value is not one of them.
    #[test]
    fn a_new_name_is_not_one_that_is_declared_already() {
        let mut g = graph(&["x"], &[], vec![node("t = Relu(x)"), node("y = Neg(t)")], &["y"]);
        g.value_info = vec![ValueInfoProto { r#type: None, ..info("k") }];
        let mut m = model(g);
        let mut edit = rewrite(&[producer(&m, "t")]);
        let k = edit.constant("k", floats(&[1.0]));
        let new = edit.node(op("Add"), [value(&m, "x").into(), k], 1, vec![]);
        edit.redefine(value(&m, "t"), new.output(0));
        commit(&mut m, edit);
        let (constant, _) = m.constants_in(m.main()).next().unwrap();
        assert_ne!(&**m.value(constant).name(), "k");
    }
}

/// The nodes of bodies and functions become nodes of the graph.
mod splices {
    use super::*;

    /// Replaces the `If` that computes `name` by its first body.
    fn inline(m: &Model, name: &str) -> Rewrite {
        let holder = producer(m, name);
        let body = m.node(holder).bodies().next().unwrap();
        let mut edit = rewrite(&[holder]);
        let results = edit.splice(m, holder, body, &[], None, &|_| true).unwrap();
        let outputs = m.node(holder).outputs().iter().flatten();
        outputs.zip(results).for_each(|(&output, result)| edit.redefine(output, result));
        edit
    }

    fn other() -> onnxforge::proto::schema::GraphProto {
        graph(&[], &["l: 7 7 7"], vec![node("o = Mul(x, l)")], &["o"])
    }

    fn chosen(then: onnxforge::proto::schema::GraphProto, outputs: &[&str]) -> Model {
        let nodes = vec![node("t = Relu(x)"), if_node("i = If(p)", then, other()), node("y = Neg(i)")];
        model(graph(&["x", "p"], &["c: 1 2"], nodes, outputs))
    }

    #[test]
    fn a_branch_takes_the_place_of_its_if() {
        let mut m = branching();
        let (holder, a, o) = (producer(&m, "i"), producer(&m, "a"), producer(&m, "o"));
        let edit = inline(&m, "i");
        let at = commit(&mut m, edit);
        let expected = ["t = Relu(x)", "s = Abs(t)", "a = Add(t, k)", "i = Neg(a)", "y = Add(i, s)"];
        assert_eq!(listing(&m, m.main()), expected);
        assert_eq!((m.journal()[at].nodes, m.journal()[at].bytes), (-2, 0));
        let (new_a, new_i) = (producer(&m, "a"), producer(&m, "i"));
        assert_eq!(m.node(new_a).name().unwrap().as_ref(), "node_a", "a copy keeps the name");
        assert_eq!(fate(&m, a), Fate::Merged(vec![new_a]));
        assert_eq!(fate(&m, holder), Fate::Merged(vec![new_a, new_i]));
        assert_eq!(fate(&m, o), Fate::Dead);
        assert_eq!(m.constants_in(m.main()).count(), 2);
    }

    /// A loop of three turns with a constant, a captured value and a body inside.
    #[test]
    fn a_body_becomes_as_many_nodes_as_there_are_turns() {
        let inner = |k: &str| {
            let nodes = vec![node(&format!("b{k} = Add(a, t)")), node(&format!("d{k} = Mul(b{k}, k)"))];
            graph(&[], &[&format!("w{k}: 3 4")], nodes, &[&format!("d{k}")])
        };
        let nested = if_node("n = If(q)", inner("1"), inner("2"));
        let body = graph(&["v", "q"], &["k: 1 2"], vec![node("a = Sub(v, c)"), nested], &["n", "a"]);
        let nodes = vec![
            node("t = Relu(x)"),
            node_with("l, r = Loop(x, p)", vec![("body", body)]),
            node("y = Add(l, r)"),
        ];
        let mut m = model(graph(&["x", "p"], &["c: 1 2"], nodes, &["y"]));
        let (holder, a, b1) = (producer(&m, "l"), producer(&m, "a"), producer(&m, "b1"));
        let body = m.node(holder).bodies().next().unwrap();
        let mut edit = rewrite(&[holder]);
        let mut carried: Operand = value(&m, "x").into();
        let mut last = carried;
        for _ in 0..3 {
            let results =
                edit.splice(&m, holder, body, &[carried, value(&m, "p").into()], None, &|_| true).unwrap();
            (carried, last) = (results[0], results[1]);
        }
        edit.redefine(value(&m, "l"), carried);
        edit.redefine(value(&m, "r"), last);
        let at = commit(&mut m, edit);
        let expected = [
            "t = Relu(x)",
            "a = Sub(x, c)",
            "n = If(p)",
            "a_1 = Sub(n, c)",
            "n_1 = If(p)",
            "r = Sub(n_1, c)",
            "l = If(p)",
            "y = Add(l, r)",
        ];
        assert_eq!(listing(&m, m.main()), expected);
        let first = m.node(producer(&m, "n")).bodies().next().unwrap();
        assert_eq!(listing(&m, first), ["b1 = Add(a, t)", "d1 = Mul(b1, k)"]);
        let second = m.node(producer(&m, "n_1")).bodies().nth(1).unwrap();
        assert_eq!(listing(&m, second), ["b2_1 = Add(a_1, t)", "d2_1 = Mul(b2_1, k)"]);
        let third = m.node(producer(&m, "l")).bodies().next().unwrap();
        assert_eq!(listing(&m, third), ["b1_2 = Add(r, t)", "d1_2 = Mul(b1_2, k)"]);
        // Three copies of six nodes for a loop with six nodes in it.
        assert_eq!(m.journal()[at].nodes, 3 * 6 - 7);
        assert_eq!(m.journal()[at].bytes, 2 * (2 * 8));
        assert_eq!(fate(&m, a), Fate::Merged(["a", "a_1", "r"].map(|name| producer(&m, name)).to_vec()));
        assert!(matches!(fate(&m, b1), Fate::Merged(copies) if copies.len() == 3));
    }

    /// Both branches call their values the same, and one of them is called like a value of the graph.
    #[test]
    fn names_that_clash_are_changed() {
        let branch = |op: &str| {
            let nodes = vec![node(&format!("u = {op}(x)")), node("b = Add(u, k)")];
            graph(&[], &["k: 1 2"], nodes, &["b"])
        };
        let nodes = vec![
            if_node("i = If(p)", branch("Abs"), branch("Exp")),
            node("u = Neg(i)"),
            if_node("y = If(p)", other(), graph(&[], &[], vec![node("e = Abs(u)")], &["e"])),
        ];
        let mut m = model(graph(&["x", "p"], &[], nodes, &["y"]));
        let edit = inline(&m, "i");
        commit(&mut m, edit);
        let expected = ["u_1 = Abs(x)", "i = Add(u_1, k_1)", "u = Neg(i)", "y = If(p)"];
        assert_eq!(listing(&m, m.main()), expected);
    }

    #[test]
    fn an_output_may_be_an_outer_value_or_a_constant() {
        let mut m = chosen(graph(&[], &[], vec![], &["t"]), &["y"]);
        let edit = inline(&m, "i");
        commit(&mut m, edit);
        assert_eq!(listing(&m, m.main()), ["t = Relu(x)", "y = Neg(t)"]);
        let mut m = chosen(graph(&[], &["k: 1 2"], vec![], &["k"]), &["y"]);
        let edit = inline(&m, "i");
        let at = commit(&mut m, edit);
        assert_eq!(listing(&m, m.main()), ["t = Relu(x)", "y = Neg(i)"]);
        assert_eq!((m.journal()[at].nodes, m.journal()[at].bytes), (-2, -12));
        assert!(m.constant(value(&m, "i")).is_some());
        // An input cannot become an output, whatever the branch says.
        let mut m = chosen(graph(&[], &[], vec![], &["x"]), &["i", "y"]);
        let edit = inline(&m, "i");
        assert_eq!(refused(&mut m, edit), EditError::Exposed("i".into(), "x".into()));
    }

    #[test]
    fn an_output_may_be_an_input_and_the_same_value_twice() {
        let body = graph(&["v", "w"], &[], vec![node("a = Neg(v)")], &["v", "a", "a", "w"]);
        let held = node_with("i, j, k, l = Loop(x, p)", vec![("body", body)]);
        for outputs in [&["y"][..], &["y", "j"], &["y", "j", "k"]] {
            let nodes =
                vec![node("t = Relu(x)"), held.clone(), node("m = Sum(i, j, k, l)"), node("y = Abs(m)")];
            let mut m = model(graph(&["x", "p"], &[], nodes, outputs));
            let holder = producer(&m, "i");
            let body = m.node(holder).bodies().next().unwrap();
            let mut edit = rewrite(&[holder]);
            let results = edit.splice(&m, holder, body, &inputs(&m, &["t", "t"]), None, &|_| true).unwrap();
            for (name, result) in ["i", "j", "k", "l"].into_iter().zip(results) {
                edit.redefine(value(&m, name), result);
            }
            if outputs.len() == 3 {
                assert!(matches!(refused(&mut m, edit), EditError::Exposed(..)));
                continue;
            }
            commit(&mut m, edit);
            assert_eq!(listing(&m, m.main())[1..3], ["j = Neg(t)", "m = Sum(t, j, j, t)"]);
        }
    }

    /// Only what the second result needs is copied.
    #[test]
    fn what_nobody_wants_is_left_out() {
        let inner = |k: &str| graph(&[], &[], vec![node(&format!("b{k} = Neg(e)"))], &[&format!("b{k}")]);
        let nodes = vec![
            node("a = Neg(v)"),
            node("d = Add(a, k)"),
            node("e = Mul(x, l)"),
            if_node("n = If(p)", inner("1"), inner("2")),
        ];
        let body = graph(&["v"], &["k: 1 2", "l: 3 4", "m: 5"], nodes, &["d", "n"]);
        let nodes = vec![node_with("i, j = Loop(x)", vec![("body", body)]), node("y = Neg(j)")];
        let mut m = model(graph(&["x", "p"], &[], nodes, &["y"]));
        let (holder, a) = (producer(&m, "i"), producer(&m, "a"));
        let body = m.node(holder).bodies().next().unwrap();
        let mut edit = rewrite(&[holder]);
        let unread = edit.constant("unread", floats(&[1.0]));
        let results = edit.splice(&m, holder, body, &[unread], None, &|index| index == 1).unwrap();
        assert_eq!(results[0], Operand::Absent);
        edit.redefine(value(&m, "j"), results[1]);
        let at = commit(&mut m, edit);
        assert_eq!(listing(&m, m.main()), ["e = Mul(x, l)", "j = If(p)", "y = Neg(j)"]);
        assert_eq!((m.journal()[at].bytes, fate(&m, a)), (-12, Fate::Dead));
    }

    #[test]
    fn only_what_a_consumed_node_holds_is_spliced() {
        let mut m = branching();
        let holder = producer(&m, "i");
        let body = m.node(holder).bodies().next().unwrap();
        let mut edit = rewrite(&[producer(&m, "s")]);
        let results = edit.splice(&m, holder, body, &[], None, &|_| true).unwrap();
        edit.redefine(value(&m, "s"), results[0]);
        assert_eq!(refused(&mut m, edit), EditError::Body);
        // What the body reads must stay.
        let mut edit = inline(&m, "i");
        edit.consume(producer(&m, "t"));
        edit.consume(producer(&m, "s"));
        edit.redefine(value(&m, "s"), value(&m, "x"));
        assert!(matches!(refused(&mut m, edit), EditError::Gone(_)));
    }

    #[test]
    fn what_a_nested_body_captures_must_stay() {
        let inner = |k: &str| graph(&[], &[], vec![node(&format!("b{k} = Neg(t)"))], &[&format!("b{k}")]);
        let then = graph(&[], &[], vec![if_node("n = If(p)", inner("1"), inner("2"))], &["n"]);
        let mut m = chosen(then, &["y"]);
        let mut edit = inline(&m, "i");
        edit.consume(producer(&m, "t"));
        assert!(matches!(refused(&mut m, edit), EditError::Gone(_)));
        // Unless it becomes something else.
        let mut edit = inline(&m, "i");
        edit.consume(producer(&m, "t"));
        edit.redefine(value(&m, "t"), value(&m, "x"));
        sound(&mut m, edit);
    }

    #[test]
    fn a_body_in_a_body_comes_out_one_step() {
        let inner = graph(&[], &["w: 3 4"], vec![node("b1 = Add(a, w)")], &["b1"]);
        let nested = if_node("n = If(p)", inner, graph(&[], &[], vec![], &["a"]));
        let then = graph(&[], &[], vec![node("a = Neg(t)"), nested], &["n"]);
        let mut m = chosen(then, &["y"]);
        let edit = inline(&m, "n");
        commit(&mut m, edit);
        let body = m.node(producer(&m, "i")).bodies().next().unwrap();
        assert_eq!(listing(&m, body), ["a = Neg(t)", "n = Add(a, w)"]);
        let edit = inline(&m, "i");
        commit(&mut m, edit);
        assert_eq!(listing(&m, m.main()), ["t = Relu(x)", "a = Neg(t)", "i = Add(a, w)", "y = Neg(i)"]);
    }

    #[test]
    fn functions_are_spliced_and_dropped() {
        let inner =
            |k: &str| graph(&[], &[], vec![node(&format!("b{k} = Add(u, z, v)"))], &[&format!("b{k}")]);
        let nodes = vec![node("u = Relu(v)"), if_node("n = If(q)", inner("1"), inner("2"))];
        let mut message =
            message(graph(&["x", "p"], &[], vec![node("t = F(x, p)"), node("y = F(t, p)")], &["y"]));
        message.functions = vec![function("F", &["v", "q", "z"], nodes, &["n"])];
        for call in &mut message.graph.as_mut().unwrap().node {
            call.domain = Some("local".into());
        }
        let mut m = loaded(&message);
        let scope = m.functions()[0];
        let mut edit = rewrite(&[]);
        edit.drop_function(scope);
        assert_eq!(refused(&mut m, edit), EditError::Called("F".into()));
        for name in ["t", "y"] {
            let call = producer(&m, name);
            let mut edit = rewrite(&[call]);
            let given: Vec<Operand> = m.node(call).inputs().iter().map(|&input| input.into()).collect();
            let results = edit.splice(&m, call, scope, &given, None, &|_| true).unwrap();
            edit.redefine(value(&m, name), results[0]);
            let at = commit(&mut m, edit);
            assert_eq!(m.journal()[at].nodes, 3);
        }
        let expected = ["u_1 = Relu(x)", "t = If(p)", "u_2 = Relu(t)", "y = If(p)"];
        assert_eq!(listing(&m, m.main()), expected);
        let body = m.node(producer(&m, "y")).bodies().next().unwrap();
        assert_eq!(listing(&m, body), ["b1_2 = Add(u_2, , t)"]);
        let relu = m.nodes_in(scope).next().unwrap().0;
        let mut edit = rewrite(&[]);
        edit.drop_function(scope);
        let at = commit(&mut m, edit);
        assert_eq!((m.journal()[at].nodes, m.functions().len()), (-4, 0));
        assert_eq!(fate(&m, relu), Fate::Merged(["u_1", "u_2"].map(|name| producer(&m, name)).to_vec()));
        let mut edit = rewrite(&[]);
        edit.drop_function(scope);
        assert!(matches!(refused(&mut m, edit), EditError::Gone(_)));
    }

    #[test]
    fn references_to_attributes_become_what_the_caller_gives() {
        let mut relu = node("y = LeakyRelu(v)");
        let refer = |name: &str, to: &str| onnxforge::proto::schema::AttributeProto {
            name: Some(name.into()),
            r#type: Some(1),
            ref_attr_name: Some(to.into()),
            ..Default::default()
        };
        relu.attribute = vec![refer("alpha", "slope"), refer("other", "nowhere")];
        let mut message = message(graph(&["x"], &[], vec![node("y = F(x)")], &["y"]));
        message.functions = vec![function("F", &["v"], vec![relu], &["y"])];
        message.functions[0].attribute = vec!["slope".into(), "nowhere".into()];
        message.graph.as_mut().unwrap().node[0].domain = Some("local".into());
        let mut m = loaded(&message);
        let (scope, call) = (m.functions()[0], m.nodes_in(m.main()).next().unwrap().0);
        let y = m.node(call).output(0).unwrap();
        let mut edit = rewrite(&[call]);
        let given = [("slope".into(), AttrValue::Float(0.5))].into();
        let results = edit.splice(&m, call, scope, &inputs(&m, &["x"]), Some(given), &|_| true).unwrap();
        edit.redefine(y, results[0]);
        commit(&mut m, edit);
        let node = m.node(m.value(y).node().unwrap());
        assert!(matches!(node.attr("alpha"), Some(AttrValue::Float(0.5))) && node.attrs().len() == 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn edits_keep_what_a_model_means(
        shape in prop::collection::vec(any::<u8>(), 0..200),
        edits in prop::collection::vec(any::<[u8; 4]>(), 0..25),
    ) {
        let mut choices = Choices(shape.iter());
        let mut m = model(random_graph(&mut choices, &["x".to_owned(), "p".to_owned()], 0, &mut 0));
        let expected = meaning(&m);
        for bytes in edits {
            if let Some(edit) = random_edit(&m, &mut Choices(bytes.iter())) {
                commit(&mut m, edit);
                prop_assert_eq!(meaning(&m), expected.clone());
            }
        }
    }
}
