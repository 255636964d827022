//! Which pass does what.

use std::collections::{BTreeMap, BTreeSet};

use onnxforge::passes::fuse::{fuse_attention_qkv, fuse_matmul_add_3d};
use onnxforge_figures::plots::HeatMap;
use serde_json::Value;

use super::graphs::{NONE, stays};
use super::{Experiment, finding, megabytes, reduction};
use crate::corpus::{Corpus, Studied};
use crate::table::{Cell, Table};

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

/// How results compare with those of the original after a pass, in a cell.
fn compared(model: &Studied, pass: &str, which: &str) -> Cell {
    let Some(passes) = model.at("accuracy", "/models/0/passes").and_then(Value::as_array) else {
        return "?".into();
    };
    let found = passes.iter().filter(|entry| entry["pass"] == pass).find_map(|entry| entry.get(which));
    match found.map(|found| (found["verdict"].as_str(), found["difference"].as_f64())) {
        None if model.at("accuracy", "/models/0/unverified").is_some() => "?".into(),
        None => "·".into(),
        Some((Some("identical"), _)) => "=".into(),
        Some((Some("rounding"), difference)) => Cell::small(difference),
        Some(_) => "DIFFERENT".into(),
    }
}

/// Experiments 01 and 19.
pub fn attribution(corpus: &Corpus) -> Experiment {
    let passes = of_all(corpus);
    let models: Vec<&Studied> =
        corpus.models.iter().filter(|model| model.report("attribute").is_some()).collect();
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let found: Vec<BTreeMap<&str, [f64; 2]>> = models.iter().map(|model| attributed(model)).collect();
    let heading = || std::iter::once("pass".to_owned()).chain(names.iter().cloned());
    let matrix = |title: &str, which: usize| {
        let mut table = Table::new(title, heading());
        for pass in &passes {
            let cells =
                found.iter().map(|model| Cell::number(model.get(pass.as_str()).map(|both| both[which]), 0));
            table.row(std::iter::once(pass.clone().into()).chain(cells).collect());
        }
        let sums = found.iter().map(|model| Cell::count(model.values().map(|both| both[which]).sum::<f64>()));
        table.row(std::iter::once("sum".into()).chain(sums).collect());
        table
    };
    let accuracy = |title: &str, which: &str| {
        let mut table = Table::new(title, heading());
        for pass in &passes {
            let cells = models.iter().map(|model| compared(model, pass, which));
            table.row(std::iter::once(pass.clone().into()).chain(cells).collect());
        }
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
        sizes.row(vec![
            model.name.clone().into(),
            Cell::number(nodes.map(|both| both[0]), 0),
            Cell::number(nodes.map(|both| both[1]), 0),
            Cell::number(nodes.map(reduction), 1),
            megabytes(model, "/before/constants"),
            megabytes(model, "/after/constants"),
            Cell::small(model.difference("optimize")),
            model.verdict("optimize").into(),
        ]);
    }
    let silent = silent(corpus);
    let mut never = Table::new(
        "Passes that change no number of nodes anywhere, and why",
        ["pass", "edits", "why", "places"],
    );
    for (pass, why) in &silent {
        never.row(vec![
            pass.clone().into(),
            Cell::count(why.edits),
            why.text.clone().into(),
            Cell::count(why.places),
        ]);
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
    let mut by_pass: Vec<(f64, &String)> = passes
        .iter()
        .map(|pass| (found.iter().filter_map(|model| Some(model.get(pass.as_str())?[1])).sum(), pass))
        .collect();
    by_pass.sort_by(|a, b| a.0.total_cmp(&b.0));
    let most: Vec<String> =
        by_pass.iter().take(5).map(|(nodes, pass)| format!("{pass} ({nodes:+})")).collect();
    let needed = by_pass.iter().filter(|(nodes, _)| *nodes > 0.0).map(|(_, pass)| pass.as_str());
    let adding = needed.collect::<Vec<_>>().join(", ");
    Experiment {
        id: "01/19",
        title: "Which pass does what",
        expected: "Every pass should remove nodes somewhere, and what passes remove one by one should add up to what they remove together. \
                   \"Alone\" is the pass by itself on the file; \"among all\" is its part of the whole run. Results should be the same after each.",
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
            format!("Most nodes go by {}.", most.join(", ")),
            format!(
                "{} passes change the number of nodes of no model; the last table says why.",
                silent.len()
            ),
        ],
        follows: vec![
            "A pass alone and among all are different things: folding and shapes clear the way for the others, and what one could do another has often done before.".to_owned(),
            match adding.is_empty() {
                true => "No pass adds nodes on the whole.".to_owned(),
                false => format!("Nodes are added on the whole by {adding}: they trade one kind of node for another that later passes or runtimes need."),
            },
        ],
        steps: &["attribute", "accuracy", "optimize", "newer"],
        tables: vec![
            sizes,
            matrix("Nodes, among all", 1),
            matrix("Nodes, alone", 0),
            accuracy(
                "Results after the pass, among all: largest relative difference; = the same bits, · the pass changes nothing, ? not compared",
                "accuracy_cumulative",
            ),
            accuracy(
                "Results after the pass, alone: largest relative difference; = the same bits, · the pass changes nothing, ? not compared",
                "accuracy_isolated",
            ),
            never,
        ],
        plots: vec![("attribution.svg".to_owned(), heat.svg())],
    }
}

