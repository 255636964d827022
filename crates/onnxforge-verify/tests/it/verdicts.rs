//! What comparisons say, and that they are not fooled.

use std::collections::HashMap;

use onnxforge_ir::Model;
use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_proto::progress::Silent;
use onnxforge_proto::wire;
use onnxforge_verify::engine::Engine;
use onnxforge_verify::{Options, Report, Verdict, VerifyError, Which, verify};

fn graph(interface: &str, nodes: &str) -> Model {
    let text = format!(
        "<ir_version: 10, opset_import: [\"\" : 21, \"ai.onnx.ml\" : 3]>\ng {interface} {{\n{nodes}\n}}"
    );
    let message = text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap()
}

pub fn compared(interface: &str, first: &str, second: &str) -> Result<Report, VerifyError> {
    let [first, second] = [first, second].map(|nodes| graph(interface, nodes));
    verify(&first, &second, &Options::new(Engine::Native), &Silent)
}

pub fn said(interface: &str, first: &str, second: &str) -> Verdict {
    compared(interface, first, second).unwrap().verdict
}

const X: &str = "(float[N, 4] x) => (float[A, B] y)";

#[test]
fn what_is_unreliable_is_undetermined() {
    // Of a sum with 10⁹ nothing of x is left.
    let noisy = "big = Constant<value_float = 1e9>() s = Add(x, big) y = Sub(s, big)";
    let report = compared(X, noisy, "y = Neg(x)").unwrap();
    assert_eq!(report.verdict, Verdict::Undetermined);
    assert!(report.undetermined().unwrap().contains("unreliable"), "{:?}", report.undetermined());
    assert_eq!(said(X, noisy, noisy), Verdict::Identical);
    let nan = "zero = Constant<value_float = 0.0>() z = Mul(x, zero) y = Div(z, z)";
    let report = compared(X, nan, nan).unwrap();
    assert_eq!(report.verdict, Verdict::Undetermined);
    assert!(report.undetermined().unwrap().contains("NaN"));
}

#[test]
fn random_numbers_are_drawn_once_for_both() {
    let noise = "r = RandomNormalLike(x)";
    assert_eq!(
        said(X, &format!("{noise} y = Add(x, r)"), &format!("{noise} y = Add(r, x)")),
        Verdict::Identical
    );
    let negated = format!("{noise} n = Neg(x) y = Add(n, r)");
    assert_eq!(said(X, &format!("{noise} y = Add(x, r)"), &negated), Verdict::Different);
    // What goes into the draw counts, too, and other names do no harm.
    let drawn = "p = Sigmoid(x) b = Bernoulli(p) y = Identity(b)";
    let other = "n = Neg(x) q = Sigmoid(n) c = Bernoulli(q) y = Identity(c)";
    assert_eq!(said(X, drawn, drawn), Verdict::Identical);
    assert_eq!(said(X, drawn, other), Verdict::Different);
    // One draw for two is something else.
    let two = "r = RandomNormalLike(x) s = RandomNormalLike(x) y = Add(r, s)";
    let one = "r = RandomNormalLike(x) y = Add(r, r)";
    assert!(said_or_undetermined(X, two, one) > Verdict::Rounding);
}

fn said_or_undetermined(interface: &str, first: &str, second: &str) -> Verdict {
    match compared(interface, first, second) {
        Ok(report) => report.verdict,
        Err(VerifyError::Undetermined(_)) => Verdict::Undetermined,
        Err(error) => panic!("{error}"),
    }
}

/// A cache `k` of old and new, and a mask `m` of which as much is read as there are positions.
fn positions(rest: &str) -> String {
    format!(
        "zero = Constant<value_int = 0>() one = Constant<value_int = 1>() s = Shape<start = 1, end = 2>(p) t = Shape<start = 1, end = 2>(x)
         r = Add(s, t) total = Squeeze(r) places = Range(zero, total, one) k = Concat<axis = 1>(p, x) m = Gather<axis = 1>(mask, places) {rest}"
    )
}

