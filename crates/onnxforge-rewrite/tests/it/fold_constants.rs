//! fold_constants: what it folds, what it leaves alone and why, and that nothing changes.

use std::collections::HashMap;

use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ir::{Accuracy, Model, NodeId};
use onnxforge_ops::eval::{Options, Session};
use onnxforge_ops::{Array, Value};
use onnxforge_proto::random::Random;
use onnxforge_proto::wire;
use onnxforge_rewrite::passes::pipeline::{self, optimize};
use onnxforge_rewrite::{Budget, Reason};
use onnxforge_testing::memory::peak;

fn model(text: &str) -> Model {
    let message = text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn graph(interface: &str, nodes: &str) -> Model {
    model(&format!("<ir_version: 10, opset_import: [\"\" : 21]>\ng {interface} {{\n{nodes}\n}}"))
}

fn ops(model: &Model) -> Vec<String> {
    model.nodes_in(model.main()).map(|(_, node)| node.op().to_string()).collect()
}

fn run(model: &Model) -> Vec<Vec<f64>> {
    let x = Array::new([2, 3], (0..6).map(|i| i as f32 / 4.0).collect::<Vec<_>>()).unwrap();
    let inputs: HashMap<String, Value> = model
        .scope(model.main())
        .inputs()
        .iter()
        .map(|port| (model.value(port.value).name().to_string(), x.clone().into()))
        .filter(|(name, _)| name == "x")
        .collect();
    let outputs = Session::new(model, Options::default()).run(&inputs).unwrap();
    outputs.iter().map(|(_, value)| value.array().unwrap().to_f64s().unwrap()).collect()
}

/// What folding did.
struct Report {
    folded: Vec<NodeId>,
    skipped: Vec<(NodeId, Reason)>,
    bytes: i64,
}

fn fold_constants(model: &mut Model, budget: &Budget) -> Report {
    let first = model.journal().len();
    let passes = vec![&onnxforge_rewrite::passes::simplify::fold_constants::PASS];
    let options = pipeline::Options { passes, budget: Some(budget.clone()), ..pipeline::Options::default() };
    let outcome = optimize(model, &options).passes.remove(0);
    let folded = model.journal()[first..].iter().flat_map(|entry| entry.consumed.clone()).collect();
    let skipped = outcome.skipped.iter().map(|skip| (skip.node, skip.reason.clone())).collect();
    Report { folded, skipped, bytes: outcome.bytes }
}

/// Folds, and checks that the model is sound and computes the same.
fn folded(mut model: Model, budget: &Budget) -> (Model, Report) {
    let before = run(&model);
    let report = fold_constants(&mut model, budget);
    model.validate().unwrap();
    assert_eq!(run(&model), before);
    let growth = budget.growth.saturating_add_signed(-report.bytes);
    let again = fold_constants(&mut model, &Budget { growth, ..budget.clone() });
    assert!(again.folded.is_empty(), "folding again finds more");
    (model, report)
}

fn skip(report: &Report, model: &Model, op: &str) -> Reason {
    let found = report.skipped.iter().find(|(id, _)| model.node(*id).op().is(op));
    found.unwrap_or_else(|| panic!("{op} was not skipped: {:?}", report.skipped)).1.clone()
}

const CHAIN: &str = "a = Constant <value_floats = [1.0, 2.0, 3.0]> ()
    b = Add (a, a)
    c = Unsqueeze (b, zero)
    d = Exp (c)
    y = Mul (x, d)";

#[test]
fn chains_of_constants_become_one() {
    let model = graph("(float[2,3] x) => (float[2,3] y) <int64[1] zero = {0}>", CHAIN);
    let (model, report) = folded(model, &Budget::default());
    assert_eq!(ops(&model), ["Mul"]);
    assert_eq!(report.folded.len(), 4);
    assert_eq!(model.constants_in(model.main()).count(), 1);
    let by_rule = |op: &str| {
        let id = report.folded.iter().find(|id| model.node(**id).op().is(op)).unwrap();
        let entry = model.journal().iter().find(|entry| entry.consumed.contains(id)).unwrap();
        assert_eq!((&*entry.pass, entry.nodes), ("fold_constants", -1));
        entry.accuracy
    };
    assert_eq!(by_rule("Add"), Accuracy::BitExact);
    assert_eq!(by_rule("Unsqueeze"), Accuracy::BitExact);
    assert!(matches!(by_rule("Exp"), Accuracy::Rounding { .. }));
}

#[test]
fn what_a_caller_can_override_is_no_constant() {
    let model =
        graph("(float[2,3] x, float[3] w = {1, 2, 3}) => (float[2,3] y)", "v = Neg (w)\n y = Add (x, v)");
    let (model, report) = folded(model, &Budget::default());
    assert_eq!(ops(&model), ["Neg", "Add"]);
    assert!(report.skipped.is_empty());
}

#[test]
fn random_results_stay_random() {
    let model = graph(
        "(float[2,3] x) => (float[2,3] y, int64[2] s)",
        "r = RandomNormal <shape = [2, 3]> ()\n z = Sub (r, r)\n s = Shape (z)\n y = Identity (x)",
    );
    let before = ops(&model);
    let (model, report) = folded(model, &Budget::default());
    assert_eq!(ops(&model), before);
    assert_eq!(skip(&report, &model, "RandomNormal"), Reason::Random);
}

#[test]
fn quantized_weights_stay_small() {
    let model = graph(
        "(float[2,3] x) => (float[2,3] y) <int8[3] q = {1, 2, 3}, float s = {0.5}>",
        "w = DequantizeLinear (q, s)\n y = Mul (x, w)",
    );
    let (model, report) = folded(model, &Budget::default());
    assert_eq!(ops(&model), ["DequantizeLinear", "Mul"]);
    assert_eq!(skip(&report, &model, "DequantizeLinear"), Reason::Dequantizes);
}

#[test]
fn the_model_does_not_grow_beyond_the_budget() {
    let text = "s = Constant <value_ints = [1000, 2, 3]> ()
        big = ConstantOfShape (s)
        z = Add (big, x)
        y = ReduceMax <keepdims = 0> (z)";
    let interface = "(float[2,3] x) => (float y)";
    let tight = Budget { growth: 10_000, ..Budget::default() };
    let (model, report) = folded(graph(interface, text), &tight);
    assert!(ops(&model).contains(&"ConstantOfShape".to_owned()));
    assert!(matches!(skip(&report, &model, "ConstantOfShape"), Reason::Growth(_)));
    let (model, _) = folded(graph(interface, text), &Budget::default());
    assert_eq!(ops(&model), ["Add", "ReduceMax"]);
    // Twice the budget: the second one does not fit.
    let twice = "s = Constant <value_ints = [1000, 2, 3]> ()
        a = ConstantOfShape (s)
        b = ConstantOfShape <value = float[1] {2.0}> (s)
        c = Add (a, x)
        d = Add (b, c)
        y = ReduceMax <keepdims = 0> (d)";
    let (model, report) = folded(graph(interface, twice), &Budget { growth: 30_000, ..Budget::default() });
    assert_eq!(ops(&model).iter().filter(|op| *op == "ConstantOfShape").count(), 1);
    assert!(report.bytes <= 30_000);
}

#[test]
fn outputs_become_constants_that_a_node_stores() {
    let model = graph(
        "(float[2,3] x) => (float[2,3] y, float[1] z, float[1] w)",
        "c = Constant <value_floats = [1.0]> ()\n z = Neg (c)\n w = Neg (z)\n y = Neg (x)",
    );
    let (model, report) = folded(model, &Budget::default());
    let mut left = ops(&model);
    left.sort();
    assert_eq!(left, ["Constant", "Constant", "Neg"]);
    assert!(report.skipped.is_empty());
}

#[test]
fn attributes_of_an_unknown_caller_are_not_defaults() {
    let text = "<ir_version: 10, opset_import: [\"\" : 21, \"d\" : 1]>
        g (float[2,3] x) => (float[2,3] y) { y = d.f <slope = 0.5> (x) }
        <domain: \"d\", opset_import: [\"\" : 21]>
        f <slope> (a) => (b) {
            c = Constant <value_floats = [-1.0]> ()
            e = LeakyRelu <alpha : float = @slope> (c)
            b = Mul (a, e)
        }";
    let (model, _) = folded(model(text), &Budget::default());
    let function = model.functions()[0];
    let left: Vec<String> = model.nodes_in(function).map(|(_, node)| node.op().to_string()).collect();
    // A function stores its constants as nodes.
    assert_eq!(left, ["Constant", "LeakyRelu", "Mul"]);
}

#[test]
fn bodies_are_folded_too() {
    let model = graph(
        "(float[2,3] x) => (float[2,3] y)",
        "n = Constant <value_int = 3> ()
         c = Constant <value = bool {1}> ()
         y = Loop <body = b (int64 i, bool k, float[2,3] v) => (bool k2, float[2,3] w) {
            one = Constant <value_float = 1.0> ()
            two = Add (one, one)
            k2 = Identity (k)
            w = Mul (v, two)
         }> (n, c, x)",
    );
    let (model, _) = folded(model, &Budget::default());
    let inner: Vec<String> = model.nodes().map(|(_, node)| node.op().to_string()).collect();
    assert_eq!(inner, ["Loop", "Identity", "Mul"]);
}

#[test]
fn large_weights_change_their_layout_only_when_they_are_written() {
    let mut random = Random::new(7);
    let (rows, columns) = (1024usize, 3 * 1024usize);
    let bytes: Vec<u8> = (0..rows * columns).flat_map(|_| (random.normal() as f32).to_le_bytes()).collect();
    let text = "<ir_version: 10, opset_import: [\"\" : 21]>
        g (float[2,3] x) => (float[2,1024] y, float[2,1024] z) <float[1024,3072] w = {0}, int64[3] s = {3, 1024, 1024}, int64[1] a = {0}> {
            t = Transpose (w)
            v = Slice (t, a, e)
            y = MatMul (x, v)
            r = Reshape (w, s)
            m = ReduceMax <keepdims = 0> (r, both)
            z = Add (y, m)
        }";
    let mut message =
        text::parse(&text.replace(
            "float[1024,3072] w = {0}",
            "float[1] w = {0}, int64[1] e = {3}, int64[2] both = {0, 1}",
        ))
        .unwrap();
    let weight = message
        .graph
        .as_mut()
        .unwrap()
        .initializer
        .iter_mut()
        .find(|t| t.name.as_deref() == Some("w"))
        .unwrap();
    weight.dims = vec![rows as i64, columns as i64];
    weight.float_data = Default::default();
    weight.raw_data = Some(onnxforge_proto::blob::Blob::from(bytes).into());
    let mut encoded = Vec::new();
    wire::encode(&message).write_to(&mut encoded).unwrap();
    let mut model = load_bytes(encoded, None, &Default::default()).unwrap();
    let before = run(&model);
    let budget = Budget { growth: 64 << 20, ..Budget::default() };
    // Only Transpose and Reshape: the others would compute.
    let (report, used) =
        peak(|| fold_constants(&mut model, &Budget { time: std::time::Duration::from_micros(1), ..budget }));
    assert_eq!(report.folded.len(), 2, "{:?}", report.skipped);
    assert!(used < 1 << 20, "{used} bytes were held");
    assert!(report.skipped.iter().all(|(_, skip)| *skip == Reason::Time));
    assert_eq!(run(&model), before);
}