/// Why a pass changes no number of nodes.
pub struct Why {
    pub edits: f64,
    pub text: String,
    /// Places that it is about and leaves.
    pub places: f64,
    /// Whether it had its chance on every model.
    pub is_known: bool,
}

/// The passes that change no number of nodes of any model, alone or among all, and why.
pub fn silent(corpus: &Corpus) -> Vec<(String, Why)> {
    let models: Vec<&Studied> =
        corpus.models.iter().filter(|model| model.report("attribute").is_some()).collect();
    let is_silent = |pass: &String| {
        models.iter().all(|model| attributed(model).get(pass.as_str()).is_none_or(|both| *both == [0.0; 2]))
    };
    of_all(corpus).into_iter().filter(is_silent).map(|pass| (pass.clone(), why(&models, &pass))).collect()
}

/// Why a pass changes no number of nodes: its edits, its most frequent reason to leave places alone, and how many there were.
fn why(models: &[&Studied], pass: &str) -> Why {
    let (mut edits, mut skipped): (f64, BTreeMap<&str, f64>) = (0.0, BTreeMap::new());
    let (mut asked, mut left_out): (usize, BTreeMap<&str, usize>) = (0, BTreeMap::new());
    for model in models {
        let runs = model.at("optimize", "/passes").and_then(Value::as_array).into_iter().flatten();
        for run in runs.filter(|run| run["name"] == pass) {
            asked += 1;
            edits += run["edits"].as_f64().unwrap_or(0.0);
            if let Some(reason) = run["left_out"].as_str() {
                *left_out.entry(reason).or_default() += 1;
            }
            for (reason, count) in run["skipped"].as_object().into_iter().flatten() {
                *skipped.entry(reason).or_default() += count.as_f64().unwrap_or(0.0);
            }
        }
    }
    let newer = models.iter().flat_map(|model| model.passes("newer")).filter(|(name, _)| *name == pass);
    let newer: Vec<f64> = newer.map(|(_, nodes)| nodes).collect();
    let places = skipped.values().sum();
    let most = skipped.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let about = onnxforge::passes::find(pass).map(onnxforge::passes::Pass::summary).unwrap_or_default();
    let text = match (edits > 0.0, most) {
        (true, _) => format!("it changes constants or attributes, not the number of nodes: {about}"),
        (false, Some((reason, _))) => format!("the places that there are stay: {reason}"),
        (false, None) => match left_out.iter().find(|(_, count)| **count == models.len()) {
            Some((reason, _)) => format!("{reason} in any model"),
            None => format!("no model has what it is about: {about}"),
        },
    };
    let text = match newer.is_empty() {
        true => text,
        false => format!(
            "{text}; with --opset 23 it fires on {} models ({:+} nodes)",
            newer.len(),
            newer.iter().sum::<f64>()
        ),
    };
    Why { edits, text, places, is_known: asked == models.len() }
}