#[test]
fn caches_are_compared_empty_and_filled() {
    let interface =
        "(float[batch, new] x, float[batch, past] p, float[batch, length] mask) => (float[A, B] y)";
    let model = positions("y = Mul(k, m)");
    let report = compared(interface, &model, &model).unwrap();
    assert_eq!(
        report.sizes[..3],
        [
            "batch=2, new=3, past=5, length=8",
            "batch=1, new=3, past=0, length=3",
            "batch=3, new=1, past=4, length=5"
        ]
    );
    assert_eq!((report.verdict, report.samples), (Verdict::Identical, 3));
    // One sample is one sample.
    let graph = graph(interface, &model);
    let options = Options { samples: 1, ..Options::new(Engine::Native) };
    assert_eq!(verify(&graph, &graph, &options, &Silent).unwrap().samples, 1);
}

#[test]
fn what_runs_at_no_size_is_refused() {
    let interface = "(float[N, 3] x, float[4, M] w) => (float[A, B] y)";
    match compared(interface, "y = MatMul(x, w)", "y = MatMul(x, w)") {
        Err(VerifyError::Run { which: Which::First, .. }) => {}
        other => panic!("{other:?}"),
    }
    // A mask that is set to be too short leaves nothing to run.
    let model = graph(
        "(float[batch, new] x, float[batch, past] p, float[batch, length] mask) => (float[A, B] y)",
        &positions("y = Mul(k, m)"),
    );
    let dims = ["new", "past", "length"].map(str::to_owned).into_iter().zip([2, 3, 4]).collect();
    let options = Options { dims, ..Options::new(Engine::Native) };
    assert!(matches!(verify(&model, &model, &options, &Silent), Err(VerifyError::Run { .. })));
}

#[test]
fn bugs_that_show_only_at_some_sizes_are_seen() {
    let cases: [(&str, &str, &str); 7] = [
        // Batch and sequence swapped.
        (
            "(float[batch, seq] x) => (float[A] y)",
            "y = ReduceSum<keepdims = 0>(x, a) a = Constant<value_ints = [1]>()",
            "y = ReduceSum<keepdims = 0>(x, a) a = Constant<value_ints = [0]>()",
        ),
        // Only at size 1.
        (
            "(float[N, 4] x) => (float[A, B] y)",
            "y = Identity(x)",
            "s = Shape<start = 0, end = 1>(x) one = Constant<value_ints = [1]>() e = Equal(s, one) f = Cast<to = 1>(e) y = Add(x, f)",
        ),
        // Only with an empty cache.
        (
            "(float[past, 4] p, float[seq, 4] x) => (float[A, B] y)",
            "y = Concat<axis = 0>(p, x)",
            "s = Shape<start = 0, end = 1>(p) zero = Constant<value_ints = [0]>() e = Equal(s, zero) f = Cast<to = 1>(e)
             k = Concat<axis = 0>(p, x) y = Add(k, f)",
        ),
        // Only with a prompt: an empty cache, behind a reshape to one sequence, and several tokens.
        (
            "(float[batch, seq, 4] x, float[batch, past, 4] p) => (float[A, B, C] y)",
            "to = Constant<value_ints = [1, -1, 4]>() s = Shape<start = 1, end = 3>(p) one = Constant<value_ints = [1]>() t = Concat<axis = 0>(one, s)
             q = Reshape(p, t) k = Reshape(x, to) y = Concat<axis = 1>(q, k)",
            "to = Constant<value_ints = [1, -1, 4]>() s = Shape<start = 1, end = 3>(p) one = Constant<value_ints = [1]>() t = Concat<axis = 0>(one, s)
             q = Reshape(p, t) k = Reshape(x, to) n = Shape<start = 1, end = 2>(x) o = Shape<start = 1, end = 2>(p)
             zero = Constant<value_ints = [0]>() e = Equal(o, zero) g = Greater(n, one) b = And(e, g) f = Cast<to = 1>(b)
             j = Concat<axis = 1>(q, k) y = Add(j, f)",
        ),
        // Only with a filled cache and a single token, though nothing but positions says how long the mask is.
        (
            "(float[batch, new] x, float[batch, past] p, float[batch, length] mask) => (float[A, B] y)",
            &positions("y = Mul(k, m)"),
            &positions(
                "w = Mul(k, m) ones = Constant<value_ints = [1]>() zeros = Constant<value_ints = [0]>() e = Equal(t, ones) g = Greater(s, zeros)
                 b = And(e, g) f = Cast<to = 1>(b) y = Add(w, f)",
            ),
        ),
        // Only for a padded mask.
        (
            "(float[batch, seq] x, int64[batch, seq] mask) => (float[A, B] y)",
            "m = Cast<to = 1>(mask) y = Mul(x, m)",
            "y = Identity(x)",
        ),
        // Only where one name has two sizes.
        (
            "(float[batch, 4] text, float[batch, 4] image) => (float[A, B] y)",
            "t = Transpose<perm = [1, 0]>(image) y = MatMul(text, t)",
            "s = Shape<start = 0, end = 1>(text) zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()
             t = Transpose<perm = [1, 0]>(image) p = MatMul(text, t) y = Slice(p, zero, s, one)",
        ),
    ];
    for (interface, right, wrong) in cases {
        let right = right.to_owned();
        // Nodes of the notation stand in the order in which they compute.
        let ordered = |nodes: &str| match nodes.split_once(" a = ") {
            Some((user, constant)) => format!("a = {constant} {user}"),
            None => nodes.to_owned(),
        };
        assert_eq!(said(interface, &ordered(&right), &ordered(&right)), Verdict::Identical, "{right}");
        match compared(interface, &ordered(&right), &ordered(wrong)) {
            Ok(report) => assert_eq!(report.verdict, Verdict::Different, "{wrong}"),
            Err(VerifyError::Run { .. }) => {}
            Err(error) => panic!("{error}: {wrong}"),
        }
    }
}

