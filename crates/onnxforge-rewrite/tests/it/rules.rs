//! Golden cases: what each pass makes of a graph, and what it leaves alone and why.
//!
//! `tests/rules/<pass>.onnxtxt` holds cases of that pass, written as `golden` reads them. `--- becomes` is followed by the graph after;
//! `--- becomes, trusting argument` names the argument that stood in for a proof of types and shapes (`Trust`); each pass must have a case for
//! each argument that it declares. `--- stays: reason` instead says that the pass changes nothing and gives that reason (without one: nothing that it is about).
//! Graphs without a heading are of operator set 21.
//!
//! Every case is also evaluated before and after, at two sizes of each symbolic dimension, and must agree as well as the edits
//! promise, where they may round as `docs/accuracy.md` says; a second run must find nothing; every node of the file must have a fate; text and messages must agree.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::bounds;
use crate::golden::{Case, agree, cases, inputs, is_blessing, judge, load, outputs, print, promised};
use onnxforge_ir::{Accuracy, Model, Trust};
use onnxforge_rewrite::passes::pipeline::{self, Outcome, optimize_watched};
use onnxforge_rewrite::passes::{self, Pass, Runs, Stage, Work, targets};
use onnxforge_rewrite::{Author, Reason, upgrade};
use onnxforge_verify::local::Local;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/rules")
}

/// Runs a pass whose every edit must hold where it happens.
fn run_pass(pass: &'static Pass, title: &str, model: &mut Model) -> Outcome {
    let mut local = Local::new(Duration::from_secs(60));
    let options = pipeline::Options { passes: vec![pass], ..pipeline::Options::default() };
    let outcome = optimize_watched(model, &options, Some(&mut local));
    assert!(local.wrong.is_none(), "{}, {title}: {:?}", pass.name, local.wrong);
    outcome
}

/// How many inputs each case is run with.
const ROUNDS: u64 = 6;

/// Runs a case and answers the verdict as it would stand in the file.
fn verdict(pass: &'static Pass, case: &Case) -> String {
    let original = load(&case.before);
    let mut model = original.clone();
    let outcome = run_pass(pass, &case.title, &mut model);
    model.validate().unwrap();
    assert_eq!(model.fates().len(), original.node_count(), "{}: a node has no fate", case.title);
    let edits = model.journal().len();
    run_pass(pass, &case.title, &mut model);
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
        let trusted: BTreeSet<Trust> = model.journal().iter().filter_map(|entry| entry.trusted).collect();
        let named: Vec<&str> = trusted.into_iter().map(Trust::name).collect();
        let trusting =
            if named.is_empty() { String::new() } else { format!("{TRUSTING}{}", named.join(" and ")) };
        return format!("becomes{trusting}\n{}", print(&model).trim());
    }
    let mut reasons: Vec<String> =
        outcome.passes.iter().flat_map(|pass| &pass.skipped).map(|skip| skip.reason.to_string()).collect();
    reasons.dedup();
    match reasons.first() {
        Some(reason) => format!("stays: {reason}"),
        None => "stays".to_owned(),
    }
}

/// The passes to try: those whose name holds what `ONNXFORGE_FILTER` says, or all.
fn chosen() -> impl Iterator<Item = &'static Pass> {
    let filter = std::env::var("ONNXFORGE_FILTER").unwrap_or_default();
    passes::all().filter(move |pass| pass.name.contains(&filter))
}

/// What stands in the verdict between the word and the arguments that were needed.
const TRUSTING: &str = ", trusting ";

#[test]
fn passes_do_what_their_cases_say() {
    let mut wrong = String::new();
    for pass in chosen() {
        let path = folder().join(format!("{}.onnxtxt", pass.name));
        wrong += &judge(&path, |case| verdict(pass, case));
        let mut tried = BTreeSet::new();
        for case in cases(&std::fs::read_to_string(&path).unwrap()) {
            let first = case.verdict.lines().next().unwrap_or_default();
            let named = first.split_once(TRUSTING).map_or("", |(_, named)| named);
            tried.extend(
                Trust::ALL.into_iter().filter(|trust| named.split(" and ").any(|it| it == trust.name())),
            );
        }
        let declared: BTreeSet<Trust> = pass.trusts.iter().copied().collect();
        if tried != declared {
            writeln!(wrong, "{}: declares {declared:?}, and its cases need {tried:?}", pass.name).unwrap();
        }
    }
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
        let text = std::fs::read_to_string(folder().join(format!("{}.onnxtxt", pass.name))).unwrap();
        let reason = |case: Case| Some(case.verdict.strip_prefix("stays: ")?.to_owned());
        let shown: Vec<String> = cases(&text).into_iter().filter_map(reason).collect();
        for reason in reasons_in(pass.source()) {
            let has_case = shown.contains(&reason);
            let is_listed = WITHOUT_CASES.contains(&(pass.name, &reason));
            if has_case == is_listed {
                writeln!(missing, "{}: {reason} (has a case: {has_case})", pass.name).unwrap();
            }
        }
    }
    assert!(missing.is_empty(), "{missing}");
}

