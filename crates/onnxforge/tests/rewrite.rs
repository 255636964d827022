//! The engine: what the driver refuses, whatever a rule wants, and what patterns match.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use onnxforge::infer::Inference;
use onnxforge::io::load_bytes;
use onnxforge::ir::edit::Operand;
use onnxforge::ir::{Accuracy, DType, Model, NodeId, Tensor};
use onnxforge::proto::wire;
use onnxforge::rewrite::{At, Budget, Change, Cx, Fusion, Pattern, Reason, Rule, Skip, Workbench};
use onnxforge::text;

fn graph(opset: u32, text: &str) -> Model {
    let text = format!("<ir_version: 10, opset_import: [\"\" : {opset}]>\n{text}");
    let message = text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn ops(model: &Model) -> Vec<String> {
    model.nodes().map(|(_, node)| node.op().to_string()).collect()
}

/// Applies the rule everywhere; how often it fired and why not elsewhere.
fn apply(model: &mut Model, rule: &dyn Rule, budget: Budget) -> (usize, Vec<Reason>) {
    let facts = Inference::of(model);
    let mut bench = Workbench::new(model, facts, budget);
    let (mut skipped, nodes) = (Vec::new(), bench.worklist(None));
    let fired = bench.rewrite("test", &[rule], nodes, &mut skipped);
    model.validate().unwrap();
    (fired, skipped.into_iter().map(|skip| skip.reason).collect())
}

const fn at(apply: fn(&Cx<'_>, NodeId) -> Result<Change, Skip>) -> At {
    At { name: "rule", accuracy: Accuracy::BitExact, ops: &["Relu"], apply }
}

/// Replaces a Relu by a call of `op` on its input.
fn by(cx: &Cx<'_>, node: NodeId, op: &str, more: &[Operand]) -> Result<Change, Skip> {
    let mut change = cx.change(&[node]);
    let inputs = std::iter::once(cx.input(node, 0)?.into()).chain(more.iter().copied());
    let new = change.call(onnxforge::ir::Op::standard(op), inputs, 1, []);
    change.replace(cx.output(node)?, new.output(0));
    Ok(change)
}

const RELU: &str = "g (float[N,3] x) => (float[N,3] y) { a = Relu(x)  y = Neg(a) }";

#[test]
fn a_change_of_shape_is_refused() {
    static RULE: At = at(|cx, node| by(cx, node, "Transpose", &[]));
    let mut model = graph(21, RELU);
    let (fired, reasons) = apply(&mut model, &RULE, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::ShapeChanges]));
    assert_eq!(ops(&model), ["Relu", "Neg"]);
    // A square of known size keeps its shape, and what the rule says is then the rule's own business.
    let mut model = graph(21, "g (float[3,3] x) => (float[3,3] y) { a = Relu(x)  y = Neg(a) }");
    assert_eq!(apply(&mut model, &RULE, Budget::default()).0, 1);
}

#[test]
fn a_change_of_type_is_refused() {
    static RULE: At = at(|cx, node| by(cx, node, "IsNaN", &[]));
    let (fired, reasons) = apply(&mut graph(21, RELU), &RULE, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::TypeChanges]));
}

#[test]
fn an_operator_that_the_opset_does_not_have_is_refused() {
    static RULE: At = at(|cx, node| by(cx, node, "Gelu", &[]));
    assert_eq!(apply(&mut graph(20, RELU), &RULE, Budget::default()).0, 1);
    let (fired, reasons) = apply(&mut graph(19, RELU), &RULE, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::Opset { op: "Gelu".into(), opset: 19 }]));
}

#[test]
fn inputs_and_attributes_that_the_signature_does_not_have_are_refused() {
    static TOO_MANY: At = at(|cx, node| {
        let x = cx.input(node, 0)?.into();
        by(cx, node, "Exp", &[x])
    });
    let (fired, reasons) = apply(&mut graph(21, RELU), &TOO_MANY, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::Opset { op: "Exp".into(), opset: 21 }]));
    static ATTRIBUTE: At = at(|cx, node| {
        let mut change = cx.change(&[node]);
        let new = change.op("Exp", [cx.input(node, 0)?.into()], [("allowzero", 1).into()]);
        change.replace(cx.output(node)?, new);
        Ok(change)
    });
    let (fired, reasons) = apply(&mut graph(21, RELU), &ATTRIBUTE, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::Opset { op: "Exp".into(), opset: 21 }]));
}

#[test]
fn constants_grow_within_the_budget_only() {
    static RULE: At = at(|cx, node| {
        let mut change = cx.change(&[node]);
        let zeros = Tensor::from_bytes(DType::F32, [1, 3], vec![0; 12]).unwrap();
        let zeros = change.constant("zeros", zeros);
        let sum = change.op("Add", [cx.input(node, 0)?.into(), zeros], []);
        change.replace(cx.output(node)?, sum);
        Ok(change)
    });
    let twice = "g (float[N,3] x) => (float[N,3] y) { a = Relu(x)  y = Relu(a) }";
    for (growth, fires) in [(24, 2), (23, 1), (11, 0)] {
        let (fired, reasons) = apply(&mut graph(21, twice), &RULE, Budget { growth, ..Budget::default() });
        assert_eq!(fired, fires, "{growth}");
        assert!(reasons.iter().all(|reason| *reason == Reason::Growth(12)));
    }
    assert_eq!(apply(&mut graph(21, twice), &RULE, Budget { edits: 1, ..Budget::default() }).0, 1);
}

