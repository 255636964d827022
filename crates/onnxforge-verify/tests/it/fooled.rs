//! Wrong models that are right for most inputs.

use crate::verdicts::{compared, said};
use onnxforge_verify::Verdict;

/// What differs, the interface, the right model and the wrong one.
const WRONG: [(&str, &str, &str, &str); 19] = [
    (
        "sequences beyond a hundred",
        "(float[batch, seq] x) => (float[A, B] y)",
        "y = Identity(x)",
        "s = Shape<start = 1, end = 2>(x) most = Constant<value_ints = [100]>() g = Greater(s, most) f = Cast<to = 1>(g) y = Add(x, f)",
    ),
    (
        "batches of five or more",
        "(float[batch, seq] x) => (float[A, B] y)",
        "y = Identity(x)",
        "s = Shape<start = 0, end = 1>(x) most = Constant<value_ints = [4]>() g = Greater(s, most) f = Cast<to = 1>(g) y = Add(x, f)",
    ),
    ("integers other than 0 and 1", "(int64[N, 4] x) => (int64[A, B] y)", "y = Identity(x)", "y = Mul(x, x)"),
    ("negative integers", "(int64[N, 4] x) => (int64[A, B] y)", "y = Identity(x)", "y = Abs(x)"),
    (
        "bytes above 127",
        "(uint8[N, 3, 8, 8] x) => (float[A, B, C, D] y)",
        "y = Cast<to = 1>(x)",
        "i = Cast<to = 3>(x) y = Cast<to = 1>(i)",
    ),
    ("an overflow of bytes", "(uint8[N, 8] x) => (uint8[A, B] y)", "y = Add(x, x)", "y = Max(x, x)"),
    (
        "the id of the padding",
        "(int64[N, S] ids) => (float[A, B, C] y)",
        "t = Constant<value = float[9, 2] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}>() pad = Constant<value_int = 7>()
         e = Equal(ids, pad) n = Not(e) f = Cast<to = 1>(n) one = Constant<value_ints = [-1]>() u = Unsqueeze(f, one) g = Gather(t, ids) y = Mul(g, u)",
        "t = Constant<value = float[9, 2] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}>() y = Gather(t, ids)",
    ),
    (
        "positions that do not follow each other",
        "(int64[N, S] position_ids) => (float[A, B] y)",
        "c = Cast<to = 1>(position_ids) y = Sin(c)",
        "s = Shape<start = 1, end = 2>(position_ids) q = Squeeze(s) zero = Constant<value_int = 0>() one = Constant<value_int = 1>()
         r = Range(zero, q, one) z = Mul(position_ids, zero) p = Add(z, r) c = Cast<to = 1>(p) y = Sin(c)",
    ),
    (
        "padding at the front, where a mask is taken for lengths",
        "(float[batch, seq] x, int64[batch, seq] mask) => (float[A, B] y)",
        "m = Cast<to = 1>(mask) y = Mul(x, m)",
        "axes = Constant<value_ints = [1]>() l = ReduceSum(mask, axes) s = Shape<start = 1, end = 2>(x) q = Squeeze(s)
         zero = Constant<value_int = 0>() one = Constant<value_int = 1>() r = Range(zero, q, one) b = Less(r, l) m = Cast<to = 1>(b) y = Mul(x, m)",
    ),
    (
        "words that are not known",
        "(string[N, 1] x) => (int64[A, B] y)",
        "y = ai.onnx.ml.LabelEncoder<keys_strings = [\"a\", \"b\"], values_int64s = [1, 2], default_int64 = -1>(x)",
        "y = ai.onnx.ml.LabelEncoder<keys_strings = [\"a\", \"b\"], values_int64s = [1, 2], default_int64 = 0>(x)",
    ),
    (
        "a threshold far from 0",
        "(float[N, 4] x) => (float[A, B] y)",
        "most = Constant<value_float = 4000.0>() y = Min(x, most)",
        "y = Identity(x)",
    ),
    (
        "numbers at the threshold itself",
        "(float[N, 4] x) => (bool[A, B] y)",
        "at = Constant<value_float = 0.3>() y = Less(x, at)",
        "at = Constant<value_float = 0.3>() y = LessOrEqual(x, at)",
    ),
    (
        "a scale of which small numbers are nothing",
        "(float[N, 4] x) => (int8[A, B] y)",
        "s = Constant<value_float = 8.0>() z = Constant<value = int8 {0}>() y = QuantizeLinear(x, s, z)",
        "s = Constant<value_float = 16.0>() z = Constant<value = int8 {0}>() y = QuantizeLinear(x, s, z)",
    ),
    (
        "a branch that data rarely lead into",
        "(float[N] x) => (float[A] y)",
        "zero = Constant<value_float = 1.8>() s = ReduceMax<keepdims = 0>(x) c = Greater(s, zero)
         y = If(c) <then_branch = t () => (float[A] u) { u = Neg(x) }, else_branch = e () => (float[A] v) { v = Relu(x) }>",
        "y = Relu(x)",
    ),
    (
        "one of many outputs",
        "(float[N, 6] x) => (float[A, B] a, float[C, D] b, float[E, F] c)",
        "a = Relu(x) b = Sigmoid(x) c = Tanh(x)",
        "a = Relu(x) b = Sigmoid(x) c = Erf(x)",
    ),
    (
        "a loop that does not turn at all",
        "(int64 n, float[4] x) => (float[A] y)",
        "y = Loop(n, , x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) { d = Identity(c) t = Add(s, s) }>",
        "one = Constant<value_int = 1>() m = Max(n, one)
         y = Loop(m, , x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) { d = Identity(c) t = Add(s, s) }>",
    ),
    (
        "an optional input that is missing",
        "(optional(float[4]) x) => (bool y)",
        "y = OptionalHasElement(x)",
        "y = Constant<value = bool {1}>()",
    ),
    (
        "the second tensor of a sequence",
        "(seq(float[2]) x) => (float[A] y)",
        "y = ConcatFromSequence<axis = 0>(x)",
        "zero = Constant<value_int = 0>() y = SequenceAt(x, zero)",
    ),
    (
        "the state in which a recurrent layer begins",
        "(float[S, N, 2] x) => (float[A, B, C, D] y)",
        "w = Constant<value = float[1, 1, 2] {0.5, 1}>() r = Constant<value = float[1, 1, 1] {0.7}>() y, h = RNN<hidden_size = 1>(x, w, r)",
        "w = Constant<value = float[1, 1, 2] {0.5, 1}>() r = Constant<value = float[1, 1, 1] {0.7}>() n = Shape<start = 1, end = 2>(x)
         one = Constant<value_ints = [1]>() s = Concat<axis = 0>(one, n, one) i = ConstantOfShape<value = float[1] {0.01}>(s)
         y, h = RNN<hidden_size = 1>(x, w, r, , , i)",
    ),
];

