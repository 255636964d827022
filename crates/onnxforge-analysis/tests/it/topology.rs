//! Topology of models in memory: labels, edits, and pairs that only a proof tells apart.

use onnxforge_analysis::topology::{Sameness, Side, Topology, compare};
use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ir::{Accuracy, Model, Op, Rewrite};
use onnxforge_proto::wire;

fn model(inputs: &str, outputs: &str, body: &str) -> Model {
    let text =
        format!("<ir_version: 10, opset_import: [\"\" : 21]> g ({inputs}) => ({outputs}) {{ {body} }}");
    let message = text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn simple(body: &str) -> Model {
    model("float[2] x, bool c", "float[2] y", body)
}

fn compared(a: &Model, b: &Model) -> Topology {
    compare(a, b, &|_, _| None)
}

#[test]
fn differing_nodes_get_the_label_of_their_module() {
    let (a, b) = (simple("p = Neg (x)  y = Relu (p)"), simple("p = Neg (x)  y = Abs (p)"));
    let label = |side: Side, id| match side {
        Side::First => Some(format!("first.{}", a.node(id).op())),
        Side::Second => Some(format!("second.{}", b.node(id).op())),
    };
    let found = compare(&a, &b, &label).differences.unwrap();
    assert_eq!(found.first.first[0].module.as_deref(), Some("first.Relu"));
    assert_eq!(found.second.first[0].module.as_deref(), Some("second.Abs"));
    assert_eq!(found.first.first[0].close_to.as_deref(), Some("Abs y"));
}

#[test]
fn an_edited_model_is_compared_as_it_is_now() {
    let mut edited = simple("p = Neg (x)  y = Relu (p)");
    let (relu, node) = edited.nodes().find(|(_, node)| node.op().is("Relu")).unwrap();
    let (p, y) = (node.input(0), node.output(0).unwrap());
    let mut rewrite = Rewrite::new("test", "swap", Accuracy::BitExact, [relu]);
    let abs = rewrite.node(Op::standard("Abs"), [p.into()], 1, Vec::new());
    rewrite.redefine(y, abs.output(0));
    edited.commit(rewrite).unwrap();
    assert_eq!(compared(&edited, &simple("p = Neg (x)  y = Relu (p)")).sameness, Sameness::Different);
    assert!(compared(&edited, &simple("p = Neg (x)  y = Abs (p)")).sameness >= Sameness::Equal);
}

#[test]
fn every_value_computed_alike_does_not_make_models_equal() {
    let outputs = "float[2] y, float[2] z";
    let two = |body: &str| model("float[2] x", outputs, body);
    let shared = two("p = Neg (x)  q = Neg (x)  y = Add (p, q)  z = Sub (p, q)");
    let crossed = two("p = Neg (x)  q = Neg (x)  y = Add (p, q)  z = Sub (q, p)");
    let renamed = two("q = Neg (x)  p = Neg (x)  y = Add (q, p)  z = Sub (q, p)");
    let found = compared(&shared, &crossed);
    assert_eq!(found.sameness, Sameness::Different);
    assert!(found.differences.unwrap().conflict.is_some());
    assert_eq!(compared(&shared, &renamed).sameness, Sameness::Equal);
}

#[test]
fn captures_of_captures_are_followed() {
    let nested = |inner: &str| {
        simple(&format!(
            "p = Neg (x)  q = Abs (x)
             y = If <then_branch = t () => (float[2] r) {{
               r = If <then_branch = u () => (float[2] s) {{ s = Add ({inner}) }}, else_branch = v () => (float[2] w) {{ w = Exp (p) }}> (c)
             }}, else_branch = e () => (float[2] k) {{ k = Log (q) }}> (c)"
        ))
    };
    assert_eq!(compared(&nested("p, q"), &nested("p, q")).sameness, Sameness::Identical);
    let found = compared(&nested("p, q"), &nested("q, p"));
    assert_eq!(found.sameness, Sameness::Different);
    let first = &found.differences.unwrap().first.first[0];
    assert_eq!((first.op.as_str(), first.within.as_deref()), ("Add", Some("If r")));
}

#[test]
fn branches_are_not_exchanged() {
    let branches = |then: &str, other: &str| {
        simple(&format!(
            "y = If <then_branch = t () => (float[2] p) {{ p = {then} (x) }}, else_branch = e () => (float[2] q) {{ q = {other} (x) }}> (c)"
        ))
    };
    let found = compared(&branches("Neg", "Abs"), &branches("Abs", "Neg"));
    assert_eq!(found.sameness, Sameness::Different);
    assert_eq!(found.differences.unwrap().nodes_without_partner, [3, 3]);
}
