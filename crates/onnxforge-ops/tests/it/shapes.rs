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
    // An empty cache is among them.
    assert_eq!(sizes[..2], ["batch=2, seq=3, past=5, total=8", "batch=1, seq=1, past=0, total=1"]);
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
