//! Sizes at which models can run: solved from what graphs demand.

use std::collections::HashMap;

use onnxforge_ir::Model;
use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ops::eval::shapes::{Names, Search, Wanted};
use onnxforge_proto::wire;

fn graph(interface: &str, nodes: &str) -> Model {
    let text = format!(
        "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>\ng {interface} {{\n{nodes}\n}}"
    );
    let message = text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap()
}

/// The first few sizes that are found, in words.
fn found(model: &Model, wanted: Wanted) -> Vec<String> {
    Search::new(model, wanted).take(3).map(|shapes| shapes.describe()).collect()
}

fn sizes(interface: &str, nodes: &str) -> Vec<String> {
    found(&graph(interface, nodes), Wanted::default())
}

#[test]
fn what_is_free_differs_and_takes_small_sizes() {
    let sizes =
        sizes("(float[N, 4] x, float[M, 4] z) => (float[A, B] y, float[C, D] w)", "y = Relu(x) w = Relu(z)");
    assert_eq!(sizes, ["N=2, M=3", "N=1, M=1", "N=3, M=1"]);
}

#[test]
fn sums_of_sizes_are_solved() {
    let sizes = sizes(
        "(float[batch, seq] x, float[batch, past] p, float[batch, total] mask) => (float[a, b] y)",
        "k = Concat<axis = 1>(p, x) y = Add(k, mask)",
    );
    // Several steps at once, a prompt with an empty cache, and single steps.
    assert_eq!(
        sizes,
        [
            "batch=2, seq=3, past=5, total=8",
            "batch=1, seq=3, past=0, total=3",
            "batch=3, seq=1, past=4, total=5"
        ]
    );
}

#[test]
fn caches_are_seen_through_what_moves_them() {
    // Fixed to one sequence by a reshape, whose elements are the same in number with an empty cache, too.
    let one = sizes(
        "(float[batch, seq, 4] x, float[batch, past, 4] p) => (float[a, b, c] y)",
        "s = Shape<start = 1, end = 3>(p) one = Constant<value_ints = [1]>() to = Concat<axis = 0>(one, s) q = Reshape(p, to)
         t = Shape<start = 1, end = 3>(x) into = Concat<axis = 0>(one, t) k = Reshape(x, into) y = Concat<axis = 1>(q, k)",
    );
    assert_eq!(one, ["batch=1, seq=3, past=5", "batch=1, seq=3, past=0", "batch=1, seq=1, past=4"]);
    // Keys and values in one tensor, as older exports have them, and other axes.
    let stacked = sizes(
        "(float[n, t, 4] x, float[2, n, 4, c] p) => (float[e, f, g] y)",
        "zero = Constant<value_int = 0>() k = Gather<axis = 0>(p, zero) m = Transpose<perm = [0, 2, 1]>(k)
         r = Relu(x) y = Concat<axis = 1>(m, r)",
    );
    assert!(stacked[1].contains("c=0"), "{stacked:?}");
    // What attention puts before its keys.
    let attention = sizes(
        "(float[n, t, 16] q, float[n, 2, c, 8] pk, float[n, 2, c, 8] pv) => (float[e, f, g] y, float[h, i, j, l] k, float[m, o, r, s] v)",
        "y, k, v = com.microsoft.MultiHeadAttention<num_heads = 2>(q, q, q, , , , pk, pv)",
    );
    assert_eq!(attention[..2], ["n=2, t=3, c=5", "n=1, t=3, c=0"]);
}

#[test]
fn all_caches_are_empty_together_whatever_they_are_called() {
    let caches = sizes(
        "(float[n, t, 4] x, float[n, c, 4] p, float[n, d, 4] q) => (float[e, f, g] y, float[h, i, j] z)",
        "r = Relu(x) y = Concat<axis = 1>(p, r) z = Concat<axis = 1>(q, r)",
    );
    assert_eq!(caches[1], "n=1, t=3, c=0, d=0");
    // Of two inputs that are put together one stays.
    let inputs = sizes("(float[n, 4] x, float[m, 4] z) => (float[a, b] y)", "y = Concat<axis = 0>(x, z)");
    assert_eq!(inputs[1], "n=0, m=1");
    // A Concat of one tensor joins nothing, and what nothing is appended to is no cache.
    let single = sizes("(float[n, m] x) => (float[a, b] y)", "y = Concat<axis = 1>(x)");
    assert!(single.iter().all(|sizes| !sizes.contains("=0")), "{single:?}");
}