#[test]
fn what_is_wrong_for_a_few_inputs_is_seen() {
    for (what, interface, right, wrong) in WRONG {
        assert_eq!(said(interface, right, right), Verdict::Identical, "{what}");
        assert_eq!(said(interface, right, wrong), Verdict::Different, "{what}");
    }
}

#[test]
fn trees_are_tried_on_both_sides_of_their_splits() {
    let tree = |value: f32| {
        format!(
            "y = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 1, nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [1, 0, 0],
             nodes_modes = [\"BRANCH_LEQ\", \"LEAF\", \"LEAF\"], nodes_values = [4000.0, 0.0, 0.0], nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0],
             target_treeids = [0, 0], target_nodeids = [1, 2], target_ids = [0, 0], target_weights = [1.0, {value:?}]>(x)"
        )
    };
    let interface = "(float[N, 3] x) => (float[A, B] y)";
    assert_eq!(said(interface, &tree(2.0), &tree(2.0)), Verdict::Identical);
    assert_eq!(said(interface, &tree(2.0), &tree(3.0)), Verdict::Different);
}

#[test]
fn results_that_are_always_empty_say_nothing() {
    let interface = "(float[N] x) => (int64[A, B] y)";
    let never = "most = Constant<value_float = 3.0e38>() t = Tanh(x) g = Greater(t, most) y = NonZero(g)";
    let report = compared(interface, never, never).unwrap();
    assert_eq!(report.verdict, Verdict::Undetermined);
    assert!(report.undetermined().unwrap().contains("no elements"));
    // What is declared to be empty, and is, is right.
    let empty = "y = Constant<value = int64[0, 2] {}>()";
    assert_eq!(said(interface, empty, empty), Verdict::Identical);
}

#[test]
fn branches_that_no_input_leads_into_are_listed() {
    let branch = |other: &str| {
        format!(
            "t = Tanh(x) m = ReduceMax<keepdims = 0>(t) two = Constant<value_float = 2.0>() c = Greater(m, two)
             y = If(c) <then_branch = t () => (float[A] u) {{ u = {other}(x) }}, else_branch = e () => (float[A] v) {{ v = Relu(x) }}>"
        )
    };
    let report = compared("(float[N] x) => (float[A] y)", &branch("Neg"), &branch("Abs")).unwrap();
    assert_eq!(report.untaken, ["then_branch of If y"]);
}

#[test]
fn steps_excuse_only_what_is_behind_them() {
    // One element in two thousand is wrong, beside a step on which it does not depend.
    let interface = "(float[N, 2000] x, float[3] z) => (float[A, B] y, float[C] r)";
    let model = |offset: &str| {
        format!("k = Constant<value_float = {offset}>() one = Constant<value_ints = [1]>() last = Constant<value_ints = [-1]>()
         zero = Constant<value_ints = [0]>() h = Slice(x, zero, last, one) e = Constant<value_ints = [3000]>() t = Slice(x, last, e, one)
         u = Add(t, k) y = Concat<axis = 1>(h, u) r = Round(z)")
    };
    assert_eq!(said(interface, &model("0.0"), &model("0.01")), Verdict::Different);
}

#[test]
fn sizes_that_are_multiples_are_tried() {
    let interface = "(float[batch, seq] x) => (float[A, B] y)";
    let wrong = |axis: usize, of: usize| {
        format!(
            "s = Shape<start = {axis}, end = {}>(x) k = Constant<value_ints = [{of}]>() m = Mod(s, k) z = Constant<value_ints = [0]>()
             e = Equal(m, z) f = Cast<to = 1>(e) r = Relu(x) y = Add(r, f)",
            axis + 1
        )
    };
    for (axis, of) in [(0, 4), (0, 8), (0, 16), (0, 32), (1, 4), (1, 8), (1, 16), (1, 32), (1, 64)] {
        assert_eq!(said(interface, "y = Relu(x)", &wrong(axis, of)), Verdict::Different, "{axis}: {of}");
    }
}

#[test]
fn thresholds_are_looked_for_behind_arithmetic() {
    let shifted = "k = Constant<value_float = 1000.0>() s = Sub(x, k)";
    let scaled = "k = Constant<value_float = 255.0>() d = Div(x, k)";
    let cases = [
        (format!("{shifted} r = Relu(s) y = Add(x, r)"), "y = Identity(x)".to_owned()),
        (format!("{shifted} y = Abs(s)"), format!("{shifted} y = Neg(s)")),
        (
            format!("{scaled} h = Constant<value_float = 0.5>() g = Greater(d, h) y = Cast<to = 1>(g)"),
            "z = Constant<value_float = 0.0>() y = Mul(x, z)".to_owned(),
        ),
        (
            format!(
                "{scaled} l = Constant<value_float = 0.0>() h = Constant<value_float = 1.0>() y = Clip(d, l, h)"
            ),
            format!("{scaled} y = Relu(d)"),
        ),
        ("t = ThresholdedRelu<alpha = 1000.0>(x) y = Add(x, t)".to_owned(), "y = Identity(x)".to_owned()),
    ];
    let interface = "(float[N, 4] x) => (float[A, B] y)";
    for (right, wrong) in cases {
        assert_eq!(said(interface, &right, &right), Verdict::Identical, "{right}");
        assert_eq!(said(interface, &right, &wrong), Verdict::Different, "{right}");
    }
}
