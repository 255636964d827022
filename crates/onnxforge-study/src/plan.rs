//! What a study asks about a model: the steps, in their order.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use onnxforge::passes::fuse::{fuse_attention_qkv, fuse_matmul_add_3d};
use onnxforge::passes::targets::PORTABLE;
use onnxforge::random::Random;
use serde_json::Value;

use crate::args::Args;
use crate::corpus::Studied;
use crate::step::Step;
use crate::subject::Subject;

/// How often the order of passes is shuffled.
pub const SHUFFLES: u64 = 5;
/// How far results may move in the sweep.
const MOVED: f64 = 1e-3;
/// The sizes of named dimensions that are not the first of an input, where time is measured: as usual, and of short inputs.
pub const LENGTH: usize = 128;
pub const SHORT: usize = 8;

/// The command that makes a file which other commands read. What is known to be right is not verified again.
pub fn making(args: &Args, subject: &Subject, known: &Studied, file: &Path) -> Step {
    let (step, option) = match file.file_name().and_then(OsStr::to_str) {
        Some(NEWER) => ("newer", Some(OPSET.into())),
        Some(QKV) => (fuse_attention_qkv::PASS.name, Some(with_qkv())),
        Some(PRODUCTS) => (fuse_matmul_add_3d::PASS.name, Some(alone())),
        _ => ("optimize", None),
    };
    let mut words: Vec<OsString> = vec!["optimize".into(), subject.path.clone().into()];
    words.extend(["-o".into(), file.into(), format!("--seed={}", args.seed).into()]);
    words.extend(option);
    let reverted = known.at(step, "/verification/reverted").and_then(Value::as_array);
    if reverted.is_some_and(Vec::is_empty) {
        words.push("--verify=off".into());
    }
    Step::new("making", words)
}

/// All passes, and the one that makes one product of three, which runs only on request.
fn with_qkv() -> OsString {
    let names = PORTABLE.passes().map(|pass| pass.name).chain([fuse_attention_qkv::PASS.name]);
    format!("--passes={}", names.collect::<Vec<_>>().join(",")).into()
}

/// What runs the pass about 3-D products alone.
fn alone() -> OsString {
    format!("--passes={}", fuse_matmul_add_3d::PASS.name).into()
}

/// The model after all passes, with newer operators, after all passes and the one that makes one product of three, and after the one about
/// 3-D products alone.
const OPTIMIZED: &str = "optimized.onnx";
const NEWER: &str = "newer.onnx";
const QKV: &str = "qkv.onnx";
const PRODUCTS: &str = "products.onnx";

/// What allows newer operators.
pub const OPSET: &str = "--opset=23";

/// The questions about a model that need no clock, in the order in which they are asked.
pub fn questions(args: &Args, subject: &Subject, made: &Path) -> Vec<Step> {
    let model = || subject.path.clone().into_os_string();
    let result = |name: &str| made.join(name).into_os_string();
    let word = |text: &str| OsString::from(text);
    let seed = word(&format!("--seed={}", args.seed));
    let ask = |name: &str, words: &[OsString]| {
        Step::new(name, [word(name), model()].into_iter().chain(words.iter().cloned()))
    };
    let optimize = |name: &str, file: &str, options: &[OsString]| {
        let words = [word("optimize"), model(), word("-o"), result(file)];
        Step::new(name, words.into_iter().chain(options.iter().cloned()))
    };
    let optimized = [made.join(OPTIMIZED)];
    let mut steps = vec![
        ask("inspect", &[]),
        ask("fingerprint", &[]),
        ask("audit", &[]),
        ask("attribute", &[]),
        optimize("optimize", OPTIMIZED, std::slice::from_ref(&seed)),
        Step::new("audit_after", [word("audit"), result(OPTIMIZED)]).reading(&optimized),
        Step::of_lab("forms", [word("forms"), result(OPTIMIZED), seed.clone()]).reading(&optimized),
    ];
    steps.push(optimize("newer", NEWER, &[word(OPSET), seed.clone()]));
    let off = word("--verify=off");
    let passes: Vec<&str> = PORTABLE.passes().map(|pass| pass.name).collect();
    for shuffle in 0..SHUFFLES {
        let order = shuffled(&passes, args.seed.wrapping_add(shuffle));
        let chosen = word(&format!("--passes={}", order.join(",")));
        steps.push(optimize(&format!("order_{shuffle}"), "shuffled.onnx", &[off.clone(), chosen]));
    }
    steps.push(optimize(fuse_matmul_add_3d::PASS.name, PRODUCTS, &[alone(), seed.clone()]));
    steps.push(optimize(fuse_attention_qkv::PASS.name, QKV, &[with_qkv(), seed.clone()]));
    let mut sweep =
        vec![word("verify"), model(), result(OPTIMIZED), word(&format!("--sweep={}", args.sweep))];
    // How far results move is measured; whether that is right, `optimize` has asked a float64 run.
    sweep.extend([word(&format!("--tolerance={MOVED}")), seed.clone()]);
    if subject.is_large() {
        sweep.push(word("--blocks"));
    }
    steps.push(Step::new("sweep", sweep).reading(&optimized));
    let accuracy = [word("attribute"), model(), word("--verify"), word("--samples=1"), seed];
    steps.push(Step::new("accuracy", accuracy));
    steps
}

/// The same names in another order.
fn shuffled<'n>(names: &[&'n str], seed: u64) -> Vec<&'n str> {
    let mut random = Random::new(seed);
    let mut order: Vec<(u64, &str)> = names.iter().map(|name| (random.bits(), *name)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, name)| name).collect()
}

/// The questions that a clock answers.
pub fn measurements(args: &Args, subject: &Subject, known: &Studied, made: &Path) -> Vec<Step> {
    let bench = |name: &str, results: &[&str], length: usize| {
        let results: Vec<PathBuf> = results.iter().map(|name| made.join(name)).collect();
        let mut words: Vec<OsString> = vec!["bench".into(), subject.path.clone().into()];
        words.extend(results.iter().cloned().map(Into::into));
        words.push(format!("--seconds={}", args.seconds.as_secs_f64()).into());
        words.extend(["--sessions=6".into(), "--warmup=1".into()]);
        words.extend(known.sizes(length).into_iter().map(Into::into));
        Step::new(name, words).reading(&results)
    };
    let mut steps = vec![bench("bench", &[OPTIMIZED], LENGTH)];
    // Loading a large model a dozen times takes minutes; one comparison of it must do.
    if !subject.is_large() {
        if known.sizes(SHORT) != known.sizes(LENGTH) {
            steps.push(bench("bench_short", &[OPTIMIZED, NEWER], SHORT));
        }
        if !known.passes(fuse_matmul_add_3d::PASS.name).is_empty() {
            steps.push(bench("bench_3d", &[PRODUCTS], LENGTH));
        }
    }
    if known
        .passes(fuse_attention_qkv::PASS.name)
        .iter()
        .any(|(name, _)| *name == fuse_attention_qkv::PASS.name)
    {
        let qkv = [made.join(QKV)];
        let words = ["products".into(), qkv[0].clone().into_os_string()];
        steps.push(Step::of_lab("products", words).reading(&qkv));
    }
    steps
}