/// An experiment about models of one kind.
pub struct Family {
    pub id: &'static str,
    pub title: &'static str,
    pub expected: &'static str,
    /// Findings of the audit that are typical.
    pub patterns: &'static [&'static str],
}

/// What becomes of models of one kind.
pub fn family(family: &Family, corpus: &Corpus, belongs: impl Fn(&Studied) -> bool) -> Experiment {
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
            "after with --opset 23",
            "largest relative difference",
            "verdict",
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
            Cell::number(model.number("newer", "/after/all_nodes"), 0),
            Cell::small(model.difference("optimize")),
            model.verdict("optimize").into(),
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
    let some = fired.iter().filter(|(_, count)| **count < models.len()).map(|(name, _)| *name);
    let newer: Vec<String> = family
        .patterns
        .iter()
        .filter(|id| {
            models.iter().any(|model| finding(model, id).is_some_and(|found| found.get("newer").is_some()))
        })
        .map(|id| (*id).to_owned())
        .collect();
    let (seen, follows) = match models.is_empty() {
        true => (vec!["The corpus has no such model.".to_owned()], vec!["Nothing.".to_owned()]),
        false => (
            vec![
                format!("{} models; {} passes fire on some of them.", models.len(), fired.len()),
                format!("On all of them: {}.", everywhere.join(", ")),
                format!("On some: {}.", some.collect::<Vec<_>>().join(", ")),
            ],
            vec![match newer.is_empty() {
                true => "What is found is handled in the operator set that the models have.".to_owned(),
                false => format!(
                    "{} wait for a newer operator set: `--opset 23` has operators for them.",
                    newer.join(", ")
                ),
            }],
        ),
    };
    let patterns =
        super::graphs::findings("What the audit finds in them", &models, |id| family.patterns.contains(&id));
    Experiment {
        id: family.id,
        title: family.title,
        expected: family.expected,
        seen,
        follows,
        steps: &["optimize", "newer", "audit"],
        tables: vec![table, patterns],
        plots: Vec::new(),
    }
}

/// Experiment 12.
pub fn matmul_add_3d(corpus: &Corpus) -> Experiment {
    const STEP: &str = fuse_matmul_add_3d::PASS.name;
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
            "time before, ms",
            "after, ms",
            "speed",
            "verdict",
        ],
    );
    let (mut best, mut verdicts) = ((0.0f64, String::new()), BTreeMap::new());
    for model in &corpus.models {
        let (Some(before), Some(after)) =
            (model.number(STEP, "/before/all_nodes"), model.number(STEP, "/after/all_nodes"))
        else {
            continue;
        };
        let count = |id: &str| Cell::number(finding(model, id).and_then(|found| found["count"].as_f64()), 0);
        let edits = edits(model, STEP);
        let fewer = reduction([before, after]);
        if fewer > best.0 {
            best = (fewer, model.name.clone());
        }
        let time = |which: usize| Cell::number(model.latency("bench_3d", which), 3);
        let speed = model.speed("bench_3d", 1);
        let verdict = match (edits > 0.0, &speed) {
            (false, _) => "nothing changes",
            (true, Some(speed)) => {
                *verdicts.entry(speed.verdict).or_insert(0) += 1;
                speed.verdict
            }
            (true, None) => {
                model.failure("bench_3d").unwrap_or("not measured: too large, or times were not asked for")
            }
        };
        table.row(vec![
            model.name.clone().into(),
            count("matmul_3d"),
            count("matmul_add_3d"),
            Cell::count(edits),
            Cell::count(before),
            Cell::count(after),
            Cell::number(Some(fewer), 1),
            Cell::small(model.difference(STEP).or((edits == 0.0).then_some(0.0))),
            time(0),
            time(1),
            Cell::number(speed.map(|speed| speed.median), 3),
            verdict.into(),
        ]);
    }
    let told: Vec<String> = verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    Experiment {
        id: "12",
        title: "Products of a batch with a matrix, and their sums",
        expected: "Exporters transpose and reshape around 3-D products; without those detours BERT should lose more than 5 % of its nodes from this pass alone.",
        seen: vec![
            format!("The most from this pass alone: {:.1} % fewer nodes ({}).", best.0, best.1),
            match told.is_empty() {
                true => "Times were not measured.".to_owned(),
                false => format!("Of the models that it changes: {}.", told.join(", ")),
            },
        ],
        follows: vec![
            "MatMul and Add stay two operators at rank 3: Gemm has rank 2, and Reshape → Gemm → Reshape costs two nodes to save one. The pass folds transposed weights and removes detours instead.".to_owned(),
        ],
        steps: &["audit", STEP, "bench_3d"],
        tables: vec![table],
        plots: Vec::new(),
    }
}

