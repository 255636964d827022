//! Operations of nodes and models, against numbers computed by hand and known ones.

use std::collections::HashMap;
use std::io::Read;

use onnxforge_analysis::cost::{flops, of_nodes, total};
use onnxforge_ir::Model;
use onnxforge_ir::io::load_bytes;
use onnxforge_ir::text;
use onnxforge_ops::infer::Inference;
use onnxforge_proto::wire;
use onnxforge_testing::repository;

fn model(inputs: &str, node: &str) -> Model {
    let text = format!(
        "<ir_version: 10, opset_import: [\"\" : 23, \"com.microsoft\" : 1, \"d\" : 1]> g ({inputs}) => (float[] y) {{ {node} }}
         <domain: \"d\", opset_import: [\"\" : 23]> f (a) => (b) {{ b = Abs (a) }}"
    );
    let message = text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The operations of the only node of a model, as text.
fn of(inputs: &str, node: &str) -> String {
    let model = model(inputs, node);
    let inference = Inference::of(&model);
    let (id, _) = model.nodes_in(model.main()).last().unwrap();
    match flops(&model, &inference, id) {
        Some(dim) => dim.display(inference.symbols()).to_string(),
        None => "not known".to_owned(),
    }
}

#[test]
fn products() {
    let cases = [
        ("float[2,3,4] x, float[4,5] w", "y = MatMul (x, w)", 2 * 30 * 4),
        ("float[4] x, float[4] w", "y = MatMul (x, w)", 8),
        ("float[4,2] x, float[5,4] w", "y = Gemm <transA = 1, transB = 1> (x, w)", 2 * 10 * 4),
        ("float[2,4] x, float[4,5] w, float[5] c", "y = Gemm (x, w, c)", 2 * 10 * 4 + 10),
        ("int8[2,4] x, int8[4,5] w", "y = MatMulInteger (x, w)", 80),
        ("float[7,4,2] x, float[7,4,5] w", "y = com.microsoft.FusedMatMul <transA = 1> (x, w)", 7 * 80),
        ("float[3,4] x, float[4,5] w", "y = Einsum <equation = \"ij,jk->ik\"> (x, w)", 2 * 3 * 4 * 5),
        ("float[3] x, float[5] w", "y = Einsum <equation = \"i,j->ij\"> (x, w)", 15),
        ("float[3,4] x", "y = Einsum <equation = \"ij->ji\"> (x)", 0),
        ("float[3,4] x", "y = Einsum <equation = \"ij->i\"> (x)", 12),
    ];
    for (inputs, node, expected) in cases {
        assert_eq!(of(inputs, node), expected.to_string(), "{node}");
    }
}

#[test]
fn convolutions_and_pools() {
    // 1·8·6·6 elements of 3·3·3 multiplications each.
    let conv = 2 * 288 * 27;
    let x = "float[1,3,8,8] x, float[8,3,3,3] w, float[8] b";
    let cases = [
        (x, "y = Conv (x, w)", conv),
        (x, "y = Conv (x, w, b)", conv + 288),
        (x, "y = com.microsoft.FusedConv <activation = \"Relu\"> (x, w, b)", conv + 288),
        ("float[1,4,8,8] x, float[4,1,3,3] w", "y = Conv <group = 4> (x, w)", 2 * 144 * 9),
        // Each of the 3·8·8 elements goes to 8·2·2 places.
        ("float[1,3,8,8] x, float[3,8,2,2] w", "y = ConvTranspose <strides = [2, 2]> (x, w)", 2 * 192 * 32),
        ("float[1,3,8,8] x", "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)", 48 * 4),
        ("float[1,3,8,8] x", "y = GlobalAveragePool (x)", 192),
    ];
    for (inputs, node, expected) in cases {
        assert_eq!(of(inputs, node), expected.to_string(), "{node}");
    }
}

#[test]
fn attention_and_recurrent_layers() {
    // Batch 2, 4 queries, 6 keys, 3 heads of 8: two products of 2·4·6·24, and 2·3·4·6 scores.
    let (product, scores) = (2 * 4 * 6 * 24, 144);
    let both = 2 * 2 * product + 5 * scores;
    let rank3 = "float[2,4,24] q, float[2,6,24] k, float[2,6,24] v";
    let rank4 = "float[2,3,4,8] q, float[2,3,6,8] k, float[2,3,6,8] v";
    let past = "float[2,4,24] q, float[2,4,24] k, float[2,4,24] v, float[2,3,2,8] p, float[2,3,2,8] r";
    let cases = [
        (rank3, "y = Attention <q_num_heads = 3, kv_num_heads = 3> (q, k, v)", both),
        (rank4, "y = Attention (q, k, v)", both),
        (rank3, "y = com.microsoft.MultiHeadAttention <num_heads = 3> (q, k, v)", both),
        (past, "y = Attention <q_num_heads = 3, kv_num_heads = 3> (q, k, v, , p, r)", both),
        // Batch 2, 4 queries and keys; a projection of 5 to 72.
        (
            "float[2,4,5] x, float[5,72] w, float[72] b",
            "y = com.microsoft.Attention <num_heads = 3> (x, w, b)",
            2 * 2 * 4 * 5 * 72 + 2 * 4 * 72 + 4 * (2 * 4 * 4 * 24) + 5 * (2 * 3 * 4 * 4),
        ),
        // 5 steps, batch 2, 3 in, 4 hidden, 4 gates: 40 states.
        (
            "float[5,2,3] x, float[1,16,3] w, float[1,16,4] r, float[1,32] b",
            "y = LSTM <hidden_size = 4> (x, w, r, b)",
            40 * (2 * 4 * 3 + 2 * 4 * 4 + 4 + 8 + 9),
        ),
        (
            "float[5,2,3] x, float[2,4,3] w, float[2,4,4] r",
            "y = RNN <hidden_size = 4, direction = \"bidirectional\"> (x, w, r)",
            80 * (2 * 3 + 2 * 4 + 1 + 1),
        ),
    ];
    for (inputs, node, expected) in cases {
        assert_eq!(of(inputs, node), expected.to_string(), "{node}");
    }
}

#[test]
fn elements() {
    let cases = [
        ("float[3,4] x", "y = Softmax (x)", 60),
        ("float[3,4] x, float[4] w", "y = LayerNormalization (x, w)", 72),
        ("float[3,4] x, float[4] w, float[4] b", "y = LayerNormalization (x, w, b)", 84),
        ("float[3,4] x", "y = ReduceSum (x)", 12),
        ("float[3,4] x, float[2,1,4] w", "y = Add (x, w)", 24),
        ("float[3,4] x", "y = Sum (x, x, x)", 24),
        ("float[3,4] x", "y = Gelu (x)", 12),
        ("float[3,4] x", "y = Transpose (x)", 0),
        ("float[3,4] x", "y = Cast <to = 10> (x)", 0),
        ("float[3,4] x", "y = Concat <axis = 0> (x, x)", 0),
        ("float[3,4] x", "y = Shape (x)", 0),
        ("float[3,4] x", "y = Dropout (x)", 0),
        ("float[3,4] x, int64[2] i", "y = Gather (x, i)", 0),
    ];
    for (inputs, node, expected) in cases {
        assert_eq!(of(inputs, node), expected.to_string(), "{node}");
    }
}

#[test]
fn expressions_of_dimensions() {
    assert_eq!(of("float[batch,seq,64] x, float[64,32] w", "y = MatMul (x, w)"), "4096*batch*seq");
    assert_eq!(of("float[n,m] x", "y = Relu (x)"), "n*m");
}

#[test]
fn what_is_not_known() {
    for (inputs, node) in [
        ("float[] x, float[4,5] w", "y = MatMul (x, w)"),
        (
            "float[2] x, bool c",
            "y = If <then_branch = t () => (float[2] p) { p = Neg (x) }, else_branch = e () => (float[2] q) { q = Abs (x) }> (c)",
        ),
        ("float[2] x", "y = d.f (x)"),
        ("float[2] x", "y = elsewhere.Op (x)"),
        ("float[3,4] x, float[4,5] w", "y = Einsum <equation = \"...j,jk->...k\"> (x, w)"),
        ("float[2,2] x", "y = Det (x)"),
    ] {
        assert_eq!(of(inputs, node), "not known", "{node}");
    }
}

#[test]
fn totals_do_not_overflow() {
    let model = model("float[n,m] x, float[m,k] w", "p = MatMul (x, w)  y = elsewhere.Op (p)");
    let inference = Inference::of(&model);
    let at = |n: u64, m: u64, k: u64| {
        let sizes = [("n", n), ("m", m), ("k", k)].map(|(name, size)| (name.to_owned(), size));
        let found = total(&model, &inference, &HashMap::from(sizes));
        assert_eq!(found.unknown.len(), 1);
        found.flops
    };
    assert_eq!(at(3, 4, 5), 120);
    assert_eq!(at(0, 4, 5), 0);
    assert_eq!(at(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
    assert_eq!(total(&model, &inference, &HashMap::new()).flops, 2);
}

#[test]
fn nodes_in_bodies_are_counted_by_themselves() {
    let model = model(
        "float[n] x, bool c",
        "y = If <then_branch = t () => (float[n] p) { p = Neg (x) }, else_branch = e () => (float[n] q) { q = Abs (x) }> (c)",
    );
    let inference = Inference::of(&model);
    let found: HashMap<String, Option<String>> = of_nodes(&model, &inference)
        .into_iter()
        .map(|(id, flops)| {
            let shown = flops.map(|dim| dim.display(inference.symbols()).to_string());
            (model.node(id).op().to_string(), shown)
        })
        .collect();
    assert_eq!(found["Neg"].as_deref(), Some("n"));
    assert_eq!(found["If"], None);
}

/// A model of the zoo; weights are not needed for shapes.
fn zoo(name: &str) -> Model {
    let path = repository(&format!("zoo/{name}.onnx.gz"));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap()
}

/// Operations of a model of the zoo, in thousand millions, all of which have to be known.
fn gigaflops(name: &str, sizes: &[(&str, u64)]) -> f64 {
    let model = zoo(name);
    let sizes = sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect();
    let found = total(&model, &Inference::of(&model), &sizes);
    let unknown: Vec<String> = found.unknown.iter().map(|&id| model.node_label(id)).collect();
    assert!(unknown.is_empty(), "{name}: {unknown:?}");
    found.flops as f64 / 1e9
}

#[test]
fn known_models() {
    let text = [("batch", 1), ("seq", 128)];
    for (name, sizes, low, high) in [
        // 4.09 thousand million multiplications with addition.
        ("resnet50.torchscript", &[][..], 8.1, 8.35),
        ("resnet50.dynamo", &[][..], 8.1, 8.35),
        // 12 layers of 12·768² weights and 128² scores for 128 words.
        ("bert_base.torchscript", &text[..], 22.0, 23.0),
        ("bert_base.dynamo", &text[..], 22.0, 23.0),
        ("mobilenet_v2.dynamo", &[][..], 0.60, 0.64),
        ("yolov8n.torchscript", &[][..], 8.7, 8.9),
        // 2 for each of 1.03 thousand million weights, embeddings left out, and each of 128 words.
        ("tinyllama.dynamo", &text[..], 264.0, 270.0),
    ] {
        let found = gigaflops(name, sizes);
        println!("{name}: {found:.3} GFLOPs");
        assert!((low..high).contains(&found), "{name}: {found}");
    }
}
