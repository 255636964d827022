//! Wrong rewrites, planted on purpose: each must be found, named and reverted.
//!
//! A case is a few nodes and what a wrong rule makes of them. They stand in a larger graph, beside the passes that run by default.

use std::collections::HashMap;
use std::time::Duration;

use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ir::{Accuracy, Model, NodeId, Operand, Trust};
use onnxforge_proto::progress::Silent;
use onnxforge_proto::schema::{ModelProto, NodeProto};
use onnxforge_proto::wire;
use onnxforge_rewrite::passes::{Pass, Work, defaults, pipeline};
use onnxforge_rewrite::{Change, Cx, Rule, Skip};
use onnxforge_verify::blocks::{Pairs, verify_blocks};
use onnxforge_verify::engine::Engine;
use onnxforge_verify::guard::{self, When};
use onnxforge_verify::local::Wrong;
use onnxforge_verify::{self as verify, Verdict};

const BITS: Accuracy = Accuracy::BitExact;
const ROUNDED: Accuracy = Accuracy::Rounding { ulps: 4.0 };

struct Case {
    name: &'static str,
    promise: Accuracy,
    /// Inputs and outputs.
    ports: &'static str,
    right: &'static str,
    wrong: &'static str,
    /// Whether outputs show it on ordinary numbers; others only checks of the single change see.
    shows: bool,
}

const fn case(
    name: &'static str,
    promise: Accuracy,
    ports: &'static str,
    right: &'static str,
    wrong: &'static str,
) -> Case {
    Case { name, promise, ports, right, wrong, shows: true }
}

const fn hidden(
    name: &'static str,
    promise: Accuracy,
    ports: &'static str,
    right: &'static str,
    wrong: &'static str,
) -> Case {
    Case { shows: false, ..case(name, promise, ports, right, wrong) }
}

const SQUARE: &str = "(float[3,3] a) => (float[3,3] y)";
const TWO: &str = "(float[N,4] a, float[N,4] b) => (float[N,4] y)";
const ROWS: &str = "(float[N,4] a) => (float[N,4] y)";
const IMAGE: &str = "(float[1,2,5,5] a) => (float[1,2,5,5] y)";

