//! Time in ONNX Runtime.

use std::collections::BTreeSet;

use onnxforge_figures::plots::{Point, Scatter};
use onnxforge_figures::statistics::{pearson, regression, spearman};

use super::{Experiment, reduction};
use crate::corpus::{Corpus, Speed, Studied};
use crate::plan::{LENGTH, OPSET, SHORT};
use crate::table::{Cell, Table};

/// The columns of a comparison.
const COMPARED: [&str; 6] = ["before, ms", "after, ms", "speed", "from", "to", "verdict"];

/// A median with its interval, and what that means: the last four of these columns.
fn cells(speed: &Speed) -> [Cell; 4] {
    let number = |value| Cell::number(Some(value), 3);
    [number(speed.median), number(speed.low), number(speed.high), speed.verdict.into()]
}

/// How many of some comparisons have which outcome.
#[derive(Default)]
struct Tally {
    count: usize,
    faster: usize,
    slower: usize,
    by_5_percent: usize,
}

impl Tally {
    fn add(&mut self, speed: &Speed) {
        self.count += 1;
        self.faster += usize::from(speed.verdict == "faster");
        self.slower += usize::from(speed.verdict == "slower");
        self.by_5_percent += usize::from(speed.verdict == "faster" && speed.median > 1.05);
    }
}

/// Percent fewer nodes, and speed, of a model that has both.
fn pair(model: &Studied) -> Option<(f64, f64)> {
    Some((reduction(model.nodes()?), model.speed("bench", 1)?.median))
}

/// The same of every model.
pub fn pairs(corpus: &Corpus) -> Vec<(f64, f64)> {
    corpus.models.iter().filter_map(pair).collect()
}

/// Experiments 10 and 20.
pub fn latency(corpus: &Corpus) -> Experiment {
    let mut table = Table::new(
        "Median times, one thread, sessions in turn",
        ["model", "class"].into_iter().chain(COMPARED).chain([
            "load before, ms",
            "load after, ms",
            "load, speed",
            "load, from",
            "load, to",
            "passes that fired",
        ]),
    );
    let [mut all, mut attentive] = [Tally::default(), Tally::default()];
    let mut points = Vec::new();
    let classes: Vec<String> = corpus
        .models
        .iter()
        .map(|model| model.class().to_owned())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    for model in &corpus.models {
        let Some(speed) = model.speed("bench", 1) else {
            let reason = format!("not measured: {}", model.failure("bench").unwrap_or("not asked for"));
            let mut row = vec![model.name.clone().into(), model.class().into(), reason.into()];
            row.resize(table.heading.len(), "–".into());
            table.row(row);
            continue;
        };
        all.add(&speed);
        if matches!(model.class(), "transformer" | "llm" | "hybrid" | "audio") {
            attentive.add(&speed);
        }
        let number = |place: &str| Cell::number(model.number("bench", place), 3);
        let mut row: Vec<Cell> = vec![model.name.clone().into(), model.class().into()];
        row.extend([0, 1].map(|which| Cell::number(model.latency("bench", which), 3)));
        row.extend(cells(&speed));
        row.extend([0, 1].map(|which| number(&format!("/models/{which}/load_ms/median"))));
        let bounds = ["median", "low", "high"];
        row.extend(bounds.map(|bound| number(&format!("/models/1/against_first/load_speed/{bound}"))));
        row.push(Cell::count(model.passes("optimize").len() as f64));
        table.row(row);
        let group = classes.iter().position(|class| class == model.class()).unwrap_or(0);
        points.push(Point {
            title: format!("{}: {:.3}", model.name, speed.median),
            group,
            x: points.len() as f64 + 1.0,
            y: speed.median,
            interval: Some((speed.low, speed.high)),
        });
    }
    let (short, seen_short) = short_inputs(corpus);
    let plot = Scatter {
        title: "Speed after optimization, with intervals",
        x: "model, in the order of the table",
        y: "times as fast as before",
        groups: &classes,
        points: &points,
        line: Some(1.0),
        logarithmic: true,
        regression: None,
    };
    Experiment {
        id: "10/20",
        title: "Latency in ONNX Runtime",
        expected: "More than 5 % faster on transformers was hoped for. ONNX Runtime makes fusions of its own, so less may be left to gain.",
        seen: vec![
            format!(
                "{} of {} models are faster, {} slower; of the others the difference is noise.",
                all.faster, all.count, all.slower
            ),
            format!(
                "Transformers and language models: {} of {} are faster, {} by more than 5 %.",
                attentive.faster, attentive.count, attentive.by_5_percent
            ),
            seen_short,
        ],
        follows: vec![
            "ONNX Runtime folds and fuses by itself when it loads a model, so what was removed beforehand is often what it would not have run. Models gain where an exporter hides from it what could be fused.".to_owned(),
        ],
        steps: &["bench", "bench_short"],
        tables: vec![table, short],
        plots: vec![("latency.svg".to_owned(), plot.svg())],
    }
}

