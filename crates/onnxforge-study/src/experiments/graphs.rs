//! What models are made of, before and after.

use std::collections::{BTreeMap, BTreeSet};

use onnxforge::passes::targets::PORTABLE;
use onnxforge::passes::{eliminate, fuse, layout, simplify};
use onnxforge_figures::plots::bars;
use serde_json::Value;

use super::{Experiment, finding, megabytes, reduction};
use crate::corpus::{Corpus, Studied};
use crate::table::{Cell, Table};

/// Most operators that a plot shows.
const SHOWN: usize = 24;

/// Models that were optimized.
fn optimized(corpus: &Corpus) -> impl Iterator<Item = &Studied> {
    corpus.models.iter().filter(|model| model.report("optimize").is_some())
}

/// What is said of a pass that leaves no place alone.
pub const NONE: &str = "there is none";

/// The most frequent reason of a pass to leave places alone, with how many.
pub fn stays(model: &Studied, pass: &str) -> String {
    let step = if model.at(pass, "/passes").is_some() { pass } else { "optimize" };
    let passes = model.at(step, "/passes").and_then(Value::as_array).into_iter().flatten();
    let skipped =
        passes.filter(|run| run["name"] == pass).filter_map(|run| run["skipped"].as_object()).flatten();
    let most = skipped.max_by_key(|(_, count)| count.as_u64());
    most.map_or_else(|| NONE.to_owned(), |(reason, count)| format!("{count}: {reason}"))
}

/// Experiments 02 and 15.
pub fn transposes(corpus: &Corpus) -> Experiment {
    const PASSES: [&str; 5] = [
        eliminate::eliminate_noop_transposes::PASS.name,
        eliminate::eliminate_redundant_transposes::PASS.name,
        layout::cancel_transposes::PASS.name,
        layout::merge_transposes::PASS.name,
        simplify::cleanup_attention::PASS.name,
    ];
    let mut table = Table::new(
        "Transposes",
        [
            "model",
            "before",
            "after",
            "no-ops",
            "one right after another",
            "cancel across operators",
            "nodes removed by passes about them",
            "largest relative difference",
            "speed of the whole model",
            "why others stay",
        ],
    );
    let (mut sums, mut models, mut next, mut across) = ([0.0; 2], 0, 0.0, 0.0);
    for model in optimized(corpus).filter(|model| model.operator("Transpose")[0] > 0.0) {
        let counted = |id: &str| finding(model, id).and_then(|found| found["count"].as_f64()).unwrap_or(0.0);
        next += counted("consecutive_transposes");
        across += counted("cancelling_transposes");
        let [before, after] = model.operator("Transpose");
        sums = [sums[0] + before, sums[1] + after];
        models += 1;
        let removed: f64 = model
            .passes("optimize")
            .iter()
            .filter(|(name, _)| PASSES.contains(name))
            .map(|(_, nodes)| -nodes)
            .sum();
        let count = |id: &str| Cell::number(finding(model, id).and_then(|found| found["count"].as_f64()), 0);
        table.row(vec![
            model.name.clone().into(),
            Cell::count(before),
            Cell::count(after),
            count("noop_transposes"),
            count("consecutive_transposes"),
            count("cancelling_transposes"),
            Cell::count(removed),
            Cell::small(model.difference("optimize")),
            Cell::number(model.speed("bench", 1).map(|speed| speed.median), 3),
            match (after == 0.0, stays(model, layout::cancel_transposes::PASS.name)) {
                (true, _) => "none is left".into(),
                (false, reason) if reason == NONE => "no other order of axes takes fewer".into(),
                (false, reason) => reason.into(),
            },
        ]);
    }
    Experiment {
        id: "02/15",
        title: "Do transposes cancel",
        expected: "Exports of detectors were expected to hold Transposes that cancel each other.",
        seen: vec![
            format!("{models} models have {} Transposes; {} are left.", sums[0], sums[1]),
            format!("Transposes of weights are folded; {next} stand right after another one, {across} cancel across operators between them."),
        ],
        follows: vec![
            "Where none cancel, each of them changes the order of axes for an operator that needs another one: heads of attention, or the boxes and scores that a detector puts side by side. Those are the computation, not a detour.".to_owned(),
        ],
        steps: &["audit", "optimize", "bench"],
        tables: vec![table],
        plots: Vec::new(),
    }
}

