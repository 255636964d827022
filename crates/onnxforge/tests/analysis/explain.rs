//! What `explain` says of a pass is what `optimize` does with it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use onnxforge::optimize::{Options, Verification};
use onnxforge::passes;
use onnxforge::passes::targets::ORT;
use onnxforge::{Explanation, Model, Opset, Selection, explain, optimize};

fn example(name: &str) -> Model {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    onnxforge::load(folder.join(format!("{name}.onnx"))).unwrap()
}

fn explained(pass: &str, name: &str, options: &Options) -> Explanation {
    explain(example(name), passes::find(pass).unwrap(), options).unwrap()
}

fn newer() -> Options {
    Options { opset: Opset::Version(23), ..Options::default() }
}

#[test]
fn every_pass_is_explained_as_it_runs() {
    let ort = Selection { target: &ORT, ..Selection::default() };
    let for_ort = Options { passes: ort, ..newer() };
    for (name, options) in
        [("small_cnn", Options::default()), ("tiny_bert", newer()), ("tiny_llama", for_ort)]
    {
        let unverified = Options { verification: Verification::off(), ..options.clone() };
        let report = optimize(example(name), &unverified).unwrap().report;
        for pass in report.passes {
            let found = explained(pass.name, name, &options);
            let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
            found.skipped.iter().for_each(|left| *skipped.entry(left.reason.clone()).or_default() += 1);
            assert_eq!((found.fired.len(), skipped), (pass.edits, pass.skipped), "{} in {name}", pass.name);
        }
    }
}

#[test]
fn reasons_follow_the_operator_set() {
    let kept = explained("fuse_gelu", "tiny_bert", &Options::default());
    assert_eq!((kept.fired.len(), kept.skipped.len()), (0, 2));
    assert!(kept.skipped[0].reason.contains("operator set 17 has no Gelu"), "{}", kept.skipped[0].reason);
    let newer = explained("fuse_gelu", "tiny_bert", &newer());
    assert_eq!((newer.fired.len(), newer.skipped.len()), (2, 0));
}

#[test]
fn matches_that_others_rewrite_first_are_named() {
    let found = explained("fuse_matmul_add_3d", "tiny_llama", &Options::default());
    assert_eq!((found.fired.len(), found.skipped.len()), (0, 0));
    assert_eq!(found.elsewhere.len(), 15);
    assert!(found.elsewhere.iter().all(|other| other.by.as_deref() == Some("fold_constants")));
    // What the pass itself comes to is not elsewhere.
    let found = explained("fuse_conv_batchnorm", "small_cnn", &Options::default());
    assert!(!found.fired.is_empty() && found.elsewhere.is_empty());
}

#[test]
fn a_pass_on_request_is_added() {
    let found = explained("fuse_attention_qkv", "tiny_bert", &Options::default());
    assert_eq!(found.fired.len(), 2);
    let skip = vec![passes::find("fuse_conv_bias").unwrap()];
    let skipping = Options { passes: Selection { skip, ..Selection::default() }, ..Options::default() };
    let found = explained("fuse_conv_bias", "small_cnn", &skipping);
    let anyway = explained("fuse_conv_bias", "small_cnn", &Options::default());
    assert_eq!(found.fired.len(), anyway.fired.len());
}
