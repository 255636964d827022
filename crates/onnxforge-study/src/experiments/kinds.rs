//! What kind of model it is.

use std::collections::BTreeSet;

use onnxforge_figures::plots::{Point, Scatter};
use serde_json::Value;

use super::Experiment;
use super::graphs::operators;
use crate::corpus::{Corpus, Studied};
use crate::table::{Cell, Table};

/// How many models have the class that they should have, and of how many that is known.
pub fn score(corpus: &Corpus) -> (usize, usize) {
    let labelled = corpus.models.iter().filter_map(|model| Some((model, corpus.labels.get(&model.name)?)));
    let right: Vec<bool> = labelled.map(|(model, label)| model.class() == label).collect();
    (right.iter().filter(|is_right| **is_right).count(), right.len())
}

/// The share of an operator among all nodes, in percent.
fn share(model: &Studied, names: &[&str]) -> f64 {
    let counts = operators(model);
    let all: f64 = counts.iter().filter(|(name, _)| **name != "Constant").map(|(_, count)| count).sum();
    let some: f64 = names.iter().filter_map(|name| counts.get(name)).sum();
    if all > 0.0 { some / all * 100.0 } else { 0.0 }
}

/// Experiment 22.
pub fn fingerprints(corpus: &Corpus) -> Experiment {
    let models: Vec<&Studied> =
        corpus.models.iter().filter(|model| model.report("fingerprint").is_some()).collect();
    let mut table = Table::new(
        "Classes",
        [
            "model",
            "class",
            "expected",
            "confidence",
            "convolutions, %",
            "products, %",
            "Softmax",
            "LayerNorm",
            "GELU",
            "SiLU",
            "RoPE",
            "reasons",
        ],
    );
    let classes: Vec<&str> =
        models.iter().map(|model| model.class()).collect::<BTreeSet<_>>().into_iter().collect();
    let mut points = Vec::new();
    for model in &models {
        let [convs, products] = [&["Conv", "ConvTranspose"][..], &["MatMul", "Gemm", "Einsum"][..]]
            .map(|names| share(model, names));
        let reasons =
            model.at("fingerprint", "/models/0/reasons").and_then(Value::as_array).into_iter().flatten();
        let feature =
            |name: &str| Cell::number(model.number("fingerprint", &format!("/models/0/features/{name}")), 0);
        let reasons: Vec<&str> = reasons.filter_map(Value::as_str).collect();
        table.row(vec![
            model.name.clone().into(),
            model.class().into(),
            corpus.labels.get(&model.name).map_or("not told", String::as_str).into(),
            Cell::number(model.number("fingerprint", "/models/0/confidence"), 2),
            Cell::number(Some(convs), 1),
            Cell::number(Some(products), 1),
            feature("softmaxes"),
            feature("layer_norms"),
            feature("gelus"),
            feature("silus"),
            feature("rotations"),
            reasons.join("; ").into(),
        ]);
        let group = classes.iter().position(|class| *class == model.class()).unwrap_or(0);
        points.push(Point {
            title: format!("{}: {}", model.name, model.class()),
            group,
            x: convs,
            y: products,
            interval: None,
        });
    }
    let groups: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
    let plot = Scatter {
        title: "Classes by what their nodes are",
        x: "convolutions, % of nodes",
        y: "products of matrices, % of nodes",
        groups: &groups,
        points: &points,
        line: None,
        logarithmic: false,
        regression: None,
    };
    Experiment {
        id: "22",
        title: "Which architecture is it",
        expected: "The graph alone should tell vision models, transformers, hybrids, language models and audio models apart, without any name.",
        seen: vec![
            format!("{} models in {} classes.", models.len(), classes.len()),
            match score(corpus) {
                (_, 0) => "Which class is right was not told.".to_owned(),
                (right, labelled) => format!("{right} of {labelled} have the class that was written down before."),
            },
        ],
        follows: vec![
            "Shares of operators alone do not separate the classes, as the plot shows: what comes in, whether later places are hidden and what is normalized decide.".to_owned(),
        ],
        steps: &["fingerprint", "inspect"],
        tables: vec![table],
        plots: vec![("fingerprints.svg".to_owned(), plot.svg())],
    }
}