#[test]
fn what_a_change_orphans_goes_with_it() {
    static RULE: At = at(|cx, node| {
        let (first, _) = cx.model.nodes().next().unwrap();
        cx.forward(node, cx.output(first)?)
    });
    let text = "g (float[N] x) => (float[N] y) <float[1] w = {1}, float[1] v = {2}> {
        first = Neg(x)  b = Mul(x, w)  c = Add(b, v)  d = Relu(c)  y = Abs(d) }";
    let mut model = graph(21, text);
    assert_eq!(apply(&mut model, &RULE, Budget::default()).0, 1);
    assert_eq!(ops(&model), ["Neg", "Abs"]);
    assert_eq!(model.constants_in(model.main()).count(), 0);
    assert_eq!(model.journal()[0].nodes, -3);
    assert_eq!(model.journal()[0].bytes, -8);
    assert_eq!(model.fates().len(), 5);
}

static SILU: Fusion<2> = Fusion {
    name: "silu",
    accuracy: Accuracy::Rounding { ulps: 4.0 },
    from: Pattern::new("s = Sigmoid(x)  y = Mul(x, s)"),
    vars: ["x", "y"],
    to: |_, change, [x, y]| {
        let new = change.op("Softsign", [x.into()], []);
        change.replace(y, new);
        Ok(())
    },
};

fn silu(text: &str) -> (usize, Vec<Reason>) {
    apply(&mut graph(21, text), &SILU, Budget::default())
}

#[test]
fn patterns_match_in_either_order_and_only_whole() {
    assert_eq!(silu("g (float[N] x) => (float[N] y) { s = Sigmoid(x)  y = Mul(x, s) }").0, 1);
    assert_eq!(silu("g (float[N] x) => (float[N] y) { s = Sigmoid(x)  y = Mul(s, x) }").0, 1);
    // Another value than the one that the Sigmoid reads.
    assert_eq!(
        silu("g (float[N] x, float[N] z) => (float[N] y) { s = Sigmoid(x)  y = Mul(z, s) }"),
        (0, vec![])
    );
    // The value in between is read elsewhere, or is an output.
    let text = "g (float[N] x) => (float[N] y, float[N] z) { s = Sigmoid(x)  y = Mul(x, s)  z = Neg(s) }";
    assert_eq!(silu(text), (0, vec![Reason::ReadElsewhere]));
    let text = "g (float[N] x) => (float[N] y, float[N] s) { s = Sigmoid(x)  y = Mul(x, s) }";
    assert_eq!(silu(text), (0, vec![Reason::ReadElsewhere]));
    // From a body: not the same scope.
    let text = "g (float[N] x, bool c) => (float[N] y) { s = Sigmoid(x)
        y = If<then_branch = t () => (float[N] a) { a = Mul(x, s) }, else_branch = e () => (float[N] b) { b = Neg(x) }>(c) }";
    assert_eq!(silu(text), (0, vec![]));
}

#[test]
fn attributes_that_a_pattern_does_not_name_have_their_defaults() {
    static RULE: Fusion<2> = Fusion {
        name: "gemm",
        accuracy: Accuracy::BitExact,
        from: Pattern::new("y = Gemm<transA = 0>(a, b, $c)"),
        vars: ["a", "y"],
        to: |_, change, [a, y]| {
            let new = change.op("Neg", [a.into()], []);
            change.replace(y, new);
            Ok(())
        },
    };
    let fired = |attributes: &str, bias: &str| {
        let text = format!(
            "g (float[2,2] x, float[2,2] z, float[2] d) => (float[2,2] y) <float[2] c = {{1, 2}}> {{ y = Gemm{attributes}(x, z, {bias}) }}"
        );
        apply(&mut graph(21, &text), &RULE, Budget::default())
    };
    assert_eq!(fired("", "c").0, 1);
    assert_eq!(fired("<alpha = 1.0, transA = 0>", "c").0, 1);
    assert_eq!(fired("<alpha = 2.0>", "c").0, 0);
    assert_eq!(fired("<transA = 1>", "c"), (0, vec![Reason::Attribute("transA")]));
    assert_eq!(fired("", "d"), (0, vec![Reason::NotConstant]));
}

#[test]
fn operators_of_a_version_that_nobody_knows_stay() {
    static RULE: At = at(|cx, node| by(cx, node, "Abs", &[]));
    assert_eq!(apply(&mut graph(21, RELU), &RULE, Budget::default()).0, 1);
    assert_eq!(apply(&mut graph(99, RELU), &RULE, Budget::default()), (0, vec![]));
}

#[test]
fn an_element_type_that_the_operator_does_not_have_is_refused() {
    static RULE: At = at(|cx, node| by(cx, node, "Exp", &[]));
    let text = "g (int32[N] x) => (int32[N] y) { a = Relu(x)  y = Neg(a) }";
    let (fired, reasons) = apply(&mut graph(21, text), &RULE, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::Opset { op: "Exp".into(), opset: 21 }]));
}
