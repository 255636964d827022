//! Which pass does what.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Experiment, reduction};
use crate::commands::study::corpus::{Corpus, Studied};
use crate::commands::study::table::{Cell, Table};
use onnxforge_figures::plots::HeatMap;

/// Changes of the number of nodes by pass: alone, and among all.
fn attributed(model: &Studied) -> BTreeMap<&str, [f64; 2]> {
    let passes = model.at("attribute", "/models/0/passes").and_then(Value::as_array).into_iter().flatten();
    passes
        .filter_map(|pass| {
            Some((pass["pass"].as_str()?, [pass["isolated"].as_f64()?, pass["cumulative"].as_f64()?]))
        })
        .collect()
}

/// The passes that were tried, in the order of the catalogue.
pub fn of_all(corpus: &Corpus) -> Vec<String> {
    let tried: BTreeSet<&str> =
        corpus.models.iter().flat_map(|model| attributed(model).into_keys()).collect();
    onnxforge::passes::all()
        .map(|pass| pass.name)
        .filter(|name| tried.contains(name))
        .map(str::to_owned)
        .collect()
}

/// Experiments 01 and 19.
pub fn attribution(corpus: &Corpus) -> Experiment {
    let passes = of_all(corpus);
    let models: Vec<&Studied> =
        corpus.models.iter().filter(|model| model.report("attribute").is_some()).collect();
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let found: Vec<BTreeMap<&str, [f64; 2]>> = models.iter().map(|model| attributed(model)).collect();
    let matrix = |title: &str, which: usize| {
        let mut table = Table::new(title, std::iter::once("pass".to_owned()).chain(names.iter().cloned()));
        for pass in &passes {
            let cells =
                found.iter().map(|model| Cell::number(model.get(pass.as_str()).map(|both| both[which]), 0));
            table.row(std::iter::once(pass.clone().into()).chain(cells).collect());
        }
        let sums = found.iter().map(|model| Cell::count(model.values().map(|both| both[which]).sum::<f64>()));
        table.row(std::iter::once("sum".into()).chain(sums).collect());
        table
    };
    let mut sizes = Table::new(
        "Nodes, constants and differences",
        [
            "model",
            "nodes before",
            "after",
            "fewer, %",
            "constants before, MB",
            "after",
            "largest relative difference",
            "verdict",
        ],
    );
    for model in &models {
        let nodes = model.nodes();
        let megabytes =
            |place: &str| Cell::number(model.number("optimize", place).map(|bytes| bytes / 1e6), 2);
        sizes.row(vec![
            model.name.clone().into(),
            Cell::number(nodes.map(|both| both[0]), 0),
            Cell::number(nodes.map(|both| both[1]), 0),
            Cell::number(nodes.map(reduction), 1),
            megabytes("/before/constants"),
            megabytes("/after/constants"),
            Cell::small(model.difference("optimize")),
            model.text("optimize", "/verification/global/verdict").unwrap_or("–").into(),
        ]);
    }
    let silent: Vec<&String> = passes
        .iter()
        .filter(|pass| {
            found.iter().all(|model| model.get(pass.as_str()).is_none_or(|both| *both == [0.0; 2]))
        })
        .collect();
    let mut never = Table::new(
        "Passes that change no number of nodes anywhere, and why",
        ["pass", "edits", "why", "places"],
    );
    for pass in &silent {
        let (edits, why, places) = reasons(&models, pass);
        never.row(vec![(*pass).clone().into(), Cell::count(edits), why.into(), Cell::count(places)]);
    }
    let heat = HeatMap {
        title: "Nodes that each pass adds or removes, among all",
        rows: &passes,
        columns: &names,
        value: &|row, column| found[column].get(passes[row].as_str()).map(|both| both[1]),
    };
    let totals: Vec<[f64; 2]> = models.iter().filter_map(|model| model.nodes()).collect();
    let sum = |which: usize| totals.iter().map(|both| both[which]).sum::<f64>();
    let adds_up = models.iter().zip(&found).all(|(model, passes)| {
        model.nodes().is_none_or(|[before, after]| {
            (passes.values().map(|both| both[1]).sum::<f64>() - (after - before)).abs() < 0.5
        })
    });
    Experiment {
        id: "01/19",
        title: "Which pass does what",
        expected: "Every pass should remove nodes somewhere, and what passes remove one by one should add up to what they remove together. \
                   \"Alone\" is the pass by itself on the file; \"among all\" is its part of the whole run.",
        seen: vec![
            format!(
                "{} passes on {} models: {} nodes become {}.",
                passes.len(),
                models.len(),
                sum(0),
                sum(1)
            ),
            format!(
                "The parts {} to the whole on every model.",
                if adds_up { "add up" } else { "do NOT add up" }
            ),
            format!(
                "{} passes change the number of nodes of no model; the last table says why.",
                silent.len()
            ),
        ],
        tables: vec![sizes, matrix("Nodes, among all", 1), matrix("Nodes, alone", 0), never],
        plots: vec![("attribution.svg".to_owned(), heat.svg())],
    }
}

