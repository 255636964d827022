//! Inference: what holds in every call and turn, and that it ends.

use std::fmt::Write;
use std::time::{Duration, Instant};

use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ir::{DType, Model, ValueId};
use onnxforge_ops::Fact;
use onnxforge_ops::infer::{Inference, Options};
use onnxforge_proto::wire;

fn model(text: &str) -> Model {
    let message = text::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const HEADER: &str = "<ir_version: 10, opset_import: [\"\" : 21, \"d\" : 1]>";
const FUNCTION: &str = "<domain: \"d\", opset_import: [\"\" : 21, \"d\" : 1]>";

/// The only value of this name.
fn named(model: &Model, name: &str) -> ValueId {
    let mut found = model.values().filter(|(_, value)| &**value.name() == name);
    let (id, _) = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert!(found.next().is_none(), "two values are named {name}");
    id
}

/// What is known of a value, as text.
fn known(model: &Model, inference: &Inference, name: &str) -> String {
    match inference.fact(named(model, name)) {
        Fact::Tensor(fact) => fact.display(inference.symbols()).to_string(),
        other => format!("{other:?}"),
    }
}

fn is_unknown(model: &Model, inference: &Inference, name: &str) -> bool {
    matches!(inference.fact(named(model, name)), Fact::Unknown)
}

/// A chain of functions each of which calls the next one twice.
fn doubling(length: usize, before: &str, after: &str) -> Model {
    let mut text = format!("{HEADER} g (float[2] x) => (float[] y) {{ {before} y = d.f0 (x) {after} }}\n");
    for index in 0..length {
        let next = index + 1;
        writeln!(text, "{FUNCTION} f{index} (a{index}) => (c{index}) {{ b{index} = d.f{next} (a{index})  c{index} = d.f{next} (b{index}) }}").unwrap();
    }
    writeln!(text, "{FUNCTION} f{length} (a) => (b) {{ b = Relu (a) }}").unwrap();
    model(&text)
}

#[test]
fn functions_that_call_each_other_twice_are_given_up() {
    let short = doubling(10, "", "");
    let inference = Inference::of(&short);
    assert!(inference.is_complete());
    assert_eq!(known(&short, &inference, "y"), "float[2]");

    let start = Instant::now();
    // What comes before and after in the graph is known, and of a loop that is passed over nothing is.
    let body =
        "body = b (int64 i, bool k) => (bool k2, int64 turn) { k2 = Identity (k)  turn = Identity (i) }";
    let after = format!("z = Abs (x)  n = Constant <value_int = 3> ()  turns = Loop <{body}> (n, )");
    let long = doubling(40, "w = Neg (x)", &after);
    let inference = Inference::of(&long);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(!inference.is_complete());
    assert_eq!(known(&long, &inference, "w"), "float[2]");
    assert_eq!(known(&long, &inference, "z"), "float[2]");
    // Where nothing follows, the declaration is believed.
    assert_eq!(known(&long, &inference, "y"), "float[..]");
    for name in ["turn", "b0", "b"] {
        assert!(is_unknown(&long, &inference, name), "{name}: {:?}", inference.fact(named(&long, name)));
    }
}

#[test]
fn loops_in_loops_end() {
    let mut nodes = "v24 = Add (v23, i23)".to_owned();
    for depth in (0..24).rev() {
        let inner = depth + 1;
        let before = match depth {
            0 => "x".to_owned(),
            _ => format!("v{}", depth - 1),
        };
        nodes = format!(
            "r{depth} = Loop <body = b{depth} (int64 i{depth}, bool k{depth}, int64 v{depth}) => (bool l{depth}, int64 r{inner}) \
             {{ l{depth} = Identity (k{depth})  {nodes} }}> (n, c, {before})"
        );
    }
    let nodes = nodes.replace("v24 = Add", "r24 = Add");
    let model = model(&format!(
        "{HEADER} g (int64 x) => (int64 r0) {{
           n = Constant <value_int = 16> ()
           c = Constant <value = bool {{1}}> ()
           {nodes}
         }}"
    ));
    let start = Instant::now();
    let inference = Inference::of(&model);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(!inference.is_complete());
}

#[test]
fn a_deadline_ends_inference() {
    let model = model(&format!("{HEADER} g (float[2] x) => (float[2] y) {{ z = Neg (x)  y = Abs (z) }}"));
    let options = Options { deadline: Some(Instant::now()), ..Options::default() };
    std::thread::sleep(Duration::from_millis(2));
    let inference = Inference::with(&model, &options);
    assert!(!inference.is_complete());
    assert!(is_unknown(&model, &inference, "z"));
}

