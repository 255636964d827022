//! The experiments: what was asked, what was expected, and the tables that the answers make.

mod graphs;
mod kinds;
mod numbers;
mod passes;
mod time;

use std::path::Path;

use onnxforge_figures::escaped;
use serde::Serialize;

use super::corpus::{Corpus, Studied};
use super::page::{Part, page};
use super::table::{Cell, Table};
use crate::failure::Failure;
use crate::files::WrittenFile;
use crate::output::Output;

/// A question, and what was found.
#[derive(Debug, Serialize)]
pub struct Experiment {
    /// Its number, or numbers.
    pub id: &'static str,
    pub title: &'static str,
    /// What was asked and expected.
    pub expected: &'static str,
    /// What was seen, in sentences.
    pub seen: Vec<String>,
    pub tables: Vec<Table>,
    /// Plots by the names of their files.
    #[serde(skip)]
    pub plots: Vec<(String, String)>,
}

/// A question that was asked in advance, with the number that answers it.
#[derive(Clone, Debug, Serialize)]
pub struct Gate {
    pub question: &'static str,
    /// Nothing where the study does not tell.
    pub answer: Option<bool>,
    pub number: String,
}

/// All experiments.
#[derive(Debug, Serialize)]
pub struct Study {
    schema: u32,
    machine: Machine,
    pub gates: Vec<Gate>,
    experiments: Vec<Experiment>,
}

/// Where and with what it was measured.
#[derive(Debug, Serialize)]
struct Machine {
    onnxforge: &'static str,
    runtime: Option<String>,
    system: String,
    processor: String,
    threads: usize,
}

impl Machine {
    fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo");
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            onnxforge: env!("CARGO_PKG_VERSION"),
            runtime: onnxforge::runtime::Runtime::get().ok().and_then(onnxforge::runtime::Runtime::version),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            processor: processor.map_or_else(|| "unknown".to_owned(), |(_, name)| name.to_owned()),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    fn sentence(&self) -> String {
        format!(
            "onnxforge {}, ONNX Runtime {}, {}, {} ({} threads).",
            self.onnxforge,
            self.runtime.as_deref().unwrap_or("not found"),
            self.system,
            self.processor,
            self.threads
        )
    }
}

/// Every experiment on what is known.
pub fn all(corpus: &Corpus) -> Study {
    let experiments = vec![
        passes::attribution(corpus),
        graphs::transposes(corpus),
        graphs::batch_norms(corpus),
        graphs::transformers(corpus),
        numbers::tolerances(corpus),
        numbers::orders(corpus),
        graphs::inventory(corpus),
        time::latency(corpus),
        graphs::forensics(corpus),
        passes::matmul_add_3d(corpus),
        graphs::noops(corpus),
        passes::qkv(corpus),
        passes::family("16", "Vision transformers", VISION_TRANSFORMERS, corpus, |model| {
            matches!(model.class(), "vision" | "hybrid") && attention_blocks(model) > 0.0
        }),
        graphs::decoders_and_encoders(corpus),
        passes::family("18", "Language models", LANGUAGE_MODELS, corpus, |model| model.class() == "llm"),
        time::correlation(corpus),
        kinds::fingerprints(corpus),
    ];
    Study { schema: 1, machine: Machine::here(), gates: gates(corpus), experiments }
}

const VISION_TRANSFORMERS: &str =
    "Attention in vision models is exported like that of language models, so the same passes should fire.";
const LANGUAGE_MODELS: &str = "Rotary positions, grouped queries, gates and root-mean-square norms are spelled out by exporters; passes should find them.";

/// How many attention blocks the audit found.
fn attention_blocks(model: &Studied) -> f64 {
    finding(model, "attention_blocks").map_or(0.0, |found| found["count"].as_f64().unwrap_or(0.0))
}

/// A finding of the audit.
fn finding<'m>(model: &'m Studied, id: &str) -> Option<&'m serde_json::Value> {
    let findings = model.at("audit", "/models/0/findings")?.as_array()?;
    findings.iter().find(|finding| finding["id"] == id)
}

/// How many percent fewer.
fn reduction([before, after]: [f64; 2]) -> f64 {
    if before > 0.0 { (1.0 - after / before) * 100.0 } else { 0.0 }
}