#[test]
fn maps_are_judged_like_tensors() {
    let map = "(float[N, 3] x) => (seq(map(int64, float)) y)";
    let zipped = |nodes: &str| format!("{nodes} y = ai.onnx.ml.ZipMap<classlabels_int64s = [1, 2, 3]>(p)");
    let right = zipped("e = Exp(x) two = Constant<value_float = 3.0>() p = Div(e, two)");
    let rounded = zipped("e = Exp(x) third = Constant<value_float = 0.33333334>() p = Mul(e, third)");
    let wrong = zipped("e = Exp(x) third = Constant<value_float = 0.3334>() p = Mul(e, third)");
    assert_eq!(said(map, &right, &rounded), Verdict::Rounding);
    assert_eq!(said(map, &right, &wrong), Verdict::Different);
}

#[test]
fn sizes_are_reported_and_can_be_set() {
    let model = graph(X, "y = Relu(x)");
    let options = Options { dims: HashMap::from([("N".to_owned(), 9)]), ..Options::new(Engine::Native) };
    let report = verify(&model, &model, &options, &Silent).unwrap();
    assert_eq!(report.sizes[0], "N=9");
    let report = verify(&model, &model, &Options::new(Engine::Native), &Silent).unwrap();
    // What costs little is tried at larger sizes, too, which are no samples that were asked for.
    assert_eq!((report.samples, &report.sizes[..2]), (2, &["N=2".to_owned(), "N=1".to_owned()][..]));
    assert!(report.sizes.len() > 2, "{:?}", report.sizes);
}

#[test]
fn small_numbers_beside_large_ones_count() {
    let scaled = |factors: &str| format!("k = Constant<value = float[4] {{{factors}}}>() y = Mul(x, k)");
    let right = scaled("1.0, 123456789.0, 1.0, 1.0");
    assert_eq!(said(X, &right, &right), Verdict::Identical);
    for wrong in ["1.0, 123456789.0, 1.0, -1.0", "1.0, 123456789.0, 1.0, 1.001"] {
        assert_eq!(said(X, &right, &scaled(wrong)), Verdict::Different, "{wrong}");
    }
    // Boxes of hundreds of pixels beside scores, both of them rounded in another way.
    let head = |boxes: &str, scores: &str| {
        format!(
            "s = Sigmoid(x) k = Constant<value_float = {boxes}>() b = Mul(s, k) c = Tanh(x) m = Constant<value_float = {scores}>()
             q = Mul(c, m) y = Concat<axis = 1>(b, q)"
        )
    };
    let interface = "(float[N, 64] x) => (float[A, B] y)";
    assert_eq!(said(interface, &head("640.0", "1.0"), &head("640.00006", "0.9999999")), Verdict::Rounding);
    assert_eq!(said(interface, &head("640.0", "1.0"), &head("640.0", "1.0003")), Verdict::Different);
    // What nearly cancels is off by as much as what is in front of it.
    let interface = "(float[N, 500] x) => (float[A] y)";
    let sum = "a = Constant<value_ints = [1]>() y = ReduceSum<keepdims = 0>(x, a)";
    let halves = "a = Constant<value_ints = [1]>() z = Constant<value_ints = [0]>() h = Constant<value_ints = [250]>() e = Constant<value_ints = [500]>()
         p = Slice(x, z, h, a) q = Slice(x, h, e, a) s = Add(p, q) y = ReduceSum<keepdims = 0>(s, a)";
    assert_eq!(said(interface, sum, halves), Verdict::Rounding);
    let doubles = "(double[N, 500] x) => (double[A] y)";
    assert_eq!(said(doubles, sum, halves), Verdict::Rounding);
}