#[test]
fn masks_are_as_long_as_positions_reach() {
    let nodes = "zero = Constant<value_int = 0>() one = Constant<value_int = 1>() last = Constant<value_ints = [-1]>()
         s = Shape<start = 1, end = 2>(p) t = Shape<start = 1, end = 2>(x) r = Add(s, t) total = Squeeze(r)
         n0 = Shape<start = 0, end = 1>(x) n = Squeeze(n0) k = Concat<axis = 1>(p, x)
         places = Range(zero, total, one) rows = Range(zero, n, one)";
    let by_gather = sizes(
        "(float[batch, new] x, float[batch, past] p, float[batch, length] mask) => (float[a, b] y)",
        &format!("{nodes} m = Gather<axis = 1>(mask, places) y = Mul(k, m)"),
    );
    assert_eq!(by_gather[0], "batch=2, new=3, past=5, length=8");
    assert_eq!(by_gather[1], "batch=1, new=3, past=0, length=3");
    // As torch.onnx writes it: pairs of rows and positions.
    let by_pairs = sizes(
        "(float[batch, new] x, float[batch, past] p, float[batch, length] mask) => (float[a, b] y)",
        &format!(
            "{nodes} row = Unsqueeze(rows, last) shape = Concat<axis = 0>(n0, r) two = Expand(row, shape) wide = Expand(places, shape)
             u = Unsqueeze(two, last) v = Unsqueeze(wide, last) pairs = Concat<axis = -1>(u, v) m = GatherND(mask, pairs) y = Mul(k, m)"
        ),
    );
    assert_eq!(by_pairs[..2], by_gather[..2]);
    // Two readers: the longer one counts. A table of positions has an end.
    let longer = sizes(
        "(float[batch, new] x, float[batch, past] p, float[length] mask) => (float[a] y, float[b] z)",
        &format!(
            "{nodes} next = Add(places, one) y = Gather<axis = 0>(mask, places) z = Gather<axis = 0>(mask, next)"
        ),
    );
    assert_eq!(longer[0], "batch=2, new=3, past=5, length=9");
    let table = graph(
        "(float[batch, new] x, float[batch, past] p, float[6, 1] table) => (float[a, b] y)",
        &format!("{nodes} y = Gather<axis = 0>(table, places)"),
    );
    let all: Vec<String> =
        Search::new(&table, Wanted::default()).take(4).map(|shapes| shapes.describe()).collect();
    assert!(all[0] == "batch=2, new=1, past=5" && all.len() == 4, "{all:?}");
    // What a Slice takes of positions need not reach so far.
    let sliced = sizes(
        "(float[batch, new] x, float[batch, past] p, float[length] mask) => (float[a] y)",
        &format!(
            "{nodes} z = Constant<value_ints = [0]>() o = Constant<value_ints = [1]>() few = Slice(places, z, o) y = Gather<axis = 0>(mask, few)"
        ),
    );
    assert_eq!(sliced[0], "batch=2, new=3, past=5, length=7");
}

#[test]
fn a_place_that_is_always_looked_up_fixes_no_size() {
    let first = "zero = Constant<value_int = 0>() y = Gather<axis = 1>(x, zero)";
    assert_eq!(sizes("(float[N, S, 4] x) => (float[A, B] y)", first), ["N=2, S=3", "N=1, S=1", "N=3, S=1"]);
    let third = "two = Constant<value_int = 2>() y = Gather<axis = 1>(x, two)";
    assert_eq!(sizes("(float[N, S, 4] x) => (float[A, B] y)", third), ["N=2, S=3", "N=1, S=3", "N=3, S=3"]);
}

