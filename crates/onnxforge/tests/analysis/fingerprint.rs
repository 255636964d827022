//! What models are taken for, and that no name has a say in it.

use std::path::{Path, PathBuf};

use onnxforge::analysis::fingerprint::{Class, Fingerprint, fitting};
use onnxforge::io::external::ExternalFiles;
use onnxforge::io::load::read_message;
use onnxforge::ir::Model;
use onnxforge::passes::pipeline::{Options, optimize};
use onnxforge::passes::{self, targets};
use onnxforge::redact::{RedactOptions, redact};

use crate::golden;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn of(path: &Path) -> Fingerprint {
    Fingerprint::of(&onnxforge::io::load(path, &Default::default()).unwrap())
}

fn of_text(text: &str) -> Fingerprint {
    Fingerprint::of(&golden::load(text))
}

#[test]
fn examples_are_what_they_are() {
    for (name, class) in
        [("small_cnn", Class::Vision), ("tiny_bert", Class::Transformer), ("tiny_llama", Class::Llm)]
    {
        let found = of(&root().join(format!("examples/{name}.onnx")));
        assert_eq!(found.class, class, "{name}: {:?}", found.reasons);
        assert!(found.confidence > 0.8 && !found.reasons.is_empty());
    }
}

/// Optimizes with the passes that fit, and with all of a target. Answers how many were left out.
fn fits(name: &str, model: &Model, target: &targets::Target) -> usize {
    let all: Vec<_> = target.passes().collect();
    let (fit, unfit) = fitting(model, &all);
    let edits = |passes: Vec<&'static passes::Pass>| {
        let mut model = model.clone();
        optimize(&mut model, &Options { passes, ..Options::default() });
        let edit =
            |entry: &onnxforge::ir::Entry| (entry.pass.clone(), entry.rule.clone(), entry.consumed.clone());
        model.journal().iter().map(edit).collect::<Vec<_>>()
    };
    assert_eq!(edits(fit), edits(all), "{name}, {}", target.name);
    unfit.len()
}

#[test]
fn what_does_not_fit_would_find_nothing() {
    let mut left_out = 0;
    for target in targets::TARGETS {
        for folder in ["examples", "tests/data"] {
            for entry in std::fs::read_dir(root().join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|ending| ending == "onnx") {
                    let model = onnxforge::io::load(&path, &Default::default()).unwrap();
                    left_out += fits(&path.display().to_string(), &model, target);
                }
            }
        }
        for entry in std::fs::read_dir(root().join("crates/onnxforge-rewrite/tests/rules")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for case in golden::cases(&text) {
                left_out += fits(&case.title, &golden::load(&case.before), target);
            }
        }
    }
    assert!(left_out > 1000, "{left_out}");
    // What is asked for by its operators is not left out.
    let with_loop =
        onnxforge::io::load(&root().join("tests/data/loop.torchscript.onnx"), &Default::default()).unwrap();
    let (fit, unfit) = fitting(&with_loop, &targets::PORTABLE.passes().collect::<Vec<_>>());
    assert!(fit.iter().any(|pass| pass.name == "unroll_loops"));
    assert!(unfit.iter().any(|unfit| unfit.pass.name == "fuse_conv_batchnorm" && unfit.why.contains("BatchNormalization")));
}

#[test]
fn names_have_no_say() {
    for folder in ["examples", "tests/data"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "onnx") {
                continue;
            }
            let mut message = read_message(&path).unwrap();
            let mut files = ExternalFiles::new(path.parent().map(Path::to_owned), Default::default());
            let options = RedactOptions { keep_below: u64::MAX, hash_names: Some("others".to_owned()) };
            redact(&mut message, &mut files, &options).unwrap();
            // Weights in other files stay there.
            let Ok(renamed) = golden::loaded(&message) else { continue };
            let (before, after) = (of(&path), Fingerprint::of(&renamed));
            let said = |found: &Fingerprint| serde_json::to_value(found).unwrap();
            assert_eq!(said(&before)["reasons"], said(&after)["reasons"], "{}", path.display());
            assert_eq!(before.class, after.class, "{}", path.display());
            assert_eq!(before.confidence, after.confidence, "{}", path.display());
        }
    }
}

#[test]
fn passes_are_of_the_catalogue() {
    for name in ["small_cnn", "tiny_bert", "tiny_llama"] {
        let found = of(&root().join(format!("examples/{name}.onnx")));
        assert!(!found.passes().is_empty());
        for fit in found.passes() {
            assert!(passes::find(fit.pass).is_some(), "{}", fit.pass);
            assert!(!fit.why.is_empty());
        }
    }
}

#[test]
fn what_is_no_network_is_other() {
    let mlp = of_text(
        "g (float[N,2] x) => (float[N,2] y) <float[2,2] w = {1, 2, 3, 4}> { p = MatMul(x, w) r = Relu(p) y = MatMul(r, w) }",
    );
    assert_eq!(mlp.class, Class::Other);
    let nothing = of_text("g (float[N] x) => (float[N] y) { y = Neg(x) }");
    assert_eq!(nothing.class, Class::Other);
    assert!(nothing.confidence < mlp.confidence + 0.3);
}

#[test]
fn what_comes_in_tells_sound_from_images() {
    let conv = |input: &str, weights: &str, before: &str| {
        let sizes = weights.split(',').map(|size| size.parse::<usize>().unwrap());
        let numbers: Vec<String> = (0..sizes.product()).map(|number| number.to_string()).collect();
        let weights = format!("float[{weights}] w = {{{}}}", numbers.join(","));
        of_text(&format!(
            "g (float[{input}] x) => (float y) <{weights}> {{ {before} c = Conv(v, w) y = Relu(c) }}"
        ))
    };
    let wave = conv("B,1,T", "4,1,3", "v = Identity(x)");
    let spectrogram = conv("B,80,T", "4,80,3", "v = Identity(x)");
    let plane = conv("B,T,80", "4,1,3,3", "a = Constant<value = int64[1] {1}>() v = Unsqueeze(x, a)");
    assert_eq!([wave.class, spectrogram.class, plane.class], [Class::Audio; 3]);
    let image = conv("B,3,H,W", "4,3,3,3", "v = Identity(x)");
    assert_eq!(image.class, Class::Vision);
    // One place at a time is no convolution along time: points, not sound.
    assert_eq!(conv("B,3,T", "4,3,1", "v = Identity(x)").class, Class::Other);
}