#[test]
fn parts_of_values_are_judged_by_themselves() {
    let large = "k = Constant<value_float = 123456789.0>() b = Mul(x, k)";
    let sequence = "(float[N, 4] x) => (seq(float) y)";
    let right = format!("{large} y = SequenceConstruct(b, x)");
    assert_eq!(said(sequence, &right, &right), Verdict::Identical);
    assert_eq!(
        said(sequence, &right, &format!("{large} n = Neg(x) y = SequenceConstruct(b, n)")),
        Verdict::Different
    );
    let map = |factor: &str| {
        format!(
            "k = Constant<value = float[2] {{123456789.0, {factor}}}>() z = Mul(x, k) y = ai.onnx.ml.ZipMap<classlabels_int64s = [1, 2]>(z)"
        )
    };
    let interface = "(float[N, 2] x) => (seq(map(int64, float)) y)";
    assert_eq!(said(interface, &map("1.0"), &map("1.0")), Verdict::Identical);
    assert_eq!(said(interface, &map("1.0"), &map("-1.0")), Verdict::Different);
}

#[test]
fn a_wrong_column_behind_a_step_is_no_flip() {
    let net = |class: &str| {
        format!(
            "s = Constant<value_float = 0.05>() zp = Constant<value = int8 {{0}}>() q = QuantizeLinear(x, s, zp) d = DequantizeLinear(q, s, zp)
             k = Constant<value_int = 1000>() o = Constant<value_int = 0>() one = Constant<value_int = 1>() r = Range(o, k, one) f = Cast<to = 1>(r)
             t = Sin(f) seven = Constant<value_int = 7>() e = Equal(r, seven) c = Constant<value_float = {class}>() n = Where(e, c, t)
             ax = Constant<value_ints = [0]>() w = Unsqueeze(n, ax) m = ReduceMean<keepdims = 1>(d, a1) y = Mul(m, w)"
        )
        .replacen("s = ", "a1 = Constant<value_ints = [1]>() s = ", 1)
    };
    let interface = "(float[N, 16] x) => (float[A, B] y)";
    let (right, rounded) = (net("0.5"), net("0.50000006"));
    assert_eq!(said(interface, &right, &right), Verdict::Identical);
    assert_eq!(said(interface, &right, &rounded), Verdict::Rounding);
    for wrong in ["0.0", "-0.5"] {
        assert_eq!(said(interface, &right, &net(wrong)), Verdict::Different, "{wrong}");
    }
}