/// Experiment 03.
pub fn batch_norms(corpus: &Corpus) -> Experiment {
    let mut table = Table::new(
        "Convolutions and their normalizations",
        [
            "model",
            "BatchNormalization before",
            "after",
            "Conv before",
            "after",
            "nodes before",
            "after",
            "fewer, %",
            "constants before, MB",
            "after",
            "largest relative difference",
            "why others stay",
        ],
    );
    let mut sums = [0.0; 2];
    for model in optimized(corpus).filter(|model| model.operator("BatchNormalization")[0] > 0.0) {
        let (norms, convs) = (model.operator("BatchNormalization"), model.operator("Conv"));
        sums = [sums[0] + norms[0], sums[1] + norms[1]];
        table.row(vec![
            model.name.clone().into(),
            Cell::count(norms[0]),
            Cell::count(norms[1]),
            Cell::count(convs[0]),
            Cell::count(convs[1]),
            Cell::number(model.nodes().map(|nodes| nodes[0]), 0),
            Cell::number(model.nodes().map(|nodes| nodes[1]), 0),
            Cell::number(model.nodes().map(reduction), 1),
            megabytes(model, "/before/constants"),
            megabytes(model, "/after/constants"),
            Cell::small(model.difference("optimize")),
            if norms[1] == 0.0 {
                "none is left".into()
            } else {
                stays(model, fuse::fuse_conv_batchnorm::PASS.name).into()
            },
        ]);
    }
    Experiment {
        id: "03",
        title: "Does a normalization become part of its convolution",
        expected: "Every BatchNormalization right behind a Conv should become part of its weights; that rounds, so outputs may differ in the last digits.",
        seen: vec![format!("{} of {} BatchNormalizations are gone.", sums[0] - sums[1], sums[0])],
        follows: vec![match sums[1] == 0.0 {
            true => {
                "The pass covers what exporters write; differences are those of rounding weights once more."
                    .to_owned()
            }
            false => "The last column says what the ones that are left are waiting for.".to_owned(),
        }],
        steps: &["optimize"],
        tables: vec![table],
        plots: Vec::new(),
    }
}

/// Experiment 04.
pub fn transformers(corpus: &Corpus) -> Experiment {
    const OPERATORS: [&str; 10] = [
        "Reshape",
        "Transpose",
        "MatMul",
        "Gemm",
        "Add",
        "Constant",
        "Shape",
        "Gather",
        "Unsqueeze",
        "Concat",
    ];
    let models: Vec<&Studied> = optimized(corpus).filter(|model| model.class() == "transformer").collect();
    let heading = [
        "model",
        "nodes before",
        "after",
        "fewer, %",
        "after with --opset 23",
        "constants before, MB",
        "after",
        "largest relative difference",
        "milliseconds, checks included",
    ];
    let mut table = Table::new("The whole pipeline", heading);
    let mut deltas = Table::new("Operators, before → after", std::iter::once("model").chain(OPERATORS));
    for model in &models {
        let nodes = model.nodes().unwrap_or_default();
        let times = model.at("optimize", "/milliseconds").and_then(Value::as_object).into_iter().flatten();
        table.row(vec![
            model.name.clone().into(),
            Cell::count(nodes[0]),
            Cell::count(nodes[1]),
            Cell::number(Some(reduction(nodes)), 1),
            Cell::number(model.number("newer", "/after/all_nodes"), 0),
            megabytes(model, "/before/constants"),
            megabytes(model, "/after/constants"),
            Cell::small(model.difference("optimize")),
            Cell::count(times.filter_map(|(_, time)| time.as_f64()).sum::<f64>().round()),
        ]);
        let change = |op: &&str| {
            let [before, after] = model.operator(op);
            Cell::from(format!("{before} → {after}"))
        };
        deltas.row(std::iter::once(model.name.clone().into()).chain(OPERATORS.iter().map(change)).collect());
    }
    let plots = models.first().map(|model| {
        let counts = model.at("optimize", "/operators").and_then(Value::as_object).into_iter().flatten();
        let mut counts: Vec<(String, [f64; 2])> =
            counts.map(|(op, _)| (op.clone(), model.operator(op))).collect();
        counts.sort_by(|a, b| b.1[0].max(b.1[1]).total_cmp(&a.1[0].max(a.1[1])));
        counts.truncate(SHOWN);
        let (names, pairs): (Vec<String>, Vec<[f64; 2]>) = counts.into_iter().unzip();
        (
            "operators.svg".to_owned(),
            bars(&format!("Operators of {}", model.name), &names, &pairs, ["before", "after"]),
        )
    });
    Experiment {
        id: "04",
        title: "Transformers through the whole pipeline",
        expected: "15 to 25 % fewer nodes on BERT, most of them computations of shapes.",
        seen: match models.is_empty() {
            true => vec!["The corpus has no transformer.".to_owned()],
            false => models
                .iter()
                .map(|model| {
                    format!("{}: {:.1} % fewer nodes.", model.name, model.nodes().map_or(0.0, reduction))
                })
                .collect(),
        },
        follows: vec![
            "Shape, Gather, Unsqueeze, Concat and Constant are how exporters ask for sizes at run time; symbolic reasoning answers most of it beforehand, with batch and sequence unknown. What is left is the network.".to_owned(),
        ],
        steps: &["optimize", "newer"],
        tables: vec![table, deltas],
        plots: plots.into_iter().collect(),
    }
}