/// Times where products are small, of the models that take inputs of any length, and what they say.
fn short_inputs(corpus: &Corpus) -> (Table, String) {
    const STEP: &str = "bench_short";
    let mut table = Table::new(
        format!(
            "The same with named dimensions of {SHORT} instead of {LENGTH}, and with newer operators ({OPSET})"
        ),
        ["model"].into_iter().chain(COMPARED).chain([
            "newer, ms",
            "newer, speed",
            "newer, from",
            "newer, to",
            "newer, verdict",
        ]),
    );
    let mut tallies = [Tally::default(), Tally::default()];
    for model in &corpus.models {
        let time = |which: usize| Cell::number(model.latency(STEP, which), 3);
        let speeds = [1, 2].map(|which| model.speed(STEP, which));
        let [Some(after), Some(newer)] = &speeds else {
            if let Some(reason) = model.failure(STEP) {
                let mut row = vec![model.name.clone().into(), format!("not measured: {reason}").into()];
                row.resize(table.heading.len(), "–".into());
                table.row(row);
            }
            continue;
        };
        let mut row: Vec<Cell> = vec![model.name.clone().into(), time(0)];
        for (which, (speed, tally)) in [after, newer].into_iter().zip(&mut tallies).enumerate() {
            tally.add(speed);
            row.push(time(which + 1));
            row.extend(cells(speed));
        }
        table.row(row);
    }
    let [after, newer] = &tallies;
    let seen = match after.count {
        0 => "Short inputs were not measured.".to_owned(),
        count => format!(
            "With short inputs ({SHORT} instead of {LENGTH}) {} of {count} models that take inputs of any length are faster, {} by more than 5 %, {} slower; with newer operators {}, {}, {}.",
            after.faster, after.by_5_percent, after.slower, newer.faster, newer.by_5_percent, newer.slower
        ),
    };
    (table, seen)
}

/// What a correlation of nodes that go with something means.
fn told(what: &str, correlation: Option<f64>) -> String {
    match correlation {
        None => format!("Too few models were measured to say anything about {what}."),
        Some(found) if found.abs() < WEAK => {
            format!(
                "How many nodes go says next to nothing about {what} ({found:.2}): it matters which. Measure."
            )
        }
        Some(found) if found > 0.0 => format!("More nodes that go, and {what} gains ({found:.2})."),
        Some(found) => format!("More nodes that go, and {what} loses ({found:.2})."),
    }
}

/// Correlations below this say nothing.
const WEAK: f64 = 0.3;

/// Experiment 21.
pub fn correlation(corpus: &Corpus) -> Experiment {
    let heading = ["models", "count", "Pearson", "Spearman", "speed gained by 10 % fewer nodes"];
    let mut table = Table::new("Fewer nodes and speed", heading);
    let mut row = |name: &str, pairs: &[(f64, f64)]| {
        table.row(vec![
            name.into(),
            Cell::count(pairs.len() as f64),
            Cell::number(pearson(pairs), 2),
            Cell::number(spearman(pairs), 2),
            Cell::number(regression(pairs).map(|(_, slope)| slope * 10.0), 4),
        ]);
    };
    let all = pairs(corpus);
    row("all", &all);
    let classes: BTreeSet<&str> = corpus.models.iter().map(Studied::class).collect();
    for class in &classes {
        let of_class = corpus.models.iter().filter(|model| model.class() == *class);
        let pairs: Vec<(f64, f64)> = of_class.filter_map(pair).collect();
        row(class, &pairs);
    }
    let mut loads =
        Table::new("Fewer nodes and speed of loading", ["models", "count", "Pearson", "Spearman"]);
    let loading = corpus.models.iter().filter_map(|model| {
        Some((reduction(model.nodes()?), model.number("bench", "/models/1/against_first/load_speed/median")?))
    });
    let loading: Vec<(f64, f64)> = loading.collect();
    loads.row(vec![
        "all".into(),
        Cell::count(loading.len() as f64),
        Cell::number(pearson(&loading), 2),
        Cell::number(spearman(&loading), 2),
    ]);
    let mut kinds = Table::new(
        "Nodes removed by kind of pass, in percent, and speed",
        ["kind of pass", "models", "Pearson", "Spearman"],
    );
    for kind in ["eliminate", "fold", "simplify", "merge", "fuse"] {
        let of_kind = corpus.models.iter().filter_map(|model| {
            let [before, _] = model.nodes()?;
            let passes = model.passes("optimize");
            let removed: f64 =
                passes.iter().filter(|(name, _)| name.starts_with(kind)).map(|(_, nodes)| -nodes).sum();
            Some((removed / before * 100.0, model.speed("bench", 1)?.median))
        });
        let pairs: Vec<(f64, f64)> = of_kind.collect();
        kinds.row(vec![
            format!("{kind}_…").into(),
            Cell::count(pairs.len() as f64),
            Cell::number(pearson(&pairs), 2),
            Cell::number(spearman(&pairs), 2),
        ]);
    }
    let groups: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
    let point = |model: &Studied| {
        let Speed { median, low, high, .. } = model.speed("bench", 1)?;
        let group = classes.iter().position(|class| *class == model.class())?;
        let x = reduction(model.nodes()?);
        Some(Point {
            title: format!("{}: {x:.0} % fewer, speed {median:.3}", model.name),
            group,
            x,
            y: median,
            interval: Some((low, high)),
        })
    };
    let points: Vec<Point> = corpus.models.iter().filter_map(point).collect();
    let plot = Scatter {
        title: "Fewer nodes and speed",
        x: "nodes removed, %",
        y: "times as fast as before",
        groups: &groups,
        points: &points,
        line: Some(1.0),
        logarithmic: false,
        regression: regression(&all),
    };
    Experiment {
        id: "21",
        title: "Do fewer nodes mean less time",
        expected: "Fewer nodes were expected to be faster. Correlations are of percent fewer nodes and speed, by class of model and by kind of pass.",
        seen: vec![pearson(&all).map_or_else(
            || "Too few models were measured.".to_owned(),
            |found| format!("The correlation over {} models is {found:.2}.", all.len()),
        )],
        follows: vec![told("time", pearson(&all)), told("the time of loading", pearson(&loading))],
        steps: &["optimize", "bench"],
        tables: vec![table, loads, kinds],
        plots: vec![("correlation.svg".to_owned(), plot.svg())],
    }
}
