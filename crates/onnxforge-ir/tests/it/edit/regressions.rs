//! Edits that must be refused, or made right.

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
    let nodes =
        vec![node("t = Relu(x)"), if_node("i = If(p)", then, other), node("r = Abs(i)"), node("z = Neg(r)")];
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