static CASES: &[Case] = &[
    case("transpose_forgotten", BITS, SQUARE, "{ y = Transpose(a) }", "{ y = Identity(a) }"),
    case("softmax_axis", ROUNDED, ROWS, "{ y = Softmax<axis = 1>(a) }", "{ y = Softmax<axis = 0>(a) }"),
    case(
        "concat_swapped",
        BITS,
        "(float[N,4] a, float[N,4] b) => (float[N,8] y)",
        "{ y = Concat<axis = 1>(a, b) }",
        "{ y = Concat<axis = 1>(b, a) }",
    ),
    case("sub_swapped", BITS, TWO, "{ y = Sub(a, b) }", "{ y = Sub(b, a) }"),
    case("div_swapped", ROUNDED, TWO, "{ y = Div(a, b) }", "{ y = Div(b, a) }"),
    case(
        "matmul_swapped",
        ROUNDED,
        "(float[3,3] a, float[3,3] b) => (float[3,3] y)",
        "{ y = MatMul(a, b) }",
        "{ y = MatMul(b, a) }",
    ),
    case(
        "mean_became_sum",
        ROUNDED,
        "(float[N,4] a) => (float[N,1] y)",
        "<int64[1] one = {1}> { y = ReduceMean(a, one) }",
        "<int64[1] one = {1}> { y = ReduceSum(a, one) }",
    ),
    case(
        "reduce_axis",
        ROUNDED,
        "(float[3,3] a) => (float[3] y)",
        "<int64[1] k = {0}> { y = ReduceMax<keepdims = 0>(a, k) }",
        "<int64[1] k = {1}> { y = ReduceMax<keepdims = 0>(a, k) }",
    ),
    case(
        "epsilon",
        Accuracy::Rounding { ulps: 16.0 },
        ROWS,
        "<float[4] s = {1, 2, 1, 2}> { y = LayerNormalization<epsilon = 0.00001>(a, s) }",
        "<float[4] s = {1, 2, 1, 2}> { y = LayerNormalization<epsilon = 0.000001>(a, s) }",
    ),
    case(
        "normalized_axis",
        ROUNDED,
        "(float[4,4] a) => (float[4,4] y)",
        "<float[4] s = {1, 1, 1, 1}> { y = LayerNormalization<axis = 1>(a, s) }",
        "<float[4] s = {1, 1, 1, 1}> { t = Transpose(a)  u = LayerNormalization<axis = 1>(t, s)  y = Transpose(u) }",
    ),
    case(
        "broadcast_dropped",
        BITS,
        "(float[3,3] a, float[3] b) => (float[3,3] y)",
        "{ y = Add(a, b) }",
        "<int64[1] k = {1}> { u = Unsqueeze(b, k)  y = Add(a, u) }",
    ),
    case(
        "bias_dropped",
        ROUNDED,
        "(float[N,2] a, float[3] b) => (float[N,3] y)",
        "<float[2,3] w = {1, 2, 3, 4, 5, 6}> { y = Gemm(a, w, b) }",
        "<float[2,3] w = {1, 2, 3, 4, 5, 6}> { y = Gemm(a, w) }",
    ),
    case(
        "bias_scaled",
        ROUNDED,
        "(float[N,2] a, float[3] b) => (float[N,3] y)",
        "<float[2,3] w = {1, 2, 3, 4, 5, 6}> { y = Gemm<beta = 0.5>(a, w, b) }",
        "<float[2,3] w = {1, 2, 3, 4, 5, 6}> { y = Gemm(a, w, b) }",
    ),
    case(
        "pad_off_by_one",
        ROUNDED,
        IMAGE,
        "<float[2,2,3,3] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}> { y = Conv<pads = [1,1,1,1]>(a, w) }",
        "<float[2,2,3,3] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}> { y = Conv<pads = [0,1,2,1]>(a, w) }",
    ),
    case(
        "channels_swapped",
        ROUNDED,
        IMAGE,
        "<float[2,2,1,1] w = {1, 2, 3, 4}> { y = Conv(a, w) }",
        "<float[2,2,1,1] w = {1, 3, 2, 4}> { y = Conv(a, w) }",
    ),
    case(
        "pool_kind",
        ROUNDED,
        IMAGE,
        "{ y = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1]>(a) }",
        "{ y = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(a) }",
    ),
    case(
        "padding_counted",
        ROUNDED,
        IMAGE,
        "{ y = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1]>(a) }",
        "{ y = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1>(a) }",
    ),
    case(
        "reshape_became_transpose",
        BITS,
        "(float[2,3] a) => (float[3,2] y)",
        "<int64[2] k = {3, 2}> { y = Reshape(a, k) }",
        "{ y = Transpose(a) }",
    ),
    case(
        "reshape_with_zero",
        BITS,
        "(float[2,0,3] a, float[2,3] b) => (float[0,2] y, float[3,2] z)",
        "<int64[2] k = {0, 2}, int64[2] l = {3, 2}> { y = Reshape<allowzero = 1>(a, k)  z = Reshape(b, l) }",
        "<int64[2] k = {0, 2}> { y = Reshape<allowzero = 1>(a, k)  z = Transpose(b) }",
    ),
    case(
        "mask_inverted",
        BITS,
        "(bool[N,4] c, float[N,4] a, float[N,4] b) => (float[N,4] y)",
        "{ y = Where(c, a, b) }",
        "{ y = Where(c, b, a) }",
    ),
    hidden(
        "half_round_trip_dropped",
        BITS,
        ROWS,
        "{ h = Cast<to = 10>(a)  y = Cast<to = 1>(h) }",
        "{ y = Identity(a) }",
    ),
    case(
        "whole_numbers_dropped",
        BITS,
        ROWS,
        "{ h = Cast<to = 7>(a)  y = Cast<to = 1>(h) }",
        "{ y = Identity(a) }",
    ),
    case(
        "shared_weight_changed",
        ROUNDED,
        "(float[N,2] a, float[N,2] b) => (float[N,2] y, float[N,2] z)",
        "<float[2,2] w = {1, 2, 3, 4}, float s = {2}> { p = MatMul(a, w)  y = Mul(p, s)  z = MatMul(b, w) }",
        "<float[2,2] w = {2, 4, 6, 8}> { y = MatMul(a, w) }",
    ),
    case(
        "second_reader_ignored",
        ROUNDED,
        "(float[N,2] a) => (float[N,2] y, float[N,2] z)",
        "<float s = {2}, float r = {3}> { p = Mul(a, s)  y = Mul(p, r)  z = Exp(p) }",
        "<float q = {6}> { p = Mul(a, q)  y = Identity(p) }",
    ),
    case("relu_dropped", BITS, ROWS, "{ y = Relu(a) }", "{ y = Identity(a) }"),
    case(
        "clip_bound",
        BITS,
        ROWS,
        "<float lo = {-1}, float hi = {1}> { y = Clip(a, lo, hi) }",
        "<float lo = {-1}, float hi = {2}> { y = Clip(a, lo, hi) }",
    ),
    case(
        "slice_off_by_one",
        BITS,
        "(float[N,4] a) => (float[N,2] y)",
        "<int64[1] from = {0}, int64[1] to = {2}, int64[1] k = {1}> { y = Slice(a, from, to, k) }",
        "<int64[1] from = {1}, int64[1] to = {3}, int64[1] k = {1}> { y = Slice(a, from, to, k) }",
    ),
    case(
        "gather_off_by_one",
        BITS,
        "(float[N,4] a) => (float[N,2] y)",
        "<int64[2] i = {1, 3}> { y = Gather<axis = 1>(a, i) }",
        "<int64[2] i = {0, 2}> { y = Gather<axis = 1>(a, i) }",
    ),
    case(
        "pad_mode",
        BITS,
        "(float[1,4] a) => (float[1,6] y)",
        "<int64[4] p = {0, 1, 0, 1}> { y = Pad<mode = \"reflect\">(a, p) }",
        "<int64[4] p = {0, 1, 0, 1}> { y = Pad<mode = \"edge\">(a, p) }",
    ),
    case(
        "pad_value",
        BITS,
        "(float[1,4] a) => (float[1,6] y)",
        "<int64[4] p = {0, 1, 0, 1}, float v = {1}> { y = Pad(a, p, v) }",
        "<int64[4] p = {0, 1, 0, 1}> { y = Pad(a, p) }",
    ),
    case(
        "permutation_inverted",
        BITS,
        "(float[2,2,2] a) => (float[2,2,2] y)",
        "{ y = Transpose<perm = [1,2,0]>(a) }",
        "{ y = Transpose<perm = [2,0,1]>(a) }",
    ),
    case("slope_lost", ROUNDED, ROWS, "{ y = LeakyRelu<alpha = 0.1>(a) }", "{ y = LeakyRelu(a) }"),
    case("gelu_kind", ROUNDED, ROWS, "{ y = Gelu(a) }", "{ y = Gelu<approximate = \"tanh\">(a) }"),
    case(
        "mean_forgotten",
        ROUNDED,
        IMAGE,
        "<float[2] s = {1, 2}, float[2] o = {3, 4}, float[2] m = {5, 6}, float[2] v = {1, 1}> { y = BatchNormalization(a, s, o, m, v) }",
        "<float[2] s = {1, 2}, float[2] o = {3, 4}, float[2] m = {0, 0}, float[2] v = {1, 1}> { y = BatchNormalization(a, s, o, m, v) }",
    ),
    case(
        "variance_epsilon",
        ROUNDED,
        IMAGE,
        "<float[2] s = {1, 2}, float[2] o = {3, 4}, float[2] m = {5, 6}, float[2] v = {1, 1}> { y = BatchNormalization<epsilon = 0.001>(a, s, o, m, v) }",
        "<float[2] s = {1, 2}, float[2] o = {3, 4}, float[2] m = {5, 6}, float[2] v = {1, 1}> { y = BatchNormalization(a, s, o, m, v) }",
    ),
    case(
        "square_became_double",
        ROUNDED,
        ROWS,
        "<float two = {2}> { y = Pow(a, two) }",
        "<float two = {2}> { y = Mul(a, two) }",
    ),
    case("root_of_square", ROUNDED, ROWS, "{ s = Mul(a, a)  y = Sqrt(s) }", "{ y = Identity(a) }"),
    case(
        "truncating_division",
        BITS,
        "(int64[N,4] a) => (int64[N,4] y)",
        "<int64 two = {2}> { h = Div(a, two)  y = Mul(h, two) }",
        "{ y = Identity(a) }",
    ),
    case(
        "exclusive_sum",
        ROUNDED,
        ROWS,
        "<int64 k = {1}> { y = CumSum<exclusive = 1>(a, k) }",
        "<int64 k = {1}> { y = CumSum(a, k) }",
    ),
    case(
        "largest_became_smallest",
        BITS,
        "(float[N,4] a) => (int64[N,1] y)",
        "{ y = ArgMax<axis = 1>(a) }",
        "{ y = ArgMin<axis = 1>(a) }",
    ),
    case(
        "depth_order",
        BITS,
        "(float[1,8,2,2] a) => (float[1,2,4,4] y)",
        "{ y = DepthToSpace<blocksize = 2, mode = \"DCR\">(a) }",
        "{ y = DepthToSpace<blocksize = 2, mode = \"CRD\">(a) }",
    ),
    case(
        "einsum_letters",
        ROUNDED,
        "(float[3,3] a, float[3,3] b) => (float[3,3] y)",
        "{ y = Einsum<equation = \"ij,jk->ik\">(a, b) }",
        "{ y = Einsum<equation = \"ij,kj->ik\">(a, b) }",
    ),
    case(
        "scale_dropped",
        ROUNDED,
        "(float[N,3] a, float[3,4] b) => (float[N,4] y)",
        "<float s = {0.125}> { p = MatMul(a, b)  y = Mul(p, s) }",
        "{ y = MatMul(a, b) }",
    ),
    case(
        "branches_swapped",
        BITS,
        "(bool c, float[2] a) => (float[2] y)",
        "{ y = If(c) <then_branch = t () => (float[2] p) { p = Neg(a) }, else_branch = e () => (float[2] q) { q = Exp(a) }> }",
        "{ y = If(c) <then_branch = t () => (float[2] q) { q = Exp(a) }, else_branch = e () => (float[2] p) { p = Neg(a) }> }",
    ),
    case("rounding_mode", BITS, ROWS, "{ y = Floor(a) }", "{ y = Ceil(a) }"),
    case(
        "comparison_edge",
        BITS,
        "(int64[N,4] a, int64[N,4] b) => (bool[N,4] y)",
        "{ y = Less(a, b) }",
        "{ y = LessOrEqual(a, b) }",
    ),
    case("millionths", ROUNDED, ROWS, "<float f = {1.000004}> { y = Mul(a, f) }", "{ y = Identity(a) }"),
    case(
        "condition_taken_for_true",
        BITS,
        "(bool c, float[4] a, float[4] b) => (float[4] y)",
        "{ y = Where(c, a, b) }",
        "{ y = Identity(a) }",
    ),
    case(
        "number_taken_for_one",
        BITS,
        "(int64 n, int64[N,4] a) => (int64[N,4] y)",
        "{ y = Mul(a, n) }",
        "{ y = Identity(a) }",
    ),
    case(
        "hidden_by_a_mask",
        ROUNDED,
        "(bool[N,64] c, float[N,64] a) => (float[N,64] y)",
        "<float low = {-3e38}> { y = Where(c, a, low) }",
        "<float low = {-3e38}, float s = {7}> { m = Mul(a, s)  y = Where(c, m, low) }",
    ),
    hidden(
        "eight_bits_dropped",
        BITS,
        "(int64[N,4] a) => (int64[N,4] y)",
        "{ h = Cast<to = 3>(a)  y = Cast<to = 7>(h) }",
        "{ y = Identity(a) }",
    ),
    hidden(
        "sign_of_an_index",
        BITS,
        "(float[4] a, int64[N] i) => (float[N] y)",
        "{ y = Gather(a, i) }",
        "{ j = Abs(i)  y = Gather(a, j) }",
    ),
    hidden(
        "zero_times_anything",
        BITS,
        ROWS,
        "<float z = {0}> { y = Mul(a, z) }",
        "<float z = {0}> { n = Abs(a)  y = Mul(n, z) }",
    ),
    hidden("sign_of_zero", BITS, ROWS, "<float z = {0}> { y = Add(a, z) }", "{ y = Identity(a) }"),
    hidden(
        "sum_regrouped",
        BITS,
        "(float[N,4] a, float[N,4] b, float[N,4] c) => (float[N,4] y)",
        "{ s = Add(a, b)  y = Add(s, c) }",
        "{ s = Add(b, c)  y = Add(a, s) }",
    ),
    hidden("logarithm_of_exponential", BITS, ROWS, "{ e = Exp(a)  y = Log(e) }", "{ y = Identity(a) }"),
    hidden("not_a_number", BITS, ROWS, "{ y = Max(a, a) }", "<float lo = {-3e38}> { y = Max(a, lo) }"),
];