#[test]
fn facts_inside_a_function_hold_in_every_call() {
    let model = model(&format!(
        "{HEADER} g (float[2] x, float[3, n] z, bool c) => (int64[] y, float[] w) {{
           y = d.f <to = 7> (x, c)
           w = d.f <to = 1> (z, c)
         }}
         {FUNCTION} f <to> (a, k) => (result) {{
           shape = Shape (a)
           size = Size (shape)
           cast = Cast <to: int = @to> (a)
           two = Constant <value_ints = [1, 2]> ()
           sum = Add (two, two)
           branch = If <then_branch = t () => (float[] p) {{ p = Abs (a) }}, else_branch = e () => (int64[] q) {{ q = Shape (sum) }}> (k)
           inner = d.h (two)
           result = Identity (cast)
         }}
         {FUNCTION} h (u) => (v) {{ v = Neg (u) }}"
    ));
    let inference = Inference::of(&model);
    assert!(inference.conflicts().is_empty() && inference.is_complete());
    // The calls themselves are inferred with what is known of them.
    assert_eq!(known(&model, &inference, "y"), "int64[2]");
    assert_eq!(known(&model, &inference, "w"), "float[3,n]");
    // What is the same in every call is known, and nothing else.
    assert_eq!(inference.tensor(named(&model, "sum")).unwrap().ints(), Some(vec![2, 4]));
    assert_eq!(known(&model, &inference, "q"), "int64[1]");
    let shape = inference.tensor(named(&model, "shape")).unwrap();
    assert_eq!(shape.dtype, Some(DType::I64));
    assert!(shape.static_shape().is_none() && shape.value.is_none());
    assert!(inference.tensor(named(&model, "size")).unwrap().ints().is_none());
    for name in ["a", "cast", "result", "p", "v", "u"] {
        let fact = inference.tensor(named(&model, name));
        assert!(fact.is_none_or(|fact| fact.dtype.is_none() && fact.shape.is_none()), "{name}: {fact:?}");
    }
}

#[test]
fn an_input_that_a_call_leaves_out_is_absent_in_it() {
    // Without axes, every axis of size 1 goes; with axes that nobody knows, nobody knows how many go.
    let model = model(&format!(
        "{HEADER} g (float[1, 2, 1] x, int64[m] axes) => (float[] y, float[] z) {{ y = d.f (x)  z = d.f (x, axes) }}
         {FUNCTION} f (a, b) => (c) {{ c = Squeeze (a, b) }}"
    ));
    let inference = Inference::of(&model);
    assert_eq!(known(&model, &inference, "y"), "float[2]");
    assert_eq!(known(&model, &inference, "z"), "float[..]");
    let inside = inference.tensor(named(&model, "c"));
    assert!(inside.is_none_or(|fact| fact.shape.is_none()), "{inside:?}");
}

#[test]
fn declarations_are_refined() {
    let mut model = model(&format!(
        "{HEADER} g (float[batch, 3] x) => (float[rows, columns] y)
         <float[m, k] named, float[] open, float[?, 3] half, float[5, 3] wrong, float[batch, 3] exact> {{
           named = Neg (x)
           open = Abs (named)
           half = Neg (open)
           wrong = Abs (half)
           exact = Neg (half)
           free = NonZero (exact)
           y = Relu (exact)
         }}"
    ));
    let inference = Inference::of(&model);
    inference.declare(&mut model);
    let declared = |name: &str| model.declared_type(named(&model, name)).to_string();
    // A name stays where no number follows: it is a name for the same dimension.
    assert_eq!(declared("named"), "float[m,3]");
    assert_eq!(declared("open"), "float[batch,3]");
    assert_eq!(declared("half"), "float[batch,3]");
    assert_eq!(declared("exact"), "float[batch,3]");
    assert_eq!(declared("free"), "int64[2,?]");
    // The interface stays as it is.
    assert_eq!(declared("y"), "float[rows,columns]");
    assert_eq!(declared("x"), "float[batch,3]");
}