#[test]
fn caches_of_layers_are_alike_where_nothing_else_says_so() {
    // Names tell nothing, and a sum that may broadcast hides how long keys and values are.
    let sizes = sizes(
        "(float[a, b, 4] x, float[c, d, 4] p, float[e, f, 4] v, float[g, h, 4] q) => (float[k, l, m] y)",
        "r = Relu(x) two = Constant<value_ints = [2]>() one = Constant<value_ints = [1]>()
         k = Concat<axis = 1>(p, r) w = Concat<axis = 1>(v, r) o = Concat<axis = 1>(q, r) t = Transpose<perm = [0, 2, 1]>(k)
         s = MatMul(x, t) n = ReduceSum<keepdims = 0>(o, two) bias = Unsqueeze(n, one) u = Add(s, bias) y = MatMul(u, w)",
    );
    assert_eq!(
        sizes,
        [
            "a=2, b=3, c=2, d=5, e=2, f=5, g=2, h=5",
            "a=1, b=3, c=1, d=0, e=1, f=0, g=1, h=0",
            "a=3, b=1, c=3, d=4, e=3, f=4, g=3, h=4"
        ]
    );
    // A mask that was made one row is read at rows and positions.
    let flat = "(float[batch, new] x, float[n, past] p, float[rows, length] mask) => (float[a, b] y)";
    let nodes = "zero = Constant<value_int = 0>() one = Constant<value_int = 1>() last = Constant<value_ints = [-1]>()
         s = Shape<start = 1, end = 2>(p) t = Shape<start = 1, end = 2>(x) r = Add(s, t) total = Squeeze(r) places = Range(zero, total, one)
         n0 = Shape<start = 0, end = 1>(x) bs = Squeeze(n0) rows0 = Range(zero, bs, one) column = Unsqueeze(rows0, last) l0 = Shape<start = 1, end = 2>(mask)
         start = Mul(column, l0) index = Add(start, places) line = Reshape(mask, last) m = Gather(line, index) k = Concat<axis = 1>(p, x) y = Mul(k, m)";
    let sizes = found(&graph(flat, nodes), Wanted::default());
    assert_eq!(sizes[0], "batch=2, new=3, n=2, past=5, rows=2, length=8");
}

#[test]
fn what_no_size_mends_is_known_beforehand() {
    let hopeless =
        |interface: &str, nodes: &str| Search::new(&graph(interface, nodes), Wanted::default()).is_hopeless();
    assert!(hopeless("(float[N, 3] x, float[4, M] w) => (float[A, B] y)", "y = MatMul(x, w)"));
    assert!(!hopeless("(float[N, K] x, float[4, M] w) => (float[A, B] y)", "y = MatMul(x, w)"));
    // A branch need not be taken.
    assert!(!hopeless(
        "(bool c, float[N, 3] x, float[4, M] w) => (float[A, B] y)",
        "y = If(c) <then_branch = t () => (float[A, B] z) { z = MatMul(x, w) }, else_branch = e () => (float[A, B] z) { z = Relu(x) }>"
    ));
}

#[test]
fn a_batch_that_the_graph_fixes_is_1() {
    let sizes = sizes(
        "(float[batch, seq, 6] x) => (float[a, b, c, d] y)",
        "s = Shape<start = 1, end = 2>(x) one = Constant<value_ints = [1]>() rest = Constant<value_ints = [2, 3]>()
         shape = Concat<axis = 0>(one, s, rest) y = Reshape(x, shape)",
    );
    assert!(sizes.iter().all(|sizes| sizes.starts_with("batch=1, ")), "{sizes:?}");
    assert!(sizes.len() > 1 && sizes[0] != sizes[1], "{sizes:?}");
}

