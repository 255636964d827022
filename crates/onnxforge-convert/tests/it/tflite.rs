//! Models as files of TensorFlow Lite: what is read back computes the same.

use std::collections::HashMap;
use std::path::Path;

use onnxforge_convert::{ChannelsLast, Format, Layout, Refusals, Settings, Summary, Weights, tflite};
use onnxforge_ir::io::load_bytes;
use onnxforge_ir::{Model, text};
use onnxforge_ops::eval::sample::{self, sample};
use onnxforge_ops::eval::{self, Session};
use onnxforge_ops::{Array, Value};
use onnxforge_proto::blob::{Blob, Payload};
use onnxforge_proto::wire;
use onnxforge_rewrite::passes::pipeline;

pub fn model(graph: &str) -> Model {
    model_of(graph, 21)
}

/// The model of a graph that calls operators of this version.
pub fn model_of(graph: &str, opset: u32) -> Model {
    let header = format!("<ir_version: 10, opset_import: [\"\" : {opset}]>\n");
    let message = text::parse(&format!("{header}{graph}")).unwrap_or_else(|error| panic!("{error}\n{graph}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap_or_else(|error| panic!("{error}\n{graph}"))
}

pub fn bytes(pieces: &[Payload]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pieces.iter().for_each(|piece| piece.write_to(&mut bytes).unwrap());
    bytes
}

pub fn legalized(model: &Model, format: Format) -> Model {
    let mut model = model.clone();
    let passes = format.target().passes().collect();
    pipeline::optimize(&mut model, &pipeline::Options { passes, ..Default::default() });
    model
}

pub fn converted(model: &Model) -> Result<Vec<u8>, Refusals> {
    let artifact = Format::TfLite.lower(&legalized(model, Format::TfLite), &Settings::default())?;
    assert_eq!(artifact.parts.len(), 1);
    Ok(bytes(&artifact.parts[0].pieces))
}

pub fn read(bytes: Vec<u8>) -> Model {
    let source = tflite::decode(&Blob::from(bytes), Path::new("x.tflite"));
    source.and_then(onnxforge_ir::io::Source::into_model).unwrap_or_else(|error| panic!("{error}"))
}

pub fn run(model: &Model, inputs: &HashMap<String, Value>) -> Vec<(std::sync::Arc<str>, Value)> {
    Session::new(model, eval::Options::default()).run(inputs).unwrap_or_else(|error| panic!("{error}"))
}

pub fn numbers(value: &Value) -> &Array {
    match value {
        Value::Tensor(array) => array,
        other => panic!("{other:?}"),
    }
}

/// Converts a graph, reads the file back, and runs both at two sizes.
fn comes_back(graph: &str) {
    let model = model(graph);
    let file = converted(&model).unwrap_or_else(|refusals| panic!("{graph}\n{refusals}"));
    assert_eq!(file, converted(&model).unwrap(), "the same bytes each time");
    compares(graph, &model, &read(file));
}

/// Runs a model and what came back at two sizes.
pub fn compares(graph: &str, model: &Model, back: &Model) {
    for round in 0..2u64 {
        let dims = ["N", "S", "H", "W"].iter().zip([[1, 3], [5, 2], [4, 7], [6, 5]]);
        let dims = dims.map(|(name, sizes)| ((*name).to_owned(), sizes[round as usize])).collect();
        let options = sample::Options { seed: round, dims, ..Default::default() };
        let inputs = sample(model, &options, &HashMap::new()).unwrap();
        let (before, after) = (run(model, &inputs), run(back, &inputs));
        assert_eq!(before.len(), after.len(), "{graph}");
        for ((name, a), (same, b)) in before.iter().zip(&after) {
            assert_eq!(name, same);
            close(numbers(a), numbers(b)).unwrap_or_else(|why| panic!("{name} of {graph}: {why}"));
        }
    }
}

/// Whether two arrays are the same up to rounding.
pub fn close(a: &Array, b: &Array) -> Result<(), String> {
    if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
        return Err(format!(
            "{} {:?} became {} {:?}",
            a.dtype().name(),
            a.shape(),
            b.dtype().name(),
            b.shape()
        ));
    }
    let (x, y) = (a.to_f64s().unwrap(), b.to_f64s().unwrap());
    let scale = x.iter().filter(|x| x.is_finite()).fold(1e-9, |scale: f64, x| scale.max(x.abs()));
    let same = |(x, y): (&f64, &f64)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-5 * scale;
    if x.iter().zip(&y).all(same) { Ok(()) } else { Err(format!("{x:?} became {y:?}")) }
}

fn refused(graph: &str) -> Vec<(String, String)> {
    let refusals = converted(&model(graph)).expect_err(graph);
    refusals.0.into_iter().map(|refusal| (refusal.operator, refusal.reason)).collect()
}

#[test]
fn layers() {
    let weights = "float[2,2,3,3] w = {1, 0.5, -1, 2, -0.5, 0.25, 1.5, -2, 1, 0.5, -1, 2, -0.5, 0.25, 1.5, -2, 1, 0.5, -1, 2, -0.5, 0.25, 1.5, -2, 1, 0.5, -1, 2, -0.5, 0.25, 1.5, -2, 1, 0.5, -1, 2}";
    comes_back(&format!(
        "g (float[N,2,H,W] x) => (float[N,2,H,W] y) <{weights}, float[2] b = {{1, 0.5}}> {{ c = Conv<pads=[1,1,1,1]>(x, w, b)  y = Relu(c) }}"
    ));
    comes_back(&format!(
        "g (float[N,2,8,8] x) => (float[N,2,4,4] y) <{weights}> {{ y = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w) }}"
    ));
    comes_back(
        "g (float[N,2,8,8] x) => (float[N,4,8,8] y) <float[4,1,1,1] w = {1, 0.5, -1, 2}> { y = Conv<group=2>(x, w) }",
    );
    comes_back(
        "g (float[N,4,3,3] x) => (float[N,2,3,3] y) <float[2,2,1,1] w = {1, 0.5, -1, 2}> { y = Conv<group=2>(x, w) }",
    );
    comes_back("g (float[N,2,S] x) => (float[N,1,S] y) <float[1,2,1] w = {1, 0.5}> { y = Conv(x, w) }");
    comes_back(
        "g (float[2,2,3,3] x) => (float[2,1,5,5] y) <float[2,1,2,2] w = {1, 0.5, -1, 2, 3, -2, 0.5, 1}> { y = ConvTranspose<strides=[2,2], pads=[0,1,1,0]>(x, w) }",
    );
    comes_back(
        "g (float[N,2,6,6] x) => (float[N,2,3,3] y, float[N,2,6,6] z) { y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,0,0]>(x)  z = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x) }",
    );
    comes_back(
        "g (float[N,S,3] x) => (float[N,S,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}> { p = MatMul(x, w)  y = Add(p, b) }",
    );
    comes_back("g (float[N,S,S] x) => (float[N,S,S] y) { t = Transpose<perm=[0,2,1]>(x)  y = MatMul(t, t) }");
    comes_back("g (float[N,2,S,3] x, float[N,1,3,4] w) => (float[N,2,S,4] y) { y = MatMul(x, w) }");
    comes_back(
        "g (float[N,2,H,W] x) => (float[N,2,A,B] y) <float[4] s = {1, 1, 2, 2}> { y = Resize<mode=\"linear\", coordinate_transformation_mode=\"half_pixel\">(x, , s) }",
    );
    comes_back(
        "g (float[N,3,H,W] x) => (float[N,3,1,1] y, float[N,3] z) <int64[2] a = {2, 3}> { y = GlobalAveragePool(x)  z = ReduceMax<keepdims=0>(x, a) }",
    );
}

#[test]
fn arithmetic() {
    comes_back(
        "g (float[N,3] x, float[3] y) => (float[N,3] z) { a = Add(x, y)  b = Mul(a, x)  c = Sub(b, y)  d = Div(c, x)  e = Tanh(d)  f = Sigmoid(e)  z = Max(f, x, a) }",
    );
    comes_back(
        "g (float[N,3] x) => (float[N,3] y, float[N,3] z, bool[N,3] n) <float two = {2}, float low = {-0.5}, float high = {0.25}> { y = Pow(x, two)  z = Clip(x, low, high)  n = IsNaN(x) }",
    );
    comes_back(
        "g (float[N,3] x) => (float[N,3] a, float[N,3] b, float[N,3] c, float[N,3] d, float[N,3] e) { a = Gelu(x)  b = Gelu<approximate=\"tanh\">(x)  c = HardSwish(x)  d = HardSigmoid(x)  e = LeakyRelu<alpha=0.2>(x) }",
    );
    comes_back(
        "g (float[N,3,S] x, float[S] s, float[S] b) => (float[N,3,S] y, float[N,3,S] z) { y = LayerNormalization(x, s, b)  z = Softmax<axis=1>(x) }",
    );
    comes_back(
        "g (float[N,3] x, float[N,3] y) => (bool[N,3] a, bool[N,3] b, float[N,3] c) { l = Less(x, y)  e = Equal(x, y)  a = Or(l, e)  b = Not(a)  c = Where(b, x, y) }",
    );
    comes_back(
        "g (int64[N,3] x) => (float[N,3] y, int64[N,3] z) <int64 axis = {1}> { y = Cast<to=1>(x)  z = CumSum(x, axis) }",
    );
}

/// Graphs whose shapes follow from sizes that are not known.
pub const OPEN_SHAPES: [&str; 7] = [
    "g (float[N,S,6] x) => (float[N,2,S,3] y) <int64[4] s = {0, 0, 2, 3}> { r = Reshape(x, s)  y = Transpose<perm=[0,2,1,3]>(r) }",
    "g (float[N,S,6] x) => (float[S,N,2,3] y) { h = Shape<start=1, end=2>(x)  b = Shape<start=0, end=1>(x)  c = Constant<value_ints=[2,3]>()  s = Concat<axis=0>(h, b, c)  t = Transpose<perm=[1,0,2]>(x)  y = Reshape(t, s) }",
    "g (float[N,S] x) => (float[N,1,S,1] y, float[N,S] z) <int64[2] a = {1, 3}> { y = Unsqueeze(x, a)  z = Squeeze(y, a) }",
    "g (float[N,1] x, float[N,S] like) => (float[N,S] y) { s = Shape(like)  y = Expand(x, s) }",
    "g (float[N,S] x) => (int64[S] y) { n = Shape<start=1>(x)  i = Constant<value_int=0>()  z = Constant<value_int=1>()  e = Squeeze(n)  y = Range(i, e, z) }",
    "g (float[N,3,S] x) => (float[N,2,S] y, float[N,3,S] z) <int64[1] b = {-1}, int64[1] e = {-9223372036854775807}, int64[1] a = {1}, int64[1] s = {-1}, int64[1] zero = {0}, int64[1] two = {2}> { y = Slice(x, zero, two, a)  z = Slice(x, b, e, a, s) }",
    "g (float[N,S] x, float[1,9] table) => (float[1,S] y) <int64[1] zero = {0}, int64[1] one = {1}> { n = Shape<start=1>(x)  y = Slice(table, zero, n, one) }",
];

#[test]
fn shapes_that_are_not_known() {
    OPEN_SHAPES.iter().for_each(|graph| comes_back(graph));
}

#[test]
fn choices() {
    comes_back(
        "g (float[4,S] x) => (float[2,S] y, float[S] z) <int64[2] i = {-1, 0}, int64 j = {1}> { y = Gather(x, i)  z = Gather(x, j) }",
    );
    // Computed places may be negative.
    let (_, summary) = written(
        "g (float[4,S] x, int64[2] i) => (float[2,S] y, float[4] z) <int64 one = {1}> { y = Gather(x, i)  j = Sub(one, one)  z = Gather<axis=1>(x, j) }",
        &Settings::default(),
    );
    assert_eq!(summary.operators.get("FLOOR_MOD"), Some(&1));
    comes_back(
        "g (float[4,S] x, float[S,4] v, float[N,3] l) => (float[N,S] y, float[N] z, float[N,4] u) <int64 four = {4}, int64 one = {1}, int64 zero = {0}, int64[1] a = {1}> { m = ArgMax<axis=1, keepdims=0>(l)  i = Sub(m, four)  y = Gather(x, i)  k = Unsqueeze(i, a)  t = ReduceMax<keepdims=0>(x, a)  z = GatherND(t, k)  b = Less(m, zero)  n = Cast<to=7>(b)  f = Sub(n, one)  u = Gather(v, f) }",
    );
    comes_back(
        "g (float[2,4] x) => (float[2,2] y) <int64[2,2] i = {1, 0, 3, 3}> { y = GatherElements<axis=1>(x, i) }",
    );
    comes_back(
        "g (float[N,5] x) => (float[N,2] v, int64[N,2] i, int64[N] m) <int64[1] k = {2}> { v, i = TopK(x, k)  m = ArgMax<axis=1, keepdims=0>(x) }",
    );
    comes_back(
        "g (float[N,6] x) => (float[N,2] a, float[N,4] b) <int64[2] s = {2, 4}> { a, b = Split<axis=1>(x, s) }",
    );
    comes_back(
        "g (float[N,2] x) => (float[N,7] y, float[M,4] z) <int64[4] p = {0, 2, 0, 3}, int64[2] r = {2, 2}> { y = Pad(x, p)  z = Tile(x, r) }",
    );
    comes_back("g (float[N,2] x) => (float[N,2] y, float[N,2] z) { y = Identity(x)  z = Identity(x) }");
}

#[test]
fn what_has_no_place_is_listed() {
    let graph = "g (float[N,3] x, double[2] d) => (float[N,3] y, float[N,3] z, double[2] e) { t = Erf(x)  y = Mul(t, x)  z = Det(x)  e = Exp(d) }";
    let found = refused(graph);
    let operators: Vec<&str> = found.iter().map(|(operator, _)| &**operator).collect();
    assert_eq!(operators, ["Erf", "Det", "Exp"], "{found:?}");
    assert_eq!(found[0].1, "there is no such operator, and no pass says it in others");
    assert_eq!(found[2].1, "the operator does not take double");
    let text = "<ir_version: 10, opset_import: [\"\" : 21, \"own\" : 1]>\ng (float[2] x) => (float[2] y) { y = own.Abs(x) }\n<domain: \"own\", opset_import: [\"\" : 21]>\nAbs (a) => (b) { b = Neg(a) }";
    let message = text::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    let own = load_bytes(bytes, None, &Default::default()).unwrap();
    assert!(
        converted(&own).is_err_and(|refusals| refusals.0[0].reason == "it calls a function of the model")
    );
    for graph in [
        "g (float[N,2] x) => (float[M,2] y) <int64[4] p = {1, 0, 0, 0}> { y = Pad<mode=\"reflect\">(x, p) }",
        "g (float[N,2] x) => (float[N,4] y) <int64[4] p = {0, 2, 0, 0}> { y = Pad<mode=\"reflect\">(x, p) }",
    ] {
        assert_eq!(refused(graph)[0].1, "it reflects more than is known to be there");
    }
    comes_back(
        "g (float[N,3] x) => (float[N,7] y) <int64[4] p = {0, 2, 0, 2}> { y = Pad<mode=\"reflect\">(x, p) }",
    );
    let found = refused("g (string[2] s) => (string[2] t) { t = Identity(s) }");
    assert_eq!(found[0], ("input".to_owned(), "there are no tensors of string".to_owned()));
}

#[test]
fn weights_behind_the_flatbuffer() {
    let model = model(
        "g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1, 2, 3, 4, 5, 6}, float[3] b = {1, 2, 3}> { p = MatMul(x, w)  y = Add(p, b) }",
    );
    let graph = tflite::write::write(&legalized(&model, Format::TfLite), Weights::Float32, Layout::Keep)
        .unwrap()
        .graph;
    let inside = tflite::encode::encode(&graph);
    let behind = tflite::encode::encode_within(&graph, 0);
    assert_ne!(bytes(&inside), bytes(&behind));
    let x: Value = Array::new([1, 2], vec![1.0f32, -2.0]).unwrap().into();
    let inputs = HashMap::from([("x".to_owned(), x)]);
    let [a, b] = [inside, behind].map(|pieces| run(&read(bytes(&pieces)), &inputs));
    assert_eq!(numbers(&a[0].1).to_f64s().unwrap(), [-6.0, -6.0, -6.0]);
    assert_eq!(numbers(&b[0].1).to_f64s().unwrap(), [-6.0, -6.0, -6.0]);
}

/// The file of a graph under these settings, and what is said of it.
fn written(graph: &str, settings: &Settings<'_>) -> (Vec<u8>, Summary) {
    let artifact = Format::TfLite.lower(&legalized(&model(graph), Format::TfLite), settings);
    let artifact = artifact.unwrap_or_else(|refusals| panic!("{graph}\n{refusals}"));
    (bytes(&artifact.parts[0].pieces), artifact.summary)
}

#[test]
fn weights_of_16_bits() {
    let graph = "g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1, 2, 3, 0.5, 70000, 0.1}, float[3] b = {0.1, 2, 3}> { p = MatMul(x, w)  y = Add(p, b) }";
    let halves = Settings { weights: Weights::Float16, ..Settings::default() };
    let (file, summary) = written(graph, &halves);
    // The matrix has a number that 16 bits do not hold.
    assert_eq!(summary.operators.get("DEQUANTIZE"), Some(&1));
    assert_eq!(summary.weights, 24 + 6);
    let x: Value = Array::new([1, 2], vec![0.0f32, 0.0]).unwrap().into();
    let y = run(&read(file), &HashMap::from([("x".to_owned(), x)]));
    let tenth = f64::from(half::f16::from_f32(0.1));
    assert_eq!(numbers(&y[0].1).to_f64s().unwrap(), [tenth, 2.0, 3.0]);
}

#[test]
fn images_with_channels_last() {
    let graph = "g (float[N,2,4,4] x, float[2] s) => (float[N,3,4,4] y, float[2] z) <float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}> { y = Conv(x, w)  z = Neg(s) }";
    let (_, kept) = written(graph, &Settings::default());
    assert_eq!((kept.transposes, kept.channels_last), (2, ChannelsLast::default()));
    let (file, turned) = written(graph, &Settings { layout: Layout::Nhwc, ..Settings::default() });
    assert_eq!(turned.transposes, 0);
    assert_eq!(
        (turned.channels_last.inputs, turned.channels_last.outputs),
        (vec!["x".to_owned()], vec!["y".to_owned()])
    );
    let back = read(file);
    let shapes = |model: &Model| {
        let ports =
            model.scope(model.main()).inputs().iter().map(|port| model.declared_type(port.value).to_string());
        ports.collect::<Vec<_>>()
    };
    assert!(shapes(&back)[0].ends_with("4,4,2]"), "{:?}", shapes(&back));
}

#[test]
fn an_activation_is_applied_by_the_operator_before() {
    let graph = "g (float[N,3] x) => (float[N,3] y, float[N,3] z) <float six = {6}, float zero = {0}> { a = Add(x, x)  y = Relu(a)  m = Mul(x, x)  z = Clip(m, zero, six) }";
    let (_, summary) = written(graph, &Settings::default());
    assert_eq!(summary.operators.keys().collect::<Vec<_>>(), ["ADD", "MUL"]);
    comes_back(graph);
    // What something else reads stays as it is.
    let (_, summary) = written(
        "g (float[N,3] x) => (float[N,3] y, float[N,3] a) { a = Add(x, x)  y = Relu(a) }",
        &Settings::default(),
    );
    assert_eq!(summary.operators.keys().collect::<Vec<_>>(), ["ADD", "RELU"]);
}

/// Between integers of 8 bits: an operator on `x` and perhaps `w` and `b`, whose result is `r`.
pub fn between(body: &str) -> String {
    format!(
        "g (float[N,2,4,4] x) => (float[N,3,S,T] y) <float sx = {{0.05}}, int8 zx = {{3}}, float sy = {{0.1}}, int8 zy = {{-7}}, int8[3,2,1,1] qw = {{1, -2, 3, 100, -50, 7}}, float[3] sw = {{0.01, 0.02, 0.005}}, int8[3] zw = {{0, 0, 0}}, int32[3] qb = {{100, -50, 7}}, float[3] sb = {{0.0005, 0.001, 0.00025}}> {{ q = QuantizeLinear(x, sx, zx)  d = DequantizeLinear(q, sx, zx)  w = DequantizeLinear<axis=0>(qw, sw, zw)  b = DequantizeLinear<axis=0>(qb, sb)  {body}  p = QuantizeLinear(r, sy, zy)  y = DequantizeLinear(p, sy, zy) }}"
    )
}

#[test]
fn integers_of_8_bits() {
    let (file, summary) = written(&between("c = Conv(d, w, b)  r = Relu(c)"), &Settings::default());
    let expected = [("CONV_2D", 1), ("DEQUANTIZE", 1), ("QUANTIZE", 1), ("TRANSPOSE", 2)];
    let found: Vec<(&str, usize)> = summary.operators.iter().map(|(name, count)| (&**name, *count)).collect();
    assert_eq!(found, expected);
    assert_eq!(summary.floats, []);
    assert_eq!(read(file).operator_counts().get("Conv"), None);
    for body in [
        "c = Conv(d, w, b)  r = Relu(c)",
        "r = Conv(d, w)",
        "p1 = MaxPool<kernel_shape=[2,2]>(d)  r = Conv(p1, w, b)",
    ] {
        comes_back_in_steps(&between(body), 0.1);
    }
}

#[test]
fn what_integers_cannot_say_stays_in_floats() {
    let (_, summary) = written(&between("c = Conv(d, w, b)  r = Sigmoid(c)"), &Settings::default());
    let reasons: Vec<&str> = summary.floats.iter().map(|refusal| &*refusal.reason).collect();
    assert_eq!(reasons, ["its result is not quantized, or in several ways"]);
    assert_eq!(summary.operators.get("DEQUANTIZE"), Some(&2));
    comes_back_in_steps(&between("c = Conv(d, w, b)  r = Sigmoid(c)"), 0.1);
}

/// Converts a graph of integers; what comes back is at most a step of this size from what it was.
fn comes_back_in_steps(graph: &str, step: f64) {
    let model = model(graph);
    let back = read(converted(&model).unwrap_or_else(|refusals| panic!("{graph}\n{refusals}")));
    let dims = HashMap::from([("N".to_owned(), 2)]);
    let options = sample::Options { dims, ..Default::default() };
    let inputs = sample(&model, &options, &HashMap::new()).unwrap();
    for ((_, a), (_, b)) in run(&model, &inputs).iter().zip(&run(&back, &inputs)) {
        let (a, b) = (numbers(a).to_f64s().unwrap(), numbers(b).to_f64s().unwrap());
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1.01 * step), "{graph}\n{a:?}\n{b:?}");
    }
}