/// Why a pass changes no number of nodes: its edits, its most frequent reason to leave places alone, and how many there were.
fn reasons(models: &[&Studied], pass: &str) -> (f64, String, f64) {
    let (mut edits, mut skipped): (f64, BTreeMap<&str, f64>) = (0.0, BTreeMap::new());
    for model in models {
        let runs = model.at("optimize", "/passes").and_then(Value::as_array).into_iter().flatten();
        for run in runs.filter(|run| run["name"] == pass) {
            edits += run["edits"].as_f64().unwrap_or(0.0);
            for (reason, count) in run["skipped"].as_object().into_iter().flatten() {
                *skipped.entry(reason).or_default() += count.as_f64().unwrap_or(0.0);
            }
        }
    }
    let places = skipped.values().sum();
    let most = skipped.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let why = match (edits > 0.0, most) {
        (true, _) => "it changes constants or attributes, not the number of nodes".to_owned(),
        (false, Some((reason, _))) => format!("the places that there are stay: {reason}"),
        (false, None) => "no model has a place for it".to_owned(),
    };
    (edits, why, places)
}

/// Experiments about models of one kind.
pub fn family(
    id: &'static str,
    title: &'static str,
    expected: &'static str,
    corpus: &Corpus,
    belongs: impl Fn(&Studied) -> bool,
) -> Experiment {
    let models: Vec<&Studied> =
        corpus.models.iter().filter(|model| model.report("optimize").is_some() && belongs(model)).collect();
    let mut table = Table::new(
        "What becomes of them",
        [
            "model",
            "class",
            "nodes before",
            "after",
            "fewer, %",
            "largest relative difference",
            "passes that fire",
        ],
    );
    let mut fired: BTreeMap<&str, usize> = BTreeMap::new();
    for model in &models {
        let passes = model.passes("optimize");
        passes.iter().for_each(|(name, _)| *fired.entry(name).or_default() += 1);
        let nodes = model.nodes().unwrap_or_default();
        table.row(vec![
            model.name.clone().into(),
            model.class().into(),
            Cell::count(nodes[0]),
            Cell::count(nodes[1]),
            Cell::number(Some(reduction(nodes)), 1),
            Cell::small(model.difference("optimize")),
            passes
                .iter()
                .map(|(name, nodes)| format!("{name} {nodes:+}"))
                .collect::<Vec<_>>()
                .join(", ")
                .into(),
        ]);
    }
    let everywhere: Vec<&str> =
        fired.iter().filter(|(_, count)| **count == models.len()).map(|(name, _)| *name).collect();
    let seen = match models.is_empty() {
        true => vec!["The corpus has no such model.".to_owned()],
        false => vec![
            format!("{} models; {} passes fire on some of them.", models.len(), fired.len()),
            format!("On all of them: {}.", everywhere.join(", ")),
        ],
    };
    Experiment { id, title, expected, seen, tables: vec![table], plots: Vec::new() }
}

/// Experiment 12.
pub fn matmul_add_3d(corpus: &Corpus) -> Experiment {
    let mut table = Table::new(
        "The pass alone",
        [
            "model",
            "3-D products",
            "with a sum",
            "edits",
            "nodes before",
            "after",
            "fewer, %",
            "largest relative difference",
        ],
    );
    let mut best = (0.0f64, String::new());
    for model in &corpus.models {
        let step = "fuse_matmul_add_3d";
        let (Some(before), Some(after)) =
            (model.number(step, "/before/all_nodes"), model.number(step, "/after/all_nodes"))
        else {
            continue;
        };
        let count =
            |id: &str| Cell::number(super::finding(model, id).and_then(|found| found["count"].as_f64()), 0);
        let edits: f64 = model
            .at(step, "/passes")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|pass| pass["edits"].as_f64())
            .sum();
        let fewer = reduction([before, after]);
        if fewer > best.0 {
            best = (fewer, model.name.clone());
        }
        table.row(vec![
            model.name.clone().into(),
            count("matmul_3d"),
            count("matmul_add_3d"),
            Cell::count(edits),
            Cell::count(before),
            Cell::count(after),
            Cell::number(Some(fewer), 1),
            Cell::small(model.difference(step)),
        ]);
    }
    Experiment {
        id: "12",
        title: "Products of a batch with a matrix, and their sums",
        expected: "Exporters transpose and reshape around 3-D products; without those detours BERT should lose more than 5 % of its nodes from this pass alone.",
        seen: vec![format!("The most from this pass alone: {:.1} % fewer nodes ({}).", best.0, best.1)],
        tables: vec![table],
        plots: Vec::new(),
    }
}

/// Experiment 14.
pub fn qkv(corpus: &Corpus) -> Experiment {
    let mut table = Table::new(
        "Three products as one",
        ["model", "attention blocks", "blocks made one product", "largest relative difference", "verdict"],
    );
    let mut fused = 0.0;
    for model in corpus.models.iter().filter(|model| super::attention_blocks(model) > 0.0) {
        let step = "fuse_attention_qkv";
        let passes = model.at(step, "/passes").and_then(Value::as_array).into_iter().flatten();
        let edits: f64 = passes.filter_map(|pass| pass["edits"].as_f64()).sum();
        fused += edits;
        table.row(vec![
            model.name.clone().into(),
            Cell::count(super::attention_blocks(model)),
            Cell::count(edits),
            Cell::small(model.difference(step)),
            model.text(step, "/verification/global/verdict").unwrap_or("–").into(),
        ]);
    }
    Experiment {
        id: "14",
        title: "One product for queries, keys and values",
        expected: "Weights of three products on one input can be put side by side exactly; whether one large product is faster than three small ones is a question of the runtime.",
        seen: vec![format!(
            "{fused} blocks can be made one product; see the document on QKV for the time that it takes."
        )],
        tables: vec![table],
        plots: Vec::new(),
    }
}
