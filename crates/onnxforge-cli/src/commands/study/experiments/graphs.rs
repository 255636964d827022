//! What models are made of, before and after.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Experiment, finding, reduction};
use crate::commands::study::corpus::{Corpus, Studied};
use crate::commands::study::table::{Cell, Table};
use onnxforge_figures::plots::bars;

/// Most operators that a plot shows.
const SHOWN: usize = 24;

/// Models that were optimized.
fn optimized(corpus: &Corpus) -> impl Iterator<Item = &Studied> {
    corpus.models.iter().filter(|model| model.report("optimize").is_some())
}

/// The most frequent reason of a pass to leave places alone, with how many.
fn stays(model: &Studied, pass: &str) -> String {
    let passes = model.at("optimize", "/passes").and_then(Value::as_array).into_iter().flatten();
    let skipped =
        passes.filter(|run| run["name"] == pass).filter_map(|run| run["skipped"].as_object()).flatten();
    let most = skipped.max_by_key(|(_, count)| count.as_u64());
    most.map_or_else(|| "–".to_owned(), |(reason, count)| format!("{count}: {reason}"))
}

/// Experiments 02 and 15.
pub fn transposes(corpus: &Corpus) -> Experiment {
    const PASSES: [&str; 5] = [
        "eliminate_noop_transposes",
        "eliminate_redundant_transposes",
        "cancel_transposes",
        "merge_transposes",
        "cleanup_attention",
    ];
    let mut table = Table::new(
        "Transposes",
        [
            "model",
            "before",
            "after",
            "no-ops",
            "in a row",
            "nodes removed by passes about them",
            "largest relative difference",
            "why others stay",
        ],
    );
    let (mut sums, mut models) = ([0.0; 2], 0);
    for model in optimized(corpus).filter(|model| model.operator("Transpose")[0] > 0.0) {
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
            Cell::count(removed),
            Cell::small(model.difference("optimize")),
            stays(model, "cancel_transposes").into(),
        ]);
    }
    Experiment {
        id: "02/15",
        title: "Do transposes cancel",
        expected: "Exports of detectors were expected to hold Transposes that cancel each other.",
        seen: vec![format!("{models} models have {} Transposes; {} are left.", sums[0], sums[1])],
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
            "fewer nodes, %",
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
            Cell::number(model.nodes().map(reduction), 1),
            Cell::small(model.difference("optimize")),
            stays(model, "fuse_conv_batchnorm").into(),
        ]);
    }
    Experiment {
        id: "03",
        title: "Does a normalization become part of its convolution",
        expected: "Every BatchNormalization right behind a Conv should become part of its weights; that rounds, so outputs may differ in the last digits.",
        seen: vec![format!("{} of {} BatchNormalizations are gone.", sums[0] - sums[1], sums[0])],
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
    let heading =
        ["model", "nodes before", "after", "fewer, %", "largest relative difference", "milliseconds"];
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
        tables: vec![table, deltas],
        plots: plots.into_iter().collect(),
    }
}

/// Operators of a model by count.
fn operators(model: &Studied) -> BTreeMap<&str, f64> {
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
        tables: vec![cards, table],
        plots: Vec::new(),
    }
}

/// A row for each finding, with a column for each model: how many, and how many of them passes handle.
fn findings(title: &str, models: &[&Studied], wanted: impl Fn(&str) -> bool) -> Table {
    let heading = std::iter::once("finding".to_owned()).chain(models.iter().map(|model| model.name.clone()));
    let mut table = Table::new(title, heading);
    let known = models.iter().filter_map(|model| model.at("audit", "/models/0/findings")?.as_array());
    let Some(known) = known.max_by_key(|findings| findings.len()) else { return table };
    for id in known.iter().filter_map(|finding| finding["id"].as_str()).filter(|id| wanted(id)) {
        let cell = |model: &&Studied| {
            let found = finding(model, id);
            let number = |key: &str| found.and_then(|found| found[key].as_f64());
            match (number("count"), number("handled")) {
                (Some(0.0), _) => Cell::count(0),
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

/// Experiment 11.
pub fn forensics(corpus: &Corpus) -> Experiment {
    let models: Vec<&Studied> =
        audited(corpus).filter(|model| super::attention_blocks(model) > 0.0).collect();
    Experiment {
        id: "11",
        title: "Forensics of transformers",
        expected: "Each finding of the audit on each model with attention, and how many of its places a pass handles.",
        seen: vec![format!("{} models have attention.", models.len())],
        tables: vec![findings("Findings", &models, |_| true)],
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
        tables: vec![table],
        plots: Vec::new(),
    }
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
        seen: vec![format!("{} decoders, {} encoders.", decoders.len(), encoders.len())],
        tables: vec![findings("Findings, decoders first", &both, |_| true)],
        plots: Vec::new(),
    }
}
