//! Models as packages of Core ML: what is read back computes the same.

use std::collections::HashMap;
use std::path::Path;

use onnxforge_convert::coreml::{self, Pixels, Settings};
use onnxforge_convert::{Format, Refusals};
use onnxforge_ir::Model;
use onnxforge_ops::eval::sample::{self, sample};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::progress::Silent;

use crate::tflite::{OPEN_SHAPES, bytes, compares, legalized, model, model_of, numbers, run};

/// The model and the weights of a package.
pub type Files = [Vec<u8>; 2];

pub fn settings(ios: u32, half: bool) -> Settings {
    Settings { ios, half, ..Settings::default() }
}

pub fn converted(model: &Model, settings: &Settings) -> Result<Files, Refusals> {
    let artifact = coreml::lower(&legalized(model, Format::CoreMl), settings)?;
    let of = |name: &str| {
        let part = artifact.parts.iter().find(|part| part.path.ends_with(name));
        part.map(|part| bytes(&part.pieces)).unwrap_or_default()
    };
    Ok([of("model.mlmodel"), of("weight.bin")])
}

pub fn read([program, weights]: Files) -> Model {
    let source = coreml::decode(&Blob::from(program), &Blob::from(weights), Path::new("x.mlpackage"));
    source.and_then(onnxforge_ir::io::Source::into_model).unwrap_or_else(|error| panic!("{error}"))
}

/// Converts a graph, reads the package back, and runs both at two sizes.
fn comes_back(graph: &str) {
    comes_back_of(graph, 21);
}

fn comes_back_of(graph: &str, opset: u32) {
    let model = model_of(graph, opset);
    for ios in [15, 18] {
        let settings = settings(ios, false);
        let files = converted(&model, &settings).unwrap_or_else(|refusals| panic!("{graph}\n{refusals}"));
        assert_eq!(files, converted(&model, &settings).unwrap(), "the same bytes each time");
        compares(graph, &model, &read(files));
    }
}

fn refused(graph: &str, settings: &Settings) -> Vec<(String, String)> {
    let refusals = converted(&model(graph), settings).expect_err(graph);
    refusals.0.into_iter().map(|refusal| (refusal.operator, refusal.reason)).collect()
}

#[test]
fn layers() {
    let weights = "float[2,2,3,3] w = {1, 0.5, -1, 2, -0.5, 0.25, 1.5, -2, 1, 0.5, -1, 2, -0.5, 0.25, 1.5, -2, 1, 0.5, -1, 2, -0.5, 0.25, 1.5, -2, 1, 0.5, -1, 2, -0.5, 0.25, 1.5, -2, 1, 0.5, -1, 2}";
    comes_back(&format!(
        "g (float[N,2,H,W] x) => (float[N,2,A,B] y) <{weights}, float[2] b = {{1, 0.5}}> {{ c = Conv<pads=[1,0,2,1]>(x, w, b)  y = Relu(c) }}"
    ));
    comes_back(&format!(
        "g (float[N,2,8,8] x) => (float[N,2,4,4] y) <{weights}> {{ y = Conv<auto_pad=\"SAME_LOWER\", strides=[2,2]>(x, w) }}"
    ));
    comes_back("g (float[N,2,S] x) => (float[N,1,S] y) <float[1,2,1] w = {1, 0.5}> { y = Conv(x, w) }");
    comes_back(
        "g (float[2,2,3,3] x) => (float[2,1,6,6] y) <float[2,1,2,2] w = {1, 0.5, -1, 2, 3, -2, 0.5, 1}> { y = ConvTranspose<strides=[2,2], pads=[0,0,1,1], output_padding=[1,1]>(x, w) }",
    );
    comes_back(
        "g (float[N,2,6,6] x) => (float[N,2,3,3] y, float[N,2,6,6] z, float[N,2,3,3] u) { y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,0,0]>(x)  z = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)  u = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x) }",
    );
    comes_back(
        "g (float[N,3] x) => (float[N,2] y, float[N,2] z) <float[2,3] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}> { y = Gemm<transB=1>(x, w, b)  z = Gemm<transB=1, alpha=0.5, beta=2.0>(x, w, b) }",
    );
    comes_back("g (float[N,2,S,3] x, float[3] w) => (float[N,2,S] y, float[S] z) <float[N2] u = {1}> { y = MatMul(x, w)  a = Constant<value_ints=[0]>()  s = ReduceMax<keepdims=0>(x, a)  b = Constant<value_ints=[0]>()  t = ReduceMax<keepdims=0>(s, b)  z = MatMul(t, w) }".replace(" <float[N2] u = {1}>", "").as_str());
    comes_back(
        "g (float[N,2,H,W] x) => (float[N,2,A,B] y, float[N,2,A,B] z) <float[4] s = {1, 1, 2, 2}> { y = Resize<mode=\"nearest\", coordinate_transformation_mode=\"asymmetric\", nearest_mode=\"floor\">(x, , s)  z = Resize<mode=\"nearest\">(x, , s) }",
    );
    comes_back(
        "g (float[N,2,3,4] x) => (float[N,2,6,6] y) <int64[4] s = {2, 2, 6, 6}> { n = Shape<end=1>(x)  m = Constant<value_ints=[2,6,6]>()  t = Concat<axis=0>(n, m)  y = Resize<mode=\"linear\">(x, , , t) }".replace(" <int64[4] s = {2, 2, 6, 6}>", "").as_str(),
    );
}

