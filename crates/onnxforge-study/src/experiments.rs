//! The experiments: what was asked, what was expected, and the tables that the answers make.

mod gates;
mod graphs;
mod kinds;
mod numbers;
mod passes;
mod time;

use std::path::Path;

use onnxforge_cli::failure::Failure;
use onnxforge_cli::files::WrittenFile;
use onnxforge_cli::output::Output;
use onnxforge_figures::escaped;
use serde::Serialize;

pub use self::gates::Gate;
use crate::corpus::{Corpus, Studied};
use crate::page::{Part, page};
use crate::table::{Cell, Table};

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
    /// What follows from that.
    pub follows: Vec<String>,
    /// The steps whose answers it shows.
    #[serde(skip)]
    pub steps: &'static [&'static str],
    pub tables: Vec<Table>,
    /// Plots by the names of their files.
    #[serde(skip)]
    pub plots: Vec<(String, String)>,
}

/// All experiments.
#[derive(Debug, Serialize)]
pub struct Study {
    schema: u32,
    /// What was called.
    command: String,
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
pub fn all(corpus: &Corpus, command: String) -> Study {
    let experiments = vec![
        passes::attribution(corpus),
        graphs::transposes(corpus),
        graphs::batch_norms(corpus),
        graphs::transformers(corpus),
        graphs::forms(corpus),
        numbers::tolerances(corpus),
        numbers::orders(corpus),
        graphs::inventory(corpus),
        time::latency(corpus),
        graphs::forensics(corpus),
        passes::matmul_add_3d(corpus),
        graphs::noops(corpus),
        passes::qkv(corpus),
        passes::family(&VISION_TRANSFORMERS, corpus, |model| {
            model.takes("image") && attention_blocks(model) > 0.0
        }),
        graphs::decoders_and_encoders(corpus),
        passes::family(&LANGUAGE_MODELS, corpus, |model| model.class() == "llm"),
        time::correlation(corpus),
        kinds::fingerprints(corpus),
    ];
    Study { schema: 1, command, machine: Machine::here(), gates: gates::all(corpus), experiments }
}

const VISION_TRANSFORMERS: passes::Family = passes::Family {
    id: "16",
    title: "Vision transformers",
    expected: "Attention in vision models is exported like that of language models, so the same passes should fire.",
    patterns: &[
        "attention_blocks",
        "attention_scales",
        "layer_norm_subgraphs",
        "matmul_add_3d",
        "shape_chains",
    ],
};
const LANGUAGE_MODELS: passes::Family = passes::Family {
    id: "18",
    title: "Language models",
    expected: "Rotary positions, grouped queries, gates and root-mean-square norms are decomposed by exporters; passes should find them.",
    patterns: &[
        "rotary_embeddings",
        "grouped_queries",
        "swiglu",
        "rms_norm_subgraphs",
        "attention_blocks",
        "attention_scales",
    ],
};

/// How many attention blocks the audit found.
fn attention_blocks(model: &Studied) -> f64 {
    finding(model, "attention_blocks").map_or(0.0, |found| found["count"].as_f64().unwrap_or(0.0))
}

/// A finding of the audit.
fn finding<'m>(model: &'m Studied, id: &str) -> Option<&'m serde_json::Value> {
    let findings = model.at("audit", "/models/0/findings")?.as_array()?;
    findings.iter().find(|finding| finding["id"] == id)
}

/// Bytes in the answer of `optimize`, in MB.
fn megabytes(model: &Studied, place: &str) -> Cell {
    Cell::number(model.number("optimize", place).map(|bytes| bytes / 1e6), 2)
}

/// How many percent fewer.
fn reduction([before, after]: [f64; 2]) -> f64 {
    if before > 0.0 { (1.0 - after / before) * 100.0 } else { 0.0 }
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

    /// Headings with what stands below them.
    fn sections(&self) -> [(&'static str, Vec<String>); 3] {
        [
            ("Expected", vec![self.expected.to_owned()]),
            ("Seen", self.seen.clone()),
            ("What follows", self.follows.clone()),
        ]
    }

    /// The commands whose answers are shown, as one would type them.
    fn commands(&self, corpus: &Corpus) -> Vec<String> {
        let of = |step: &&str| corpus.models.iter().find_map(|model| model.command(step));
        self.steps.iter().filter_map(of).collect()
    }

    fn markdown(&self, study: &Study, corpus: &Corpus) -> String {
        let mut text = format!("# {} · {}\n\n", self.id, self.title);
        for (heading, sentences) in self.sections() {
            text += &format!("**{heading}.** {}\n\n", sentences.join(" "));
        }
        for (file, _) in &self.plots {
            text += &format!("![{}]({file})\n\n", self.title);
        }
        self.tables.iter().for_each(|table| text += &table.markdown());
        text += &format!("{}\n\nThe cells are what these commands answer:\n\n", study.provenance());
        self.commands(corpus).iter().for_each(|command| text += &format!("    {command}\n"));
        text
    }

    fn part(&self, corpus: &Corpus) -> Part {
        let mut body = String::new();
        for (heading, sentences) in self.sections() {
            body += &format!("<p><b>{heading}.</b> {}</p>", escaped(&sentences.join(" ")));
        }
        self.plots.iter().for_each(|(_, svg)| body += svg);
        self.tables.iter().for_each(|table| body += &table.html());
        body += &format!("<pre>{}</pre>", escaped(&self.commands(corpus).join("\n")));
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
            let path = folder.join(name);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(|error| Failure::at(folder, error))?;
            }
            files.extend(output.files.write(&path, |out| out.write_all(text.as_bytes()))?);
            Ok(())
        };
        for experiment in &self.experiments {
            write(&experiment.file(), &experiment.markdown(self, corpus))?;
            for (file, svg) in &experiment.plots {
                write(file, svg)?;
            }
        }
        write("README.md", &self.index(corpus))?;
        write("study.json", &serde_json::to_string_pretty(self)?)?;
        let gates = self.gate_table().html();
        let head = format!("<p>{}</p>{gates}{}", escaped(&self.provenance()), failures(corpus).html());
        let parts: Vec<Part> = self.experiments.iter().map(|experiment| experiment.part(corpus)).collect();
        write("index.html", &page("A study of ONNX models", &head, &parts))?;
        Ok(files)
    }

    /// How and where it was measured.
    fn provenance(&self) -> String {
        format!("`{}`, with {}", self.command, self.machine.sentence())
    }

    fn gate_table(&self) -> Table {
        let mut table = Table::new("Questions asked in advance", ["question", "answer", "number"]);
        for gate in &self.gates {
            table.row(vec![gate.question.into(), Cell::answer(gate.answer), gate.number.clone().into()]);
        }
        table
    }

    fn index(&self, corpus: &Corpus) -> String {
        let mut text = format!("# The study: {} models\n\n{}\n\n", corpus.models.len(), self.provenance());
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
