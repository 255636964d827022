//! Golden cases: what each pass makes of a graph, and what it leaves alone and why.
//!
//! `tests/rules/<pass>.onnxtxt` holds cases of that pass:
//!
//! ```text
//! === what the case shows
//! g (float[N] x) => (float[N] y) { y = Identity(x) }
//! --- becomes
//! g (float[N] x) => (float[N] y) { … }
//! ```
//!
//! `--- stays: reason` instead says that the pass changes nothing and gives that reason (without one: nothing that it is about).
//! Graphs without a heading are of operator set 21. `ONNXFORGE_BLESS=1` writes what comes out into the files.
//!
//! Every case is also evaluated before and after, at two sizes of each symbolic dimension, and must agree as well as the edits
//! promise; a second run must find nothing; every node of the file must have a fate; text and messages must agree.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;

use onnxforge::eval::sample::{self, sample};
use onnxforge::eval::{Options, Session};
use onnxforge::infer::Inference;
use onnxforge::io::load_bytes;
use onnxforge::ir::{Accuracy, DType, Model};
use onnxforge::ops::Value;
use onnxforge::passes::pipeline::{self, Outcome, optimize};
use onnxforge::passes::{self, Pass, Work};
use onnxforge::proto::wire;
use onnxforge::rewrite::Reason;
use onnxforge::text::{self, PrintOptions};

const HEADER: &str = "<ir_version: 10, opset_import: [\"\" : 21]>\n";

struct Case {
    title: String,
    before: String,
    /// What it becomes, or why it stays.
    expected: Result<String, String>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/rules")
}

fn cases(text: &str) -> Vec<Case> {
    let case = |part: &str| {
        let (title, rest) = part.split_once('\n').unwrap();
        let (before, verdict) = rest.split_once("\n--- ").unwrap_or_else(|| panic!("{title}: no verdict"));
        let expected = match verdict.split_once('\n').unwrap_or((verdict, "")) {
            ("becomes", after) => Ok(after.trim().to_owned()),
            (stays, _) => Err(stays.strip_prefix("stays").unwrap().trim_start_matches(':').trim().to_owned()),
        };
        Case { title: title.trim().to_owned(), before: before.trim().to_owned(), expected }
    };
    text.split("=== ").skip(1).map(case).collect()
}

fn load(text: &str) -> Model {
    let text = if text.starts_with('<') { text.to_owned() } else { format!("{HEADER}{text}") };
    let message = text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).unwrap();
    load_bytes(bytes, None, &Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn print(model: &Model) -> String {
    let message = onnxforge::io::message::to_inline_message(model).unwrap();
    let printed = text::print(&message, &PrintOptions::default());
    assert_eq!(text::print(&text::parse(&printed).unwrap(), &PrintOptions::default()), printed);
    let notes_off = printed
        .lines()
        .filter(|line| !line.starts_with("#@"))
        .map(|line| line.split_once("  #@").map_or(line, |(line, _)| line));
    let text = notes_off.collect::<Vec<_>>().join("\n");
    let plain = HEADER.replace(['<', '>', '\n'], "");
    let heading = text
        .split_once(">\n")
        .filter(|(heading, _)| heading.replace(['<', '\n', ' '], "") == plain.replace(' ', ""));
    heading.map_or(text.clone(), |(_, rest)| rest.to_owned())
}

fn run_pass(pass: &'static Pass, model: &mut Model) -> Outcome {
    optimize(model, &pipeline::Options { passes: vec![pass], ..pipeline::Options::default() })
}

/// The outputs of a run with sizes that depend on `round`.
fn outputs(model: &Model, inputs: &HashMap<String, Value>) -> Vec<Value> {
    let outputs =
        Session::new(model, Options::default()).run(inputs).unwrap_or_else(|error| panic!("{error}"));
    outputs.into_iter().map(|(_, value)| value).collect()
}

fn inputs(model: &Model, round: u64) -> HashMap<String, Value> {
    let names = ["N", "M", "K", "B", "S", "batch", "seq"];
    let dims = names
        .iter()
        .enumerate()
        .map(|(index, name)| ((*name).to_owned(), [1, 3][round as usize] + index % 3));
    let options = sample::Options {
        seed: round,
        dims: dims.collect(),
        default_dim: 2 + round as usize,
        ..Default::default()
    };
    sample(model, &Inference::of(model), &options, &HashMap::new()).unwrap()
}

fn agree(a: &Value, b: &Value, accuracy: Accuracy) -> Result<(), String> {
    let (Value::Tensor(a), Value::Tensor(b)) = (a, b) else { return Ok(()) };
    if a.shape() != b.shape() || a.dtype() != b.dtype() {
        return Err(format!("{} {:?} became {} {:?}", a.dtype(), a.shape(), b.dtype(), b.shape()));
    }
    if a.to_tensor().unwrap().same_bits(&b.to_tensor().unwrap()) {
        return Ok(());
    }
    let (x, y) = (a.to_f64s().unwrap(), b.to_f64s().unwrap());
    let scale = x.iter().copied().filter(|x| x.is_finite()).fold(0.0, |scale: f64, x| scale.max(x.abs()));
    let allowed = match accuracy {
        Accuracy::BitExact => return Err(format!("{x:?} became {y:?}")),
        Accuracy::ValueExact => 0.0,
        Accuracy::Rounding { ulps } => ulps * epsilon(a.dtype()) * scale,
        Accuracy::Approximate { rtol, atol } => atol + rtol * scale,
    };
    let same = |(x, y): (&f64, &f64)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= allowed;
    if x.iter().zip(&y).all(same) { Ok(()) } else { Err(format!("{x:?} became {y:?}")) }
}

/// The distance of 1 and the next number of a type.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => f64::from(f32::EPSILON),
    }
}

