//! Differences between results, and orders of passes.

use onnxforge_figures::plots::boxes;
use serde_json::Value;

use super::Experiment;
use crate::corpus::{Corpus, Studied};
use crate::plan::SHUFFLES;
use crate::table::{Cell, Table};

/// Experiment 06.
pub fn tolerances(corpus: &Corpus) -> Experiment {
    let heading: [&str; 9] = [
        "model",
        "samples",
        "compared",
        "least",
        "greatest",
        "mean",
        "99 %",
        "all zero",
        "recommended tolerance",
    ];
    let mut table = Table::new("Largest relative difference of outputs, by sample", heading);
    let (mut samples, mut zero, mut greatest) = (Vec::new(), 0, 0.0f64);
    for model in corpus.models.iter().filter(|model| model.report("sweep").is_some()) {
        let number = |key: &str| model.number("sweep", &format!("/sweep/{key}"));
        let by_sample = model.at("sweep", "/by_sample").and_then(Value::as_array).into_iter().flatten();
        let by_sample: Vec<f64> = by_sample.filter_map(Value::as_f64).collect();
        let is_zero = model.at("sweep", "/sweep/all_zero").and_then(Value::as_bool);
        zero += usize::from(is_zero == Some(true));
        greatest = greatest.max(number("max").unwrap_or(0.0));
        table.row(vec![
            model.name.clone().into(),
            Cell::count(by_sample.len() as f64),
            match model.at("sweep", "/by_blocks").and_then(Value::as_bool) {
                Some(true) => "block by block",
                _ => "as a whole",
            }
            .into(),
            Cell::small(number("min")),
            Cell::small(number("max")),
            Cell::small(number("mean")),
            Cell::small(number("p99")),
            Cell::answer(is_zero),
            Cell::small(number("recommended_tolerance")),
        ]);
        samples.push((model.name.clone(), by_sample));
    }
    for model in corpus.models.iter().filter(|model| model.failure("sweep").is_some()) {
        let reason = format!("not compared: {}", model.failure("sweep").unwrap_or_default());
        let mut row = vec![model.name.clone().into(), Cell::count(0), reason.into()];
        row.resize(heading.len(), "–".into());
        table.row(row);
    }
    let plot = boxes("Differences after optimization", "largest relative difference of outputs", &samples);
    Experiment {
        id: "06",
        title: "How far results move",
        expected: "Only rounding: a tolerance of ten times the 99th percentile should be small for every model.",
        seen: vec![
            format!("{zero} of {} models give the same bits for every sample.", samples.len()),
            format!("The greatest difference of all is {greatest:.1e}."),
        ],
        follows: vec![
            "One tolerance for all models is wrong: where everything is the same to the bit it hides errors, elsewhere it raises false alarms. `verify` asks a float64 run instead; whoever needs a number finds one for each model in the last column.".to_owned(),
        ],
        steps: &["sweep"],
        tables: vec![table],
        plots: vec![("tolerances.svg".to_owned(), plot)],
    }
}

/// Passes that fired more often in some shuffled order, as far as the canonical order says why they left just as much.
fn left_on_purpose(model: &Studied) -> String {
    let passes = |step: &str| model.at(step, "/passes").and_then(Value::as_array).into_iter().flatten();
    let edits = |run: &Value| run["edits"].as_u64().unwrap_or(0);
    let mut found = Vec::new();
    for canonical in passes("optimize") {
        let most = (0..SHUFFLES)
            .flat_map(|shuffle| {
                passes(&format!("order_{shuffle}")).filter(|run| run["name"] == canonical["name"])
            })
            .map(edits)
            .max()
            .unwrap_or(0);
        let more = most.saturating_sub(edits(canonical));
        for (reason, count) in canonical["skipped"].as_object().into_iter().flatten() {
            if more > 0 && count.as_u64() >= Some(more) {
                found.push(format!(
                    "{} leaves {count}: {reason}",
                    canonical["name"].as_str().unwrap_or_default()
                ));
            }
        }
    }
    if found.is_empty() { "no pass says".to_owned() } else { found.join("; ") }
}

/// Experiment 07.
pub fn orders(corpus: &Corpus) -> Experiment {
    let mut table = Table::new(
        "Nodes that are left",
        [
            "model",
            "canonical order",
            "shuffled",
            "depends on the order",
            "canonical is the best",
            "what the canonical order leaves on purpose",
        ],
    );
    let (mut sensitive, mut beaten, mut count) = (0, 0, 0);
    for model in &corpus.models {
        let Some([_, canonical]) = model.nodes() else { continue };
        let shuffles: Vec<f64> = (0..SHUFFLES)
            .filter_map(|shuffle| model.number(&format!("order_{shuffle}"), "/after/all_nodes"))
            .collect();
        if shuffles.is_empty() {
            let reason = model.failure("order_0").unwrap_or("not asked for");
            let unknown = || Cell::answer(None);
            table.row(vec![
                model.name.clone().into(),
                Cell::count(canonical),
                reason.into(),
                unknown(),
                unknown(),
                "–".into(),
            ]);
            continue;
        }
        let depends = shuffles.iter().any(|nodes| *nodes != canonical);
        let is_best = shuffles.iter().all(|nodes| *nodes >= canonical);
        count += 1;
        sensitive += usize::from(depends);
        beaten += usize::from(!is_best);
        let shown: Vec<String> = shuffles.iter().map(f64::to_string).collect();
        table.row(vec![
            model.name.clone().into(),
            Cell::count(canonical),
            if shown.is_empty() { "–".into() } else { shown.join(", ").into() },
            Cell::answer(Some(depends)),
            Cell::answer(Some(is_best)),
            if is_best { "–".into() } else { left_on_purpose(model).into() },
        ]);
    }
    Experiment {
        id: "07",
        title: "Does the order of passes matter",
        expected: "Passes run until nothing changes, so the order should not matter. The canonical run keeps its stages; shuffled ones have every pass at another place.",
        seen: vec![
            format!("{sensitive} of {count} models end with another number of nodes in some order."),
            format!("On {beaten} a shuffled order leaves fewer nodes than the canonical one."),
        ],
        follows: vec![match (sensitive, beaten) {
            (0, _) => "The order in which passes are asked for does not matter: stages and the fixpoint decide.".to_owned(),
            (_, 0) => "The canonical order is the best of those that were tried; others lose a few nodes where two passes compete for the same ones.".to_owned(),
            _ => "A shuffled order that leaves fewer nodes ran a pass before what it should have spared could be recognised; the last column has the reason that the canonical order gives.".to_owned(),
        }],
        steps: &["optimize", "order_0"],
        tables: vec![table],
        plots: Vec::new(),
    }
}
