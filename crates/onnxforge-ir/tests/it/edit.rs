//! The editing door: what a rewrite may do, what it may not, and what holds after every one of them.
//! `PROPTEST_CASES` sets the number of random models.

mod regressions;
mod splices;

use onnxforge_ir::origin::Fate;
use onnxforge_ir::{Accuracy, Attr, AttrValue, EditError, Model, NodeId, Op, Operand, Rewrite, Tensor};
use onnxforge_proto::schema::ValueInfoProto;
use onnxforge_testing::cases;
use onnxforge_testing::choices::Choices;
use proptest::prelude::*;

use crate::common::random::{meaning, random_edit, random_graph};
use crate::common::*;

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
    use onnxforge_proto::schema::TensorAnnotation;
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