/// Experiment 05.
pub fn forms(corpus: &Corpus) -> Experiment {
    let mut table = Table::new(
        "Every form on every model that has a Conv with a Relu",
        [
            "model",
            "pairs",
            "form",
            "what it is",
            "nodes",
            "valid ONNX",
            "ONNX Runtime takes it",
            "largest relative difference",
            "nodes that it runs",
        ],
    );
    let mut taken: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for model in &corpus.models {
        let tried = model.at("forms", "/forms").and_then(Value::as_array).into_iter().flatten();
        for form in tried {
            let yes =
                |key: &str| form[key].as_str().map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"));
            let Some(name) = form["form"].as_str() else { continue };
            taken.entry(name).or_default()[usize::from(form["refused"].is_string())] += 1;
            table.row(vec![
                model.name.clone().into(),
                Cell::number(model.number("forms", "/pairs"), 0),
                name.into(),
                form["what"].as_str().unwrap_or_default().into(),
                Cell::number(form["nodes"].as_f64(), 0),
                yes("invalid").into(),
                yes("refused").into(),
                Cell::small(form["difference"].as_f64()),
                Cell::number(form["run_nodes"].as_f64(), 0),
            ]);
        }
    }
    let told: Vec<String> =
        taken.iter().map(|(form, [yes, no])| format!("{form}: {yes} of {}", yes + no)).collect();
    Experiment {
        id: "05",
        title: "How a Relu can belong to its Conv",
        expected: "A converter would like to read from the model that a Relu belongs to the Conv before it. Six forms were proposed; each is tried on the optimized models.",
        seen: vec![match told.is_empty() {
            true => "No model has a Conv with a Relu behind it.".to_owned(),
            false => format!("ONNX Runtime takes {}.", told.join(", ")),
        }],
        follows: vec![
            "A and B, and the converter's half of D, are no ONNX models. C is taken and hides that it is a Relu. F is harmless, and nobody reads it.".to_owned(),
            "So `fuse_conv_relu` puts the two side by side as Conv and Relu, where runtimes and converters fuse what they see, and E is what the target `ort` writes.".to_owned(),
        ],
        steps: &["forms"],
        tables: vec![table],
        plots: Vec::new(),
    }
}

/// Operators of a model by count.
pub fn operators(model: &Studied) -> BTreeMap<&str, f64> {
    let listed = model.at("inspect", "/models/0/operators").and_then(Value::as_array).into_iter().flatten();
    listed.filter_map(|entry| Some((entry["op"].as_str()?, entry["count"].as_f64()?))).collect()
}

/// Experiment 08.
pub fn inventory(corpus: &Corpus) -> Experiment {
    let models: Vec<(&Studied, BTreeMap<&str, f64>)> = corpus
        .models
        .iter()
        .filter(|model| model.report("inspect").is_some())
        .map(|model| (model, operators(model)))
        .collect();
    let mut cards = Table::new(
        "Cards",
        ["model", "opset", "nodes", "operators", "initializers", "parameters, M", "weights, MB"],
    );
    for (model, counts) in &models {
        let number = |place: &str| model.number("inspect", place);
        cards.row(vec![
            model.name.clone().into(),
            Cell::number(number("/models/0/opsets/ai.onnx"), 0),
            Cell::number(number("/models/0/nodes_total"), 0),
            Cell::count(counts.len() as f64),
            Cell::number(number("/models/0/initializers"), 0),
            Cell::number(number("/models/0/parameters").map(|count| count / 1e6), 2),
            Cell::number(number("/models/0/weight_bytes").map(|bytes| bytes / 1e6), 2),
        ]);
    }
    let all: BTreeSet<&str> = models.iter().flat_map(|(_, counts)| counts.keys().copied()).collect();
    let heading =
        std::iter::once("operator".to_owned()).chain(models.iter().map(|(model, _)| model.name.clone()));
    let mut table = Table::new("Operators", heading);
    for op in &all {
        let cells = models.iter().map(|(_, counts)| Cell::count(counts.get(op).copied().unwrap_or(0.0)));
        table.row(std::iter::once(Cell::from(*op)).chain(cells).collect());
    }
    Experiment {
        id: "08",
        title: "What models are made of",
        expected: "A full inventory of operators, as the file has them.",
        seen: vec![format!("{} models with {} different operators.", models.len(), all.len())],
        follows: vec![
            "Two exporters write one network with different operators: what looks for patterns must know both spellings, or look at the model without detours.".to_owned(),
        ],
        steps: &["inspect"],
        tables: vec![cards, table],
        plots: Vec::new(),
    }
}

