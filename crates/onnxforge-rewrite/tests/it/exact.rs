//! Only edits that keep every bit.

use onnxforge_ir::io::load_bytes;
use onnxforge_ir::{Accuracy, Model, NodeId, Op, Rewrite, text};
use onnxforge_proto::wire;
use onnxforge_rewrite::passes::pipeline::{self, Outcome, optimize};
use onnxforge_rewrite::{Reason, upgrade};

fn model(interface: &str, nodes: &str) -> Model {
    let text = format!("<ir_version: 10, opset_import: [\"\" : 21]>\ng {interface} {{\n{nodes}\n}}");
    let mut bytes = Vec::new();
    wire::encode(&text::parse(&text).unwrap()).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap()
}

fn optimized(interface: &str, nodes: &str, exact: bool) -> (Vec<String>, Outcome) {
    let mut model = model(interface, nodes);
    let outcome = optimize(&mut model, &pipeline::Options { exact, ..pipeline::Options::default() });
    assert!(!exact || model.journal().iter().all(|entry| entry.accuracy == Accuracy::BitExact));
    (model.nodes_in(model.main()).map(|(_, node)| node.op().to_string()).collect(), outcome)
}

fn reasons(outcome: &Outcome) -> Vec<Reason> {
    outcome.passes.iter().flat_map(|pass| pass.skipped.iter().map(|skip| skip.reason.clone())).collect()
}

#[test]
fn one_rule_both_rounds_and_folds() {
    let graph = "a = Constant <value_floats = [1.0, 2.0, 3.0]> ()
        b = Add (a, a)
        c = Exp (b)
        y = Mul (x, c)";
    let interface = "(float[2,3] x) => (float[2,3] y)";
    assert_eq!(optimized(interface, graph, false).0, ["Mul"]);
    let (ops, outcome) = optimized(interface, graph, true);
    assert_eq!(ops, ["Exp", "Mul"]);
    assert!(reasons(&outcome).contains(&Reason::NotExact));
}

/// Runtimes compute a product with an operand that is stored by another kernel than with one that is computed.
#[test]
fn operands_of_products_do_not_become_stored() {
    let interface =
        "(float[N,2,3] x) => (float[N,2,4] y, float[3,4] z) <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}>";
    let graph = "t = Transpose <perm = [1, 0]> (w)
        y = MatMul (x, t)
        i = Identity (w)
        u = Transpose <perm = [1, 0]> (i)
        z = Neg (u)";
    assert_eq!(optimized(interface, graph, false).0, ["MatMul", "Constant"]);
    let (ops, outcome) = optimized(interface, graph, true);
    assert_eq!(ops, ["Transpose", "MatMul", "Constant"]);
    assert!(reasons(&outcome).contains(&Reason::Packed));
}

/// What is stored already stays so, also as a Constant, in a function and in a body.
#[test]
fn stored_operands_stay_stored() {
    let interface = "(float[2,3] x) => (float[2,4] y)";
    let graph = "w = Constant <value = float[3,4] {1,2,3,4,5,6,7,8,9,10,11,12}> ()
        i = Identity (x)
        y = MatMul (i, w)";
    assert_eq!(optimized(interface, graph, true).0, ["MatMul"]);
    let branches = "yes = Constant <value = bool {1}> ()
        w = Constant <value = float[3,4] {1,2,3,4,5,6,7,8,9,10,11,12}> ()
        y = If (yes) <
            then_branch = a () => (float[2,4] p) { p = MatMul (x, w) },
            else_branch = b () => (float[2,4] q) { r = MatMul (x, w)  q = Neg (r) }
        >";
    assert_eq!(optimized(interface, branches, true).0, ["MatMul"]);
}

/// Every adapter of today keeps every bit. One that declares something else is refused where that matters.
#[test]
fn conversions_that_round_are_refused() {
    for (accuracy, is_exact) in [(Accuracy::BitExact, true), (Accuracy::ValueExact, false)] {
        let mut model = model("(float[2] x) => (float[2] y)", "y = Relu (x)");
        let relu: Vec<NodeId> = model.nodes().map(|(id, _)| id).collect();
        let (x, y) = (model.node(relu[0]).input(0).unwrap(), model.node(relu[0]).output(0).unwrap());
        let mut rewrite = Rewrite::new(upgrade::AUTHOR.name, "step", accuracy, relu);
        let new = rewrite.node(Op::standard("Relu"), [x.into()], 1, Vec::new());
        rewrite.redefine(y, new.output(0));
        model.commit(rewrite).unwrap();
        assert_eq!(upgrade::bit_exact(&model).is_ok(), is_exact);
    }
}