/// The message of a graph in text.
fn message(ports: &str, body: &str) -> ModelProto {
    let text = format!("<ir_version: 10, opset_import: [\"\" : 21]>\ng {ports} {body}");
    text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn loaded(message: &ModelProto) -> Model {
    let mut bytes = Vec::new();
    wire::encode(message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap()
}

impl Case {
    /// The right nodes between others: what they read is computed, and what they compute is read.
    fn model(&self) -> Model {
        let mut whole = message(self.ports, self.right);
        let graph = whole.graph.as_mut().unwrap();
        let call = |op: &str, input: &str, output: &str| NodeProto {
            op_type: Some(op.into()),
            input: vec![input.into()],
            output: vec![output.into()],
            ..NodeProto::default()
        };
        let around = |dtype: Option<i32>| if dtype == Some(9) { "Not" } else { "Neg" };
        let dtype = |info: &onnxforge_proto::schema::ValueInfoProto| {
            info.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref()).and_then(|ty| ty.elem_type)
        };
        let mut nodes = Vec::new();
        for input in &mut graph.input {
            let name = input.name.clone().unwrap();
            let given = format!("given_{name}");
            nodes.push(call(around(dtype(input)), &given, &name));
            input.name = Some(given.as_str().into());
        }
        nodes.append(&mut graph.node);
        for output in &mut graph.output {
            let name = output.name.clone().unwrap();
            let made = format!("made_{name}");
            nodes.push(call(around(dtype(output)), &name, &made));
            output.name = Some(made.as_str().into());
        }
        graph.node = nodes;
        loaded(&whole)
    }
}

/// Puts the wrong nodes in the place of the right ones, once.
struct Planted {
    case: &'static Case,
    wrong: Model,
}

impl Planted {
    fn change(&self, cx: &Cx<'_>, node: NodeId) -> Option<Change> {
        let value =
            |name: &str| cx.model.values().find(|(_, value)| &**value.name() == name).map(|(id, _)| id);
        let wrong = &self.wrong;
        let main = wrong.main();
        let defined: Vec<String> = wrong
            .nodes_in(main)
            .flat_map(|(_, node)| node.outputs().iter().flatten())
            .map(|&id| wrong.value(id).name().to_string())
            .collect();
        // The right nodes: all that the wrong ones define anew, and what only they read.
        let mut consumed: Vec<NodeId> =
            defined.iter().filter_map(|name| cx.model.value(value(name)?).node()).collect();
        if !cx.model.journal().is_empty() || !consumed.contains(&node) {
            return None;
        }
        let mut open = consumed.clone();
        while let Some(reader) = open.pop() {
            for &input in cx.node(reader).inputs().iter().flatten() {
                let inner = cx.model.value(input).node().filter(|&id| {
                    cx.node(id).op().name != "Neg".into() && cx.node(id).op().name != "Not".into()
                });
                if let Some(producer) = inner
                    && !consumed.contains(&producer)
                    && cx.only_reader(input).is_some()
                {
                    consumed.push(producer);
                    open.push(producer);
                }
            }
        }
        let mut change = cx.change(&consumed);
        let mut made: HashMap<String, Operand> = HashMap::new();
        for (id, constant) in wrong.constants_in(main) {
            let name = wrong.value(id).name().to_string();
            let tensor = constant.dense()?.clone();
            let new = change.constant(name.as_str(), tensor.clone());
            if let Some(old) = value(&name)
                && let Some(before) = cx.model.constant(old)
                && !before.same_bits(&tensor)
            {
                change.replace(old, new);
            }
            made.insert(name, new);
        }
        let same_op = |op: &str| consumed.iter().copied().find(|&id| cx.node(id).op().is(op));
        for (_, node) in wrong.nodes_in(main) {
            let inputs: Vec<Operand> = node
                .inputs()
                .iter()
                .map(|input| {
                    let Some(input) = *input else { return Operand::Absent };
                    let name = wrong.value(input).name();
                    made.get(&**name)
                        .copied()
                        .or_else(|| Some(value(name)?.into()))
                        .unwrap_or(Operand::Absent)
                })
                .collect();
            // Bodies can only move: the branches are those of the right node, the other way round.
            let mut attrs = node.attrs().to_vec();
            if node.bodies().next().is_some() {
                let mut bodies: Vec<_> = cx.node(same_op("If")?).attrs().to_vec();
                let (first, second) = (bodies[0].value.clone(), bodies[1].value.clone());
                (bodies[0].value, bodies[1].value) = (second, first);
                attrs = bodies;
                change.trust(Trust::Spliced);
            }
            let new = change.call(node.op().clone(), inputs, node.outputs().len(), attrs);
            for (index, output) in node.outputs().iter().enumerate() {
                made.insert(wrong.value((*output)?).name().to_string(), new.output(index));
            }
        }
        for name in defined {
            if let Some(old) = value(&name).filter(|&old| cx.model.value(old).node().is_some()) {
                change.replace(old, made[&name]);
            }
        }
        Some(change)
    }
}

impl Rule for Planted {
    fn name(&self) -> &'static str {
        self.case.name
    }

    fn accuracy(&self) -> Accuracy {
        self.case.promise
    }

    fn roots(&self) -> &[&'static str] {
        &[]
    }

    fn apply(&self, cx: &Cx<'_>, node: NodeId) -> Result<Change, Skip> {
        self.change(cx, node).ok_or(Skip::NOT_HERE)
    }
}