/// A row for each finding, with a column for each model: how many, and how many of them passes handle.
pub fn findings(title: &str, models: &[&Studied], wanted: impl Fn(&str) -> bool) -> Table {
    let heading = std::iter::once("finding".to_owned()).chain(models.iter().map(|model| model.name.clone()));
    let mut table = Table::new(title, heading);
    let known = models.iter().filter_map(|model| model.at("audit", "/models/0/findings")?.as_array());
    let Some(known) = known.max_by_key(|findings| findings.len()) else { return table };
    for id in known.iter().filter_map(|finding| finding["id"].as_str()).filter(|id| wanted(id)) {
        let cell = |model: &&Studied| {
            let found = finding(model, id);
            let number = |key: &str| found.and_then(|found| found[key].as_f64());
            let newer = found.and_then(|found| found.pointer("/newer/handled")?.as_f64());
            match (number("count"), number("handled")) {
                (Some(0.0), _) => Cell::count(0),
                (Some(count), Some(0.0)) if newer > Some(0.0) => {
                    format!("{count} (with opset 23: {} handled)", newer.unwrap_or(0.0)).into()
                }
                (Some(count), Some(handled)) if handled > 0.0 => {
                    format!("{count} ({handled} handled)").into()
                }
                (Some(count), _) => Cell::count(count),
                _ => "–".into(),
            }
        };
        table.row(std::iter::once(Cell::from(id)).chain(models.iter().map(cell)).collect());
    }
    table
}

fn audited(corpus: &Corpus) -> impl Iterator<Item = &Studied> {
    corpus.models.iter().filter(|model| model.report("audit").is_some())
}

/// What findings come to: what passes handle, why other places stay, and what is still there afterwards.
struct Explained {
    seen: String,
    stays: Table,
    left: Table,
}

/// A pass, and when it runs, if not always.
fn when(pass: &str) -> String {
    let runs = |target: &&onnxforge::passes::targets::Target| target.passes().any(|known| known.name == pass);
    match onnxforge::passes::targets::TARGETS.iter().copied().find(|target| runs(target)) {
        Some(target) if target.name == PORTABLE.name => pass.to_owned(),
        Some(target) => format!("{pass} (target {})", target.name),
        None => format!("{pass} (on request)"),
    }
}

/// Accounts for every place that the audit found in any model.
fn explained(corpus: &Corpus) -> Explained {
    let (mut found, mut handled) = (0.0, 0.0);
    let mut reasons: BTreeMap<(&str, &str), (f64, BTreeSet<&str>)> = BTreeMap::new();
    let mut after: BTreeMap<&str, [f64; 3]> = BTreeMap::new();
    let mut handlers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for model in audited(corpus) {
        let listed =
            |step: &str| model.at(step, "/models/0/findings").and_then(Value::as_array).into_iter().flatten();
        for finding in listed("audit") {
            let number = |key: &str| finding[key].as_f64().unwrap_or(0.0);
            let Some(id) = finding["id"].as_str() else { continue };
            // What no pass is about is told for its own sake.
            if finding["passes"].as_array().is_none_or(Vec::is_empty) {
                continue;
            }
            found += number("count");
            handled += number("handled");
            let named = finding["passes"].as_array().into_iter().flatten().filter_map(Value::as_str);
            handlers.entry(id).or_insert_with(|| named.map(when).collect());
            let sums = after.entry(id).or_default();
            sums[0] += number("count");
            sums[1] += number("handled");
            for (reason, count) in finding["stays"].as_object().into_iter().flatten() {
                let entry = reasons.entry((id, reason)).or_default();
                entry.0 += count.as_f64().unwrap_or(0.0);
                entry.1.insert(&model.name);
            }
        }
        for finding in listed("audit_after") {
            if let (Some(sums), Some(count)) =
                (finding["id"].as_str().and_then(|id| after.get_mut(id)), finding["count"].as_f64())
            {
                sums[2] += count;
            }
        }
    }
    let mut stays = Table::new("Why places stay, on all models", ["finding", "places", "models", "reason"]);
    for ((id, reason), (count, models)) in &reasons {
        stays.row(vec![
            (*id).into(),
            Cell::count(*count),
            Cell::count(models.len() as f64),
            (*reason).into(),
        ]);
    }
    let heading = [
        "finding",
        "places before",
        "handled by the pass alone",
        "places after all passes",
        "passes that handle it",
    ];
    let mut left = Table::new("Before and after all passes, on all models", heading);
    for (id, sums) in after {
        let handled_by = handlers.remove(id).unwrap_or_default().join(", ");
        let counts = sums.map(Cell::count).into_iter();
        left.row(std::iter::once(Cell::from(id)).chain(counts).chain([handled_by.into()]).collect());
    }
    let seen = format!(
        "On all models passes handle {handled} of {found} places alone; the other {} stay for {} different reasons.",
        found - handled,
        reasons.len()
    );
    Explained { seen, stays, left }
}