#[test]
fn norms() {
    comes_back(
        "g (float[N,4,S] x) => (float[N,4,S] y, float[N,4,S] z, float[N,4,S] u) <float[4] a = {1, 2, 3, 4}, float[4] b = {0.5, 1, -1, 2}> { y = BatchNormalization(x, a, b, b, a)  z = InstanceNormalization(x, a, b)  v = GroupNormalization<num_groups=2>(x, a, b)  u = Identity(v) }".replace(", float[N,4,S] u", "").replace("  v = GroupNormalization<num_groups=2>(x, a, b)  u = Identity(v)", "").as_str(),
    );
    comes_back(
        "g (float[N,4,6] x) => (float[N,4,6] u) <float[4] a = {1, 2, 3, 4}, float[4] b = {0.5, 1, -1, 2}> { u = InstanceNormalization(x, a, b) }",
    );
    comes_back(
        "g (float[2,4,6] x) => (float[2,4,6] u) <float[4] a = {1, 2, 3, 4}, float[4] b = {0.5, 1, -1, 2}> { u = GroupNormalization<num_groups=2>(x, a, b) }",
    );
    comes_back(
        "g (float[N,3,S] x, float[S] s, float[S] b) => (float[N,3,S] y, float[N,3,S] z, float[N,3,S] l) { y = LayerNormalization(x, s, b)  z = Softmax<axis=1>(x)  l = LogSoftmax(x) }",
    );
    comes_back(
        "g (float[N,2,3] x) => (float[N,2,3] y) <float[3] s = {1, 2, 3}, float[3] b = {-1, 0, 1}> { y = LayerNormalization(x, s, b) }",
    );
}

#[test]
fn attention() {
    comes_back_of(
        "g (float[N,2,S,4] q, float[N,2,S,4] k, float[N,2,S,4] v) => (float[N,2,S,4] y) { y = Attention(q, k, v) }",
        23,
    );
    comes_back_of(
        "g (float[1,3,8] q, float[1,5,4] k, float[1,5,4] v, bool[3,5] m) => (float[1,3,8] y) { y = Attention<q_num_heads=4, kv_num_heads=2, scale=0.5>(q, k, v, m) }",
        23,
    );
    comes_back_of(
        "g (float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v, float[1,2,5,4] a, float[1,2,5,4] b) => (float[1,2,3,4] y, float[1,2,8,4] c, float[1,2,8,4] d) { y, c, d = Attention<is_causal=1>(q, k, v, , a, b) }",
        23,
    );
    comes_back_of("g (float[N,S,4] x, float[4] s) => (float[N,S,4] y) { y = RMSNormalization(x, s) }", 23);
}

#[test]
fn arithmetic() {
    comes_back(
        "g (float[N,3] x, float[3] y) => (float[N,3] z) { a = Add(x, y)  b = Mul(a, x)  c = Sub(b, y)  d = Div(c, x)  e = Tanh(d)  f = Sigmoid(e)  z = Max(f, x, a) }",
    );
    comes_back(
        "g (float[N,3] x) => (float[N,3] y, float[N,3] z, bool[N,3] n, float[N,3] u) <float two = {2}, float low = {-0.5}, float high = {0.25}> { y = Pow(x, two)  z = Clip(x, low, high)  n = IsNaN(x)  u = Clip(x, low) }",
    );
    comes_back(
        "g (float[N,3] x) => (float[N,3] a, float[N,3] b, float[N,3] c, float[N,3] d, float[N,3] e, float[N,3] f) { a = Gelu(x)  b = Gelu<approximate=\"tanh\">(x)  c = HardSwish(x)  d = HardSigmoid(x)  e = LeakyRelu<alpha=0.2>(x)  f = Selu(x) }",
    );
    comes_back(
        "g (float[N,3] x, float[N,3] y) => (bool[N,3] a, bool[N,3] b, float[N,3] c) { l = Less(x, y)  e = Equal(x, y)  a = Or(l, e)  b = Not(a)  c = Where(b, x, y) }",
    );
    comes_back(
        "g (int64[N,3] x) => (float[N,3] y, int64[N,3] z, int64[N,3] q, int64[N,3] m) <int64 axis = {1}, int64 three = {3}> { y = Cast<to=1>(x)  z = CumSum(x, axis)  q = Div(x, three)  m = Mod(x, three) }",
    );
    comes_back(
        "g (float x, bool b) => (float y, bool c, int64 i) { y = Neg(x)  c = Not(b)  i = Cast<to=7>(b) }",
    );
}

