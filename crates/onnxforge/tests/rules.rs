//! Golden cases: what each pass makes of a graph, and what it leaves alone and why.
//!
//! `tests/rules/<pass>.onnxtxt` holds cases of that pass, written as `golden` reads them. `--- becomes` is followed by the graph after;
//! `--- stays: reason` instead says that the pass changes nothing and gives that reason (without one: nothing that it is about).
//! Graphs without a heading are of operator set 21.
//!
//! Every case is also evaluated before and after, at two sizes of each symbolic dimension, and must agree as well as the edits
//! promise, where they may round as `docs/accuracy.md` says; a second run must find nothing; every node of the file must have a fate; text and messages must agree.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod golden;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use golden::{Case, agree, bounds, cases, inputs, is_blessing, judge, load, outputs, print, promised};
use onnxforge::ir::{Accuracy, Model};
use onnxforge::passes::pipeline::{self, Outcome, optimize_watched};
use onnxforge::passes::{self, Pass, Work};
use onnxforge::rewrite::Reason;
use onnxforge::verify::local::Local;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/rules")
}

/// Runs a pass whose every edit must hold where it happens.
fn run_pass(pass: &'static Pass, model: &mut Model) -> Outcome {
    let mut local = Local::new(Duration::from_secs(60));
    let options = pipeline::Options { passes: vec![pass], ..pipeline::Options::default() };
    let outcome = optimize_watched(model, &options, Some(&mut local));
    assert!(local.wrong.is_none(), "{:?}", local.wrong);
    outcome
}

/// How many inputs each case is run with.
const ROUNDS: u64 = 6;

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
    let promised = promised(&model);
    assert!(pass.accuracy() >= promised, "{}: an edit promises less than its pass", case.title);
    if edits > 0 && !random && !unrunnable {
        for round in 0..ROUNDS {
            let inputs = inputs(&original, round);
            let fails = |why: String| panic!("{}: {}: {why}", pass.name, case.title);
            if matches!(promised, Accuracy::Rounding { .. }) {
                bounds::check(&original, &model, &inputs).unwrap_or_else(fails);
                continue;
            }
            for (a, b) in outputs(&original, &inputs).iter().zip(outputs(&model, &inputs)) {
                agree(a, &b, promised).unwrap_or_else(fails);
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
    let wrong: String = passes::all()
        .map(|pass| judge(&folder().join(format!("{}.onnxtxt", pass.name)), |case| verdict(pass, case)))
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// Reasons that no small graph shows: models that the checker refuses, or numbers by the million.
const WITHOUT_CASES: [(&str, &str); 8] = [
    ("fold_constants", "computing it would take too long"),
    ("eliminate_scatter_overwrite", "computing it would take too long"),
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
        let reason = |case: Case| Some(case.verdict.strip_prefix("stays: ")?.to_owned());
        let shown: Vec<String> = cases(&text).into_iter().filter_map(reason).collect();
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

/// The paragraphs of a pass's text that have these names, in the order of the text.
fn paragraphs(pass: &Pass, names: &[&str]) -> String {
    let text = pass.text().replace("\n**", "\n\n**");
    let wanted = |part: &&str| names.iter().any(|name| part.starts_with(&format!("**{name}**")));
    text.split("\n\n").filter(wanted).fold(String::new(), |all, part| format!("{all}\n{part}\n"))
}

/// What a document of `docs` has behind the mark is what the passes say of themselves.
fn is_current(document: &str, mark: &str, current: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let (preface, listed) = text.split_once(mark).unwrap();
    if is_blessing() {
        std::fs::write(&path, format!("{preface}{mark}{current}")).unwrap();
    } else {
        assert_eq!(listed, current, "ONNXFORGE_BLESS=1 writes it");
    }
}

#[test]
fn the_catalogue_is_current() {
    let entry = |pass: &Pass| {
        let text = pass.text();
        let (_, paragraphs) = text.split_once("\n\n").unwrap();
        let paragraphs = paragraphs.replace("\n**", "\n\n**");
        format!("\n## {}\n\n{}.\n\n{paragraphs}\n", pass.name, pass.summary().trim_end_matches('.'))
    };
    let current: String = passes::all().map(entry).collect();
    is_current("passes.md", "<!-- passes -->\n", &current);
}

/// The class of the taxonomy, and what is promised, in words.
fn in_words(accuracy: Accuracy) -> (usize, String) {
    match accuracy {
        Accuracy::BitExact => (0, "the same bits".to_owned()),
        Accuracy::ValueExact => (0, "the same numbers".to_owned()),
        Accuracy::Rounding { ulps } if ulps.is_infinite() => (1, "ulps by the number of terms".to_owned()),
        Accuracy::Rounding { ulps: 1.0 } => (1, "1 ulp".to_owned()),
        Accuracy::Rounding { ulps } => (1, format!("{ulps} ulps")),
        Accuracy::Approximate { rtol, atol } => (2, format!("{atol:e} + {rtol:e} · \\|x\\|")),
    }
}

#[test]
fn the_taxonomy_is_current() {
    let mut current = "\n## All rules\n\n| pass | rule | class | promise |\n|---|---|---|---|\n".to_owned();
    for pass in passes::all() {
        let rules = match pass.work {
            Work::Rules(rules) => rules.iter().map(|rule| (rule.name(), rule.accuracy())).collect(),
            Work::Model { accuracy, .. } => vec![("the whole pass", accuracy)],
        };
        for (rule, accuracy) in rules {
            let (class, promise) = in_words(accuracy);
            writeln!(current, "| {} | {rule} | {class} | {promise} |", pass.name).unwrap();
        }
    }
    let classes = [
        "Class 0: the same bits, or the same numbers",
        "Class 1: rounding, with a bound",
        "Class 2: approximate, on request only",
    ];
    for (class, title) in classes.iter().enumerate() {
        writeln!(current, "\n## {title}").unwrap();
        for pass in passes::all().filter(|pass| in_words(pass.accuracy()).0 == class) {
            let parts = paragraphs(pass, &["Accuracy", "Proof", "Bound"]);
            write!(current, "\n### {}\n{parts}", pass.name).unwrap();
        }
    }
    is_current("accuracy.md", "<!-- taxonomy -->\n", &current);
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
        let may_round = match pass.work {
            Work::Model { accuracy, .. } => matches!(accuracy, Accuracy::Rounding { .. }),
            Work::Rules(rules) => {
                rules.iter().any(|rule| matches!(rule.accuracy(), Accuracy::Rounding { .. }))
            }
        };
        assert_eq!(
            pass.text().contains("**Bound**"),
            may_round,
            "{}: a bound belongs to each pass that rounds, and to no other",
            pass.name
        );
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
