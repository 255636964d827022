//! The engine: what the driver refuses, whatever a rule wants.

use onnxforge_ir::edit::Operand;
use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::{Accuracy, DType, Model, NodeId, Tensor, Trust, Type};
use onnxforge_ops::infer::Inference;
use onnxforge_proto::wire;
use onnxforge_rewrite::passes::pipeline;
use onnxforge_rewrite::{At, Author, Budget, Change, Cx, Reason, Rule, Skip, Workbench};

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

/// The rules here may say that what they make is the same call.
const AUTHOR: Author = Author { name: "test", trusts: &[Trust::SameCall] };

/// Applies the rule everywhere; how often it fired and why not elsewhere.
fn apply(model: &mut Model, rule: &dyn Rule, budget: Budget) -> (usize, Vec<Reason>) {
    let facts = Inference::of(model);
    let mut bench = Workbench::new(model, facts, budget);
    let (mut skipped, nodes) = (Vec::new(), bench.worklist(None));
    let fired = bench.rewrite(AUTHOR, &[rule], nodes, &mut skipped);
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
    let new = change.call(onnxforge_ir::Op::standard(op), inputs, 1, []);
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

/// A change by `make` that gives this argument for types and shapes.
fn trusting(trust: Trust, make: impl FnOnce() -> Result<Change, Skip>) -> Result<Change, Skip> {
    let mut change = make()?;
    change.trust(trust);
    Ok(change)
}

#[test]
fn an_argument_counts_only_where_nothing_is_known() {
    static NEG: At = at(|cx, node| trusting(Trust::SameCall, || by(cx, node, "Neg", &[])));
    // Proved: nothing is trusted.
    let mut model = graph(21, RELU);
    assert_eq!(apply(&mut model, &NEG, Budget::default()).0, 1);
    assert_eq!(model.journal()[0].trusted, None);
    // Not known: the argument is needed, and the journal names it.
    let unranked = "g (float[] x) => (float[] y) { a = Relu(x)  y = Neg(a) }";
    let mut model = graph(21, unranked);
    assert_eq!(apply(&mut model, &NEG, Budget::default()).0, 1);
    assert_eq!(model.journal()[0].trusted, Some(Trust::SameCall));
    static PLAIN: At = at(|cx, node| by(cx, node, "Neg", &[]));
    let (fired, reasons) = apply(&mut graph(21, unranked), &PLAIN, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::ShapeChanges]));
}

#[test]
fn no_argument_counts_against_what_is_known() {
    static IS_NAN: At = at(|cx, node| trusting(Trust::SameCall, || by(cx, node, "IsNaN", &[])));
    let unranked = "g (float[] x) => (float[] y) { a = Relu(x)  y = Neg(a) }";
    for text in [RELU, unranked] {
        let (fired, reasons) = apply(&mut graph(21, text), &IS_NAN, Budget::default());
        assert_eq!((fired, reasons), (0, vec![Reason::TypeChanges]));
    }
    static TRANSPOSE: At = at(|cx, node| trusting(Trust::SameCall, || by(cx, node, "Transpose", &[])));
    let wide = "g (float[0,3] x) => (float[0,3] y) { a = Relu(x)  y = Neg(a) }";
    let (fired, reasons) = apply(&mut graph(21, wide), &TRANSPOSE, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::ShapeChanges]));
    static SHAPE: At = at(|cx, node| {
        trusting(Trust::SameCall, || {
            let mut change = cx.change(&[node]);
            let size = change.op("Size", [cx.input(node, 0)?.into()], []);
            let size = change.op("Cast", [size], [("to", i64::from(DType::F32.code())).into()]);
            change.replace(cx.output(node)?, size);
            Ok(change)
        })
    });
    let (fired, reasons) = apply(&mut graph(21, RELU), &SHAPE, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::ShapeChanges]));
}

#[test]
fn an_argument_that_is_not_declared_is_refused() {
    static RULE: At = at(|cx, node| trusting(Trust::Evaluated, || by(cx, node, "Neg", &[])));
    let (fired, reasons) = apply(&mut graph(21, RELU), &RULE, Budget::default());
    assert_eq!((fired, reasons), (0, vec![Reason::Undeclared(Trust::Evaluated)]));
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

#[test]
fn attention_is_told_the_widths_that_runtimes_cannot_derive() {
    let text = |target: &str| {
        let nodes = format!("b = Reshape(v, {target})  a = Cast<to = 1>(b)  i = Identity(a)");
        let attention = "Attention<q_num_heads = 4, kv_num_heads = 4>(q, i, i)";
        let sizes = "n = Shape<end = 2>(q)  t = Concat<axis = 0>(n, w)";
        let inputs = "g (float[N,M,64] q, float16[R,64] v) => (float[N,M,64] y) <int64[1] w = {64}, int64[3] c = {2, -1, 64}>";
        format!("{inputs} {{ {sizes}  {nodes}  y = {attention} }}")
    };
    for (target, told) in [("t", true), ("c", false)] {
        let mut model = graph(23, &text(target));
        pipeline::optimize(&mut model, &pipeline::Options::default());
        let (_, attention) = model.nodes().find(|(_, node)| node.op().is("Attention")).unwrap();
        let declared = model.declared_type(attention.input(2).unwrap());
        let width = match declared {
            Type::Tensor(_, Some(shape)) => shape.last().cloned(),
            _ => None,
        };
        assert_eq!(width, told.then_some(DeclaredDim::Size(64)), "{target}");
    }
}