#[test]
fn sizes_that_must_be_equal_are_one() {
    // A mask whose sizes have names of their own: the second product runs for none but those of the scores.
    let text = "g (float[B,4,S,8] q, bool[C,1,1,D] mask) => (float[] y)
        <float low = {-1e9}, int64[1] open = {-1}, int64[1] two = {2}, int64[1] four = {4}> {
            k = Transpose<perm = [0, 1, 3, 2]>(q)  s = MatMul(q, k)  w = Where(mask, s, low)  again = Where(mask, w, low)
            sizes = Shape(again)  matrix = Slice(sizes, two, four)  flat = Concat<axis = 0>(open, matrix)  p = Reshape(again, flat)
            own = Shape(q)  rows = Slice(own, two, four)  whole = Concat<axis = 0>(open, rows)  v = Reshape(q, whole)  y = MatMul(p, v)
        }";
    let model = model(&format!("{HEADER} {text}"));
    let inference = Inference::of(&model);
    assert_eq!(known(&model, &inference, "w"), "float[B,4,S,S]");
    assert_eq!(known(&model, &inference, "again"), "float[B,4,S,S]");
    assert_eq!(known(&model, &inference, "mask"), "bool[C,1,1,D]");
}

#[test]
fn a_graph_demands_sizes_of_its_inputs() {
    // Keys of one example follow a cache: it has one, too, and so has whatever else is said to have as many.
    let cache = "y = Concat <axis = 2> (past, new)";
    let text = |nodes: &str| {
        model(&format!(
            "{HEADER} g (float[batch, 2, P, 4] past, float[1, 2, S, 4] new, float[batch, 3] other, bool c) => (float[] y, float[] z) {{ {nodes} z = Relu (other) }}"
        ))
    };
    let demanding = text(cache);
    let inference = Inference::of(&demanding);
    assert_eq!(known(&demanding, &inference, "past"), "float[1,2,P,4]");
    assert_eq!(known(&demanding, &inference, "y"), "float[1,2,P + S,4]");
    assert_eq!(known(&demanding, &inference, "z"), "float[1,3]");

    // Nobody need run what no output depends on, or a branch that is not taken.
    let idle = text("y = Identity (past)  w = Concat <axis = 2> (past, new)  v = Neg (w)");
    assert_eq!(known(&idle, &Inference::of(&idle), "z"), "float[batch,3]");
    let branch = text(
        "y = If (c) <then_branch = t () => (a) { a = Concat <axis = 2> (past, new) }, else_branch = e () => (b) { b = Identity (past) }>",
    );
    assert_eq!(known(&branch, &Inference::of(&branch), "z"), "float[batch,3]");
    // Names of dimensions that differ stay apart.
    let apart = model(&format!(
        "{HEADER} g (float[batch, 2] a, float[1, 2] b, float[other, 3] x) => (float[] y, float[] z) {{ y = Concat <axis = 1> (a, b)  z = Relu (x) }}"
    ));
    assert_eq!(known(&apart, &Inference::of(&apart), "z"), "float[other,3]");
}

#[test]
fn shapes_of_operators_of_other_projects() {
    let model = model(
        "<ir_version: 10, opset_import: [\"\" : 21, \"qonnx.custom_op.general\" : 1, \"mmdeploy\" : 1]>
        g (float[B, 3] x, float s, float[B, 8, 10, 10] i, float[B, 18, 6, 7] o, float[4, 8, 3, 3] w,
           float[B, 50, 2, 16] v, int64[2, 2] sizes, int64[2] starts, float[B, Q, 2, 2, 4, 2] places, float[] unknown)
          => (float[] a) {
            quantized = qonnx.custom_op.general.Quant (x, s, s, s)
            deformed = mmdeploy.MMCVDeformConv2d (i, o, w)
            modulated = mmdeploy.MMCVModulatedDeformConv2d (i, o, o, w)
            without = mmdeploy.MMCVDeformConv2d (i, o, unknown)
            attended = mmdeploy.MMCVMultiScaleDeformableAttention (v, sizes, starts, places, places)
            nothing = mmdeploy.MMCVMultiScaleDeformableAttention (unknown, sizes, starts, places, places)
            other = mmdeploy.SomethingElse (x)
            a = Relu (x)
          }",
    );
    let inference = Inference::of(&model);
    assert_eq!(known(&model, &inference, "quantized"), "float[B,3]");
    assert_eq!(known(&model, &inference, "deformed"), "float[B,4,6,7]");
    assert_eq!(known(&model, &inference, "modulated"), "float[B,4,6,7]");
    assert!(known(&model, &inference, "without").ends_with(",6,7]"));
    assert_eq!(known(&model, &inference, "attended"), "float[B,Q,32]");
    assert_eq!(known(&model, &inference, "nothing"), "float[..]");
    assert!(is_unknown(&model, &inference, "other"));
}