/// A pass with the wrong rule of a case.
fn planted(case: &'static Case) -> &'static Pass {
    let mut wrong = message(case.ports, case.wrong);
    let graph = wrong.graph.as_mut().unwrap();
    let made: Vec<_> = graph.node.iter().flat_map(|node| node.output.clone()).collect();
    graph.output.retain(|output| output.name.as_ref().is_some_and(|name| made.contains(name)));
    let rule = Planted { case, wrong: loaded(&wrong) };
    let rules: &'static [&'static dyn Rule] = Box::leak(Box::new([&*Box::leak(Box::new(rule)) as &dyn Rule]));
    let pass = Pass::new("planted", "//! planted: something wrong.", Work::Rules(rules));
    Box::leak(Box::new(pass.trusting(&[Trust::Spliced])))
}

fn comparison() -> verify::Options {
    verify::Options::new(Engine::Native)
}

/// Runs the wrong rule before the passes that run by default, checked as told; what was left out.
fn run(case: &'static Case, when: When, local: Duration) -> (Model, Vec<String>) {
    let (model, wrong) = reverted(case, when, local);
    (model, wrong.iter().map(|wrong| format!("{}/{}", wrong.pass, wrong.rule)).collect())
}

fn reverted(case: &'static Case, when: When, local: Duration) -> (Model, Vec<Wrong>) {
    reverted_with(case, when, local, None)
}