#[test]
fn parameters_of_draws_count() {
    let cases = [
        ("r = RandomNormalLike(x) y = Add(x, r)", "r = RandomNormalLike<mean = 5.0>(x) y = Add(x, r)"),
        ("r = RandomNormalLike(x) y = Add(x, r)", "r = RandomNormalLike<scale = 0.01>(x) y = Add(x, r)"),
        ("r = RandomUniformLike(x) y = Add(x, r)", "r = RandomUniformLike<low = -1.0>(x) y = Add(x, r)"),
        (
            "r = RandomUniformLike<seed = 1.0>(x) y = Add(x, r)",
            "r = RandomUniformLike<seed = 2.0>(x) y = Add(x, r)",
        ),
        (
            "r = RandomNormal<shape = [1, 4]>() y = Add(x, r)",
            "r = RandomNormal<shape = [1, 1]>() y = Add(x, r)",
        ),
        (
            "r = Multinomial<sample_size = 1>(x) f = Cast<to = 1>(r) y = Add(x, f)",
            "r = Multinomial<sample_size = 4>(x) f = Cast<to = 1>(r) y = Add(x, f)",
        ),
        (
            "p = Constant<value = float[1, 4] {0.1, 0.1, 0.1, 0.1}>() r = Bernoulli(p) y = Add(x, r)",
            "p = Constant<value = float[1, 4] {0.9, 0.9, 0.9, 0.9}>() r = Bernoulli(p) y = Add(x, r)",
        ),
        ("r = Bernoulli(x) y = Add(x, r)", "s = Abs(x) r = Bernoulli(s) y = Add(x, r)"),
        ("s = Abs(x) r = Bernoulli(s) y = Add(x, r)", "r = Bernoulli(x) y = Add(x, r)"),
        (
            "p = Constant<value_float = 0.1>() t = Constant<value = bool {1}>() r = Dropout(x, p, t) y = Identity(r)",
            "p = Constant<value_float = 0.9>() t = Constant<value = bool {1}>() r = Dropout(x, p, t) y = Identity(r)",
        ),
    ];
    for (right, wrong) in cases {
        assert_eq!(said(X, right, right), Verdict::Identical, "{right}");
        assert_eq!(said(X, right, wrong), Verdict::Different, "{wrong}");
    }
    // Defaults may be said, and what is computed may be what comes in.
    let said_so = "r = RandomNormalLike<mean = 0.0, scale = 1.0, dtype = 1>(x) y = Add(x, r)";
    assert_eq!(said(X, cases[0].0, said_so), Verdict::Identical);
    let other_input = "(float[N, 4] x, float[N, 4] z) => (float[A, B] y)";
    assert_eq!(
        said(other_input, "r = Bernoulli(x) y = Add(z, r)", "r = Bernoulli(z) y = Add(z, r)"),
        Verdict::Different
    );
    let copied = "i = Identity(x) r = Bernoulli(i) y = Add(x, r)";
    assert_eq!(said(X, copied, "r = Bernoulli(x) y = Add(x, r)"), Verdict::Identical);
}

#[test]
fn large_integers_are_compared_as_such() {
    let interface = "(int64[N, 4] x) => (int64[A, B] y)";
    let sum = |number: &str| format!("k = Constant<value_int = {number}>() y = Add(x, k)");
    assert_eq!(said(interface, &sum("1152921504606846976"), &sum("1152921504606846977")), Verdict::Different);
}

#[test]
fn what_has_no_finite_float64_run_is_undetermined() {
    let noise = "b = Constant<value_float = 1e6>() a = Add(x, b) s = Sub(a, b) z = Sub(s, x)";
    let report =
        compared(X, &format!("{noise} y = Reciprocal(z)"), &format!("{noise} r = Reciprocal(z) y = Neg(r)"));
    assert!(report.unwrap().verdict >= Verdict::Undetermined);
}

#[test]
fn doubts_of_further_runs_count() {
    let large = "s = Shape<start = 0, end = 1>(x) four = Constant<value_ints = [4]>() g = Greater(s, four) f = Cast<to = 1>(g)";
    let first =
        format!("{large} k = Constant<value_float = 1e9>() b = Mul(f, k) a = Add(x, b) y = Sub(a, b)");
    let second =
        format!("{large} two = Constant<value_float = -2.0>() m = Mul(f, two) n = Mul(x, m) y = Add(x, n)");
    assert!(said(X, &first, &second) >= Verdict::Undetermined);
}

#[test]
fn sequences_that_are_always_empty_say_nothing() {
    let interface = "(float[N, 4] x) => (seq(float[P, Q]) y)";
    let model = |given: &str| {
        format!(
            "t = Tanh(x) n = {given}(x) m = ReduceMax<keepdims = 0>(t) two = Constant<value_float = 2.0>() c = Greater(m, two)
             y = If(c) <then_branch = t1 () => (seq(float[P, Q]) u) {{ u = SequenceConstruct(n) }},
                        else_branch = e1 () => (seq(float[P, Q]) v) {{ v = SequenceEmpty() }}>"
        )
    };
    assert_eq!(said(interface, &model("Identity"), &model("Neg")), Verdict::Undetermined);
}

#[test]
fn columns_that_are_always_nan_hide_what_they_are() {
    let model = |power: &str| {
        format!(
            "k = Constant<value = float[4] {{0.0, 1000000.0, 1000000.0, 1000000.0}}>() s = Sub(x, k)
             p = Constant<value = float[4] {{2.0, {power}, {power}, {power}}}>() y = Pow(s, p)"
        )
    };
    assert_eq!(said(X, &model("0.5"), &model("0.7")), Verdict::Undetermined);
    // Some NaN in every column is no harm.
    assert_eq!(said(X, "y = Log(x)", "y = Log(x)"), Verdict::Identical);
}