/// Experiment 11.
pub fn forensics(corpus: &Corpus) -> Experiment {
    let models: Vec<&Studied> =
        audited(corpus).filter(|model| super::attention_blocks(model) > 0.0).collect();
    let explained = explained(corpus);
    Experiment {
        id: "11",
        title: "Forensics of transformers",
        expected: "Each finding of the audit on each model with attention, and how many of its places a pass handles.",
        seen: vec![
            format!("{} models have attention.", models.len()),
            explained.seen,
        ],
        follows: vec![
            "What the audit finds is what passes then remove: each place is handled, waits for a newer operator set, or stays for a reason that the pass gives. The second table has every reason.".to_owned(),
        ],
        steps: &["audit", "audit_after"],
        tables: vec![findings("Findings", &models, |_| true), explained.stays, explained.left],
        plots: Vec::new(),
    }
}

/// Experiment 13.
pub fn noops(corpus: &Corpus) -> Experiment {
    let models: Vec<&Studied> = audited(corpus).collect();
    let table = findings("No-ops", &models, |id| id.starts_with("noop_"));
    Experiment {
        id: "13",
        title: "Transposes and reshapes that do nothing",
        expected: "Only passes that fire somewhere are worth having.",
        seen: vec![format!(
            "{} kinds of no-ops were looked for on {} models.",
            table.rows.len(),
            models.len()
        )],
        follows: vec![
            "Exporters that do not fold constants write each kind somewhere, so each has a pass; after these, none is left (11 has what remains).".to_owned(),
        ],
        steps: &["audit"],
        tables: vec![table],
        plots: Vec::new(),
    }
}

/// How many attention blocks have a mask.
fn masked(models: &[&Studied]) -> String {
    let of = |key: &str| -> f64 {
        let found = models.iter().filter_map(|model| finding(model, "attention_blocks"));
        found.filter_map(|found| found.pointer(key)?.as_f64()).sum()
    };
    format!("{} of {}", of("/details/masked"), of("/count"))
}

/// Experiment 17.
pub fn decoders_and_encoders(corpus: &Corpus) -> Experiment {
    let of = |class: &str| audited(corpus).filter(|model| model.class() == class).collect::<Vec<_>>();
    let (encoders, decoders) = (of("transformer"), of("llm"));
    let both: Vec<&Studied> = decoders.iter().chain(&encoders).copied().collect();
    Experiment {
        id: "17",
        title: "Decoders beside encoders",
        expected: "GPT-2 and BERT have the same blocks, but decoders have causal masks and caches, and their exports other detours.",
        seen: vec![
            format!("{} decoders, {} encoders.", decoders.len(), encoders.len()),
            format!(
                "Attention blocks with a mask: {} of decoders, {} of encoders.",
                masked(&decoders),
                masked(&encoders)
            ),
        ],
        follows: vec![
            "The same passes serve both. What differs is the mask, which decoders compute from positions and encoders get as an input or not at all, and the caches of decoders, which are inputs and outputs and keep their Transposes.".to_owned(),
        ],
        steps: &["audit"],
        tables: vec![findings("Findings, decoders first", &both, |_| true)],
        plots: Vec::new(),
    }
}