/// What users asked for in advance.
fn gates(corpus: &Corpus) -> Vec<Gate> {
    let most = |of: &dyn Fn(&Studied) -> Option<f64>| -> Option<(f64, String)> {
        let found = corpus.models.iter().filter_map(|model| Some((of(model)?, model.name.clone())));
        found.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let gate = |question, best: Option<(f64, String)>, least: f64, unit: &str| Gate {
        question,
        answer: best.as_ref().map(|(value, _)| *value > least),
        number: best
            .map_or_else(|| "not measured".to_owned(), |(value, name)| format!("{value:.1}{unit} ({name})")),
    };
    let compared: Vec<&Studied> =
        corpus.models.iter().filter(|model| model.report("optimize").is_some()).collect();
    let verified = compared.iter().filter(|model| {
        let verdict = model.text("optimize", "/verification/global/verdict");
        matches!(verdict, Some("identical" | "rounding"))
    });
    let verified = verified.count();
    let timed = corpus.models.iter().filter(|model| model.report("bench").is_some()).count();
    let attributed = corpus.models.iter().filter(|model| model.report("attribute").is_some()).count();
    let passes = passes::of_all(corpus).len();
    let (right, classified) = kinds::score(corpus);
    vec![
        gate(
            "more than 10 % fewer nodes on some model",
            most(&|model| Some(reduction(model.nodes()?))),
            10.0,
            " %",
        ),
        gate(
            "more than 5 % fewer nodes on a transformer from the 3-D product alone",
            most(&|model| {
                let nodes = |place: &str| model.number("fuse_matmul_add_3d", place);
                let counts = [nodes("/before/all_nodes")?, nodes("/after/all_nodes")?];
                (model.class() == "transformer").then(|| reduction(counts))
            }),
            5.0,
            " %",
        ),
        gate(
            "15 % or more fewer nodes on a transformer",
            most(&|model| {
                if model.class() == "transformer" { Some(reduction(model.nodes()?)) } else { None }
            }),
            15.0,
            " %",
        ),
        gate(
            "a pass beyond the named ones fires on a language model",
            most(&|model| {
                if model.class() == "llm" { Some(model.passes("optimize").len() as f64) } else { None }
            }),
            0.0,
            " passes",
        ),
        Gate {
            question: "results are the same on every model",
            answer: Some(verified == compared.len() && !compared.is_empty()),
            number: format!("{verified} of {}", compared.len()),
        },
        Gate { question: "latency on 8 models or more", answer: Some(timed >= 8), number: timed.to_string() },
        Gate {
            question: "attribution of 17 passes or more on 16 models or more, no blanks",
            answer: Some(passes >= 17 && attributed >= 16 && attributed == compared.len()),
            number: format!("{passes} passes × {attributed} models"),
        },
        Gate {
            question: "the correlation of nodes and time is measured",
            answer: Some(time::pairs(corpus).len() >= 3),
            number: format!("{} models", time::pairs(corpus).len()),
        },
        Gate {
            question: "8 models or more are classified",
            answer: Some(classified >= 8),
            number: format!("{classified} models in {right} classes"),
        },
    ]
}

impl Experiment {
    /// The name of its document.
    fn file(&self) -> String {
        let words: String = self
            .title
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        let id = self.id.replace('/', "-");
        format!("{id}-{}.md", words.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-"))
    }

    fn markdown(&self, machine: &Machine) -> String {
        let mut text = format!("# {} · {}\n\n{}\n\n", self.id, self.title, self.expected);
        for sentence in &self.seen {
            text += &format!("- {sentence}\n");
        }
        text.push('\n');
        for (file, _) in &self.plots {
            text += &format!("![{}]({file})\n\n", self.title);
        }
        self.tables.iter().for_each(|table| text += &table.markdown());
        text + &format!("_{}_\n", machine.sentence())
    }

    fn part(&self) -> Part {
        let mut body = format!("<p>{}</p><ul>", escaped(self.expected));
        self.seen.iter().for_each(|sentence| body += &format!("<li>{}</li>", escaped(sentence)));
        body += "</ul>";
        self.plots.iter().for_each(|(_, svg)| body += svg);
        self.tables.iter().for_each(|table| body += &table.html());
        Part { id: self.id.to_owned(), title: format!("{} · {}", self.id, self.title), body }
    }
}

impl Study {
    /// Writes everything.
    pub fn write(
        &self,
        folder: &Path,
        corpus: &Corpus,
        output: &Output,
    ) -> Result<Vec<WrittenFile>, Failure> {
        let mut files = Vec::new();
        let mut write = |name: &str, text: &str| -> Result<(), Failure> {
            files.extend(output.files.write(&folder.join(name), |out| out.write_all(text.as_bytes()))?);
            Ok(())
        };
        for experiment in &self.experiments {
            write(&experiment.file(), &experiment.markdown(&self.machine))?;
            for (file, svg) in &experiment.plots {
                write(file, svg)?;
            }
        }
        write("README.md", &self.index(corpus))?;
        write("study.json", &serde_json::to_string_pretty(self)?)?;
        let gates = self.gate_table().html();
        let head = format!("<p>{}</p>{gates}{}", escaped(&self.machine.sentence()), failures(corpus).html());
        let parts: Vec<Part> = self.experiments.iter().map(Experiment::part).collect();
        write("index.html", &page("A study of ONNX models", &head, &parts))?;
        Ok(files)
    }

    fn gate_table(&self) -> Table {
        let mut table = Table::new("Questions asked in advance", ["question", "answer", "number"]);
        for gate in &self.gates {
            table.row(vec![gate.question.into(), Cell::answer(gate.answer), gate.number.clone().into()]);
        }
        table
    }

    fn index(&self, corpus: &Corpus) -> String {
        let mut text =
            format!("# The study: {} models\n\n{}\n\n", corpus.models.len(), self.machine.sentence());
        text += &self.gate_table().markdown();
        for experiment in &self.experiments {
            text += &format!("- [{} · {}]({})\n", experiment.id, experiment.title, experiment.file());
        }
        text.push('\n');
        text + &failures(corpus).markdown()
    }
}

/// What could not be answered, and why.
fn failures(corpus: &Corpus) -> Table {
    let mut table = Table::new("What could not be answered", ["model", "command and reason"]);
    for (model, reasons) in corpus.failures() {
        reasons.into_iter().for_each(|reason| table.row(vec![model.clone().into(), reason.into()]));
    }
    if table.rows.is_empty() {
        table.row(vec!["–".into(), "everything was answered".into()]);
    }
    table
}
