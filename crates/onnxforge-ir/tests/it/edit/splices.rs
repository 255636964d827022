//! The nodes of bodies and functions become nodes of the graph.

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

fn other() -> onnxforge_proto::schema::GraphProto {
    graph(&[], &["l: 7 7 7"], vec![node("o = Mul(x, l)")], &["o"])
}

fn chosen(then: onnxforge_proto::schema::GraphProto, outputs: &[&str]) -> Model {
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
        let nodes = vec![node("t = Relu(x)"), held.clone(), node("m = Sum(i, j, k, l)"), node("y = Abs(m)")];
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
    let inner = |k: &str| graph(&[], &[], vec![node(&format!("b{k} = Add(u, z, v)"))], &[&format!("b{k}")]);
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
    let refer = |name: &str, to: &str| onnxforge_proto::schema::AttributeProto {
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