/// The same, with an engine beside the native one.
fn reverted_with(
    case: &'static Case,
    when: When,
    local: Duration,
    instead: Option<Engine>,
) -> (Model, Vec<Wrong>) {
    let mut model = case.model();
    let passes = std::iter::once(planted(case)).chain(defaults()).collect();
    let options = pipeline::Options { passes, ..pipeline::Options::default() };
    let comparison = comparison();
    let mut checks = guard::Options { when, comparison, instead, local, original: None, loads: false };
    let (_, proof) = guard::optimize(&mut model, &options, &mut checks).unwrap();
    (model, proof.reverted)
}

fn is_right(case: &Case, model: &Model) -> bool {
    let report = verify::verify(&case.model(), model, &comparison(), &Silent).unwrap();
    report.verdict != Verdict::Different
}

/// Fails with everything that `check` has to say of the cases.
fn all(cases: impl Iterator<Item = &'static Case>, check: impl Fn(&'static Case) -> Result<(), String>) {
    let failures: Vec<String> = cases
        .filter_map(|case| check(case).err().map(|failure| format!("{}: {failure}", case.name)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

#[test]
fn every_wrong_rule_fires_when_nobody_looks() {
    all(CASES.iter(), |case| {
        let (model, _) = run(case, When::Off, Duration::ZERO);
        ensure(model.journal().iter().any(|entry| &*entry.rule == case.name), "does not fire")?;
        ensure(!case.shows || !is_right(case, &model), "is not wrong")
    });
}

#[test]
fn every_wrong_rule_is_named_and_left_out() {
    assert!(CASES.len() >= 40);
    all(CASES.iter(), |case| {
        let (model, reverted) = run(case, When::Final, Duration::from_secs(60));
        ensure(reverted == [format!("planted/{}", case.name)], format!("left out {reverted:?}"))?;
        ensure(model.journal().iter().all(|entry| &*entry.rule != case.name), "stayed")?;
        ensure(is_right(case, &model), "the result is wrong")
    });
}

#[test]
fn comparing_the_whole_finds_what_outputs_show() {
    for when in [When::Final, When::Each] {
        all(CASES.iter().filter(|case| case.shows), |case| {
            let (model, reverted) = run(case, when, Duration::ZERO);
            ensure(
                reverted == [format!("planted/{}", case.name)],
                format!("left out {reverted:?} ({when:?})"),
            )?;
            ensure(is_right(case, &model), "the result is wrong")
        });
    }
}

#[test]
fn a_small_model_shows_what_was_wrong() {
    all(CASES.iter(), |case| {
        let (_, mut wrong) = reverted(case, When::Final, Duration::from_secs(60));
        let small = wrong.pop().and_then(|wrong| wrong.reproducer).ok_or("no reproducer")?;
        let around = case.model().node_count() - loaded(&message(case.ports, case.right)).node_count();
        let most = case.model().node_count() - around;
        ensure(small.node_count() <= most, format!("{} nodes of {most}", small.node_count()))
    });
}

#[test]
fn comparing_block_by_block_finds_what_outputs_show() {
    all(CASES.iter().filter(|case| case.shows), |case| {
        let compared = |model: &Model| {
            let original = case.model();
            let pairs = Pairs::by_id(&original, model);
            verify_blocks(&original, model, &pairs, &comparison(), &Silent).unwrap()
        };
        let (wrong, _) = run(case, When::Off, Duration::ZERO);
        ensure(compared(&wrong).verdict == Verdict::Different, "is not found")?;
        let mut right = case.model();
        pipeline::optimize(&mut right, &pipeline::Options::default());
        ensure(compared(&right).verdict != Verdict::Different, "a false alarm")
    });
}

#[test]
#[ignore = "needs ONNX Runtime's library in ORT_DYLIB_PATH; cargo xtask test provides it"]
fn what_onnx_runtime_does_not_load_is_left_out() {
    // It computes the same, by operators on 16-bit integers that ONNX Runtime does not have.
    static CASE: Case = hidden(
        "unloadable",
        Accuracy::ValueExact,
        ROWS,
        "{ y = Relu(a) }",
        "{ r = Relu(a) s = Cast<to=5>(a) n = Neg(s) m = Max(s, n) p = Abs(s) f = Cast<to=1>(m) g = Cast<to=1>(p) \
         d = Sub(f, g) y = Add(r, d) }",
    );
    let (_, unnoticed) = reverted(&CASE, When::Final, Duration::from_secs(60));
    assert!(unnoticed.is_empty(), "the native engine has them: {unnoticed:?}");
    let (model, wrong) = reverted_with(&CASE, When::Final, Duration::from_secs(60), Some(Engine::Ort));
    assert_eq!(wrong.iter().map(|wrong| &*wrong.rule).collect::<Vec<_>>(), ["unloadable"]);
    assert!(model.journal().iter().all(|entry| &*entry.rule != "unloadable"));
}