#[test]
fn shapes_that_are_not_known() {
    OPEN_SHAPES.iter().for_each(|graph| comes_back(graph));
}

#[test]
fn choices() {
    comes_back(
        "g (float[4,S] x) => (float[2,S] y, float[S] z) <int64[2] i = {-1, 0}, int64 j = {1}> { y = Gather(x, i)  z = Gather(x, j) }",
    );
    comes_back(
        "g (bool[4,S] x, float[2,4] f) => (bool[2,S] y, float[2,2] z) <int64[2] i = {3, 0}, int64[2,2] j = {1, 0, 3, 3}> { y = Gather(x, i)  z = GatherElements<axis=1>(f, j) }",
    );
    comes_back(
        "g (float[N,5] x) => (float[N,2] v, int64[N,2] i, int64[N] m) <int64[1] k = {2}> { v, i = TopK(x, k)  m = ArgMax<axis=1, keepdims=0>(x) }",
    );
    comes_back(
        "g (float[N,6] x) => (float[N,2] a, float[N,4] b) <int64[2] s = {2, 4}> { a, b = Split<axis=1>(x, s) }",
    );
    comes_back(
        "g (float[N,2] x) => (float[N,7] y, float[M,4] z, float[N,4] r) <int64[4] p = {0, 2, 0, 3}, int64[2] t = {2, 2}, int64[4] q = {0, 1, 0, 1}> { y = Pad(x, p)  z = Tile(x, t)  r = Pad<mode=\"reflect\">(x, q) }",
    );
    comes_back("g (float[N,2] x) => (float[N,2] y, float[N,2] z) { y = Identity(x)  z = Identity(x) }");
    comes_back(
        "g (float[3,4] x, float[4,4] m) => (float[3,4] y, float[4,4] u, float[4,4] l) <int64[2,1] i = {2, 0}, float[2,4] v = {1, 2, 3, 4, 5, 6, 7, 8}> { y = ScatterND(x, i, v)  u = Trilu(m)  l = Trilu<upper=0>(m) }",
    );
}

#[test]
fn half_precision_stays_close_and_keeps_what_is_large() {
    let weights: Vec<String> = (0..64).map(|place| format!("{}", (place % 7) as f32 / 4.0 - 0.75)).collect();
    let graph = format!(
        "g (float[N,2,8] x, bool[N,2,8] m) => (float[N,2,8] y) <float low = {{-3.4e38}}, float zero = {{0}}, float[8,8] w = {{{}}}> {{ p = MatMul(x, w)  b = Where(m, zero, low)  s = Add(p, b)  y = Softmax(s) }}",
        weights.join(", ")
    );
    let model = model(&graph);
    let files = converted(&model, &settings(17, true)).unwrap();
    let wide = converted(&model, &settings(17, false)).unwrap();
    assert!(files[1].len() < wide[1].len(), "weights take half of the space");
    let back = read(files);
    let options = sample::Options { dims: [("N".to_owned(), 3)].into_iter().collect(), ..Default::default() };
    let inputs = sample(&model, &options, &HashMap::new()).unwrap();
    let (a, b) = (run(&model, &inputs), run(&back, &inputs));
    let (a, b) = (numbers(&a[0].1).to_f64s().unwrap(), numbers(&b[0].1).to_f64s().unwrap());
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 0.01), "{a:?} {b:?}");
}