/// How often the passes of a run fired.
fn edits(model: &Studied, step: &str) -> f64 {
    let passes = model.at(step, "/passes").and_then(Value::as_array).into_iter().flatten();
    passes.filter(|pass| pass["name"] == step).filter_map(|pass| pass["edits"].as_f64()).sum()
}

/// Experiment 14.
pub fn qkv(corpus: &Corpus) -> Experiment {
    const STEP: &str = fuse_attention_qkv::PASS.name;
    let mut table = Table::new(
        "Three products as one",
        [
            "model",
            "attention blocks",
            "blocks made one product",
            "depth → widths",
            "largest relative difference, whole model",
            "verdict",
            "largest difference of one block",
        ],
    );
    let mut times = Table::new(
        "Times of one block, with biases",
        [
            "model",
            "rows",
            "three products, ms",
            "one and a Split, ms",
            "speed of one",
            "from",
            "to",
            "verdict",
        ],
    );
    let (mut fused, mut verdicts) = (0.0, BTreeMap::<(u64, &str), usize>::new());
    for model in corpus.models.iter().filter(|model| super::attention_blocks(model) > 0.0) {
        let edits = edits(model, STEP);
        fused += edits;
        let sizes = model.at("products", "/sizes").and_then(Value::as_array).into_iter().flatten();
        let size = |size: &Value| {
            let widths = size["widths"].as_array().into_iter().flatten().map(Value::to_string);
            format!("{} → {}", size["depth"], widths.collect::<Vec<_>>().join(", "))
        };
        let sizes: Vec<String> = sizes.map(size).collect();
        table.row(vec![
            model.name.clone().into(),
            Cell::count(super::attention_blocks(model)),
            Cell::count(edits),
            match (edits > 0.0, sizes.is_empty()) {
                (false, _) if stays(model, STEP) == NONE => "no three products of one value".into(),
                (false, _) => stays(model, STEP).into(),
                (true, true) => model.failure("products").unwrap_or("not measured").into(),
                (true, false) => sizes.join("; ").into(),
            },
            Cell::small(model.difference(STEP)),
            model.verdict(STEP).into(),
            Cell::small(model.number("products", "/difference")),
        ]);
        for row in model.at("products", "/rows").and_then(Value::as_array).into_iter().flatten() {
            let verdict = row["verdict"].as_str().unwrap_or("–");
            *verdicts.entry((row["rows"].as_u64().unwrap_or(0), verdict)).or_default() += 1;
            let speed = |bound: &str| Cell::number(row["speed"][bound].as_f64(), 3);
            times.row(vec![
                model.name.clone().into(),
                Cell::number(row["rows"].as_f64(), 0),
                Cell::number(row["three"].as_f64(), 3),
                Cell::number(row["one"].as_f64(), 3),
                speed("median"),
                speed("low"),
                speed("high"),
                verdict.into(),
            ]);
        }
    }
    let told: Vec<String> =
        verdicts.iter().map(|((rows, verdict), count)| format!("{count} {verdict} at {rows} rows")).collect();
    Experiment {
        id: "14",
        title: "One product for queries, keys and values",
        expected: "Weights of three products on one input can be put side by side exactly; whether one large product is faster than three small ones is a question of the runtime.",
        seen: vec![
            format!("{fused} blocks can be made one product."),
            match told.is_empty() {
                true => "Times were not measured.".to_owned(),
                false => format!("One product against three: {}.", told.join(", ")),
            },
        ],
        follows: vec![
            "It is feasible, also with unequal widths. Split copies what the product has just written, so what one call saves is soon lost: the pass runs on request.".to_owned(),
        ],
        steps: &["audit", STEP, "products"],
        tables: vec![table, times],
        plots: Vec::new(),
    }
}
