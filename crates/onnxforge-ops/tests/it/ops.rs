//! The table of operators: complete, and unmoved by hostile calls.

use std::collections::{BTreeSet, HashMap};

use onnxforge_ir::Model;
use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ops::eval::{Options, RunError, Session};
use onnxforge_ops::infer::Inference;
use onnxforge_ops::signature::{signature, signatures};
use onnxforge_ops::{self as ops, Value};
use onnxforge_proto::wire;
use onnxforge_testing::memory::peak;

fn model(text: &str) -> Model {
    let message = text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A model of opset 21 whose graph has this interface and these nodes.
fn graph(interface: &str, nodes: &str) -> Model {
    model(&format!("<ir_version: 10, opset_import: [\"\" : 21]>\ng {interface} {{\n{nodes}\n}}"))
}

fn run(model: &Model, options: Options) -> Result<Vec<Value>, RunError> {
    let outputs = Session::new(model, options).run(&HashMap::new())?;
    Ok(outputs.into_iter().map(|(_, value)| value).collect())
}

#[test]
fn every_standard_operator_is_in_the_table_once() {
    let mut names = BTreeSet::new();
    for def in ops::all() {
        assert!(names.insert((def.domain, def.name)), "{def:?} is listed twice");
        assert!(!def.name.is_empty());
    }
    let missing: BTreeSet<_> =
        signatures().iter().map(|s| (s.domain, s.name)).filter(|key| !names.contains(key)).collect();
    assert_eq!(missing, BTreeSet::new());
    // What is no standard operator belongs to another runtime.
    for &(domain, name) in &names {
        let known = signatures().iter().any(|s| (s.domain, s.name) == (domain, name));
        let contrib =
            matches!(domain, "com.microsoft" | ops::tflite::DOMAIN) || name == "SimplifiedLayerNormalization";
        let contrib = contrib || ops::foreign::DOMAINS.contains(&domain);
        assert!(known || contrib, "{domain}.{name}");
    }
}

#[test]
fn flags_agree_with_the_signatures() {
    for def in ops::all() {
        let newest = signatures().iter().rfind(|s| (s.domain, s.name) == (def.domain, def.name));
        let Some(newest) = newest else { continue };
        if def.random {
            assert!(!newest.deterministic, "{def:?}");
        }
        if def.commutative {
            let types: Vec<_> = newest.inputs.iter().map(|input| input.ty).collect();
            let variadic = newest.inputs.len() == 1;
            assert!(variadic || types[0] == types[1], "{def:?} has inputs of types {types:?}");
        }
    }
    for name in ["Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"] {
        assert!(ops::find("", name).unwrap().commutative, "{name}");
    }
    for name in ["Sub", "Div", "Pow", "Mod", "MatMul", "Less", "Greater", "BitShift", "PRelu"] {
        assert!(!ops::find("", name).unwrap().commutative, "{name}");
    }
    for name in ["RandomNormal", "RandomUniformLike", "Multinomial", "Bernoulli"] {
        assert!(ops::find("", name).unwrap().random, "{name}");
    }
    for name in ["Relu", "Add", "Where", "Cast", "Clip", "Not"] {
        assert!(ops::find("", name).unwrap().elementwise, "{name}");
    }
    for name in ["Softmax", "Transpose", "MatMul", "ReduceSum", "CumSum"] {
        assert!(!ops::find("", name).unwrap().elementwise, "{name}");
    }
    assert!(matches!(signature("", "Relu", 14), ops::signature::Lookup::Found(_)));
}

/// Calls that ask for more than there is, or for nonsense: `(nodes, dtype of the output)`.
const HOSTILE: &[(&str, &str)] = &[
    ("s = Constant <value_ints = [1000000, 1000000, 1000000]> ()\n y = ConstantOfShape (s)", "float"),
    ("s = Constant <value_ints = [4611686018427387904, 4, 1]> ()\n y = ConstantOfShape (s)", "float"),
    ("s = Constant <value_ints = [-1]> ()\n y = ConstantOfShape (s)", "float"),
    (
        "x = Constant <value_float = 1.0> ()\n s = Constant <value_ints = [1099511627776]> ()\n y = Expand (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0]> ()\n s = Constant <value_ints = [-5]> ()\n y = Expand (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [3]> ()\n y = Expand (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [9223372036854775807]> ()\n y = Tile (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [1099511627776]> ()\n y = Tile (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [-1]> ()\n y = Tile (x, s)",
        "float",
    ),
    (
        "a = Constant <value_int = 0> ()\n b = Constant <value_int = 9223372036854775807> ()\n c = Constant <value_int = 1> ()\n y = Range (a, b, c)",
        "int64",
    ),
    (
        "a = Constant <value_int = -9223372036854775808> ()\n b = Constant <value_int = 9223372036854775807> ()\n c = Constant <value_int = 1> ()\n y = Range (a, b, c)",
        "int64",
    ),
    (
        "a = Constant <value_int = 0> ()\n b = Constant <value_int = 5> ()\n c = Constant <value_int = 0> ()\n y = Range (a, b, c)",
        "int64",
    ),
    (
        "a = Constant <value_float = 0.0> ()\n b = Constant <value_float = 1e30> ()\n c = Constant <value_float = 1e-30> ()\n y = Range (a, b, c)",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n e = Constant <value = float[0] {}> ()\n s = Constant <value_floats = [1.0, 1.0, 1e9, 1e9]> ()\n y = Resize (x, , s)",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n s = Constant <value_ints = [1, 1, 1099511627776, 1099511627776]> ()\n y = Resize (x, , , s)",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n s = Constant <value_floats = [1.0, 1.0, -2.0, nan]> ()\n y = Resize (x, , s)",
        "float",
    ),
    (
        "x = Constant <value_ints = [1, 2]> ()\n z = Constant <value_ints = [0, 1]> ()\n y = Div (x, z)",
        "int64",
    ),
    (
        "x = Constant <value_ints = [1, 2]> ()\n z = Constant <value_ints = [0, 1]> ()\n y = Mod (x, z)",
        "int64",
    ),
    ("x = Constant <value_floats = [1.0, 2.0]> ()\n y = Softmax <axis = 7> (x)", "float"),
    ("x = Constant <value_floats = [1.0, 2.0]> ()\n y = Transpose <perm = [1]> (x)", "float"),
    ("x = Constant <value_floats = [1.0, 2.0]> ()\n y = Transpose <perm = [0, 0]> (x)", "float"),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n y = Concat <axis = -9223372036854775808> (x, x)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [7]> ()\n y = Gather (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [-9223372036854775808]> ()\n y = Gather (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [-1, -1]> ()\n y = Reshape (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [9223372036854775807, 2]> ()\n y = Reshape (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [4611686018427387904, 4611686018427387904]> ()\n y = Pad (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [9223372036854775807]> ()\n y = Unsqueeze (x, s)",
        "float",
    ),
    (
        "x = Constant <value_ints = [1, 2]> ()\n d = Constant <value_int = 1099511627776> ()\n v = Constant <value_floats = [0.0, 1.0]> ()\n y = OneHot (x, d, v)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n k = Constant <value_ints = [5]> ()\n y, i = TopK (x, k)",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = MaxPool <kernel_shape = [0, 0]> (x)",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = MaxPool <kernel_shape = [1, 1], strides = [0, 0]> (x)",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = AveragePool <kernel_shape = [2, 2], pads = [9223372036854775807, 0, 9223372036854775807, 0]> (x)",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = AveragePool <kernel_shape = [1, 1], pads = [-5, -5, -5, -5]> (x)",
        "float",
    ),
    ("x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = Conv <strides = [0, 1]> (x, x)", "float"),
    ("x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = Conv <group = 0> (x, x)", "float"),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = Conv <pads = [1099511627776, 1099511627776, 1099511627776, 1099511627776]> (x, x)",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = ConvTranspose <strides = [1099511627776, 1099511627776]> (x, x)",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = ConvTranspose <output_shape = [-7, 1099511627776]> (x, x)",
        "float",
    ),
    ("x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = DepthToSpace <blocksize = 0> (x)", "float"),
    (
        "x = Constant <value = float[1,1,2,2] {1, 2, 3, 4}> ()\n y = SpaceToDepth <blocksize = 9223372036854775807> (x)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [3]> ()\n y = MatMul (x, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n z = Constant <value_floats = [1.0, 2.0, 3.0]> ()\n y = MatMul (x, z)",
        "float",
    ),
    ("x = Constant <value_floats = [1.0, 2.0]> ()\n y = Einsum <equation = \"ij,,->->\"> (x)", "float"),
    ("n = Constant <value_int = 1099511627776> ()\n y = HannWindow (n)", "float"),
    ("n = Constant <value_int = -3> ()\n y = BlackmanWindow (n)", "float"),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [1099511627776, 5]> ()\n y = CenterCropPad (x, s)",
        "float",
    ),
    ("x = Constant <value_floats = [1.0, 2.0]> ()\n y = LRN <size = 0> (x)", "float"),
    (
        "x = Constant <value = int64[2,2] {0, 9, 0, -9}> ()\n d = Constant <value = float[2,2] {1, 2, 3, 4}> ()\n y = GatherND (d, x)",
        "float",
    ),
    (
        "x = Constant <value = int64[1,2] {5, 5}> ()\n d = Constant <value = float[2,2] {1, 2, 3, 4}> ()\n u = Constant <value_floats = [1.0]> ()\n y = ScatterND (d, x, u)",
        "float",
    ),
    (
        "m = Constant <value_int = 9223372036854775807> ()\n c = Constant <value = bool {1}> ()\n y = RandomNormal <shape = [1099511627776]> ()",
        "float",
    ),
    (
        "x = Constant <value = float[1,1,4] {1, 2, 3, 4}> ()\n s = Constant <value_int = 1099511627776> ()\n y = DFT (x, s)",
        "float",
    ),
    (
        "x = Constant <value = uint8[2] {1, 2}> ()\n n = Constant <value = uint8[2] {200, 8}> ()\n z = BitShift <direction = \"LEFT\"> (x, n)\n w = Cast <to = 1> (z)\n s = Constant <value_ints = [-7]> ()\n y = Reshape (w, s)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [-9223372036854775808]> ()\n e = Constant <value_ints = [9223372036854775807]> ()\n a = Constant <value_ints = [0]> ()\n t = Constant <value_ints = [0]> ()\n y = Slice (x, s, e, a, t)",
        "float",
    ),
    (
        "x = Constant <value_floats = [1.0, 2.0]> ()\n s = Constant <value_ints = [9223372036854775807, 9223372036854775807]> ()\n y, z = Split <axis = 0> (x, s)",
        "float",
    ),
    (
        "x = Constant <value = float[1,2,2] {1, 2, 3, 4}> ()\n i = Constant <value = int64[2] {2, 2}> ()\n b = Constant <value = int64[2] {1099511627776, 1}> ()\n y = Col2Im (x, i, b)",
        "float",
    ),
];

#[test]
fn hostile_calls_are_errors_within_the_budget() {
    const BUDGET: u64 = 1 << 20;
    for (nodes, dtype) in HOSTILE {
        let model = graph(&format!("() => ({dtype} y)"), nodes);
        let (answer, used) = peak(|| run(&model, Options { memory: BUDGET, ..Options::default() }));
        let error = answer.expect_err(nodes);
        assert!(!error.to_string().is_empty());
        assert!(used < 8 << 20, "{used} bytes for\n{nodes}\n{error}");
        let (_, used) = peak(|| Inference::of(&model));
        assert!(used < 8 << 20, "inference took {used} bytes for\n{nodes}");
    }
}

#[test]
fn endless_loops_and_recursion_end() {
    let endless = graph(
        "() => (int64 y)",
        "c = Constant <value = bool {1}> ()
         x = Constant <value_int = 0> ()
         y = Loop <body = b (int64 i, bool k, int64 v) => (bool k2, int64 w) { k2 = Identity (k)  w = Add (v, i) }> (, c, x)",
    );
    let options = Options {
        deadline: Some(std::time::Instant::now() + std::time::Duration::from_millis(50)),
        ..Options::default()
    };
    let error = run(&endless, options).unwrap_err().to_string();
    assert!(error.contains("time budget"), "{error}");
    let growing = graph(
        "() => (float y)",
        "c = Constant <value = bool {1}> ()
         x = Constant <value_floats = [1.0, 2.0]> ()
         y = Loop <body = b (int64 i, bool k, float[n] v) => (bool k2, float[m] w) { k2 = Identity (k)  w = Concat <axis = 0> (v, v) }> (, c, x)",
    );
    let error = run(&growing, Options { memory: 1 << 20, ..Options::default() }).unwrap_err().to_string();
    assert!(error.contains("memory budget"), "{error}");
    let recursive = model(
        "<ir_version: 10, opset_import: [\"\" : 21, \"d\" : 1]>
         g (float x) => (float y) { y = d.f (x) }
         <domain: \"d\", opset_import: [\"\" : 21, \"d\" : 1]>
         f (a) => (b) { b = d.f (a) }",
    );
    let inputs = HashMap::from([("x".to_owned(), Value::from(ops::Array::scalar(1f32)))]);
    let error = Session::new(&recursive, Options::default()).run(&inputs).unwrap_err().to_string();
    assert!(error.contains("from itself"), "{error}");
    assert!(!Inference::of(&recursive).conflicts().is_empty());
}