/// What recognisers that passes share give as a reason, some pass has a case for.
#[test]
fn every_reason_of_recognisers_has_a_case() {
    let reason = |case: Case| Some(case.verdict.strip_prefix("stays: ")?.to_owned());
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let files = |folder: PathBuf| {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let shown: BTreeSet<String> = files(folder())
        .into_iter()
        .flat_map(|path| cases(&read(path)).into_iter().filter_map(reason))
        .collect();
    let recognisers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/passes/recognize");
    let reasons = files(recognisers).into_iter().flat_map(|path| reasons_in(&read(path)));
    let missing: BTreeSet<String> = reasons.filter(|reason| !shown.contains(reason)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The passes of each target in the order in which they run, stage by stage: what comes out depends on it.
#[test]
fn the_order_of_passes_is_pinned() {
    let mut current = String::new();
    for target in targets::TARGETS.into_iter().chain(targets::FORMATS) {
        for stage in Stage::ALL {
            let passes: Vec<&str> =
                target.passes().filter(|pass| pass.stage == stage).map(|pass| pass.name).collect();
            if !passes.is_empty() {
                writeln!(current, "{} {stage:?}: {}", target.name, passes.join(" ")).unwrap();
            }
        }
    }
    let on_request: Vec<&str> =
        passes::all().filter(|pass| pass.is_optional()).map(|pass| pass.name).collect();
    writeln!(current, "on request: {}", on_request.join(" ")).unwrap();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/order.txt");
    if is_blessing() {
        std::fs::write(path, current).unwrap();
    } else {
        assert_eq!(current, std::fs::read_to_string(path).unwrap(), "ONNXFORGE_BLESS=1 writes it");
    }
}

/// The guide shows the file of a pass as it is.
#[test]
fn the_guide_shows_a_pass_that_exists() {
    let guide = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/writing-a-pass.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, rest) = guide.split_once("```rust\n").unwrap();
    let (shown, _) = rest.split_once("```\n").unwrap();
    assert_eq!(shown, passes::fuse::fuse_softplus::PASS.source());
}

/// Where a pass runs, in words.
fn facts(pass: &Pass) -> String {
    let names = |targets: &[&targets::Target]| -> Vec<String> {
        targets.iter().map(|target| format!("`{}`", target.name)).collect()
    };
    let runs = match pass.runs {
        Runs::Always => "for every target".to_owned(),
        Runs::Except(targets) => format!("for every target but {}", names(targets).join(" and ")),
        Runs::Only(targets) => format!("for the target {}", names(targets).join(" and ")),
        Runs::OnRequest => "on request".to_owned(),
    };
    let needs = match pass.needs {
        [] => String::new(),
        needs => format!(" Needs {}.", needs.join(" or ")),
    };
    format!("Stage {:?}, {runs}.{needs}", pass.stage)
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
        let summary = pass.summary();
        let summary = summary.trim_end_matches('.');
        format!("\n## {}\n\n{summary}. *{}*\n\n{paragraphs}\n", pass.name, facts(pass))
    };
    let mut current = "\n## Trust\n\n| argument | it says that | used by |\n|---|---|---|\n".to_owned();
    let authors = passes::all().map(Pass::author).chain([upgrade::AUTHOR]);
    let authors: Vec<Author> = authors.collect();
    for trust in Trust::ALL {
        let users = authors.iter().filter(|author| author.trusts.contains(&trust));
        let users: Vec<String> = users.map(|author| format!("`{}`", author.name)).collect();
        assert!(!users.is_empty(), "nothing uses {trust:?}");
        writeln!(current, "| `{}` | {} | {} |", trust.name(), trust.argument(), users.join(", ")).unwrap();
    }
    current.extend(passes::all().map(entry));
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
            let parts = paragraphs(pass, &["Accuracy", "Proof", "Trust", "Bound"]);
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
        assert_eq!(
            pass.text().contains("**Trust**"),
            !pass.trusts.is_empty(),
            "{}: a pass that trusts says why, and no other",
            pass.name
        );
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
        assert!(
            pass.is_optional() || !matches!(pass.accuracy(), Accuracy::Approximate { .. }),
            "{}: a pass that approximates runs for no target unless it is asked for",
            pass.name
        );
    }
    assert_eq!(
        passes::all().map(|pass| pass.name).collect::<std::collections::HashSet<_>>().len(),
        passes::all().count()
    );
}
