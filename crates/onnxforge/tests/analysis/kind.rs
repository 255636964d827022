//! The kind of network that `optimize` names, and the passes that it chooses.

use std::path::PathBuf;

use onnxforge::analysis::fingerprint::{Class, Fingerprint};
use onnxforge::optimize::{AccuracyMode, Options, Report, Verification};
use onnxforge::passes;
use onnxforge::passes::targets::{ORT, PORTABLE, TARGETS, TFLITE};
use onnxforge::{Model, Opset, Selection, optimize};

use crate::golden;

fn example(name: &str) -> Model {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    onnxforge::load(folder.join(format!("{name}.onnx"))).unwrap()
}

fn report(model: Model, options: Options) -> Report {
    optimize(model, &Options { verification: Verification::off(), ..options }).unwrap().report
}

/// A layer of attention that appends to the keys and values of earlier tokens.
fn decoder() -> Model {
    let tensor = |name: &str, rows: usize, columns: usize| {
        // Each has numbers of its own: equal ones would be one.
        let first = name.bytes().map(usize::from).sum::<usize>();
        let numbers: Vec<String> =
            (0..rows * columns).map(|n| format!("0.{}", (first + n * 7) % 10)).collect();
        format!("float[{rows},{columns}] {name} = {{{}}}", numbers.join(","))
    };
    let weights = ["wq", "wk", "wv", "wo"].map(|name| tensor(name, 8, 8)).join(", ");
    golden::load(&format!(
        "g (int64[B,S] ids, float[B,2,P,4] past_k, float[B,2,P,4] past_v) => (float logits, float k, float v)
        <{}, {weights}, {}, int64[4] split = {{0, 0, 2, 4}}, int64[3] join = {{0, 0, 8}}, float scale = {{0.5}}> {{
            x = Gather(table, ids)
            q1 = MatMul(x, wq) q2 = Reshape(q1, split) q = Transpose<perm = [0, 2, 1, 3]>(q2)
            k1 = MatMul(x, wk) k2 = Reshape(k1, split) k3 = Transpose<perm = [0, 2, 1, 3]>(k2)
            v1 = MatMul(x, wv) v2 = Reshape(v1, split) v3 = Transpose<perm = [0, 2, 1, 3]>(v2)
            k = Concat<axis = 2>(past_k, k3) v = Concat<axis = 2>(past_v, v3)
            kt = Transpose<perm = [0, 1, 3, 2]>(k) s1 = MatMul(q, kt) s2 = Mul(s1, scale) p = Softmax<axis = -1>(s2)
            c1 = MatMul(p, v) c2 = Transpose<perm = [0, 2, 1, 3]>(c1) c3 = Reshape(c2, join)
            o = MatMul(c3, wo) logits = MatMul(o, head)
        }}",
        tensor("table", 10, 8),
        tensor("head", 8, 10),
    ))
}

fn chosen(report: &Report) -> Vec<&str> {
    report.kind.chosen.iter().map(|chosen| chosen.pass).collect()
}

#[test]
fn the_result_is_seen_as_the_original_is() {
    for name in ["small_cnn", "tiny_bert", "tiny_llama"] {
        let seen = Fingerprint::of(&example(name));
        for target in TARGETS {
            for opset in [Opset::Keep, Opset::Version(23)] {
                let passes = Selection { target, ..Selection::default() };
                let kind = report(example(name), Options { passes, opset, ..Options::default() }).kind;
                assert_eq!(kind.class, seen.class, "{name} for {}", target.name);
                assert!(kind.chosen.is_empty() && !kind.reasons.is_empty());
            }
        }
    }
}

#[test]
fn a_decoder_with_a_cache_gets_one_matmul_for_queries_keys_and_values() {
    for (target, expected) in [(&PORTABLE, 1), (&ORT, 1), (&TFLITE, 0)] {
        let passes = Selection { target, ..Selection::default() };
        let report = report(decoder(), Options { passes, ..Options::default() });
        assert_eq!(report.kind.class, Class::Llm, "{:?}", report.kind.reasons);
        assert_eq!(chosen(&report), ["fuse_attention_qkv"][..expected]);
        let ran = report.passes.iter().find(|pass| pass.name == "fuse_attention_qkv");
        assert_eq!(ran.map(|pass| pass.edits), (expected == 1).then_some(1));
    }
}

#[test]
fn who_asks_for_passes_gets_no_others() {
    let qkv = passes::find("fuse_attention_qkv").unwrap();
    let skipped = Selection { skip: vec![qkv], ..Selection::default() };
    let only = Selection { only: vec![passes::find("fold_constants").unwrap()], ..Selection::default() };
    for passes in [skipped, only] {
        let report = report(decoder(), Options { passes, ..Options::default() });
        assert!(chosen(&report).is_empty());
        assert!(report.passes.iter().all(|pass| pass.name != "fuse_attention_qkv"));
    }
    // One that rounds is of no use where nothing may round.
    let exact = report(decoder(), Options { accuracy: AccuracyMode::Exact, ..Options::default() });
    assert!(exact.passes.iter().filter(|pass| pass.name == "fuse_attention_qkv").all(|pass| pass.edits == 0));
}
