//! Models whose results may not change by a bit.

use std::path::PathBuf;

use onnxforge::ir::{Accuracy, Model};
use onnxforge::optimize::{AccuracyMode, Optimized, Options, Verification};
use onnxforge::passes::targets::TARGETS;
use onnxforge::verify::engine::{Choice, Engine};
use onnxforge::verify::{Verdict, guard};
use onnxforge::{Opset, Selection, optimize};

const EXAMPLES: [&str; 3] = ["small_cnn", "tiny_bert", "tiny_llama"];

fn example(name: &str) -> Model {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    onnxforge::load(folder.join(format!("{name}.onnx"))).unwrap()
}

fn optimized(name: &str, options: Options) -> Optimized {
    let verification =
        Verification { engine: Choice::This(Engine::Native), samples: 1, ..Verification::default() };
    optimize(example(name), &Options { verification, ..options }).unwrap()
}

#[test]
fn only_edits_that_keep_every_bit_are_made() {
    for name in EXAMPLES {
        for target in TARGETS {
            let passes = Selection { target, ..Selection::default() };
            let options = Options { passes, accuracy: AccuracyMode::Exact, ..Options::default() };
            let exact = optimized(name, options);
            let journal = exact.model.journal();
            // The convolutions leave nothing to do that does not round.
            assert_eq!(journal.is_empty(), name == "small_cnn", "{name}");
            for entry in journal {
                assert_eq!(
                    entry.accuracy,
                    Accuracy::BitExact,
                    "{} of {} in {name} for {}",
                    entry.rule,
                    entry.pass,
                    target.name
                );
            }
            let proof = &exact.report.verification;
            assert!(proof.reverted.is_empty(), "{name}: {:?}", proof.reverted);
            let verdict = proof.global.as_ref().map(|report| report.verdict);
            assert_eq!(verdict, (!journal.is_empty()).then_some(Verdict::Identical), "{name}");
        }
    }
}

/// A pass is not left out for its worst rule: what its other rules do is done.
#[test]
fn passes_that_may_round_still_do_what_does_not() {
    let options = Options { accuracy: AccuracyMode::Exact, ..Options::default() };
    let exact = optimized("tiny_bert", options);
    let folding = exact.report.passes.iter().find(|pass| pass.name == "fold_constants").unwrap();
    assert_eq!(folding.class, "rounding");
    assert!(folding.edits > 0);
    let rounding = exact.report.passes.iter().find(|pass| pass.name == "fuse_gelu").unwrap();
    assert_eq!(rounding.edits, 0);
    let unmade = exact.report.passes.iter().flat_map(|pass| pass.skipped.keys());
    assert!({ unmade }.any(|why| why == "it may change bits of the result"));
    let default = optimized("tiny_bert", Options::default());
    assert!(default.report.after.nodes < exact.report.after.nodes);
}

/// The comparison takes nothing for rounding.
#[test]
fn other_bits_are_a_difference() {
    let original = example("tiny_bert");
    let rounded = optimized("tiny_bert", Options { opset: Opset::Version(23), ..Options::default() });
    let checks = |exact: bool| {
        let mut checks = Verification { engine: Choice::This(Engine::Native), ..Verification::default() }
            .checks(&original)
            .unwrap();
        checks.comparison.exact = exact;
        checks
    };
    let verdict = |exact: bool| {
        let silent = onnxforge::progress::Silent;
        guard::compared(&original, &rounded.model, &mut checks(exact), &silent).unwrap().verdict
    };
    assert_eq!((verdict(false), verdict(true)), (Verdict::Rounding, Verdict::Different));
}
