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