#[test]
fn head_sizes_windows_and_multiples_are_met() {
    let cache = sizes(
        "(float[n, 2, past, head] p, float[n, 2, s, 16] k) => (float[a, b, c, d] y)",
        "y = Concat<axis = 2>(p, k)",
    );
    assert!(cache[0].contains("head=16"), "{cache:?}");
    let window = sizes(
        "(float[n, 1, samples] x, float[4, 1, 10] w) => (float[a, b, c] y)",
        "h = Conv<strides = [5]>(x, w) f = Constant<value_float = 1.0>() g = Mul(h, f)
         y = MaxPool<kernel_shape = [3], strides = [2]>(g)",
    );
    // 20 samples make three windows.
    assert!(window[0].contains("samples=20"), "{window:?}");
    let multiple = sizes(
        "(float[n, length] x) => (float[a, b, c] y)",
        "to = Constant<value_ints = [0, -1, 8]>() y = Reshape(x, to)",
    );
    assert!(multiple[0].contains("length=8"), "{multiple:?}");
}

#[test]
fn sizes_that_are_wanted_are_kept_and_memory_is_bounded() {
    let model = graph("(float[N, M] x) => (float[A, B] y)", "y = Exp(x)");
    let dims = HashMap::from([("N".to_owned(), 50_000)]);
    assert_eq!(found(&model, Wanted { dims: dims.clone(), ..Wanted::default() })[0], "N=50000, M=2");
    let mut search = Search::new(&model, Wanted { dims, memory: 100_000, ..Wanted::default() });
    assert!(search.next().is_none());
    let why = search.refusal().map(ToString::to_string).unwrap();
    assert!(why.contains("MB of memory"), "{why}");
}

#[test]
fn contradictions_end_the_search_with_their_place() {
    let model = graph("(float[N, 3] x, float[4, M] w) => (float[A, B] y)", "y = MatMul(x, w)");
    // The node fails at any size: that is nothing that sizes could mend, and an engine will say it.
    assert!(Search::new(&model, Wanted::default()).next().is_some());
    let model = graph("(float[N, M] x, float[4, K] w) => (float[A, B] y)", "y = MatMul(x, w)");
    let dims = HashMap::from([("M".to_owned(), 3)]);
    let mut search = Search::new(&model, Wanted { dims, ..Wanted::default() });
    assert!(search.next().is_none());
    let why = search.refusal().map(ToString::to_string).unwrap();
    assert!(why.contains("MatMul") && why.contains("dimensions 3 and 4 differ"), "{why}");
}

#[test]
fn one_name_is_one_size_only_where_the_graph_says_so() {
    let places = |interface: &str, nodes: &str| {
        let names = Names::of(&graph(interface, nodes), Wanted::default());
        let list = |found: &[(Vec<onnxforge_ops::eval::shapes::Place>, _)]| -> Vec<String> {
            let place =
                |place: &onnxforge_ops::eval::shapes::Place| format!("{}[{}]", place.input, place.axis);
            found.iter().flat_map(|(places, _)| places.iter().map(place)).collect()
        };
        let apart: Vec<_> = names.apart.iter().map(|(places, _)| (places.clone(), ())).collect();
        let broadcast: Vec<_> = names.broadcast.iter().map(|(places, _)| (places.clone(), ())).collect();
        (list(&apart), list(&broadcast))
    };
    // Texts and images.
    let towers = places(
        "(float[batch, 4] text, float[batch, 4] image) => (float[A, B] y)",
        "t = Transpose<perm = [1, 0]>(image) y = MatMul(text, t)",
    );
    assert_eq!(towers.0, ["text[0]", "image[0]"]);
    // A cache is put together with what is new.
    let cache = places(
        "(float[batch, past, 4] p, float[batch, seq, 4] x) => (float[A, B, C] y)",
        "y = Concat<axis = 1>(p, x)",
    );
    assert_eq!(cache, (vec![], vec![]));
    // A mask may be broadcast.
    let mask = places("(float[batch, 4] x, float[batch, 1] mask) => (float[A, B] y)", "y = Mul(x, mask)");
    assert_eq!(mask, (vec![], vec!["x[0]".to_owned(), "mask[0]".to_owned()]));
}