#[test]
fn images_are_read_back_as_what_the_model_takes() {
    let graph = "g (float[1,3,4,4] x) => (float[1,3,4,4] y) { y = Relu(x) }";
    let mut settings = settings(17, false);
    let pixels = Pixels { scale: 0.5, bias: vec![-1.0, -2.0, -3.0] };
    settings.images.insert("x".to_owned(), pixels);
    let model = model(graph);
    compares(graph, &model, &read(converted(&model, &settings).unwrap()));
    let grey = "g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }";
    assert!(refused(grey, &settings)[0].1.contains("an image is an input of floats"));
}

#[test]
fn quantized_weights_keep_their_bytes() {
    let graph = "g (float[1,2,4,4] x) => (float[1,2,4,4] y) <uint8[2,2,1,1] q = {1, 200, 30, 4}, float[2] s = {0.5, 0.25}, uint8[2] z = {3, 128}> { w = DequantizeLinear<axis=0>(q, s, z)  y = Conv(x, w) }";
    comes_back(graph);
    let blocks = "g (float[2,4] x) => (float[2,4] y) <int8[4,4] q = {1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0}, float[2,4] s = {0.5, 0.25, 1, 2, 0.5, 0.25, 1, 2}> { w = DequantizeLinear<axis=0, block_size=2>(q, s)  y = MatMul(x, w) }";
    let model = model(blocks);
    compares(blocks, &model, &read(converted(&model, &settings(18, false)).unwrap()));
    assert!(refused(blocks, &settings(17, false))[0].1.contains("from iOS 18 on"));
}

#[test]
fn what_has_no_place_is_listed() {
    let graph = "g (float[N,3,3] x, double[2] d) => (float[N] y, double[2] e) { y = Det(x)  e = Exp(d) }";
    let found = refused(graph, &settings(17, false));
    let operators: Vec<&str> = found.iter().map(|(operator, _)| &**operator).collect();
    assert_eq!(operators, ["input", "Det", "Exp", "output"], "{found:?}");
    let found = refused("g (float[N,0] x) => (float[N,0] y) { y = Neg(x) }", &settings(17, false));
    assert_eq!(found[0], ("input".to_owned(), "there are no arrays without elements".to_owned()));
    let found =
        refused("g (float[1,1,1,1,1,N] x) => (float[1,1,1,1,1,N] y) { y = Neg(x) }", &settings(17, false));
    assert_eq!(found[0], ("input".to_owned(), "arrays have up to 5 axes".to_owned()));
}

#[test]
fn names_that_the_model_does_not_have_are_listed() {
    let mut settings = settings(17, false);
    settings.ranges.insert("S".to_owned(), (1, 4));
    settings.images.insert("picture".to_owned(), Pixels { scale: 1.0, bias: vec![0.0] });
    let found = refused("g (float[N,3] x) => (float[N,3] y) { y = Neg(x) }", &settings);
    let options: Vec<&str> = found.iter().map(|(option, _)| &**option).collect();
    assert_eq!(options, ["--image", "--range"]);
}

/// A package on the disk, in a folder that goes away.
fn on_disk(graph: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.mlpackage");
    let artifact = coreml::lower(&legalized(&model(graph), Format::CoreMl), &settings(17, false)).unwrap();
    artifact.stage(&path, &Silent).unwrap().persist().unwrap();
    (folder, path)
}

const PLAIN: &str = "g (float[N,4] x) => (float[N,4] y) <float[4,4] w = {1, 2, 3, 4, 0.5, 1, 2, -3, 1, 1, 1, 1, -1, -2, 3, 0.25}> { y = MatMul(x, w) }";

#[test]
fn packages_on_the_disk() {
    let (_folder, path) = on_disk(PLAIN);
    assert_eq!(Format::found_in(&path), Some(Format::CoreMl));
    let source = Format::CoreMl.open(&path).unwrap();
    compares(PLAIN, &model(PLAIN), &source.into_model().unwrap());
}

#[test]
fn nothing_outside_of_a_package_is_read() {
    for place in ["../secret", "/etc/passwd", "com.apple.CoreML/../../../secret"] {
        let (folder, path) = on_disk(PLAIN);
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        let manifest = path.join("Manifest.json");
        let text = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(&manifest, text.replace("com.apple.CoreML/model.mlmodel", place)).unwrap();
        let error = Format::CoreMl.open(&path).unwrap_err().to_string();
        assert!(error.contains("refers to"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn links_out_of_a_package_are_not_followed() {
    let (folder, path) = on_disk(PLAIN);
    let weights = path.join("Data/com.apple.CoreML/weights/weight.bin");
    std::fs::rename(&weights, folder.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &weights).unwrap();
    let error = Format::CoreMl.open(&path).unwrap_err().to_string();
    assert!(error.contains("lies outside of it"), "{error}");
}