/// Runs a case and answers the verdict as it would stand in the file.
fn verdict(pass: &'static Pass, case: &Case) -> String {
    let original = load(&case.before);
    let mut model = original.clone();
    let outcome = run_pass(pass, &mut model);
    model.validate().unwrap();
    assert_eq!(model.fates().len(), original.node_count(), "{}: a node has no fate", case.title);
    let edits = model.journal().len();
    run_pass(pass, &mut model);
    assert_eq!(model.journal().len(), edits, "{}: a second run finds more", case.title);
    let random = case.before.contains("Random")
        || case.before.contains("Bernoulli")
        || case.before.contains("training");
    // Nothing makes up strings, and nobody knows custom operators.
    let unrunnable = case.before.contains("custom.") || case.before.contains("string[");
    let promised = model
        .journal()
        .iter()
        .fold(Accuracy::BitExact, |worst, entry| if entry.accuracy > worst { entry.accuracy } else { worst });
    assert!(pass.accuracy() >= promised, "{}: an edit promises less than its pass", case.title);
    if edits > 0 && !random && !unrunnable {
        for round in 0..2 {
            let inputs = inputs(&original, round);
            for (a, b) in outputs(&original, &inputs).iter().zip(outputs(&model, &inputs)) {
                agree(a, &b, promised).unwrap_or_else(|why| panic!("{}: {}: {why}", pass.name, case.title));
            }
        }
    }
    if edits > 0 {
        return format!("becomes\n{}", print(&model).trim());
    }
    let mut reasons: Vec<String> =
        outcome.passes.iter().flat_map(|pass| &pass.skipped).map(|skip| skip.reason.to_string()).collect();
    reasons.dedup();
    match reasons.first() {
        Some(reason) => format!("stays: {reason}"),
        None => "stays".to_owned(),
    }
}

#[test]
fn passes_do_what_their_cases_say() {
    let bless = std::env::var_os("ONNXFORGE_BLESS").is_some();
    let mut wrong = String::new();
    for pass in passes::all() {
        let path = folder().join(format!("{}.onnxtxt", pass.name));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{}: no cases", pass.name));
        let (preface, _) = text.split_once("=== ").unwrap();
        let mut blessed = preface.to_owned();
        for case in cases(&text) {
            let found = verdict(pass, &case);
            let expected = match &case.expected {
                Ok(after) => format!("becomes\n{after}"),
                Err(reason) if reason.is_empty() => "stays".to_owned(),
                Err(reason) => format!("stays: {reason}"),
            };
            if found != expected {
                write!(wrong, "\n{}: {}\nexpected it {expected}\nfound it {found}\n", pass.name, case.title)
                    .unwrap();
            }
            write!(blessed, "=== {}\n{}\n--- {found}\n\n", case.title, case.before).unwrap();
        }
        if bless {
            std::fs::write(&path, format!("{}\n", blessed.trim_end())).unwrap();
        }
    }
    assert!(bless || wrong.is_empty(), "{wrong}");
}

/// Reasons that no small graph shows: models that the checker refuses, or numbers by the million.
const WITHOUT_CASES: [(&str, &str); 9] = [
    ("fold_constants", "computing it would take too long"),
    ("eliminate_scatter_overwrite", "computing it would take too long"),
    ("fuse_conv_batchnorm", "the rule does not cover this element type"),
    ("fuse_conv_bias", "the shape is not known well enough"),
    ("fuse_pad", "the rule does not cover this value of attribute pads"),
    ("fuse_pad", "the shape is not known well enough"),
    ("merge_slices", "its bounds are too large"),
    ("inline_functions", "the model would become too large"),
    ("inline_functions", "an attribute of the function holds a graph"),
];

/// The reasons that the file of a pass names for leaving something alone.
fn reasons_in(source: &str) -> Vec<String> {
    let general = [
        ("ReadElsewhere", Reason::ReadElsewhere),
        ("NotConstant", Reason::NotConstant),
        ("UnknownShape", Reason::UnknownShape),
        ("UnknownType", Reason::UnknownType),
        ("Type", Reason::Type),
        ("Broadcast", Reason::Broadcast),
        ("Random", Reason::Random),
        ("Training", Reason::Training),
        ("Dequantizes", Reason::Dequantizes),
        ("Time", Reason::Time),
        ("MoreNodes", Reason::MoreNodes),
    ];
    let quoted =
        |text: &str| text.trim_start().strip_prefix('"')?.split_once('"').map(|(word, _)| word.to_owned());
    let mut reasons: Vec<String> = source.split("because(").skip(1).filter_map(quoted).collect();
    for named in source.split("Reason::").skip(1) {
        let (name, rest) = named.split_once(|c: char| !c.is_alphanumeric()).unwrap();
        reasons.extend(match name {
            "Rule" => quoted(rest),
            "Attribute" => {
                quoted(rest).map(|name| format!("the rule does not cover this value of attribute {name}"))
            }
            _ => general.iter().find(|(known, _)| *known == name).map(|(_, reason)| reason.to_string()),
        });
    }
    reasons
}

#[test]
fn every_reason_has_a_case() {
    let mut missing = String::new();
    for pass in passes::all() {
        let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/passes");
        let source = std::fs::read_to_string(sources.join(format!("{}.rs", pass.name))).unwrap();
        let text = std::fs::read_to_string(folder().join(format!("{}.onnxtxt", pass.name))).unwrap();
        let shown: Vec<String> = cases(&text).into_iter().filter_map(|case| case.expected.err()).collect();
        for reason in reasons_in(&source) {
            let has_case = shown.contains(&reason);
            let is_listed = WITHOUT_CASES.contains(&(pass.name, &reason));
            if has_case == is_listed {
                writeln!(missing, "{}: {reason} (has a case: {has_case})", pass.name).unwrap();
            }
        }
    }
    assert!(missing.is_empty(), "{missing}");
}

/// The catalogue in docs/passes.md is what the passes say of themselves.
#[test]
fn the_catalogue_is_current() {
    const MARK: &str = "<!-- passes -->\n";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/passes.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (preface, listed) = text.split_once(MARK).unwrap();
    let entry = |pass: &&Pass| {
        let text = pass.text();
        let (_, paragraphs) = text.split_once("\n\n").unwrap();
        let paragraphs = paragraphs.replace("\n**", "\n\n**");
        format!("\n## {}\n\n{}.\n\n{paragraphs}\n", pass.name, pass.summary().trim_end_matches('.'))
    };
    let current: String = onnxforge::passes::all().map(|pass| entry(&pass)).collect();
    if std::env::var_os("ONNXFORGE_BLESS").is_some() {
        std::fs::write(&path, format!("{preface}{MARK}{current}")).unwrap();
    } else {
        assert_eq!(listed, current, "ONNXFORGE_BLESS=1 writes it");
    }
}

#[test]
fn rules_are_written_correctly() {
    for pass in passes::all() {
        assert!(
            pass.text().starts_with(&format!("{}: ", pass.name)),
            "{}: the text begins with its name",
            pass.name
        );
        for part in ["**Matches**", "**Accuracy**", "**Proof**"] {
            assert!(pass.text().contains(part), "{}: no {part}", pass.name);
        }
        if let Work::Rules(rules) = pass.work {
            for rule in rules {
                rule.check().unwrap_or_else(|why| panic!("{} {}: {why}", pass.name, rule.name()));
            }
        }
    }
    assert_eq!(
        passes::all().map(|pass| pass.name).collect::<std::collections::HashSet<_>>().len(),
        passes::all().count()
    );
}
